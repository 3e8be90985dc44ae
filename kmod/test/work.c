// SPDX-License-Identifier: GPL-2.0
/*
 * Work to be sampled: a hot loop, a loop with a known register, 1,500 functions, many processes.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

/*
 * Between two symbols, so that a test knows where samples must fall. In the magic loop registers
 * have what guest.h says.
 */
#if defined(__x86_64__)
__asm__(".text\n.globl work_spin_start, work_spin_end\nwork_spin_start:\nspin_loop:\n"
	"1: imul %rdi, %rdi\n add $7, %rdi\n dec %rsi\n jne 1b\n mov %rdi, %rax\n ret\n"
	"work_spin_end: nop\n"
	".globl work_magic_start, work_magic_end\nmagic_loop:\n push %r12\n mov %rdi, %r12\n mov %rsp, %rdx\n"
	"work_magic_start: dec %rsi\n jne work_magic_start\n"
	"work_magic_end: mov %r12, %rax\n pop %r12\n ret\n"
	/* By __USER32_CS to 32-bit code, which an interrupt leaves half of rsp, and back by __USER_CS. */
	".globl work_short_start, work_short_end\nshort_loop:\n mov %edi, %ecx\n mov %rsp, %r8\n"
	" ljmpl *short_far(%rip)\n"
	"short_far: .long work_short_start\n .word 0x23\n"
	".code32\nwork_short_start: dec %ecx\n jne work_short_start\n"
	"work_short_end: ljmp $0x33, $1f\n.code64\n1: mov %r8, %rsp\n ret\n");
void short_loop(uint32_t rounds);
#elif defined(__aarch64__)
__asm__(".text\n.globl work_spin_start, work_spin_end\nwork_spin_start:\nspin_loop:\n"
	"1: mul x0, x0, x0\n add x0, x0, #7\n subs x1, x1, #1\n bne 1b\n ret\nwork_spin_end: nop\n"
	".globl work_magic_start, work_magic_end\nmagic_loop:\n str x28, [sp, #-16]!\n mov x28, x0\n mov x2, sp\n"
	"work_magic_start: subs x1, x1, #1\n bne work_magic_start\n"
	"work_magic_end: mov x0, x28\n ldr x28, [sp], #16\n ret\n");
#endif
uint64_t spin_loop(uint64_t value, uint64_t rounds);
uint64_t magic_loop(uint64_t value, uint64_t rounds);

static volatile uint64_t sink;

void work_spin(double seconds)
{
	double end = now_seconds() + seconds;

	while (now_seconds() < end)
		sink = spin_loop(sink, 20000);
}

void work_magic(double seconds)
{
	double end = now_seconds() + seconds;

	while (now_seconds() < end)
		sink = magic_loop(WORK_MAGIC, 20000);
}

#if defined(__x86_64__)
void work_short(double seconds)
{
	double end = now_seconds() + seconds;

	while (now_seconds() < end)
		short_loop(20000);
}
#endif

/* 1,500 functions of some 20 instructions, made by the preprocessor. */
#define WIDE_ONE(n)                                                                                \
	static __attribute__((noinline)) uint64_t wide_##n(uint64_t x)                             \
	{                                                                                          \
		x = (x * (0x##n##1 + 2)) ^ (x >> 19);                                              \
		x = (x * (0x##n##3 + 4)) ^ (x >> 25);                                              \
		x = (x * (0x##n##5 + 6)) ^ (x >> 13);                                              \
		x = (x * (0x##n##7 + 8)) ^ (x >> 29);                                              \
		return (x * (0x##n##9 + 2)) ^ (x >> 7);                                            \
	}
#define WIDE_NAME(n) wide_##n,
#define WIDE_10(do, n)                                                                             \
	do(n##0) do(n##1) do(n##2) do(n##3) do(n##4) do(n##5) do(n##6) do(n##7) do(n##8) do(n##9)
#define WIDE_100(do, n)                                                                            \
	WIDE_10(do, n##0) WIDE_10(do, n##1) WIDE_10(do, n##2) WIDE_10(do, n##3) WIDE_10(do, n##4)  \
	WIDE_10(do, n##5) WIDE_10(do, n##6) WIDE_10(do, n##7) WIDE_10(do, n##8) WIDE_10(do, n##9)
#define WIDE_ALL(do)                                                                               \
	WIDE_100(do, 1) WIDE_100(do, 2) WIDE_100(do, 3) WIDE_100(do, 4) WIDE_100(do, 5)            \
	WIDE_100(do, 6) WIDE_100(do, 7) WIDE_100(do, 8) WIDE_100(do, 9) WIDE_100(do, a)            \
	WIDE_100(do, b) WIDE_100(do, c) WIDE_100(do, d) WIDE_100(do, e) WIDE_100(do, f)
WIDE_ALL(WIDE_ONE)
static uint64_t (*const wide[1500])(uint64_t) = { WIDE_ALL(WIDE_NAME) };

static uint64_t wide_calls(uint64_t value, unsigned long calls)
{
	while (calls--)
		value = wide[(value >> 33) % 1500](value + calls);
	return value;
}

void work_wide(double seconds)
{
	double end = now_seconds() + seconds;

	while (now_seconds() < end)
		sink = wide_calls(sink, 1000);
}

/* A process after another, each for some milliseconds. */
void work_forks(double seconds)
{
	double end = now_seconds() + seconds;

	while (now_seconds() < end) {
		pid_t child = fork();

		if (!child) {
			sink = wide_calls(7, 20000);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
}

/* The same by amount rather than by time, for the bench. */
void work_hot_amount(__u64 rounds)
{
	sink = spin_loop(3, rounds);
}

void work_wide_amount(__u64 calls)
{
	sink = wide_calls(3, calls);
}

void work_forks_amount(__u64 processes)
{
	while (processes--) {
		pid_t child = fork();

		if (!child) {
			sink = wide_calls(7, 20000);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
}

/*
 * Tells the CPU, over and over, that it has nothing to do. QEMU lets CPUs take turns and counts
 * their instructions together: one that never pauses has its turn until the next timer is due, and
 * the others' turns are then 0 instructions long (mended in QEMU 8.1). While a kernel before 6.5
 * waits for a CPU that comes, it does just that: without this beside it, it waits for ever.
 */
void work_pause(double seconds)
{
	double end = now_seconds() + seconds;

	while (now_seconds() < end) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("yield");
#endif
	}
}

/* A process of its own for it, on one CPU if it is not negative; returns its id. */
int work_start(void (*work)(double seconds), double seconds, int cpu)
{
	pid_t child = fork();

	if (!child) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		if (cpu >= 0) {
			CPU_SET(cpu, &cpus);
			sched_setaffinity(0, sizeof(cpus), &cpus);
		}
		work(seconds);
		_exit(0);
	}
	return child;
}

void work_wait(void)
{
	while (wait(NULL) > 0)
		;
}
