/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Dwell's BPF backend: counts samples in the kernel, by the table that all backends share.
 *
 * Enters: overflows of perf events, of which each has the program of its number attached. Leaves:
 * entries in arrays that the collector has mapped, and now and then the registers of a sample.
 * Never here: hash maps, locks, build ids, anything that waits. A program may run in an NMI; the
 * kernel lets none interrupt another one on its CPU.
 *
 * There are two sides, each with a table and two overflow buffers for each CPU. The collector turns
 * to the other side by one store, waits until every program that may have seen the old one has
 * ended (a grace period of RCU, inside of which programs run), and then owns the old side.
 */
#include <linux/types.h>

#include "../../../kmod/sample_table.h"
#include "collect.bpf.h"

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, type) type *name

enum { /* of enum bpf_map_type and the flags of maps, fixed ABI of the kernel */
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};

/* Helpers of the kernel by number, fixed ABI as well. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*bpf_ringbuf_output)(void *ring, void *data, __u64 size, __u64 flags) = (void *)130;
static __u64 (*bpf_ringbuf_query)(void *ring, __u64 flags) = (void *)134;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static void *(*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

/* The few fields of the kernel's structures that are read; the loader moves them to where this
 * kernel has them (CO-RE). */
#define CORE __attribute__((preserve_access_index))
struct super_block {
	__u32 s_dev;
} CORE;
struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_generation;
} CORE;
struct file {
	struct inode *f_inode;
} CORE;
struct mm_struct {
	unsigned long start_code;
	unsigned long end_code;
	struct file *exe_file;
} CORE;
struct task_struct {
	struct mm_struct *mm;
	__s32 pid;
	__s32 tgid;
	__u32 flags;
	__u64 self_exec_id;
} CORE;
#define PF_KTHREAD 0x00200000

/*
 * What a program on a perf event is given: the registers of whatever was interrupted. The kernel
 * keeps those with which a task entered it in the same order.
 */
#if defined(DWELL_X86_64)
struct context {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	__u64 ip, cs, flags, sp, ss;
};
#define PC(context) ((context)->ip)
#define IS_USER(context) ((context)->cs & 3)
#define IS_USER_64(context) ((context)->cs == 0x33)
/* The kernel's own type has two bytes there, and the verifier allows no more. */
#define ENTERED_64(context) (*(const __u16 *)&(context)->cs == 0x33)
/* -1 of what is no system call. */
#define SYSTEM_CALL(context) ((__s32)(context)->orig_ax)
#define IS_EXECUTION(number) ((number) == 59 || (number) == 322)
#elif defined(DWELL_AARCH64)
struct context {
	__u64 regs[31];
	__u64 sp, pc, pstate, orig_x0;
	__s32 system_call;
};
#define PC(context) ((context)->pc)
#define IS_USER(context) (!((context)->pstate & 0xf)) /* EL0 */
#define IS_USER_64(context) (!((context)->pstate & 0x1f))
#define ENTERED_64(context) IS_USER_64(context)
#define SYSTEM_CALL(context) ((context)->system_call)
#define IS_EXECUTION(number) ((number) == 221 || (number) == 281)
#else
#error "say for which architecture"
#endif

/* Set by the loader. */
volatile const __u32 dwell_bucket_bits = DWELL_BUCKET_BITS;
volatile const __u32 dwell_capacity = 1024;
/* Whether bpf_task_pt_regs() may be called, which is there since Linux 5.15. */
volatile const __u32 dwell_charges_entered = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dwell_control);
} control SEC(".maps");

/* By CPU and side. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct dwell_head);
} heads SEC(".maps");

/* By slot and side: a table's buckets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct dwell_bucket);
} buckets SEC(".maps");

/* By slot and side: two buffers of entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct dwell_entry);
} overflow SEC(".maps");

/* Registers, and words that an overflow buffer is full. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} notices SEC(".maps");

static __always_inline __u32 event_of(const struct dwell_entry *entry)
{
	return entry->place >> DWELL_COUNT_BITS & (DWELL_EVENTS_MAX - 1);
}

/* Samples that find no room. */
static __always_inline void lose(struct dwell_head *head, const struct dwell_entry *entry,
				 __u64 samples)
{
	__u32 event = event_of(entry);

	if (event == DWELL_EVENT_ENTERED)
		head->entered_lost += samples;
	else
		head->lost[event & (DWELL_BPF_EVENTS - 1)] += samples;
}

