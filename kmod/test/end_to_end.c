// SPDX-License-Identifier: GPL-2.0
/*
 * Tests the real dwell in the virtual machine. A command and a daemon sample known work by the
 * module, and separately by a BPF program and by rings. The answers of dwell are printed on the
 * console, and scripts/vm/end_to_end.mjs compares them. Then the module is unloaded, and dwell must
 * report that or use another backend.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest.h"

/* Messages of dwell's latest run. */
#define SAID "/tmp/said"
/*
 * Set also where there are hardware cycles, so that scripts/vm/end_to_end.mjs knows what to expect.
 */
#define BY_CLOCK "-e", "cpu-clock", "-F"

void end_to_end_run(void);

static pid_t start(char *const arguments[])
{
	pid_t child = fork();

	if (!child) {
		int said = open(SAID, O_WRONLY | O_CREAT | O_TRUNC, 0644);

		dup2(said, STDERR_FILENO);
		execv(arguments[0], arguments);
		_exit(127);
	}
	return child;
}

static int end(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Returns whether dwell printed that message. If not, its messages are printed. */
static bool said(const char *part)
{
	char text[4000] = "";
	int fd = open(SAID, O_RDONLY);
	bool found = read(fd, text, sizeof(text) - 1) > 0 && strstr(text, part);

	close(fd);
	if (!found)
		printf("# it said: %s\n", text);
	return found;
}

/* The text between the marks is one answer. */
static void ask(const char *name, const char *database, const char *verb, const char *argument,
		const char *value)
{
	char *arguments[] = { "/dwell", "--db", (char *)database, "--json", (char *)verb,
			      (char *)argument, (char *)value, NULL };

	printf("BEGIN %s\n", name);
	fflush(stdout);
	end(start(arguments));
	printf("\nEND %s\n", name);
}

static void ask_all(const char *name, const char *database)
{
	char epochs[50], images[50], apps[50];

	snprintf(epochs, sizeof(epochs), "%s epochs", name);
	snprintf(images, sizeof(images), "%s images", name);
	snprintf(apps, sizeof(apps), "%s apps", name);
	ask(epochs, database, "epoch", "list", NULL);
	ask(images, database, "top", "--by", "image");
	ask(apps, database, "top", "--by", "app");
}

static void record(void)
{
	char *by_module[] = { "/dwell", "--db", "/tmp/kmod", "record", "-a", "--backend", "kmod",
			      BY_CLOCK, "2000", "--", "/init", "work", NULL };
	char *by_bpf[] = { "/dwell", "--db", "/tmp/bpf", "record", "-a", "--backend", "bpf", BY_CLOCK,
			   "2000", "--", "/init", "work", NULL };
	/*
	 * As many stacks as a machine-wide recording takes. An emulated processor with a debug build
	 * stands still for longer than the ring of 500 stacks a second holds.
	 */
	char *by_rings[] = { "/dwell", "--db", "/tmp/perf", "record", "--backend", "perf", BY_CLOCK, "2000",
			     "--stacks", "19", "--", "/init", "work", NULL };

	tap(!end(start(by_module)), "dwell records by the module");
	ask_all("kmod", "/tmp/kmod");
	/* The verifier of this kernel may reject the program. */
	tap(!end(start(by_bpf)), "dwell records by BPF");
	ask_all("bpf", "/tmp/bpf");
	tap(!end(start(by_rings)), "dwell records by rings");
	ask_all("perf", "/tmp/perf");
}

/* This is time of the machine, which does not pass faster when the host is loaded. */
static bool wait_until_open(double seconds)
{
	double last = now_seconds() + seconds;

	while (now_seconds() < last) {
		int fd = open("/dev/dwell", O_RDWR | O_CLOEXEC);

		if (fd < 0 && errno == EBUSY)
			return true;
		if (fd >= 0)
			close(fd);
		usleep(100000);
	}
	return false;
}

/* Runs work under a daemon. */
static pid_t work_under(char *const arguments[])
{
	char *work[] = { "/init", "work", NULL };
	pid_t daemon = start(arguments);

	tap(wait_until_open(60), "the daemon opens /dev/dwell");
	/* The daemon must read the state of the system before it samples. */
	sleep(10);
	tap(!end(start(work)), "a program runs while the daemon samples");
	return daemon;
}

/* A module is loaded, works and is unloaded. The time that it worked is printed. */
static void work_in(const char *name)
{
	char path[100];
	int error = module_load_of(name);
	double start, end;

	snprintf(path, sizeof(path), "/sys/module/%s/parameters/spin_ms", name);
	sleep(2);
	start = now_seconds();
	if (!error && write_file(path, "500"))
		error = errno;
	end = now_seconds();
	sleep(2);
	if (!error)
		error = module_unload_of(name);
	tap(!error, "%s is loaded, works and is unloaded%s%s", name, error ? ": " : "", error ? strerror(error) : "");
	printf("SPUN %s %.6f\n", name, end - start);
}

static void run_daemon(void)
{
	char *arguments[] = { "/dwell", "--db", "/tmp/daemon", "daemon", "--backend", "kmod", BY_CLOCK,
			      "2000", "--budget", "0", NULL };
	pid_t daemon = work_under(arguments);

	tap(module_unload() == EAGAIN, "the module cannot be unloaded while the daemon uses it");
	kill(daemon, SIGTERM);
	tap(!end(daemon), "the daemon ends on request");
	ask_all("daemon", "/tmp/daemon");
}

/* Whatever a daemon has stored outlives it. */
static void kill_daemon(void)
{
	char *arguments[] = { "/dwell", "--db", "/tmp/killed", "daemon", "--backend", "kmod", BY_CLOCK,
			      "2000", "--budget", "0", "--flush-interval", "1", NULL };
	char *flush[] = { "/dwell", "--db", "/tmp/killed", "flush", NULL };
	pid_t daemon = work_under(arguments);

	sleep(3); /* It stores every second. */
	/* A kill between storing samples and storing their totals leaves the totals behind. */
	tap(!end(start(flush)), "a daemon stores on request");
	kill(daemon, SIGKILL);
	end(daemon);
	ask_all("killed", "/tmp/killed");
}

/*
 * The list of modules is not read exactly when the first module has gone, and the second one may
 * have its place. dwell checks every second which modules are loaded.
 */
static void come_and_go(void)
{
	char *arguments[] = { "/dwell", "--db", "/tmp/modules", "daemon", "--backend", "kmod", BY_CLOCK,
			      "2000", "--budget", "0", NULL };
	pid_t daemon = start(arguments);

	tap(wait_until_open(60), "the daemon of the test of modules opens /dev/dwell");
	sleep(10);
	work_in("dwell_spin");
	sleep(8);
	work_in("dwell_turn");
	sleep(8);
	kill(daemon, SIGTERM);
	tap(!end(daemon), "it ends on request");
	ask("modules images", "/tmp/modules", "top", "--by", "image");
}

/* Functions of a module are listed by instruction while it is loaded. */
static void list_module(void)
{
	char *arguments[] = { "/dwell", "--db", "/tmp/listed", "record", "-a", "--backend", "kmod", BY_CLOCK,
			      "2000", "--", "/init", "spin", NULL };

	tap(!module_load_of("dwell_spin"), "the module to list is loaded");
	tap(!end(start(arguments)), "dwell records it");
	ask("listed module", "/tmp/listed", "annotate", "dwell_spin", NULL);
	tap(!module_unload_of("dwell_spin"), "the module to list is unloaded");
	ask("unloaded module", "/tmp/listed", "annotate", "dwell_spin", NULL);
	tap(said("that module is not loaded here"), "its code is not listed when it is gone");
}

static bool step_clock(long seconds)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += seconds;
	return !clock_settime(CLOCK_REALTIME, &now);
}

