// SPDX-License-Identifier: GPL-2.0
/*
 * Handles a sample (DCPI, section 4.1). Every instruction here is executed thousands of times a
 * second: dwell_mode=bench in test/guest.c counts them.
 *
 * Enters: an interrupt of a counter or of the module's own clock. Leaves: a count in this CPU's
 * table, or a sample with registers in its buffers, and a count of everything that was handled in
 * another way. Takes no lock, writes no line that another CPU writes, and waits for nothing; on x86
 * it runs in an NMI.
 */
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/timekeeping.h>
#include <asm/irq_regs.h>

#include "compat.h"
#include "sampler.h"

DEFINE_PER_CPU_ALIGNED(struct dwell_cpu, dwell_cpus);

/* The reader writes it at times; every handler reads it. */
struct dwell_apart dwell_apart __read_mostly;

/*
 * The executable of the task that was interrupted, as dwell_executable_tag() names it, or 0.
 *
 * This may run in an NMI, so it takes no locks and no references. The task cannot leave its mm
 * while it is interrupted. exe_file, which another thread may replace (PR_SET_MM_EXE_FILE), is
 * protected by RCU, whose grace periods wait for all code with interrupts off, so no lock is
 * needed. A struct file may be used for another file within a grace period
 * (SLAB_TYPESAFE_BY_RCU, 6.7), but its inode, and the inode's superblock, are freed after one:
 * at worst one sample is given to that other file's executable.
 */
static __always_inline u64 dwell_current_executable(const struct mm_struct *mm)
{
	const struct inode *inode;
	const struct file *file;
	u64 tag = 0;

	file = rcu_dereference_sched(mm->exe_file);
	inode = file ? READ_ONCE(file->f_inode) : NULL;
	if (inode)
		tag = dwell_executable_tag(inode->i_ino, inode->i_sb->s_dev, inode->i_generation);
	return tag;
}

static bool dwell_is_apart(u64 tag)
{
	u32 at;

	for (at = 0; at < READ_ONCE(dwell_apart.count); at++)
		if (READ_ONCE(dwell_apart.tag[at]) == tag)
			return true;
	return false;
}

/*
 * Counts a kernel sample a second time, at the instruction where the user's code entered the
 * kernel. The reader finds out whether its address is mapped. Not inline and with a copy of the
 * sample, so that samples in user mode do not pay for this.
 */
static noinline void dwell_charge_entered(struct dwell_cpu *cpu, struct dwell_sample sample)
{
	u64 pc = dwell_entered_from(task_pt_regs(current));

	if (!pc)
		return;
	dwell_charge(&sample, pc);
	cpu->charged++;
	if (unlikely(dwell_table_add(&cpu->table, &sample)))
		irq_work_queue(&cpu->wake);
}

static __always_inline void dwell_count_place(struct dwell_cpu *cpu, unsigned int index,
					      struct pt_regs *regs)
{
	const struct mm_struct *mm = current->flags & PF_KTHREAD ? NULL : current->mm;
	struct dwell_sample sample = {
		.pc = instruction_pointer(regs),
		.pid = task_tgid_nr(current),
		.event = index,
	};

	if (mm) {
		sample.tag = dwell_current_executable(mm);
		sample.start_code = READ_ONCE(mm->start_code);
		sample.end_code = READ_ONCE(mm->end_code);
		if (unlikely(READ_ONCE(dwell_apart.count)) && dwell_is_apart(sample.tag))
			sample.flags |= DWELL_SAMPLE_APART;
	}
	if (!user_mode(regs)) {
		sample.flags |= DWELL_SAMPLE_KERNEL;
		cpu->kernel++;
		if (mm && cpu->counter[index].flags & DWELL_EVENT_CHARGED)
			dwell_charge_entered(cpu, sample);
	}
	if (unlikely(dwell_table_add(&cpu->table, &sample)))
		irq_work_queue(&cpu->wake);
}

static noinline void dwell_keep_registers(struct dwell_cpu *cpu, unsigned int index,
					  struct pt_regs *regs)
{
	struct dwell_registers *registers = &cpu->registers;
	u32 full_count = registers->spill.full_count;
	struct dwell_register_sample *sample;
	u32 slot = DWELL_NO_ROOM;