static __always_inline void spill(struct dwell_head *head, __u32 table,
				  const struct dwell_entry *entry)
{
	__u32 full_count = head->spill.full_count, index;
	struct dwell_entry *room = 0;
	struct dwell_full_notice notice;

	index = dwell_spill_slot(&head->spill, dwell_capacity);
	if (index != DWELL_NO_ROOM) {
		index += table * 2 * dwell_capacity;
		room = bpf_map_lookup_elem(&overflow, &index);
	}
	if (!room) {
		lose(head, entry, entry->place & DWELL_COUNT_MAX);
		return;
	}
	*room = *entry;
	if (head->spill.full_count != full_count) {
		notice.kind = DWELL_NOTICE_FULL;
		bpf_ringbuf_output(&notices, &notice, sizeof(notice), BPF_RB_FORCE_WAKEUP);
	}
}

/* Where a place's bucket is among all. */
static __always_inline struct dwell_bucket *bucket_of(const struct dwell_head *head, __u32 side,
						      const struct dwell_entry *located)
{
	__u32 index = ((head->slot * 2 + side) << dwell_bucket_bits) +
		      dwell_bucket_of(located, dwell_bucket_bits);

	return bpf_map_lookup_elem(&buckets, &index);
}

/*
 * Counts a sample in the table of a CPU's slot; whether its place had an entry. A function of its
 * own, as put() is: what a usual sample does not need stays out of its code, which is in no cache.
 */
static __attribute__((noinline)) int add(struct dwell_head *head, __u32 side,
					 const struct dwell_entry *located)
{
	struct dwell_bucket *bucket = bucket_of(head, side, located);
	struct dwell_entry spilled;

	if (!bucket) { /* A CPU without a table: the loader gives every CPU that it samples one. */
		lose(head, located, 1);
		return 0;
	}
	switch (dwell_bucket_add(bucket, located, &spilled)) {
	case DWELL_FOUND:
		head->found += event_of(located) != DWELL_EVENT_ENTERED;
		return 1;
	case DWELL_NEW:
		return 0;
	case DWELL_EVICTED:
	case DWELL_SATURATED:
		break;
	}
	spill(head, head->slot * 2 + side, &spilled);
	return 0;
}

/*
 * Puts what waits into the table. Most likely a bucket is in no cache and its page in no TLB, which
 * takes longer than all else here (some 300 ns in a virtual machine). So all buckets are touched
 * first: that waits for none of them, and the processor looks for many at once.
 */
static __attribute__((noinline)) int put(struct dwell_head *head, __u32 side)
{
	const struct dwell_bucket *bucket;
	struct dwell_entry located;
	__u64 touched = 0;
	__u32 at;

	for (at = 0; at < DWELL_WAITING && at < head->waiting_count; at++) {
		bucket = bucket_of(head, side, &head->waiting[at]);
		if (bucket)
			touched += bucket->entry[0].place + bucket->entry[DWELL_WAYS - 1].place;
	}
	head->touched = touched;
	for (at = 0; at < DWELL_WAITING && at < head->waiting_count; at++) {
		located = head->waiting[at];
		located.place &= ~DWELL_COUNT_MAX;
		add(head, side, &located);
	}
	head->waiting_count = 0;
	return 0;
}

/* Has an entry wait with the others until they are many. */
static __always_inline void wait(struct dwell_head *head, __u32 side,
				 const struct dwell_entry *located)
{
	__u32 at = head->waiting_count & (DWELL_WAITING - 1);

	head->waiting[at].key = located->key;
	head->waiting[at].place = located->place + 1;
	head->waiting_count = at + 1;
	if (at + 1 == DWELL_WAITING)
		put(head, side);
}

static __always_inline int is_apart(const struct dwell_control *settings, __u64 tag)
{
	__u32 at;

	if (!settings->apart_count)
		return 0;
#pragma unroll
	for (at = 0; at < DWELL_APART_MAX; at++)
		if (settings->apart[at] == tag)
			return 1;
	return 0;
}

/* Names what a task executes; 0 without an executable. */
static __always_inline __u64 tag_of(struct mm_struct *mm)
{
	struct file *file;
	struct inode *inode;

	if (!mm)
		return 0;
	file = mm->exe_file;
	if (!file)
		return 0;
	inode = file->f_inode;
	return dwell_executable_tag(inode->i_ino, inode->i_sb->s_dev, inode->i_generation);
}

/*
 * Fills in what the current task's executable tells: as it was told before, if it is the same process
 * that executes the same program. Compilers leave nothing of the kernel's structures in a cache, and
 * the way to the inode is four structures, each found by the one before.
 *
 * What a process executes changes only when it executes another program, which its tasks count. A
 * struct mm_struct that was freed can come back to another process by a fork; so the process is
 * compared too. Remembered is what was seen in user mode, where no execution is under way.
 */
static __always_inline void look_at_executable(const struct dwell_control *settings,
					       struct dwell_head *head,
					       struct mm_struct *mm, __u32 executions,
					       struct dwell_sample *sample)
{
	struct dwell_executable *latest = &head->latest;

