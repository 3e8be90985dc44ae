/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The memory that a probed program and Dwell share. core/probe/src/shared_memory.rs mirrors it.
 *
 * The payload runs in the program and writes; Dwell reads while it does. Each thread of the program
 * has a record of its own, so nothing here is locked, and only the numbers of records and chunks are
 * changed by atomic operations. Offsets are from the beginning of the memory; 0 is none.
 */
#ifndef DWELL_PROBE_SHARED_H
#define DWELL_PROBE_SHARED_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef int i32;

#define MAGIC 0x65626f72704c4c44ul
#define VERSION 3
#define FUNCTIONS_MAX 256
#define THREADS_MAX 1024
#define THREAD_MAP 4096
#define FRAMES_MAX 256	/* Calls in progress of a thread. */
#define DEPTH_MAX 256	/* Frames of a path. */
#define PAIRS_MAX (2 * DEPTH_MAX)
#define LOOKUPS 256	/* Recent paths of a thread, in sets of WAYS. */
#define WAYS 4
#define PATHS_MAX 4096	/* Paths of a thread, and one for all others of each function. */
#define CHUNK_BYTES 65536
#define BUCKETS 192	/* Of a histogram: four for each power of two. */

/* What is measured at a call. */
#define WITH_RETURNS 1
#define WITH_WALL 2
#define WITH_CPU 4
#define WITH_BLOCKED 8	/* Wall minus CPU time; needs both. */

/* Why an entry could not be recorded. */
enum missed { MISSED_BUSY, MISSED_THREADS, MISSED_MEMORY, MISSED_FRAMES, MISSED_KINDS };

/* Why a path ends. */
enum end { END_COMPLETE, END_UNKNOWN_CODE, END_TOO_DEEP, END_UNREADABLE, END_OTHERS };

struct gate {
	u64 shared; /* Address of struct shared in the program; 0: switched off. */
};

struct function {
	u32 metrics;
	u32 pad;
	u64 missed[MISSED_KINDS];
};

/* How to find the caller's frame. `cfa` is the stack pointer after the return. */
enum rule_kind {
	RULE_UNKNOWN,
	RULE_STACK,	/* cfa = address of the return slot below + 8 + offset */
	RULE_FRAME,	/* cfa = rbp + offset */
	RULE_FRAME_LOAD,	/* cfa = *(rbp + offset); a saved rbp is where rbp points */
	RULE_SIGNAL,	/* registers are in a ucontext above the stack pointer */
	RULE_OUTERMOST,
};

struct rule {
	i32 kind;
	i32 offset;
	i32 saved_rbp; /* rbp is saved at cfa + this; 0: it is unchanged. See RULE_FRAME_LOAD */
	i32 pad;
};

struct image {
	u64 start, end; /* Addresses in the program. */
	u64 starts;	/* Offset of u32[]: where rows start, from `start`; ends with 0xffffffff. */
	u64 rules;	/* Offset of u16[]: the rule of each row. */
	u64 buckets;	/* Offset of u32[]: for each 256 bytes, the last row that starts at or before. */
	u64 table;	/* Offset of struct rule[]. */
};

struct images {
	u64 count;
	struct image image[];
};

struct metric {
	u64 sum, max;
	u64 buckets[BUCKETS];
};

/* A word of the stack that a walk has read. The lowest bit of `at` marks return addresses. */
struct pair {
	u64 at, value;
};

struct path {
	u64 hash;
	u32 function, end;
	u32 pairs, frames;
	u64 rbp; /* At the call, if a rule needed it; see `needs_rbp`. */
	u32 needs_rbp, pairs_max;
	u64 base; /* The outermost slot on the stack of the latest call whose stack was walked. */
	u64 next; /* Offset of the thread's next path. */
	u64 calls, returns, unwound;
	struct metric wall, cpu, blocked; /* Ticks of the time stamp counter. */
	struct pair pair[]; /* `pairs_max`; then the return address of each frame, the call site first. */
};

/* A call in progress. Those of one stack lie between `slot` and `base`. */
struct frame {
	u64 slot, base, path, wall, cpu;
};

struct thread {
	u64 fs;		/* Value of the register fs: the identity of a thread in its process while it lives. */
	u64 tid_at;	/* Address of a word that is its id: in its control block, or `tid` if none is known there. */
	u32 tid, pad;
	u64 busy;	/* The slot of the call that the payload works on; 0: none. */
	u64 readable_from, readable_to; /* A part of the stack that can be read. */
	u64 page;	/* Address of the page of a perf event of the thread; 0: none yet; 1: it can have none. */
	u64 cpu_lock, cpu_ticks, cpu_tsc; /* The thread's CPU time at a tick, while `page` has this lock. */
	u64 first_path, chunk, chunk_end;
	u64 unmatched;	/* Returns without a call: it was in progress at the beginning, or was missed. */
	u32 depth, paths;
	u64 lookup[LOOKUPS];
	u64 table[PATHS_MAX * 2];
	struct frame frame[FRAMES_MAX];
	struct pair scratch[PAIRS_MAX];
};

struct shared {
	u64 magic;
	u32 version, controller;
	u64 bytes;	/* Size of this memory. */
	u64 chunks;	/* Offset of the next free chunk. */
	u64 images;	/* Offset of struct images; changes when images do. */
	u64 threads_at;	/* Offset of the threads. */
	u64 ticks_per_ns;	/* Ticks of the time stamp counter in a nanosecond, times 2^20. */
	u32 threads, pad;
	u32 map[THREAD_MAP]; /* By hash of fs: number of a thread + 1. */
	struct function function[FUNCTIONS_MAX];
	u8 journal[524288]; /* Of the controller. */
};

#endif
