/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The records of threads, and their CPU time. */
#ifndef DWELL_PROBE_THREADS_H
#define DWELL_PROBE_THREADS_H

#include "machine.h"

/* How much of a thread's control block is searched for its id, and where glibc has it. */
#define CONTROL_BLOCK_BYTES 1024ul
#define GLIBC_TID_AT 0x2d0u
/* The value of a thread's `page` if it cannot have one. */
#define NO_PAGE 1ul

/* Returns the address of a word with the thread's id in its control block, which changes when another thread gets that memory; 0
 * if there is none. */
static u64 find_tid(struct thread *t, u32 tid)
{
	u32 *word = (u32 *)t->scratch, words = (u32)(read_memory(t->fs, t->scratch, CONTROL_BLOCK_BYTES) / 4), found = 0, at = 0;

	if (words > GLIBC_TID_AT / 4 && word[GLIBC_TID_AT / 4] == tid)
		return t->fs + GLIBC_TID_AT;
	for (u32 i = 0; i < words; i++) {
		if (word[i] == tid) {
			found++;
			at = i * 4;
		}
	}
	return found == 1 ? t->fs + at : 0;
}

/* Opens the page whose lock changes when the thread is switched. Its descriptor is closed at once: the
 * mapping keeps the event. */
static void open_page(struct thread *t)
{
	u64 attr[16];
	long fd, page;

	t->page = NO_PAGE;
	if (t->tid_at == (u64)&t->tid)
		return; /* It could become the page of another thread unnoticed. */
	for (int i = 0; i < 16; i++)
		attr[i] = 0;
	attr[0] = 1 | 128ul << 32; /* PERF_TYPE_SOFTWARE; size */
	attr[1] = 9; /* PERF_COUNT_SW_DUMMY */
	attr[5] = 1 << 5 | 1 << 6; /* exclude_kernel, exclude_hv */
	fd = call(SYS_perf_event_open, (long)attr, 0, -1, -1, 8 /* CLOEXEC */, 0);
	if (fd < 0)
		return;
	page = call(SYS_mmap, 0, PAGE, 1, 1, fd, 0);
	call(SYS_close, fd, 0, 0, 0, 0, 0);
	if (page > 0)
		t->page = page;
}

static __attribute__((noinline)) struct thread *new_thread(struct shared *s, u64 fs, u32 slot)
{
	u32 number = __atomic_fetch_add(&s->threads, 1, __ATOMIC_RELAXED);
	struct thread *t = (struct thread *)at(s, s->threads_at) + number;

	if (number >= THREADS_MAX) {
		__atomic_fetch_sub(&s->threads, 1, __ATOMIC_RELAXED);
		return 0;
	}
	t->fs = fs;
	t->tid = (u32)call(SYS_gettid, 0, 0, 0, 0, 0, 0);
	t->tid_at = find_tid(t, t->tid);
	if (!t->tid_at)
		t->tid_at = (u64)&t->tid;
	for (;; slot = (slot + 1) % THREAD_MAP) {
		u32 other = 0;
		struct thread *handlers;

		if (__atomic_compare_exchange_n(&s->map[slot], &other, number + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return t;
		/* A signal handler of this thread may have been faster. */
		handlers = (struct thread *)at(s, s->threads_at) + other - 1;
		if (handlers->fs == fs)
			return handlers;
	}
}

static inline struct thread *this_thread(struct shared *s)
{
	u64 fs = fs_base();
	u32 slot = (u32)((fs >> 6) * 2654435761u) >> 20;

	for (;; slot = (slot + 1) % THREAD_MAP) {
		u32 number = s->map[slot];
		struct thread *t = (struct thread *)at(s, s->threads_at) + number - 1;

		if (unlikely(!number))
			return new_thread(s, fs, slot);
		if (likely(t->fs == fs))
			return t;
	}
}

/* The thread of this record has ended, and another one has its control block and stack. */
static __attribute__((noinline)) void renew_thread(struct shared *s, struct thread *t)
{
	u64 page = t->page;

	for (; t->depth; t->depth--)
		((struct path *)at(s, t->frame[t->depth - 1].path))->unwound++;
	t->readable_from = t->readable_to = 0;
	t->page = 0;
	if (page > NO_PAGE)
		call(SYS_munmap, page, PAGE, 0, 0, 0, 0);
	t->tid = *(u32 *)t->tid_at;
}

static __attribute__((noinline)) void read_cpu_time(struct shared *s, struct thread *t)
{
	volatile u32 *lock;
	u64 time[2], before;

	if (!t->page)
		open_page(t);
	lock = (volatile u32 *)(t->page + 8);
	do {
		before = t->page > NO_PAGE ? *lock : 0;
		call(SYS_clock_gettime, 3 /* of the thread */, (long)time, 0, 0, 0, 0);
		t->cpu_tsc = ticks();
	} while (t->page > NO_PAGE && *lock != before);
	t->cpu_ticks = (time[0] * 1000000000 + time[1]) * s->ticks_per_ns >> 20;
	t->cpu_lock = before;
}

/* Returns the thread's CPU time in ticks. `now` is the current tick. */
static inline u64 cpu_time(struct shared *s, struct thread *t, u64 now)
{
	if (likely(t->page > NO_PAGE && *(volatile u32 *)(t->page + 8) == t->cpu_lock))
		return t->cpu_ticks + (now - t->cpu_tsc);
	read_cpu_time(s, t);
	return t->cpu_ticks;
}

#endif