	if (!mm)
		return;
	if (latest->mm == (__u64)mm && latest->pid == sample->pid &&
	    latest->executions == executions) {
		sample->tag = latest->tag;
		sample->start_code = latest->start_code;
		sample->end_code = latest->end_code;
	} else {
		sample->tag = tag_of(mm);
		sample->start_code = mm->start_code;
		sample->end_code = mm->end_code;
		if (!(sample->flags & DWELL_SAMPLE_KERNEL)) {
			latest->mm = (__u64)mm;
			latest->tag = sample->tag;
			latest->start_code = sample->start_code;
			latest->end_code = sample->end_code;
			latest->pid = sample->pid;
			latest->executions = executions;
		}
	}
	if (sample->tag && is_apart(settings, sample->tag))
		sample->flags |= DWELL_SAMPLE_APART;
}

/* Whether it is time to hand out registers, which tell which way branches go. */
static __always_inline int wants_registers(const struct dwell_control *settings,
					   struct dwell_head *head, const struct context *context,
					   __u32 event)
{
	if (!settings->registers_every || !(settings->registers_events >> event & 1))
		return 0;
	if (!IS_USER_64(context))
		return 0;
	if (head->until_registers) {
		head->until_registers--;
		return 0;
	}
	return 1;
}

/* In the order in which perf dumps them. */
static __always_inline void copy_registers(__u64 *out, const struct context *context)
{
#if defined(DWELL_X86_64)
	out[0] = context->ax;
	out[1] = context->bx;
	out[2] = context->cx;
	out[3] = context->dx;
	out[4] = context->si;
	out[5] = context->di;
	out[6] = context->bp;
	out[7] = context->sp;
	out[8] = context->flags;
	out[9] = context->r8;
	out[10] = context->r9;
	out[11] = context->r10;
	out[12] = context->r11;
	out[13] = context->r12;
	out[14] = context->r13;
	out[15] = context->r14;
	out[16] = context->r15;
#else
	__u32 at;

#pragma unroll
	for (at = 0; at < DWELL_REGISTERS - 1; at++)
		out[at] = context->regs[at];
	out[at] = context->sp;
#endif
}

/*
 * AArch64's registers are more than half of the stack that programs have: in a frame of their own,
 * which is not there while put() and add() have theirs.
 */
#if defined(DWELL_X86_64)
static __always_inline
#else
static __attribute__((noinline))
#endif
int notice_registers(struct dwell_head *head, const struct context *context, __u32 pid, __u32 tid,
		     __u32 event)
{
	struct dwell_registers_notice notice;

	notice.kind = DWELL_NOTICE_REGISTERS;
	notice.event = event;
	notice.time_ns = bpf_ktime_get_ns();
	notice.pid = pid;
	notice.tid = tid;
	notice.pc = PC(context);
	copy_registers(notice.registers, context);
	if (bpf_ringbuf_output(&notices, &notice, sizeof(notice), BPF_RB_NO_WAKEUP))
		head->registers_lost++;
	return 0;
}

static __always_inline void tell_registers(const struct dwell_control *settings,
					   struct dwell_head *head, const struct context *context,
					   __u32 pid, __u32 tid, __u32 event)
{
	head->until_registers = settings->registers_every - 1;
	notice_registers(head, context, pid, tid, event);
}

/*
 * The user's instruction that the current task entered the kernel from: by a system call or a fault,
 * or that was interrupted. 0 where there is none: of a thread of the kernel, of 32-bit code; and of a
 * task that executes a program, whose registers are those of the program that it was.
 */
static __always_inline __u64 entered_from(struct task_struct *task)
{
	const struct context *user;
	__u64 pc;

	if (task->flags & PF_KTHREAD)
		return 0;
	user = bpf_task_pt_regs(task);
	if (!ENTERED_64(user) || IS_EXECUTION(SYSTEM_CALL(user)))
		return 0;
	pc = PC(user);
#if defined(DWELL_X86_64)
	/* `syscall' leaves its successor in rcx and the flags in r11, see branch.rs. */
	if (user->cx == pc && user->r11 == user->flags)
		pc -= 2;
#endif
	return pc;
}

/*
 * Counts a sample in the kernel once more, where the user's code entered it. Of a place by process it
 * is not known yet whether it is mapped: the collector leaves out what is not.
 */
static __attribute__((noinline)) int charge_entered(struct dwell_head *head, __u32 side,
						    struct dwell_sample *sample)
{
	struct dwell_entry located;

