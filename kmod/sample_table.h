/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Counts of samples by place: the aggregation that all collectors of Dwell share (DCPI, SOSP 1997,
 * section 4.2).
 *
 * Enters: what an interrupt saw (struct dwell_sample). Leaves: 16-byte entries, each a place and
 * how many samples fell there. Compiled unchanged into the kernel module, the BPF program and user
 * space, so that all three give the same entries for the same samples. Never here: locks, loops
 * without a constant bound, memory that the caller did not provide. The caller owns the bucket
 * during the call. All functions may run in an NMI.
 *
 * The key decides how well samples of short processes aggregate. In a build of software, 4.5% of
 * the samples find an entry if the key is the process, and most of them if it is the executable
 * wherever the pc lies in it.
 */
#ifndef DWELL_SAMPLE_TABLE_H
#define DWELL_SAMPLE_TABLE_H

#if defined(__KERNEL__) && !defined(__bpf__)
#include <linux/compiler.h>
#include <linux/types.h>
#include <asm/barrier.h>
/* A and B, see struct dwell_spill. */
#define dwell_load_acquire(pointer) smp_load_acquire(pointer)
/* A and B, see struct dwell_spill. */
#define dwell_store_release(pointer, value) smp_store_release(pointer, value)
#else
#include "outside_kernel.h"
#endif

/*
 * Six entries are searched. A found entry moves to the front; a new entry goes to the front and the
 * last one is evicted: DCPI simulated and recommends this (section 5.4). A value of 4 is supported
 * only for comparisons on recorded samples (test/ways.c).
 */
#ifndef DWELL_WAYS
#define DWELL_WAYS 6
#endif
/* There are 16,384 buckets in 1.5 MiB. */
#define DWELL_BUCKET_BITS 14
#define DWELL_BUCKET_BITS_MIN 4
#define DWELL_BUCKET_BITS_MAX 18

#define DWELL_PID_BITS 22 /* PID_MAX_LIMIT is 2^22 */
#define DWELL_TAG_BITS 40
#define DWELL_COUNT_BITS 12
#define DWELL_EVENT_BITS 4
#define DWELL_ADDRESS_BITS 48

#define DWELL_PID_MASK ((1ULL << DWELL_PID_BITS) - 1)
#define DWELL_TAG_MASK ((1ULL << DWELL_TAG_BITS) - 1)
#define DWELL_ADDRESS_MASK ((1ULL << DWELL_ADDRESS_BITS) - 1)
#define DWELL_COUNT_MAX ((1ULL << DWELL_COUNT_BITS) - 1)
#define DWELL_EVENTS_MAX 16
/* In place of an event's index: a kernel sample, counted where the user entered the kernel. */
#define DWELL_EVENT_ENTERED 15
/* Set in the tag of every executable, so that no tag is a process id. */
#define DWELL_TAG_EXECUTABLE (1ULL << (DWELL_TAG_BITS - 1))

/**
 * enum dwell_kind - what the address of an entry is relative to
 * @DWELL_PROCESS: a virtual address in one process. Tag: 32 low bits of the executable's tag (0
 *	without one), then bits 48 to 55 of the address. All of the key is compared.
 * @DWELL_EXECUTABLE: an offset from mm->start_code. Tag: the executable's. The process is the
 *	first one sampled there.
 * @DWELL_KERNEL: a kernel address, to be sign-extended, 0 if it was not canonical. Tag: that of
 *	the executable in whose time the kernel ran, or the process id where there is none or it
 *	is kept apart. The process: the first one.
 *
 * No used entry has kind 0.
 */
enum dwell_kind {
	DWELL_PROCESS = 1,
	DWELL_EXECUTABLE = 2,
	DWELL_KERNEL = 3,
};

/**
 * struct dwell_entry - one place and its samples; free while its count is 0
 * @key: kind (2 bits), tag (40), process id in the initial namespace (22), from the top
 * @place: address (48), event (4), count (12), from the top
 */
struct dwell_entry {
	__u64 key;
	__u64 place;
};

/**
 * struct dwell_bucket - the entries that one hash value leads to, the latest first
 * @entry: them
 */
struct dwell_bucket {
	struct dwell_entry entry[DWELL_WAYS];
};

#define DWELL_SAMPLE_KERNEL 1 /* the sample is not in user mode */
#define DWELL_SAMPLE_APART 2 /* processes of this executable are kept apart */

