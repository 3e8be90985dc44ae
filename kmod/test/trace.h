/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A recorded stream of samples, so that collectors can be compared count by count.
 */
#ifndef DWELL_TEST_TRACE_H
#define DWELL_TEST_TRACE_H

#include "../sample_table.h"

#define DWELL_TRACE_KERNEL 1 /* not in user mode */
#define DWELL_TRACE_IDLE 2 /* in the time of the idle task: counted separately, never in a table */
#define DWELL_TRACE_NO_EXECUTABLE 4 /* a kernel thread */
#define DWELL_TRACE_APART 8 /* its process is kept apart */

/**
 * struct dwell_trace_record - one sample, before anything was derived of it
 * @pc: the program counter
 * @start_code: mm->start_code
 * @end_code: mm->end_code
 * @inode: number of the executable's inode
 * @device: of its file system
 * @generation: of the inode
 * @pid: process in the initial namespace
 * @event: which counter
 * @flags: DWELL_TRACE_…
 * @cpu: where
 */
struct dwell_trace_record {
	__u64 pc;
	__u64 start_code;
	__u64 end_code;
	__u64 inode;
	__u32 device;
	__u32 generation;
	__u32 pid;
	__u8 event;
	__u8 flags;
	__u16 cpu;
};

static __always_inline struct dwell_sample
dwell_sample_of(const struct dwell_trace_record *record)
{
	struct dwell_sample sample = {
		.pc = record->pc,
		.start_code = record->start_code,
		.end_code = record->end_code,
		.pid = record->pid,
		.event = record->event,
	};

	if (!(record->flags & DWELL_TRACE_NO_EXECUTABLE))
		sample.tag = dwell_executable_tag(record->inode, record->device,
						  record->generation);
	if (record->flags & DWELL_TRACE_KERNEL)
		sample.flags |= DWELL_SAMPLE_KERNEL;
	if (record->flags & DWELL_TRACE_APART)
		sample.flags |= DWELL_SAMPLE_APART;
	return sample;
}

#endif
