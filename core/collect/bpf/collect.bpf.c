/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Dwell's BPF backend: counts samples in the kernel, in the table that all backends share.
 *
 * Enters: overflows of perf events; the program with the event's number is attached to each event.
 * Leaves: entries in arrays that the collector has mapped, and occasionally the registers of a
 * sample. Never here: hash maps, locks, build IDs, anything that waits. A program may run in an NMI;
 * the kernel never lets a program interrupt another one on the same CPU.
 *
 * There are two sides. Each has a table and two overflow buffers for each CPU. The collector
 * switches to the other side by one store. It then waits until every program that may have read the
 * old side has ended: programs run in an RCU read-side section, so one grace period is enough. From
 * then on the collector owns the old side.
 */
#include <linux/types.h>

#include "../../../kmod/sample_table.h"
#include "collect.bpf.h"

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, type) type *name

/* Values of enum bpf_map_type and flags of maps and ring buffers. They are ABI of the kernel. */
enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};

/* The kernel's helper functions. Their numbers are ABI, too. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*bpf_ringbuf_output)(void *ring, void *data, __u64 size, __u64 flags) = (void *)130;
static __u64 (*bpf_ringbuf_query)(void *ring, __u64 flags) = (void *)134;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static void *(*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

/* Kernel structures: the loader relocates each access to the running kernel's offset (CO-RE). */
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

/* The registers of interrupted code, and of a task that entered the kernel. */
#if defined(DWELL_X86_64)
struct context {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	__u64 ip, cs, flags, sp, ss;
};
#define PC(context) ((context)->ip)
#define IS_USER(context) ((context)->cs & 3)
#define IS_USER_64(context) ((context)->cs == 0x33)
/* The kernel's own field has two bytes, and the verifier allows no wider access. */
#define ENTERED_64(context) (*(const __u16 *)&(context)->cs == 0x33)
/* The number of the system call; -1 if the task entered the kernel in another way. */
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
#error "define DWELL_X86_64 or DWELL_AARCH64"
#endif

/* The loader sets these constants. */
volatile const __u32 dwell_bucket_bits = DWELL_BUCKET_BITS;
volatile const __u32 dwell_capacity = 1024;
/* Whether the programs may call bpf_task_pt_regs(), which exists since Linux 5.15. */
volatile const __u32 dwell_charges_entered = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dwell_control);
} control SEC(".maps");

/* The state of each CPU, indexed by CPU and side. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct dwell_head);
} heads SEC(".maps");

/* The buckets of all tables, indexed by slot and side. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct dwell_bucket);
} buckets SEC(".maps");

/* Two overflow buffers of entries for each slot and side. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct dwell_entry);
} overflow SEC(".maps");

/* Notices to the collector: a sample's registers, a full overflow buffer, an execution. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} notices SEC(".maps");

static __always_inline __u32 event_of(const struct dwell_entry *entry)
{
	return entry->place >> DWELL_COUNT_BITS & (DWELL_EVENTS_MAX - 1);
}

/* Counts samples that were lost because no buffer had room for them. */
static __always_inline void lose(struct dwell_head *head, const struct dwell_entry *entry,
				 __u64 samples)
{
	__u32 event = event_of(entry);

	if (event == DWELL_EVENT_ENTERED)
		head->entered_lost += samples;
	else
		head->lost[event & (DWELL_BPF_EVENTS - 1)] += samples;
}

/* Moves an entry from a table to an overflow buffer; notifies the collector if that fills it. */
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

/* Finds the bucket of an entry. */
static __always_inline struct dwell_bucket *bucket_of(const struct dwell_head *head, __u32 side,
						      const struct dwell_entry *located)
{
	__u32 index = ((head->slot * 2 + side) << dwell_bucket_bits) +
		      dwell_bucket_of(located, dwell_bucket_bits);

	return bpf_map_lookup_elem(&buckets, &index);
}

/*
 * Counts a sample in the table of a CPU's slot. Returns 1 if its place already had an entry. Like
 * put(), this is a separate function: most samples do not run it, and their code should be short,
 * because it is in no cache when a sample arrives.
 */
