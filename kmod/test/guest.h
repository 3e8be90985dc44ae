/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations of the first process of a virtual machine, which tests the module: TAP and a reader.
 */
#ifndef DWELL_TEST_GUEST_H
#define DWELL_TEST_GUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "../dwell_abi.h"

/* guest.c */
void tap(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tap_skip(const char *reason, const char *name);
int module_load_of(const char *name);
int module_unload_of(const char *name);
int module_load(void);
int module_unload(void);
int write_file(const char *path, const char *text);
int limit_rate(const char *samples_per_second);
double now_seconds(void);
const char *boot_option(const char *name);

/* reader.c */

/* Data that a reader has seen of one place; kept for the first places. */
#define SEEN_MAX (1 << 20)

struct reader {
	int fd;
	__u64 entries;
	__u64 samples;
	__u64 flushes;
	__u64 register_samples;
	/* Entries whose time is outside of their chunk's, or whose fields are invalid. */
	__u64 strange;
	__u64 until_ns;
	struct dwell_entry *seen;
	size_t seen_count;
	struct dwell_register_sample *registers;
	size_t registers_count;
};

struct shape {
	__u32 bucket_bits, overflow_entries;
};

extern const struct shape usual_shape;
struct dwell_event cpu_clock(unsigned int hz);
int reader_open(struct reader *reader, const struct dwell_event *events, unsigned int count,
		struct shape shape);
void reader_start(struct reader *reader);
void reader_stop(struct reader *reader);
void reader_read(struct reader *reader);
void reader_flush(struct reader *reader);
void reader_run(struct reader *reader, double seconds, double between_flushes);
struct dwell_status reader_status(const struct reader *reader, __u32 cpu);
void reader_close(struct reader *reader);
__u64 reader_count(const struct reader *reader, enum dwell_kind kind, __u64 first, __u64 last,
		   __u32 pid);
__u64 reader_charged(const struct reader *reader, __u64 offset, bool others);
__u64 reader_in_kernel(const struct reader *reader);

static inline __u64 entry_kind(const struct dwell_entry *entry)
{
	return entry->key >> 62;
}

static inline __u32 entry_pid(const struct dwell_entry *entry)
{
	return entry->key & DWELL_PID_MASK;
}

static inline __u64 entry_tag(const struct dwell_entry *entry)
{
	return entry->key >> DWELL_PID_BITS & DWELL_TAG_MASK;
}

static inline __u64 entry_address(const struct dwell_entry *entry)
{
	return entry->place >> 16;
}

static inline __u32 entry_event(const struct dwell_entry *entry)
{
	return entry->place >> DWELL_COUNT_BITS & (DWELL_EVENTS_MAX - 1);
}

static inline __u64 entry_count(const struct dwell_entry *entry)
{
	return entry->place & DWELL_COUNT_MAX;
}

/* gate.c */
void test_gate(void);

/* given_up.c */
void test_given_up(void);

/* work.c */
void work_spin(double seconds);
void work_magic(double seconds);
/* Runs 32-bit code; x86 only. */
void work_short(double seconds);
/* Reads zeros by the system call whose time is charged to work_read_at. */
void work_read(double seconds);
void work_pause(double seconds);
void work_wide(double seconds);
int work_start(void (*work)(double seconds), double seconds, int cpu);
void work_forks(double seconds);
void work_wait(void);
void work_hot_amount(__u64 rounds);
void work_wide_amount(__u64 calls);
void work_forks_amount(__u64 processes);
extern const char work_spin_start[], work_spin_end[], work_magic_start[], work_magic_end[];
extern const char work_short_start[], work_short_end[], work_read_at[];
#define WORK_MAGIC 0x5ca1ab1e0ddba11ULL
/*
 * Index of the sampled register that contains the magic value in that loop, and of the two that
 * contain the stack pointer.
 */
#if defined(__x86_64__)
#define WORK_MAGIC_AT 13 /* r12 */
#define WORK_STACK_AT 7
#define WORK_STACK_TOO_AT 3 /* rdx */
#elif defined(__aarch64__)
#define WORK_MAGIC_AT 28
#define WORK_STACK_AT 31
#define WORK_STACK_TOO_AT 2
#endif

#endif
