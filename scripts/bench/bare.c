// A consumer of samples that does nothing: an event on every CPU, and a BPF program that returns at once. Usage: `bare HZ`. Each
// line on standard input turns it on ("1") or off ("0") and is answered by a line. While it runs, the kernel keeps statistics of
// all BPF programs: time that another program takes beyond this one is its own cost.

#define _GNU_SOURCE
#include <linux/bpf.h>
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

static int load_program(void)
{
	struct bpf_insn code[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K }, { .code = BPF_JMP | BPF_EXIT } };
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_PERF_EVENT;
	attr.insn_cnt = sizeof(code) / sizeof(*code);
	attr.insns = (uintptr_t)code;
	attr.license = (uintptr_t) "GPL";
	return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
}

/* The statistics are taken until this process ends in any way. */
static int take_statistics(void)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.enable_stats.type = BPF_STATS_RUN_TIME;
	return syscall(SYS_bpf, BPF_ENABLE_STATS, &attr, sizeof(attr));
}

int main(int argc, char **argv)
{
	int fds[CPUS_MAX], count = 0, program;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	char line[16];

	if (argc != 2 || atof(argv[1]) <= 0)
		return fprintf(stderr, "usage: bare HZ\n"), 2;
	program = load_program();
	if (program < 0 || take_statistics() < 0)
		return perror("bare: bpf"), 1;
	for (long cpu = 0; cpu < cpus && cpu < CPUS_MAX; cpu++) {
		int fd = open_event(cpu, 1e9 / atof(argv[1]));
		if (fd < 0)
			return perror("bare: perf_event_open"), 1;
		if (ioctl(fd, PERF_EVENT_IOC_SET_BPF, program))
			return perror("bare: PERF_EVENT_IOC_SET_BPF"), 1;
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