/**
 * struct dwell_sample - state that an interrupt observed
 * @pc: the program counter
 * @tag: the executable's, see dwell_executable_tag(); 0 without one (kernel threads)
 * @start_code: mm->start_code; 0 without an executable
 * @end_code: mm->end_code
 * @pid: process (thread group) in the initial namespace
 * @event: which counter, below DWELL_EVENT_ENTERED, or that
 * @flags: DWELL_SAMPLE_…
 */
struct dwell_sample {
	__u64 pc;
	__u64 tag;
	__u64 start_code;
	__u64 end_code;
	__u32 pid;
	__u16 event;
	__u16 flags;
};

/**
 * dwell_charge() - turns a kernel sample into one of the user's instruction that entered the kernel
 * @sample: it
 * @pc: the address of that instruction
 */
static __always_inline void dwell_charge(struct dwell_sample *sample, __u64 pc)
{
	sample->pc = pc;
	sample->event = DWELL_EVENT_ENTERED;
	sample->flags &= ~DWELL_SAMPLE_KERNEL;
}

/**
 * enum dwell_added - outcome of adding a sample
 * @DWELL_FOUND: its place had an entry
 * @DWELL_NEW: it took a free entry
 * @DWELL_EVICTED: it replaced another entry, which must be spilled
 * @DWELL_SATURATED: its entry was full and must be spilled; counting continues from one
 */
enum dwell_added {
	DWELL_FOUND,
	DWELL_NEW,
	DWELL_EVICTED,
	DWELL_SATURATED,
};

/**
 * dwell_executable_tag() - names an executable by what identifies its inode
 * @inode: its number
 * @device: of its file system, as the kernel encodes it in memory
 * @generation: of the inode
 *
 * Return: 40 bits, never 0. Two of a thousand executables share them with a probability of one in
 * a million.
 */
static __always_inline __u64 dwell_executable_tag(__u64 inode, __u32 device, __u32 generation)
{
	__u64 mix = inode * 0x9e3779b97f4a7c15ULL;

	mix = (mix ^ (mix >> 32) ^ ((__u64)device << 32 | generation)) * 0xd6e8feb86659fd93ULL;
	mix = (mix ^ (mix >> 32)) * 0xd6e8feb86659fd93ULL;
	return mix >> (64 - DWELL_TAG_BITS) | DWELL_TAG_EXECUTABLE;
}

static __always_inline __u64 dwell_key(__u64 kind, __u64 tag, __u32 pid)
{
	return kind << (DWELL_TAG_BITS + DWELL_PID_BITS) |
	       (tag & DWELL_TAG_MASK) << DWELL_PID_BITS | (pid & DWELL_PID_MASK);
}

static __always_inline __u64 dwell_place(__u64 address, __u32 event)
{
	return (address & DWELL_ADDRESS_MASK) << (DWELL_EVENT_BITS + DWELL_COUNT_BITS) |
	       (__u64)(event & (DWELL_EVENTS_MAX - 1)) << DWELL_COUNT_BITS;
}

/**
 * dwell_locate() - returns the entry of a sample, with a count of 0
 * @sample: it
 *
 * Return: key and place.
 */
static __always_inline struct dwell_entry dwell_locate(const struct dwell_sample *sample)
{
	__u64 pc = sample->pc, tag = sample->tag;
	struct dwell_entry entry;

	if (sample->flags & DWELL_SAMPLE_KERNEL) {
		/* Kernel text is in the upper half. The place of firmware is unknown. */
		if (pc >> (DWELL_ADDRESS_BITS - 1) != (1 << (65 - DWELL_ADDRESS_BITS)) - 1)
			pc = 0;
		if (!tag || sample->flags & DWELL_SAMPLE_APART)
			tag = sample->pid;
		entry.key = dwell_key(DWELL_KERNEL, tag, sample->pid);
	} else if (tag && !(sample->flags & DWELL_SAMPLE_APART) && pc >= sample->start_code &&
		   pc < sample->end_code) {
		pc -= sample->start_code;
		entry.key = dwell_key(DWELL_EXECUTABLE, tag, sample->pid);
	} else {
		tag = tag << 8 | (pc >> DWELL_ADDRESS_BITS & 0xff);
		entry.key = dwell_key(DWELL_PROCESS, tag, sample->pid);
	}
	entry.place = dwell_place(pc, sample->event);
	return entry;
}

/* Bits of the key that are compared. Which process came first does not distinguish places. */
static __always_inline __u64 dwell_compared(__u64 key)
{
	return key >> (DWELL_TAG_BITS + DWELL_PID_BITS) == DWELL_PROCESS ? ~0ULL : ~DWELL_PID_MASK;
}

