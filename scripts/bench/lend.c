// Runs a command on one CPU that may turn events of other processes on and off: `lend CPU HZ PID... -- COMMAND...`. The ways
// (turns.h) are: no events, the bare interrupt (an event without a consumer), and the events of each process on this CPU.

#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "turns.h"

static char list[4096];

static void add(int fd)
{
	snprintf(list + strlen(list), sizeof(list) - strlen(list), "%d,", fd);
}

static int open_event(int cpu, uint64_t config, uint64_t period_ns, int clock)
{
	struct perf_event_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.size = sizeof(attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = config;
	attr.sample_period = period_ns;
	attr.disabled = 1;
	attr.exclude_idle = 1; /* as Dwell does */
	attr.use_clockid = clock >= 0;
	attr.clockid = clock >= 0 ? clock : 0;
	return syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0);
}

/* An event can write to the ring of another one if both have the same CPU and the same clock. */
static int is_of(int cpu, int event)
{
	static const int clocks[] = { -1, CLOCK_MONOTONIC };
	int is_same = 0;

	for (unsigned at = 0; at < sizeof(clocks) / sizeof(*clocks); at++) {
		int probe = open_event(cpu, PERF_COUNT_SW_DUMMY, 0, clocks[at]);

		is_same |= probe >= 0 && ioctl(probe, PERF_EVENT_IOC_SET_OUTPUT, event) == 0;
		close(probe);
	}
	return is_same;
}

/* Adds the events of a process on a CPU, and turns them off. */
static int borrow(int cpu, int pid)
{
	int process = syscall(SYS_pidfd_open, pid, 0), found = 0;
	char folder[64], path[512], target[64];
	struct dirent *entry;
	DIR *open;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", pid);
	open = opendir(folder);
	while (open && (entry = readdir(open))) {
		ssize_t length;
		int fd;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		length = readlink(path, target, sizeof(target) - 1);
		target[length > 0 ? length : 0] = 0;
		if (strcmp(target, "anon_inode:[perf_event]"))
			continue;
		fd = syscall(SYS_pidfd_getfd, process, atoi(entry->d_name), 0);
		if (fd < 0 || !is_of(cpu, fd)) {
			close(fd);
			continue;
		}
		fd = dup(fd); /* a descriptor that children inherit */
		ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
		add(fd);
		found++;
	}
	return found;
}

int main(int argc, char **argv)
{
	int cpu, event, at = 3;
	cpu_set_t set;

	if (argc < 5)
		return fprintf(stderr, "usage: lend CPU HZ PID... -- COMMAND...\n"), 2;
	cpu = atoi(argv[1]);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return perror("lend: sched_setaffinity"), 1;
	event = open_event(cpu, PERF_COUNT_SW_CPU_CLOCK, 1e9 / atof(argv[2]), -1);
	if (event < 0)
		return perror("lend: perf_event_open"), 1;
	strcpy(list, ";");
	add(event);
	for (; at < argc && strcmp(argv[at], "--"); at++) {
		strcat(list, ";");
		if (!borrow(cpu, atoi(argv[at])))
			return fprintf(stderr, "lend: process %s has no events on CPU %d\n", argv[at], cpu), 1;
	}
	setenv("TURNS_WAYS", list, 1);
	if (at + 1 < argc)
		execvp(argv[at + 1], argv + at + 1);
	return perror("lend"), 127;
}