	/*
	 * The thread may have entered the kernel meanwhile, and the kernel's registers are not
	 * reported.
	 */
	if (dwell_is_user_64(regs))
		slot = dwell_spill_slot(&registers->spill, registers->capacity);
	if (slot == DWELL_NO_ROOM) {
		registers->lost++;
		return;
	}
	sample = &registers->samples[slot];
	sample->time_ns = ktime_get_mono_fast_ns();
	sample->pc = instruction_pointer(regs);
	sample->pid = task_tgid_nr(current);
	sample->tid = task_pid_nr(current);
	sample->event = index;
	sample->reserved = 0;
	dwell_copy_registers(sample->registers, regs);
	registers->taken++;
	if (unlikely(registers->spill.full_count != full_count))
		irq_work_queue(&cpu->wake);
}

/* Counts a sample in any context. It is inline because a call would cost time at each sample. */
static __always_inline void dwell_count(struct dwell_cpu *cpu, unsigned int index,
					struct pt_regs *regs)
{
	if (unlikely(cpu->busy)) {
		cpu->counter[index].nested++;
		return;
	}
	WRITE_ONCE(cpu->busy, 1);
	/*
	 * An NMI on this CPU finds it set before any change is incomplete. Program order suffices;
	 * no fence is needed.
	 */
	barrier();
	if (is_idle_task(current))
		cpu->counter[index].idle++;
	else if (unlikely(cpu->counter[index].flags & DWELL_EVENT_REGISTERS))
		dwell_keep_registers(cpu, index, regs);
	else
		dwell_count_place(cpu, index, regs);
	/* In the same way, every change is complete when it is cleared. */
	barrier();
	WRITE_ONCE(cpu->busy, 0);
}

/*
 * Draws periods without a pattern, so that they cannot follow a pattern of the program (section
 * 4.1.1).
 */
static u64 dwell_next_period(struct dwell_counter *counter)
{
	u32 random = counter->random;
	u64 spread = READ_ONCE(counter->spread);
	u64 period = READ_ONCE(counter->period);

	/* The period is being changed at this moment. */
	if (unlikely(spread >= period))
		spread = 0;
	random ^= random << 13;
	random ^= random >> 17;
	random ^= random << 5;
	counter->random = random;
	return period - spread + (random * (2 * spread) >> 32);
}

/**
 * dwell_overflow() - a counter of perf's has counted its period
 * @event: the event; its context is the event's index
 * @data: not used
 * @regs: the interrupted place
 */
void dwell_overflow(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs)
{
	struct dwell_cpu *cpu = this_cpu_ptr(&dwell_cpus);
	unsigned int index = (uintptr_t)event->overflow_handler_context;
	struct dwell_counter *counter = &cpu->counter[index];

	/* An event does not interrupt itself, so no other handler uses these. */
	counter->samples++;
	if (unlikely(dwell_is_throttled(event)))
		counter->throttled++;
	event->hw.sample_period = dwell_next_period(counter);
	dwell_count(cpu, index, regs);
}

/* perf's clock has the same limit: a shorter period would leave no time for the program. */
#define DWELL_CLOCK_PERIOD_MIN 10000

/**
 * dwell_clock_expired() - the module's own clock has counted its period
 * @timer: struct dwell_clock's
 *
 * A timer that expires late is counted once, however late it is.
 *
 * Return: HRTIMER_RESTART.
 */
enum hrtimer_restart dwell_clock_expired(struct hrtimer *timer)
{
	struct dwell_cpu *cpu = container_of(timer, struct dwell_cpu, clock.timer);
	unsigned int index = cpu->clock.index;
	struct dwell_counter *counter = &cpu->counter[index];
	struct pt_regs *regs = get_irq_regs();

	if (unlikely(!regs)) {
		/* This is a loss: the place and mode of the sample are unknown. */
		counter->samples++;
		counter->nested++;
	} else if (user_mode(regs) || !(counter->flags & DWELL_EVENT_USER_ONLY)) {
		counter->samples++;
		dwell_count(cpu, index, regs);
	}
	hrtimer_forward_now(timer, ns_to_ktime(max_t(u64, dwell_next_period(counter),
						     DWELL_CLOCK_PERIOD_MIN)));
	return HRTIMER_RESTART;
}

#ifdef DWELL_TEST_NMI
/**
 * dwell_count_nmi() - counts a sample of an NMI that no counter sent
 * @cpu: this CPU's
 * @index: of the event
 * @regs: where it was interrupted
 */
void dwell_count_nmi(struct dwell_cpu *cpu, unsigned int index, struct pt_regs *regs)
{
	dwell_count(cpu, index, regs);
}
#endif
