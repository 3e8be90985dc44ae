/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The protocol of /dev/dwell and its single reader: fixed-size records in native byte order. Only
 * the number of registers depends on the architecture.
 * core/collect/src/sys/kmod.rs mirrors it, and a test holds the two together. A change that an old
 * reader would misunderstand requires a new DWELL_ABI_VERSION: 2 has registers on arm64, 3 reports
 * events that were given up, 4 counts kernel time at the user's instruction.
 *
 * A reader uses it as follows: open, DWELL_CONFIGURE, DWELL_START; then, regularly, DWELL_FLUSH and
 * read until the chunk DWELL_CHUNK_FLUSHED; between flushes, read when poll reports data, since an
 * overflow buffer is full then. Closing stops sampling and frees all. Opening needs CAP_PERFMON; a
 * second open fails with EBUSY.
 */
#ifndef DWELL_ABI_H
#define DWELL_ABI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "sample_table.h"

#define DWELL_ABI_VERSION 4
#define DWELL_DEVICE_NAME "dwell"

#define DWELL_APART_MAX 16
#ifdef __aarch64__
#define DWELL_REGISTERS 32
#else
#define DWELL_REGISTERS 17
#endif
#define DWELL_ALL_CPUS 0xffffffffU
#define DWELL_OVERFLOW_MIN 16
#define DWELL_OVERFLOW_MAX 0x100000
#define DWELL_REGISTER_SAMPLES_MAX 0x10000
/* A read must offer at least this many bytes. It returns as much as fits. */
#define DWELL_READ_MIN 4096

/**
 * struct dwell_version - what this module is
 * @abi: DWELL_ABI_VERSION
 * @ways: entries of a bucket
 * @registers: values in a sample with registers; 0 where this architecture has none
 * @reserved: 0
 */
struct dwell_version {
	__u32 abi;
	__u32 ways;
	__u32 registers;
	__u32 reserved;
};

/*
 * Always counting; of cpu-clock, by a timer of the module's own, which the kernel does not
 * throttle. If such events of others hold all counters of a CPU, perf gives it up there, until
 * DWELL_START is called again and finds a counter. Events without this flag share the remaining
 * counters in turns of a few milliseconds (kernel/events/core.c, perf_event_mux_interval_ms); their
 * status reports how long each of them counted.
 */
#define DWELL_EVENT_PINNED 1
#define DWELL_EVENT_USER_ONLY 2
/* Its samples carry registers and are passed to the reader one by one; only 64-bit user mode. */
#define DWELL_EVENT_REGISTERS 4
/*
 * Its kernel samples are counted a second time, as samples of event DWELL_EVENT_ENTERED at the
 * user's instruction that entered the kernel: a system call, an instruction that faulted, or one
 * that was interrupted. Not those of kernel threads, of 32-bit code and of a task in execve.
 */
#define DWELL_EVENT_CHARGED 8

/**
 * struct dwell_event - what to sample
 * @config: as in perf_event_attr
 * @period: mean number of occurrences (or ns) between two samples
 * @spread: each period is drawn evenly from @period - @spread to @period + @spread
 * @type: as in perf_event_attr, of a counter's event or of a clock; others fail with EOPNOTSUPP
 * @flags: DWELL_EVENT_…
 */
struct dwell_event {
	__u64 config;
	__u64 period;
	__u64 spread;
	__u32 type;
	__u32 flags;
};

/**
 * struct dwell_config - argument of DWELL_CONFIGURE
 * @version: DWELL_ABI_VERSION; another one is refused with EPROTO
 * @event_count: of @event, at most DWELL_EVENT_ENTERED; an entry's event is an index into it
 * @bucket_bits: base-2 logarithm of the buckets of a table (one for each CPU and one to swap)
 * @overflow_entries: of each of a CPU's two overflow buffers
 * @register_samples: of each of a CPU's two buffers of samples with registers, may be 0
 * @reserved: 0
 * @event: what to sample; an event that this machine lacks fails with its errno and none is open
 */
struct dwell_config {
	__u32 version;
	__u32 event_count;
	__u32 bucket_bits;
	__u32 overflow_entries;
	__u32 register_samples;
	__u32 reserved;
	struct dwell_event event[DWELL_EVENTS_MAX];
};

/**
 * struct dwell_period - argument of DWELL_PERIOD: from the next sample on
 * @period: mean
 * @spread: see struct dwell_event
 * @event: its index
 * @reserved: 0
 */
struct dwell_period {
	__u64 period;
	__u64 spread;
	__u32 event;
	__u32 reserved;
};

/**
 * struct dwell_apart - argument of DWELL_APART: executables whose processes are kept apart
 * @count: of @tag
 * @reserved: 0
 * @tag: as in entries of kind DWELL_EXECUTABLE
 */
struct dwell_apart {
	__u32 count;
	__u32 reserved;
	__u64 tag[DWELL_APART_MAX];
};

