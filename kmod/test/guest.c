// SPDX-License-Identifier: GPL-2.0
/*
 * The first process of a virtual machine: sets it up, runs the tests or the bench, powers it off.
 *
 * Enters: dwell_mode=tests|bench|end_to_end on the kernel's command line. Leaves: TAP on the console.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "guest.h"

void tests_run(void);
void bench_run(void);
void end_to_end_run(void);

static int tap_count;

void tap(bool good, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	printf("%s %d - ", good ? "ok" : "not ok", ++tap_count);
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
}

void tap_skip(const char *reason, const char *name)
{
	printf("ok %d - %s # SKIP %s\n", ++tap_count, name, reason);
}

double now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return good ? 0 : -1;
}

const char *boot_option(const char *name)
{
	return getenv(name);
}

/* Returns 0 or an error number, like all of these functions. */
int module_load_of(const char *name)
{
	char path[100];
	int fd, result;

	snprintf(path, sizeof(path), "/%s.ko", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	result = syscall(SYS_finit_module, fd, "", 0);
	if (fd >= 0)
		close(fd);
	return result ? errno : 0;
}

int module_unload_of(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? errno : 0;
}

int module_load(void)
{
	return module_load_of("dwell");
}

int module_unload(void)
{
	return module_unload_of("dwell");
}

/*
 * Samples per second above which perf throttles. Emulation is slow, so perf would assume that
 * interrupts last too long and lower the rate itself. A percentage of 0 disables that.
 */
int limit_rate(const char *samples_per_second)
{
	int error = write_file("/proc/sys/kernel/perf_cpu_time_max_percent", "25") ||
		    write_file("/proc/sys/kernel/perf_event_max_sample_rate", samples_per_second);

	return write_file("/proc/sys/kernel/perf_cpu_time_max_percent", "0") || error;
}

/* Brings the CPUs online that the kernel's command line left out at boot (maxcpus=1). */
static void bring_cpus(void)
{
	int helper = work_start(work_pause, 100, 0);

	write_file("/sys/devices/system/cpu/cpu1/online", "1");
	kill(helper, SIGKILL);
	waitpid(helper, NULL, 0);
}

static void set_up(void)
{
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mkdir("/tmp", 0777);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
	limit_rate("100000");
	bring_cpus();
}

static void spin_amount(double rounds)
{
	work_hot_amount(rounds);
}

static void forks_amount(double processes)
{
	work_forks_amount(processes);
}

static double cpu_seconds(const struct rusage *used)
{
	return used->ru_utime.tv_sec + used->ru_stime.tv_sec +
	       (used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e6;
}

/*
 * The program that dwell records: this program again, at work on both CPUs. The amount of work is
 * fixed, not its time, part of which dwell takes: scripts/vm/end_to_end.mjs knows the instructions
 * of a round. The time that it has a CPU is printed, because instructions of the other CPU advance
 * QEMU's clock, too.
 */
static int work(void)
{
	struct rusage own, others;

	work_start(spin_amount, 60000000, 0);
	work_start(forks_amount, 150, 1);
	work_wait();
	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &others);
	printf("WORKED %.6f\n", cpu_seconds(&own) + cpu_seconds(&others));
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = boot_option("dwell_mode");
	struct utsname name;

	if (argc > 1 && !strcmp(argv[1], "work"))
		return work();
	if (argc > 1 && !strcmp(argv[1], "spin"))
		return write_file("/sys/module/dwell_spin/parameters/spin_ms", "500");
	if (argc > 1)
		return 0;
	set_up();
	setvbuf(stdout, NULL, _IOLBF, 0);
	uname(&name);
	printf("# Linux %s %s, %ld CPUs\n", name.release, name.machine, sysconf(_SC_NPROCESSORS_ONLN));
	if (mode && !strcmp(mode, "bench"))
		bench_run();
	else if (mode && !strcmp(mode, "end_to_end"))
		end_to_end_run();
	else
		tests_run();
	printf("1..%d\n", tap_count);
	fflush(stdout);
	/* The last lines of the console are still in its buffer, which is lost at power-off. */
	tcdrain(STDOUT_FILENO);
	sync();
	reboot(RB_POWER_OFF);
	return 0;
}
