/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Counts the debug exceptions that end in SIGTRAP although a breakpoint of perf caused them: some
 * hypervisors lose their cause (DR6 is 0), and Linux takes that for a trap of the program.
 *
 *   cc -O1 -o traps scripts/bench/debug_traps.c
 *   for i in 1 2 3 4; do ./traps execute 100000 & ./traps write 100000 & done; wait
 */
#define _GNU_SOURCE
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile long traps, word;

static void count_trap(int number)
{
	(void)number;
	traps++;
}

__attribute__((noinline)) static int watched(int value)
{
	__asm__ volatile("");
	return value * 3;
}

int main(int argc, char **argv)
{
	int is_write = argc > 1 && !strcmp(argv[1], "write");
	long times = argc > 2 ? atol(argv[2]) : 100000;
	struct perf_event_attr attr = { .size = sizeof(attr), .type = PERF_TYPE_BREAKPOINT };
	long long hits = 0;
	int fd;

	signal(SIGTRAP, count_trap);
	attr.bp_type = is_write ? HW_BREAKPOINT_W : HW_BREAKPOINT_X;
	attr.bp_addr = is_write ? (unsigned long)&word : (unsigned long)watched;
	attr.bp_len = 8;
	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	if (fd < 0) {
		perror("perf_event_open");
		return 1;
	}
	for (long i = 0; i < times; i++) {
		if (is_write)
			word = i;
		else
			watched(i);
	}
	if (read(fd, &hits, sizeof(hits)) != sizeof(hits))
		return 1;
	printf("%s: %lld hits, %ld ended in SIGTRAP\n", is_write ? "write" : "execute", hits, traps);
	return 0;
}