/**
 * struct dwell_status - argument of DWELL_STATUS: what happened since DWELL_CONFIGURE
 * @cpu: the CPU, or DWELL_ALL_CPUS; set by the caller
 * @cpus: how many are being sampled
 * @interrupts: the sum of @idle, @nested, @table.samples, @register_samples, @register_lost, less
 *	@charged
 * @idle: samples in the idle task, which are counted only here
 * @nested: an NMI came while a sample was being counted, or the interrupt came without registers,
 *	so that its place is unknown; lost
 * @kernel: of @table.samples, those not in user mode
 * @charged: of @table.samples, those of event DWELL_EVENT_ENTERED
 * @register_samples: samples with registers that were passed to the reader
 * @register_lost: samples with registers that found both buffers full or not 64-bit user code:
 *	the thread had entered the kernel meanwhile
 * @throttled: times that the kernel stopped an event until its next tick, because samples came too
 *	fast
 * @given_up: events, on each CPU by itself, that perf has given up (see DWELL_EVENT_PINNED)
 * @read_samples: the sum of counts that the reader took
 * @read_entries: entries that the reader took
 * @table: counts of the samples without registers, by outcome
 */
struct dwell_status {
	__u32 cpu;
	__u32 cpus;
	__u64 interrupts;
	__u64 idle;
	__u64 nested;
	__u64 kernel;
	__u64 charged;
	__u64 register_samples;
	__u64 register_lost;
	__u64 throttled;
	__u64 given_up;
	__u64 read_samples;
	__u64 read_entries;
	struct dwell_table_counts table;
};

/**
 * struct dwell_event_status - argument of DWELL_EVENT_STATUS
 * @cpu: the CPU, or DWELL_ALL_CPUS; set by the caller
 * @event: its index; set by the caller
 * @samples: interrupts of it
 * @idle: of these, in the idle task, counted nowhere else
 * @nested: of these, lost as in struct dwell_status
 * @lost: of these, lost since both overflow buffers were full
 * @throttled: see struct dwell_status
 * @given_up: on how many CPUs perf has given it up
 * @given_up_ns: time for which that was observed, summed over CPUs
 * @enabled_ns: time for which it was enabled, including @given_up_ns
 * @running_ns: time for which it counted
 */
struct dwell_event_status {
	__u32 cpu;
	__u32 event;
	__u64 samples;
	__u64 idle;
	__u64 nested;
	__u64 lost;
	__u64 throttled;
	__u64 given_up;
	__u64 given_up_ns;
	__u64 enabled_ns;
	__u64 running_ns;
};

#define DWELL_IOCTL 0xD7
#define DWELL_VERSION _IOR(DWELL_IOCTL, 0, struct dwell_version)
#define DWELL_CONFIGURE _IOW(DWELL_IOCTL, 1, struct dwell_config)
#define DWELL_START _IO(DWELL_IOCTL, 2)
#define DWELL_STOP _IO(DWELL_IOCTL, 3)
#define DWELL_FLUSH _IO(DWELL_IOCTL, 4)
#define DWELL_PERIOD _IOW(DWELL_IOCTL, 5, struct dwell_period)
#define DWELL_APART _IOW(DWELL_IOCTL, 6, struct dwell_apart)
#define DWELL_STATUS _IOWR(DWELL_IOCTL, 7, struct dwell_status)
#define DWELL_EVENT_STATUS _IOWR(DWELL_IOCTL, 8, struct dwell_event_status)

/**
 * enum dwell_chunk_kind - what follows the head of a chunk
 * @DWELL_CHUNK_ENTRIES: struct dwell_entry
 * @DWELL_CHUNK_REGISTERS: struct dwell_register_sample
 * @DWELL_CHUNK_FLUSHED: nothing; all that was sampled up to its time has been read
 */
enum dwell_chunk_kind {
	DWELL_CHUNK_ENTRIES = 1,
	DWELL_CHUNK_REGISTERS = 2,
	DWELL_CHUNK_FLUSHED = 3,
};

/**
 * struct dwell_chunk - head of what a read returns; several may follow each other
 * @kind: enum dwell_chunk_kind
 * @cpu: the CPU of its samples; not used in DWELL_CHUNK_FLUSHED
 * @count: records that follow
 * @record_bytes: size of one record
 * @since_ns: time before its first sample (CLOCK_MONOTONIC)
 * @until_ns: time after its last sample
 */
struct dwell_chunk {
	__u32 kind;
	__u32 cpu;
	__u32 count;
	__u32 record_bytes;
	__u64 since_ns;
	__u64 until_ns;
};

/**
 * struct dwell_register_sample - one sample of a DWELL_EVENT_REGISTERS event
 * @time_ns: when (CLOCK_MONOTONIC)
 * @pc: the program counter, in user mode
 * @pid: process in the initial namespace
 * @tid: thread
 * @event: its index
 * @reserved: 0
 * @registers: x86-64: ax bx cx dx si di bp sp flags r8 … r15; arm64: x0 … x30 sp
 */
struct dwell_register_sample {
	__u64 time_ns;
	__u64 pc;
	__u32 pid;
	__u32 tid;
	__u32 event;
	__u32 reserved;
	__u64 registers[DWELL_REGISTERS];
};

#endif
