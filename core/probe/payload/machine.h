/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the payload has instead of a library: system calls, registers, memory that may not be there. */
#ifndef DWELL_PROBE_MACHINE_H
#define DWELL_PROBE_MACHINE_H

#include "shared.h"

#define barrier() __asm__ volatile("" ::: "memory")
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { SYS_close = 3, SYS_mmap = 9, SYS_munmap = 11, SYS_gettid = 186, SYS_clock_gettime = 228, SYS_perf_event_open = 298, SYS_process_vm_readv = 310 };

#define PAGE 4096ul

static inline long call(long number, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static inline u64 ticks(void)
{
	u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

static inline u64 fs_base(void)
{
	u64 base;

	__asm__ volatile("rdfsbase %0" : "=r"(base));
	return base;
}

static inline void *at(struct shared *s, u64 offset)
{
	return (char *)s + offset;
}

/* Reads memory that may not be there. Returns the number of bytes. */
static u64 read_memory(u64 from, void *to, u64 bytes)
{
	u64 own[2] = { (u64)to, bytes }, other[2] = { from, bytes };
	long tid = call(SYS_gettid, 0, 0, 0, 0, 0, 0);
	long result = call(SYS_process_vm_readv, tid, (long)own, 1, (long)other, 1, 0);

	return result > 0 ? (u64)result : 0;
}

#endif