	sample->pc = entered_from(bpf_get_current_task_btf());
	if (!sample->pc)
		return 0;
	sample->event = DWELL_EVENT_ENTERED;
	sample->flags &= ~DWELL_SAMPLE_KERNEL;
	located = dwell_locate(sample);
	wait(head, side, &located);
	return 0;
}

static __attribute__((noinline)) int count(struct context *context, __u32 event)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	__u32 executions = task->self_exec_id, pid = task->tgid, zero = 0, cpu, side, index;
	struct dwell_sample sample = { .pc = PC(context), .pid = pid, .event = event };
	struct dwell_control *settings = bpf_map_lookup_elem(&control, &zero);
	struct dwell_entry located;
	struct dwell_head *head;

	if (!settings)
		return 0;
	/* The task is asked first, all at once: while that is on its way, so is what follows. */
	asm volatile("" : "+r"(executions), "+r"(pid));
	cpu = bpf_get_smp_processor_id();
	side = settings->side & 1;
	index = cpu * 2 + side;
	head = bpf_map_lookup_elem(&heads, &index);
	if (!head)
		return 0;
	if (!sample.pid) {
		head->idle++;
		return 0;
	}
	if (!IS_USER(context))
		sample.flags = DWELL_SAMPLE_KERNEL;
	look_at_executable(settings, head, mm, executions, &sample);
	located = dwell_locate(&sample);
	head->samples[event & (DWELL_BPF_EVENTS - 1)]++;
	if (!wants_registers(settings, head, context, event))
		wait(head, side, &located);
	/* Where a sample falls only once, nobody asks for directions, and reading the code there would
	 * be the dearest part of them. */
	else if (add(head, side, &located))
		tell_registers(settings, head, context, pid, task->pid, event);
	if (dwell_charges_entered && sample.flags & DWELL_SAMPLE_KERNEL &&
	    settings->entered_events >> event & 1) {
		struct dwell_sample entered = sample;

		charge_entered(head, side, &entered);
	}
	return 0;
}

/* A program is told nothing of its event, so there is one for each. */
#define PROGRAM(number) \
	SEC("perf_event") \
	int event##number(struct context *context) \
	{ \
		return count(context, number); \
	}

PROGRAM(0)
PROGRAM(1)
PROGRAM(2)
PROGRAM(3)
PROGRAM(4)
PROGRAM(5)
PROGRAM(6)
PROGRAM(7)

/* CPUs that came later have no head here, so that one counts for all. */
static __always_inline void lose_execution(void)
{
	__u32 first = 0;
	struct dwell_head *head = bpf_map_lookup_elem(&heads, &first);

	if (head)
		__sync_fetch_and_add(&head->executions_lost, 1);
}

/* A process has executed a program: tells which, so that nobody need guess whose entries are. */
SEC("tp_btf/sched_process_exec")
int executed(__u64 *arguments)
{
	struct task_struct *task = (struct task_struct *)arguments[0];
	struct dwell_exec_notice notice = {
		.kind = DWELL_NOTICE_EXEC,
		.pid = task->tgid,
		.time_ns = bpf_ktime_get_ns(),
		.tag = tag_of(task->mm),
	};
	__u64 half;
	int crowded;

	/* The collector looks now and then; a storm of executions must not fill the ring before. */
	half = bpf_ringbuf_query(&notices, BPF_RB_RING_SIZE) / 2;
	crowded = bpf_ringbuf_query(&notices, BPF_RB_AVAIL_DATA) > half;
	if (bpf_ringbuf_output(&notices, &notice, sizeof(notice),
			       crowded ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP))
		lose_execution();
	return 0;
}

/* For tests: counts a recorded sample (struct dwell_replay), without anything of the kernel's. */
SEC("raw_tp")
int replay(struct dwell_replay *given)
{
	struct dwell_sample sample = {
		.pc = given->pc,
		.start_code = given->start_code,
		.end_code = given->end_code,
		.pid = given->pid,
		.event = given->event,
		.flags = given->flags,
	};
	__u32 zero = 0, side, index;
	struct dwell_control *settings = bpf_map_lookup_elem(&control, &zero);
	struct dwell_entry located;
	struct dwell_head *head;

	if (!settings)
		return 0;
	side = settings->side & 1;
	index = (__u32)given->cpu * 2 + side;
	head = bpf_map_lookup_elem(&heads, &index);
	if (!head)
		return 0;
	if (given->has_executable)
		sample.tag = dwell_executable_tag(given->inode, given->device, given->generation);
	located = dwell_locate(&sample);
	head->samples[sample.event & (DWELL_BPF_EVENTS - 1)]++;
	wait(head, side, &located);
	if (given->is_last)
		put(head, side);
	return 0;
}

/* Some helpers are for programs under the GPL only; the choice above allows that. */
char dwell_license[] SEC("license") = "Dual MIT/GPL";
