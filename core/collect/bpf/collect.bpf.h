/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the BPF program and the collector say to each other, beside the table itself. Mirrored in
 * core/collect/src/sys/bpf/abi.rs; a test there holds the two together.
 */
#ifndef DWELL_COLLECT_BPF_H
#define DWELL_COLLECT_BPF_H

#define DWELL_APART_MAX 16
/* As many as there are programs. */
#define DWELL_BPF_EVENTS 8
/* Instead of an event's index: time in the kernel once more, where the user's code entered it. */
#define DWELL_EVENT_ENTERED 15
/* Entries that wait until they are put into the table together. */
#define DWELL_WAITING 32

/**
 * struct dwell_control - what the collector sets
 * @side: which of the two sides the programs write to
 * @registers_every: after so many samples in user mode hand out the registers of the next one that
 *	finds its entry; 0: of none
 * @registers_events: bit by event, of which events
 * @apart_count: how many of @apart are set
 * @entered_events: bit by event, samples of which events in the kernel are counted once more where
 *	the user's code entered it
 * @unused: fills the word
 * @apart: tags of executables whose processes are kept apart
 */
struct dwell_control {
	__u32 side;
	__u32 registers_every;
	__u32 registers_events;
	__u32 apart_count;
	__u32 entered_events;
	__u32 unused;
	__u64 apart[DWELL_APART_MAX];
};

/**
 * struct dwell_executable - what a process executes
 * @mm: its struct mm_struct
 * @tag: of the executable; 0 without one
 * @start_code: of @mm
 * @end_code: of @mm
 * @pid: the process
 * @executions: task->self_exec_id, the low bits
 */
struct dwell_executable {
	__u64 mm;
	__u64 tag;
	__u64 start_code;
	__u64 end_code;
	__u32 pid;
	__u32 executions;
};

/**
 * struct dwell_head - a CPU's state on one side; most samples need its first cache line and a
 *	place in @waiting alone
 * @slot: of the CPU, by which its tables and buffers are found
 * @until_registers: samples until registers are handed out
 * @waiting_count: how many of @waiting are set
 * @touched: of no meaning, see put()
 * @latest: where the latest sample in user mode was
 * @samples: samples that were to be counted, by event
 * @lost: of these, the lost ones by event
 * @found: samples whose place had an entry
 * @idle: samples in the idle task, which enter no table
 * @registers_lost: registers that there was no room for
 * @spill: which overflow buffer is which
 * @executions_lost: executions that there was no room to tell of: all CPUs', in the first head of all
 * @entered_lost: samples in the kernel that found no room to be counted once more
 * @unused: fills cache lines, so that no CPU shares one with another
 * @waiting: entries of single samples that are not yet in the table
 */
struct dwell_head {
	__u32 slot;
	__u32 until_registers;
	__u32 waiting_count;
	__u32 touched;
	struct dwell_executable latest;
	__u64 samples[DWELL_BPF_EVENTS];
	__u64 lost[DWELL_BPF_EVENTS];
	__u64 found;
	__u64 idle;
	__u64 registers_lost;
	struct dwell_spill spill;
	__u64 executions_lost;
	__u64 entered_lost;
	__u64 unused;
	struct dwell_entry waiting[DWELL_WAITING];
};

enum dwell_notice_kind {
	DWELL_NOTICE_FULL = 1,
	DWELL_NOTICE_REGISTERS = 2,
	DWELL_NOTICE_EXEC = 3,
};

#if defined(DWELL_AARCH64) || defined(__aarch64__)
#define DWELL_REGISTERS 32
#else
#define DWELL_REGISTERS 17
#endif

/**
 * struct dwell_full_notice - an overflow buffer is full
 * @kind: DWELL_NOTICE_FULL
 */
struct dwell_full_notice {
	__u64 kind;
};

/**
 * struct dwell_registers_notice - the registers of a sample in user mode
 * @kind: DWELL_NOTICE_REGISTERS
 * @event: which
 * @time_ns: CLOCK_MONOTONIC
 * @pc: the program counter
 * @pid: process
 * @tid: thread
 * @registers: as perf dumps them: ax bx cx dx si di bp sp flags r8 … r15; x0 … x30 sp on AArch64
 */
struct dwell_registers_notice {
	__u32 kind;
	__u32 event;
	__u64 time_ns;
	__u64 pc;
	__u32 pid;
	__u32 tid;
	__u64 registers[DWELL_REGISTERS];
};

/**
 * struct dwell_exec_notice - a process has executed a program
 * @kind: DWELL_NOTICE_EXEC
 * @pid: process
 * @time_ns: CLOCK_MONOTONIC
 * @tag: the executable's, 0 without one
 */
struct dwell_exec_notice {
	__u32 kind;
	__u32 pid;
	__u64 time_ns;
	__u64 tag;
};

/**
 * struct dwell_replay - a recorded sample, for tests
 * @pc: program counter
 * @start_code: of the executable
 * @end_code: of the executable
 * @inode: of the executable
 * @device: of the executable
 * @generation: of the executable
 * @has_executable: 0 for kernel threads
 * @pid: process
 * @event: which
 * @flags: DWELL_SAMPLE_…
 * @cpu: whose table
 * @is_last: nothing waits after this one
 */
struct dwell_replay {
	__u64 pc;
	__u64 start_code;
	__u64 end_code;
	__u64 inode;
	__u64 device;
	__u64 generation;
	__u64 has_executable;
	__u64 pid;
	__u64 event;
	__u64 flags;
	__u64 cpu;
	__u64 is_last;
};

#endif