/**
 * dwell_bucket_of() - returns the bucket of a place
 * @located: from dwell_locate()
 * @bucket_bits: base-2 logarithm of the number of buckets
 *
 * Return: the bucket's index.
 */
static __always_inline __u32 dwell_bucket_of(const struct dwell_entry *located, __u32 bucket_bits)
{
	__u64 mix = (located->key & dwell_compared(located->key)) * 0x9e3779b97f4a7c15ULL;

	mix = (mix ^ (mix >> 32) ^ (located->place >> DWELL_COUNT_BITS)) * 0xd6e8feb86659fd93ULL;
	return mix >> (64 - bucket_bits);
}

/*
 * Whether an entry is that of a place. Kinds that compare differently are different anyway, and
 * kind 0 of an entry that was never used matches nothing.
 */
static __always_inline int dwell_is_at(const struct dwell_entry *entry,
				       const struct dwell_entry *located,
			     __u64 compared)
{
	return !((entry->key ^ located->key) & compared) &&
	       (entry->place ^ located->place) <= DWELL_COUNT_MAX;
}

/* Puts an entry first and drops the last one. The loop is unrolled by hand for the BPF verifier. */
static __always_inline void dwell_bucket_push(struct dwell_bucket *bucket, struct dwell_entry first)
{
#if DWELL_WAYS == 6
	bucket->entry[5] = bucket->entry[4];
	bucket->entry[4] = bucket->entry[3];
#endif
	bucket->entry[3] = bucket->entry[2];
	bucket->entry[2] = bucket->entry[1];
	bucket->entry[1] = bucket->entry[0];
	bucket->entry[0] = first;
}

/* Counts a sample in the entry @way, and swaps this entry to the front. */
static __always_inline enum dwell_added
dwell_bucket_count(struct dwell_bucket *bucket, int way, struct dwell_entry *spilled)
{
	struct dwell_entry found = bucket->entry[way];
	enum dwell_added added = DWELL_FOUND;

	if ((found.place & DWELL_COUNT_MAX) == DWELL_COUNT_MAX) {
		*spilled = found;
		found.place &= ~DWELL_COUNT_MAX;
		added = DWELL_SATURATED;
	}
	found.place++;
	bucket->entry[way] = bucket->entry[0];
	bucket->entry[0] = found;
	return added;
}

/**
 * dwell_bucket_add() - counts one sample
 * @bucket: that of dwell_bucket_of()
 * @located: from dwell_locate()
 * @spilled: receives the entry that must be spilled, if any
 *
 * Return: the outcome.
 */
static __always_inline enum dwell_added
dwell_bucket_add(struct dwell_bucket *bucket, const struct dwell_entry *located,
		 struct dwell_entry *spilled)
{
	struct dwell_entry fresh = { .key = located->key, .place = located->place + 1 };
	__u64 compared = dwell_compared(located->key);

	if (dwell_is_at(&bucket->entry[0], located, compared))
		return dwell_bucket_count(bucket, 0, spilled);
	if (dwell_is_at(&bucket->entry[1], located, compared))
		return dwell_bucket_count(bucket, 1, spilled);
	if (dwell_is_at(&bucket->entry[2], located, compared))
		return dwell_bucket_count(bucket, 2, spilled);
	if (dwell_is_at(&bucket->entry[3], located, compared))
		return dwell_bucket_count(bucket, 3, spilled);
#if DWELL_WAYS == 6
	if (dwell_is_at(&bucket->entry[4], located, compared))
		return dwell_bucket_count(bucket, 4, spilled);
	if (dwell_is_at(&bucket->entry[5], located, compared))
		return dwell_bucket_count(bucket, 5, spilled);
#endif
	*spilled = bucket->entry[DWELL_WAYS - 1];
	dwell_bucket_push(bucket, fresh);
	return spilled->place & DWELL_COUNT_MAX ? DWELL_EVICTED : DWELL_NEW;
}

/**
 * enum dwell_spill_state - who owns an overflow buffer
 * @DWELL_SPILL_FREE: the interrupt handler; it is empty
 * @DWELL_SPILL_FULL: the reader, until it makes it free again
 */
enum dwell_spill_state {
	DWELL_SPILL_FREE,
	DWELL_SPILL_FULL,
};

#define DWELL_NO_ROOM 0xffffffffU

