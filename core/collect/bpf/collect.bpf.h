/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The structures that the BPF programs and the collector share, apart from the table itself. They
 * are mirrored in core/collect/src/sys/bpf/abi.rs; a test there compares sizes and offsets.
 */
#ifndef DWELL_COLLECT_BPF_H
#define DWELL_COLLECT_BPF_H

#define DWELL_APART_MAX 16
/* The number of events, which is the number of programs. */
#define DWELL_BPF_EVENTS 8
/* The number of entries that wait and are then put into the table together. */
#define DWELL_WAITING 32

/**
 * struct dwell_control - settings that the collector writes and the programs read
 * @side: the side that the programs write to, 0 or 1
 * @registers_every: after this many samples in user mode, the registers of the next sample whose
 *	place has an entry are sent; 0 to send none
 * @registers_events: the events whose registers are sent, one bit each
 * @apart_count: the number of elements of @apart that are set
 * @entered_events: the events whose kernel samples are counted a second time, where the user's code
 *	entered the kernel, one bit each
 * @unused: padding
 * @apart: tags of executables whose processes are counted separately
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
 * struct dwell_executable - the executable of a process
 * @mm: the address of the process's struct mm_struct
 * @tag: the tag of the executable; 0 without one
 * @start_code: start_code of @mm
 * @end_code: end_code of @mm
 * @pid: the process
 * @executions: the low bits of task->self_exec_id
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
 * struct dwell_head - a CPU's state on one side; most samples need only its first cache line and
 *	one element of @waiting
 * @slot: the CPU's slot, the index of its tables and buffers
 * @until_registers: the number of samples until registers are sent
 * @waiting_count: the number of elements of @waiting that are set
 * @touched: has no meaning, see put()
 * @latest: the executable of the latest sample in user mode
 * @samples: the samples that the programs took, by event
 * @lost: the number of @samples that were lost, by event
 * @found: samples whose place had an entry
 * @idle: samples in the idle task, which enter no table
 * @registers_lost: registers that could not be sent because the ring was full
 * @spill: the states of the two overflow buffers
 * @executions_lost: executions of all CPUs that could not be reported; set only in the first of all
 *	heads
 * @entered_lost: kernel samples whose second count was lost because no buffer had room
 * @unused: pads to cache lines, so that no CPU shares one with another
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
 * @event: the event's index
 * @time_ns: the time of CLOCK_MONOTONIC
 * @pc: the program counter
 * @pid: the process
 * @tid: the thread
 * @registers: in perf's order: ax bx cx dx si di bp sp flags r8 … r15; x0 … x30 sp on AArch64
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
 * @pid: the process
 * @time_ns: the time of CLOCK_MONOTONIC
 * @tag: the tag of the executable; 0 without one
 */
struct dwell_exec_notice {
	__u32 kind;
	__u32 pid;
	__u64 time_ns;
	__u64 tag;
};

/**
 * struct dwell_replay - a recorded sample, for tests
 * @pc: the program counter
 * @start_code: the start of the executable's code
 * @end_code: the end of the executable's code
 * @inode: the inode number of the executable
 * @device: the device of the executable's inode
 * @generation: the generation of the executable's inode
 * @has_executable: 0 for kernel threads
 * @pid: the process
 * @event: the event's index
 * @flags: a combination of DWELL_SAMPLE_…
 * @cpu: the CPU whose table counts the sample
 * @is_last: whether to put all waiting entries into the table after this sample
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