/* The clock is set forward by two hours, then back by one. Each step begins an epoch. */
static void set_the_clock(void)
{
	char *arguments[] = { "/dwell", "--db", "/tmp/clock", "daemon", "--backend", "kmod", BY_CLOCK,
			      "200", "--budget", "0", NULL };
	pid_t daemon = start(arguments);

	tap(wait_until_open(60), "the daemon of the test of the clock opens /dev/dwell");
	sleep(5);
	tap(step_clock(7200), "the clock is set forward");
	sleep(4);
	tap(step_clock(-3600), "the clock is set back");
	sleep(4);
	kill(daemon, SIGTERM);
	tap(!end(daemon), "the daemon continues and ends normally");
	ask("clock epochs", "/tmp/clock", "epoch", "list", NULL);
}

/* A duplicate of the descriptor of /dev/dwell of that process, or -1 if it has none. */
static int device_of(pid_t pid)
{
	int process = syscall(SYS_pidfd_open, pid, 0), device = -1;

	for (int fd = 0; fd < 256 && device < 0; fd++) {
		char path[50], target[50] = "";

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
		if (readlink(path, target, sizeof(target) - 1) > 0 && !strcmp(target, "/dev/dwell"))
			device = syscall(SYS_pidfd_getfd, process, fd, 0);
	}
	close(process);
	return device;
}

/* There are a hundred samples in each second. */
static void be_busy(int seconds)
{
	while (seconds-- > 0) {
		work_spin(0.05);
		sleep(1);
	}
}

/*
 * The events of a daemon are stopped without its knowledge, as if the kernel had revoked them, so
 * it can notice only that no samples arrive. It checks every ten seconds, and must have checked
 * once before.
 */
static void fall_silent(void)
{
	char *arguments[] = { "/dwell", "--db", "/tmp/silent", "daemon", "--backend", "kmod", BY_CLOCK,
			      "2000", "--budget", "0", NULL };
	pid_t daemon = start(arguments);
	int device;

	tap(wait_until_open(60), "the daemon of the test of silent events opens /dev/dwell");
	sleep(10);
	be_busy(15);
	device = device_of(daemon);
	tap(device >= 0 && !ioctl(device, DWELL_STOP), "its events are stopped");
	close(device);
	be_busy(60);
	kill(daemon, SIGTERM);
	tap(!end(daemon) && said("the events no longer deliver samples; opening them again"), "it opens them again");
	ask("silent epochs", "/tmp/silent", "epoch", "list", NULL);
}

static void do_without(void)
{
	char *by_module[] = { "/dwell", "--db", "/tmp/none", "record", "-a", "--backend", "kmod", "--",
			      "/init", "nothing", NULL };
	char *by_any[] = { "/dwell", "--db", "/tmp/any", "record", "-a", "--", "/init", "nothing", NULL };

	tap(end(start(by_module)) > 0 && said("load the kernel module dwell.ko"), "without the module dwell reports that it is missing");
	tap(!end(start(by_any)) && said("kmod does not work"), "by default it uses another backend and says why");
}

void end_to_end_run(void)
{
	int error = module_load();

	tap(!error, "the module loads");
	setenv("HOME", "/tmp", 1);
	record();
	run_daemon();
	kill_daemon();
	come_and_go();
	list_module();
	set_the_clock();
	fall_silent();
	tap(!module_unload(), "the module is unloaded");
	do_without();
}
