// The bare interrupt: an event on every CPU that nobody consumes. `bare HZ`; each line on standard input turns it on ("1")
// or off ("0") and is answered by a line. What a collector costs above this is the collector's own.

#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CPUS_MAX = 1024 };

static int open_event(int cpu, uint64_t period_ns)
{
	struct perf_event_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.size = sizeof(attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_CPU_CLOCK;
	attr.sample_period = period_ns;
	attr.disabled = 1;
	attr.exclude_idle = 1; /* as Dwell does */
	return syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

int main(int argc, char **argv)
{
	int fds[CPUS_MAX], count = 0;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	char line[16];

	if (argc != 2 || atof(argv[1]) <= 0)
		return fprintf(stderr, "usage: bare HZ\n"), 2;
	for (long cpu = 0; cpu < cpus && cpu < CPUS_MAX; cpu++) {
		int fd = open_event(cpu, 1e9 / atof(argv[1]));
		if (fd < 0)
			return perror("bare: perf_event_open"), 1;
		fds[count++] = fd;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < count; i++)
			ioctl(fds[i], line[0] == '1' ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
		puts("done");
	}
	return 0;
}