static __attribute__((noinline)) int add(struct dwell_head *head, __u32 side,
					 const struct dwell_entry *located)
{
	struct dwell_bucket *bucket = bucket_of(head, side, located);
	struct dwell_entry spilled;

	if (!bucket) { /* Never happens: the loader makes a table for every CPU that it samples. */
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
 * Puts the waiting entries into the table. A bucket is usually in no cache, and its page in no TLB;
 * fetching it takes longer than everything else here (about 300 ns in a virtual machine). So all
 * buckets are read first: the reads do not depend on each other, and the processor overlaps them.
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

/* Adds an entry to the waiting ones. Puts all of them into the table when the array is full. */
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

/* Whether the collector wants the processes of this executable to be counted separately. */
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

/* The tag of the executable that an address space runs; 0 without an executable. */
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
 * Fills in the tag and the code range of the current task's executable. Takes them from the latest
 * sample if the same process still runs the same program: compilers and other large programs evict
 * the kernel's structures from the caches, and the inode is found through four of them in turn.
 *
 * The executable of a process changes only at an exec, which the task counts in self_exec_id. A fork
 * can reuse a freed struct mm_struct for another process, so the process is compared, too. Only
 * samples in user mode are remembered, because no exec is under way there.
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

/* Whether this sample's registers are due to be passed to the collector. */
static __always_inline int registers_are_due(const struct dwell_control *settings,
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

/* Copies the registers in the order in which perf dumps them. */
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
 * Sends the registers of a sample to the collector. AArch64's registers take more than half of a
 * BPF program's stack, so they have a frame of their own there, which does not exist at the same
 * time as the frames of put() and add().
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

/* Sends the registers of a sample and starts counting down to the next sample whose are sent. */
static __always_inline void send_registers(const struct dwell_control *settings,
					   struct dwell_head *head, const struct context *context,
					   __u32 pid, __u32 tid, __u32 event)
{
	head->until_registers = settings->registers_every - 1;
	notice_registers(head, context, pid, tid, event);
}

/*
 * The address of the user's instruction at which the current task entered the kernel: a system call,
 * an instruction that faulted, or one that was interrupted. Returns 0 for a kernel thread, for 32-bit
 * code, and for a task in execve, whose registers belong to the program before.
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
	/* `syscall' leaves the address of its successor in rcx and the flags in r11 (see registers.rs). */
	if (user->cx == pc && user->r11 == user->flags)
		pc -= 2;
#endif
	return pc;
}

/*
 * Counts a kernel sample a second time, at the instruction where the user's code entered the kernel.
 * For an entry that is counted by process it is not yet known whether its address is mapped; the
 * collector drops entries that are not.
 */
static __attribute__((noinline)) int charge_entered(struct dwell_head *head, __u32 side,
						    struct dwell_sample *sample)
{
	__u64 pc = entered_from(bpf_get_current_task_btf());
	struct dwell_entry located;

	if (!pc)
		return 0;
	dwell_charge(sample, pc);
	located = dwell_locate(sample);
	wait(head, side, &located);
	return 0;
}

/* Counts one sample of an event: the body of all programs on perf events. */
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
	/* The fields of the task are loaded first and together, so that cache misses overlap with
	 * each other and with the code below. */
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
	if (!registers_are_due(settings, head, context, event))
		wait(head, side, &located);
	/* Registers are sent only if the place had a sample before: branch directions of a place with
	 * one sample are not useful, and reading its code would be their most expensive part. */
	else if (add(head, side, &located))
		send_registers(settings, head, context, pid, task->pid, event);
	if (dwell_charges_entered && sample.flags & DWELL_SAMPLE_KERNEL &&
	    settings->entered_events >> event & 1) {
		struct dwell_sample entered = sample;

		charge_entered(head, side, &entered);
	}
	return 0;
}

/* A program cannot find out which event it runs for, so there is one program for each event. */
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

/* Counts an execution that could not be reported. CPUs that came online later have no head, so the
 * first head counts for all CPUs. */
static __always_inline void lose_execution(void)
{
	__u32 first = 0;
	struct dwell_head *head = bpf_map_lookup_elem(&heads, &first);

	if (head)
		__sync_fetch_and_add(&head->executions_lost, 1);
}

/* Reports that a process has executed a program, and which one, so that the collector can attribute
 * the process's entries to the right program. */
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

	/* The collector polls the ring only occasionally. Wake it up when the ring is half full, so
	 * that many executions in a short time do not overflow it. */
	half = bpf_ringbuf_query(&notices, BPF_RB_RING_SIZE) / 2;
	crowded = bpf_ringbuf_query(&notices, BPF_RB_AVAIL_DATA) > half;
	if (bpf_ringbuf_output(&notices, &notice, sizeof(notice),
			       crowded ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP))
		lose_execution();
	return 0;
}

/* For tests: counts a recorded sample (struct dwell_replay) without reading kernel structures. */
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

/* The kernel reserves some helpers for programs under the GPL; the license above includes it. */
char dwell_license[] SEC("license") = "Dual MIT/GPL";