/**
 * struct dwell_spill - which of a CPU's two overflow buffers takes entries, and how many it has
 * @active: the one being filled, 0 or 1
 * @full_count: how often one became full, for the caller to wake the reader
 * @used: entries in each
 * @state: enum dwell_spill_state of each; the handler sets FULL (release A), the reader FREE
 *	(release B)
 */
struct dwell_spill {
	__u32 active;
	__u32 full_count;
	__u32 used[2];
	__u32 state[2];
};

/**
 * dwell_spill_switch() - hands the active buffer to the reader and turns to the other
 * @spill: the CPU's
 *
 * Return: 0 if the reader still has the other one, and nothing was done.
 */
static __always_inline int dwell_spill_switch(struct dwell_spill *spill)
{
	__u32 active = spill->active & 1, other = active ^ 1;

	/* Pairs with B: the buffer is not overwritten before the reader has copied it. */
	if (dwell_load_acquire(&spill->state[other]) != DWELL_SPILL_FREE)
		return 0;
	spill->used[other] = 0;
	spill->active = other;
	spill->full_count++;
	/* A: the entries are written before the reader sees the new state. */
	dwell_store_release(&spill->state[active], DWELL_SPILL_FULL);
	return 1;
}

/**
 * dwell_spill_slot() - room for one more entry
 * @spill: the CPU's
 * @capacity: entries that one buffer holds
 *
 * Return: an index into the two buffers laid end to end, or DWELL_NO_ROOM: then the entry's
 * samples are lost.
 */
static __always_inline __u32 dwell_spill_slot(struct dwell_spill *spill, __u32 capacity)
{
	__u32 active;

	if (spill->used[spill->active & 1] >= capacity && !dwell_spill_switch(spill))
		return DWELL_NO_ROOM;
	active = spill->active & 1;
	return active * capacity + spill->used[active]++;
}

/**
 * struct dwell_table_counts - outcomes of the samples of one table
 * @samples: samples that were added; the sum of the next four
 * @found: samples whose place had an entry
 * @fresh: samples that took a free entry
 * @evicted: samples that replaced another entry
 * @saturated: samples whose entry was full
 * @spilled: entries that went to an overflow buffer
 * @lost: samples in entries for which both overflow buffers were full
 * @lost_of: of these, by event
 *
 * Samples added = in the table + in the overflow buffers + taken out + lost.
 */
struct dwell_table_counts {
	__u64 samples;
	__u64 found;
	__u64 fresh;
	__u64 evicted;
	__u64 saturated;
	__u64 spilled;
	__u64 lost;
	__u64 lost_of[DWELL_EVENTS_MAX];
};

/**
 * struct dwell_table - one CPU's counts
 * @buckets: 1 << @bucket_bits of them; a reader may put others, all free, in their place
 * @overflow: two buffers of @capacity entries, end to end
 * @bucket_bits: base-2 logarithm of the number of buckets
 * @capacity: entries of one overflow buffer
 * @spill: state of the two overflow buffers
 * @counts: what became of the samples
 */
struct dwell_table {
	struct dwell_bucket *buckets;
	struct dwell_entry *overflow;
	__u32 bucket_bits;
	__u32 capacity;
	struct dwell_spill spill;
	struct dwell_table_counts counts;
};

int dwell_table_spill(struct dwell_table *table, const struct dwell_entry *entry);
__u32 dwell_buckets_take(struct dwell_bucket *buckets, __u32 count, struct dwell_entry *out);

/**
 * dwell_table_add() - counts a sample
 * @table: of the CPU that this runs on
 * @sample: it
 *
 * Constant time: one bucket, at most one spilled entry. Must not interrupt itself on one table.
 * Inline, so that a handler's sample stays in registers.
 *
 * Return: whether an overflow buffer became full, so that the reader must be woken.
 */
static __always_inline int dwell_table_add(struct dwell_table *table,
					   const struct dwell_sample *sample)
{
	struct dwell_entry located = dwell_locate(sample);
	__u32 index = dwell_bucket_of(&located, table->bucket_bits);
	struct dwell_entry spilled;

	table->counts.samples++;
	switch (dwell_bucket_add(&table->buckets[index], &located, &spilled)) {
	case DWELL_FOUND:
		table->counts.found++;
		return 0;
	case DWELL_NEW:
		table->counts.fresh++;
		return 0;
	case DWELL_EVICTED:
		table->counts.evicted++;
		break;
	case DWELL_SATURATED:
		table->counts.saturated++;
		break;
	}
	return dwell_table_spill(table, &spilled);
}

#endif
