// SPDX-License-Identifier: GPL-2.0
/*
 * A set of counters for each CPU, and the handler of their overflows (DCPI, section 4.1).
 *
 * Enters: events to count, interrupts. Leaves: counts in this CPU's table, samples with registers
 * in its buffers, and a number for everything that went another way. The handler takes no lock,
 * writes no line that another CPU writes, and waits for nothing; on x86 it runs in an NMI.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/suspend.h>
#include <linux/timekeeping.h>

#include "compat.h"
#include "sampler.h"

DEFINE_PER_CPU_ALIGNED(struct dwell_cpu, dwell_cpus);
DEFINE_MUTEX(dwell_mutex); /* See sampler.h. */

/* Written by the reader now and then, read by every handler. */
static struct dwell_apart dwell_apart __read_mostly;

/* What DWELL_CONFIGURE asked for; event_count 0 while closed. Guarded by dwell_mutex. */
static struct dwell_config dwell_config;
static bool dwell_is_on; /* DWELL_START was the last word. Guarded by dwell_mutex. */
static enum cpuhp_state dwell_hotplug_state;

/*
 * The executable of the task that was interrupted, as dwell_executable_tag() names it, or 0.
 *
 * In an NMI, hence without locks and references. The task cannot leave its mm while it is
 * interrupted. exe_file, which another thread may replace (PR_SET_MM_EXE_FILE), is protected by
 * RCU, whose grace periods wait for NMI handlers. A struct file may be used for another file within
 * a grace period (SLAB_TYPESAFE_BY_RCU, 6.7), but its inode, and the inode's superblock, are freed
 * after one: at worst one sample is given to that other file's executable.
 */
static u64 dwell_current_executable(const struct mm_struct *mm)
{
	const struct inode *inode;
	const struct file *file;
	u64 tag = 0;

	rcu_read_lock();
	file = rcu_dereference(mm->exe_file);
	inode = file ? READ_ONCE(file->f_inode) : NULL;
	if (inode)
		tag = dwell_executable_tag(inode->i_ino, inode->i_sb->s_dev, inode->i_generation);
	rcu_read_unlock();
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

static void dwell_count_place(struct dwell_cpu *cpu, unsigned int index, struct pt_regs *regs)
{
	const struct mm_struct *mm = current->flags & PF_KTHREAD ? NULL : current->mm;
	struct dwell_sample sample = {
		.pc = instruction_pointer(regs),
		.pid = task_tgid_nr(current),
		.event = index,
	};
	u32 full_count = cpu->table.spill.full_count;

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
	}
	dwell_table_add(&cpu->table, &sample);
	if (unlikely(cpu->table.spill.full_count != full_count))
		irq_work_queue(&cpu->wake);
}

static void dwell_keep_registers(struct dwell_cpu *cpu, unsigned int index, struct pt_regs *regs)
{
	struct dwell_registers *registers = &cpu->registers;
	u32 full_count = registers->spill.full_count;
	struct dwell_register_sample *sample;
	u32 slot = DWELL_NO_ROOM;

	/* It may have entered the kernel meanwhile, whose registers are not told. */
	if (user_mode(regs))
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

/**
 * dwell_count() - counts a sample, in whatever context
 * @cpu: this CPU's
 * @index: of the event
 * @regs: where it was interrupted
 */
void dwell_count(struct dwell_cpu *cpu, unsigned int index, struct pt_regs *regs)
{
	if (unlikely(cpu->busy)) {
		cpu->counter[index].nested++;
		return;
	}
	WRITE_ONCE(cpu->busy, 1);
	/* An NMI on this CPU finds it set before anything is half done: no fence, order does. */
	barrier();
	if (is_idle_task(current))
		cpu->counter[index].idle++;
	else if (unlikely(cpu->counter[index].flags & DWELL_EVENT_REGISTERS))
		dwell_keep_registers(cpu, index, regs);
	else
		dwell_count_place(cpu, index, regs);
	/* Likewise: nothing is half done when it is cleared. */
	barrier();
	WRITE_ONCE(cpu->busy, 0);
}

/* Periods that follow no pattern, so that none of the program's does either (section 4.1.1). */
static u64 dwell_next_period(struct dwell_counter *counter)
{
	u32 random = counter->random;
	u64 spread = READ_ONCE(counter->spread);
	u64 period = READ_ONCE(counter->period);

	/* They are being changed right now. */
	if (unlikely(spread >= period))
		spread = 0;
	random ^= random << 13;
	random ^= random >> 17;
	random ^= random << 5;
	counter->random = random;
	return period - spread + (random * (2 * spread) >> 32);
}

static void dwell_overflow(struct perf_event *event, struct perf_sample_data *data,
			   struct pt_regs *regs)
{
	struct dwell_cpu *cpu = this_cpu_ptr(&dwell_cpus);
	unsigned int index = (uintptr_t)event->overflow_handler_context;
	struct dwell_counter *counter = &cpu->counter[index];

	/* An event does not interrupt itself, so that these are nobody else's. */
	counter->samples++;
	if (unlikely(dwell_is_throttled(event)))
		counter->throttled++;
	event->hw.sample_period = dwell_next_period(counter);
	dwell_count(cpu, index, regs);
}

static int dwell_open_event(struct dwell_cpu *cpu, unsigned int number, unsigned int index)
{
	const struct dwell_event *wanted = &dwell_config.event[index];
	struct dwell_counter *counter = &cpu->counter[index];
	bool is_user_only = wanted->flags & (DWELL_EVENT_USER_ONLY | DWELL_EVENT_REGISTERS);
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = wanted->type,
		.config = wanted->config,
		.sample_period = counter->period,
		.pinned = !!(wanted->flags & DWELL_EVENT_PINNED),
		.disabled = 1,
		.exclude_kernel = is_user_only,
		.exclude_hv = is_user_only,
	};
	struct perf_event *event;

	event = perf_event_create_kernel_counter(&attr, number, NULL, dwell_overflow,
						 (void *)(uintptr_t)index);
	if (IS_ERR(event))
		return PTR_ERR(event);
	cpu->event[index] = event;
	return 0;
}

static void dwell_close_events(struct dwell_cpu *cpu)
{
	unsigned int index;

	cpu->sampled = false;
	for (index = 0; index < DWELL_EVENTS_MAX; index++) {
		struct perf_event *event = cpu->event[index];

		cpu->event[index] = NULL;
		if (event)
			perf_event_release_kernel(event);
	}
}

static void dwell_switch_events(struct dwell_cpu *cpu, bool on)
{
	unsigned int index;

	for (index = 0; index < DWELL_EVENTS_MAX; index++) {
		if (!cpu->event[index])
			continue;
		if (on)
			perf_event_enable(cpu->event[index]);
		else
			perf_event_disable(cpu->event[index]);
	}
}

/* Opens all events on a CPU that is online, or none. */
static int dwell_open_cpu(unsigned int number)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);
	unsigned int index;
	int error;

	error = dwell_drain_add_cpu(number);
	for (index = 0; !error && index < dwell_config.event_count; index++)
		error = dwell_open_event(cpu, number, index);
	if (error) {
		dwell_close_events(cpu);
		return error;
	}
	cpu->sampled = true;
	if (dwell_is_on)
		dwell_switch_events(cpu, true);
	return 0;
}

static void dwell_reset_counters(struct dwell_cpu *cpu)
{
	unsigned int index;

	memset(cpu->counter, 0, sizeof(cpu->counter));
	for (index = 0; index < dwell_config.event_count; index++) {
		struct dwell_counter *counter = &cpu->counter[index];

		counter->period = dwell_config.event[index].period;
		counter->spread = dwell_config.event[index].spread;
		counter->flags = dwell_config.event[index].flags;
		counter->random = get_random_u32() | 1;
	}
}

static bool dwell_is_valid_period(u64 period, u64 spread)
{
	/* The draw multiplies twice the spread by 32 bits. */
	return period && period <= S64_MAX && spread < period && spread < 1U << 31;
}

static int dwell_check_config(const struct dwell_config *config)
{
	unsigned int index;

	if (config->version != DWELL_ABI_VERSION)
		return -EPROTO;
	if (!config->event_count || config->event_count > DWELL_EVENTS_MAX || config->reserved ||
	    config->bucket_bits < DWELL_BUCKET_BITS_MIN ||
	    config->bucket_bits > DWELL_BUCKET_BITS_MAX ||
	    config->overflow_entries < DWELL_OVERFLOW_MIN ||
	    config->overflow_entries > DWELL_OVERFLOW_MAX ||
	    config->register_samples > DWELL_REGISTER_SAMPLES_MAX)
		return -EINVAL;
	for (index = 0; index < config->event_count; index++) {
		const struct dwell_event *event = &config->event[index];

		if (!dwell_is_valid_period(event->period, event->spread) || event->flags & ~7U)
			return -EINVAL;
		if (!(event->flags & DWELL_EVENT_REGISTERS))
			continue;
		if (!DWELL_HAS_REGISTERS)
			return -EOPNOTSUPP;
		if (!config->register_samples)
			return -EINVAL;
	}
	return 0;
}

/**
 * dwell_sampler_is_open() - whether there is a configuration
 *
 * Context: dwell_mutex is held.
 */
bool dwell_sampler_is_open(void)
{
	return dwell_config.event_count;
}

/**
 * dwell_sampler_open() - makes tables and events on all CPUs that are online, switched off
 * @config: what is wanted
 *
 * Context: the CPU hotplug lock and dwell_mutex are held.
 * Return: 0, or why not; then nothing is left open.
 */
int dwell_sampler_open(const struct dwell_config *config)
{
	unsigned int number;
	int error;

	if (dwell_sampler_is_open())
		return -EBUSY;
	error = dwell_check_config(config);
	if (error)
		return error;
	error = dwell_drain_open(config);
	if (error)
		return error;
	dwell_config = *config;
	dwell_is_on = false;
	WRITE_ONCE(dwell_apart.count, 0);
	for_each_possible_cpu(number)
		dwell_reset_counters(per_cpu_ptr(&dwell_cpus, number));
	for_each_online_cpu(number) {
		error = dwell_open_cpu(number);
		if (error) {
			dwell_sampler_close();
			return error;
		}
	}
	return 0;
}

/**
 * dwell_sampler_close() - ends all sampling and frees everything
 *
 * Context: the CPU hotplug lock and dwell_mutex are held.
 */
void dwell_sampler_close(void)
{
	unsigned int number;

	/* After this no handler runs: releasing an event takes it off its CPU by an IPI. */
	for_each_possible_cpu(number)
		dwell_close_events(per_cpu_ptr(&dwell_cpus, number));
	dwell_drain_close();
	dwell_config.event_count = 0;
	dwell_is_on = false;
}

/**
 * dwell_sampler_switch() - starts or stops all events
 * @on: which
 *
 * Context: the CPU hotplug lock and dwell_mutex are held.
 */
void dwell_sampler_switch(bool on)
{
	unsigned int number;

	dwell_is_on = on;
	for_each_possible_cpu(number)
		dwell_switch_events(per_cpu_ptr(&dwell_cpus, number), on);
}

/**
 * dwell_sampler_period() - changes an event's mean period, from its next sample on
 * @period: to what
 *
 * Context: dwell_mutex is held.
 * Return: 0 or -EINVAL.
 */
int dwell_sampler_period(const struct dwell_period *period)
{
	unsigned int number;

	if (period->event >= dwell_config.event_count || period->reserved ||
	    !dwell_is_valid_period(period->period, period->spread))
		return -EINVAL;
	dwell_config.event[period->event].period = period->period;
	dwell_config.event[period->event].spread = period->spread;
	for_each_possible_cpu(number) {
		struct dwell_counter *counter =
			&per_cpu_ptr(&dwell_cpus, number)->counter[period->event];

		WRITE_ONCE(counter->period, period->period);
		WRITE_ONCE(counter->spread, period->spread);
	}
	return 0;
}

/**
 * dwell_sampler_apart() - names the executables whose processes are kept apart from now on
 * @apart: all of them
 *
 * A handler that runs meanwhile may see some of them; either way its entry is true.
 *
 * Context: dwell_mutex is held.
 * Return: 0 or -EINVAL.
 */
int dwell_sampler_apart(const struct dwell_apart *apart)
{
	unsigned int at;

	if (apart->count > DWELL_APART_MAX || apart->reserved)
		return -EINVAL;
	for (at = 0; at < apart->count; at++)
		WRITE_ONCE(dwell_apart.tag[at], apart->tag[at]);
	WRITE_ONCE(dwell_apart.count, apart->count);
	return 0;
}

/**
 * dwell_sampler_event_status() - what became of an event
 * @status: has CPU and index, receives the rest
 *
 * Context: dwell_mutex is held; sleeps.
 * Return: 0 or -EINVAL.
 */
int dwell_sampler_event_status(struct dwell_event_status *status)
{
	unsigned int number;
	u64 enabled, running;

	if (status->event >= dwell_config.event_count)
		return -EINVAL;
	status->samples = 0;
	status->idle = 0;
	status->nested = 0;
	status->lost = 0;
	status->throttled = 0;
	status->enabled_ns = 0;
	status->running_ns = 0;
	for_each_possible_cpu(number) {
		struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);

		if (status->cpu != DWELL_ALL_CPUS && status->cpu != number)
			continue;
		status->samples += READ_ONCE(cpu->counter[status->event].samples);
		status->idle += READ_ONCE(cpu->counter[status->event].idle);
		status->nested += READ_ONCE(cpu->counter[status->event].nested);
		status->lost += READ_ONCE(cpu->table.counts.lost_of[status->event]);
		status->throttled += READ_ONCE(cpu->counter[status->event].throttled);
		if (!cpu->event[status->event])
			continue;
		perf_event_read_value(cpu->event[status->event], &enabled, &running);
		status->enabled_ns += enabled;
		status->running_ns += running;
	}
	return 0;
}

static void dwell_add_table_counts(struct dwell_table_counts *sum,
				   const struct dwell_table_counts *one)
{
	unsigned int event;

	sum->samples += READ_ONCE(one->samples);
	sum->found += READ_ONCE(one->found);
	sum->fresh += READ_ONCE(one->fresh);
	sum->evicted += READ_ONCE(one->evicted);
	sum->saturated += READ_ONCE(one->saturated);
	sum->spilled += READ_ONCE(one->spilled);
	sum->lost += READ_ONCE(one->lost);
	for (event = 0; event < DWELL_EVENTS_MAX; event++)
		sum->lost_of[event] += READ_ONCE(one->lost_of[event]);
}

static void dwell_add_status(struct dwell_status *sum, const struct dwell_cpu *cpu)
{
	unsigned int index;

	sum->cpus += cpu->sampled;
	sum->kernel += READ_ONCE(cpu->kernel);
	sum->register_samples += READ_ONCE(cpu->registers.taken);
	sum->register_lost += READ_ONCE(cpu->registers.lost);
	sum->read_samples += cpu->read_samples;
	sum->read_entries += cpu->read_entries;
	for (index = 0; index < DWELL_EVENTS_MAX; index++) {
		sum->interrupts += READ_ONCE(cpu->counter[index].samples);
		sum->idle += READ_ONCE(cpu->counter[index].idle);
		sum->nested += READ_ONCE(cpu->counter[index].nested);
		sum->throttled += READ_ONCE(cpu->counter[index].throttled);
	}
	dwell_add_table_counts(&sum->table, &cpu->table.counts);
}

/**
 * dwell_sampler_status() - what happened so far; its parts are of slightly different moments
 * @status: has the CPU, receives the rest
 *
 * Context: dwell_mutex is held.
 */
void dwell_sampler_status(struct dwell_status *status)
{
	const u32 wanted = status->cpu;
	unsigned int number;

	memset(status, 0, sizeof(*status));
	status->cpu = wanted;
	for_each_possible_cpu(number)
		if (wanted == DWELL_ALL_CPUS || wanted == number)
			dwell_add_status(status, per_cpu_ptr(&dwell_cpus, number));
}

static int dwell_cpu_online(unsigned int number)
{
	int error = 0;

	mutex_lock(&dwell_mutex);
	if (dwell_sampler_is_open())
		error = dwell_open_cpu(number);
	mutex_unlock(&dwell_mutex);
	/* Never a reason to keep a CPU offline. */
	if (error)
		pr_warn("dwell: CPU %u is not sampled: error %d\n", number, error);
	return 0;
}

/* Its table and buffers stay until the reader has emptied them. */
static int dwell_cpu_offline(unsigned int number)
{
	mutex_lock(&dwell_mutex);
	dwell_close_events(per_cpu_ptr(&dwell_cpus, number));
	mutex_unlock(&dwell_mutex);
	return 0;
}

/* Counters do not keep their state while the machine sleeps, so they are stopped before. */
static int dwell_suspend(struct notifier_block *block, unsigned long what, void *unused)
{
	bool on;

	switch (what) {
	case PM_SUSPEND_PREPARE:
	case PM_HIBERNATION_PREPARE:
		on = false;
		break;
	case PM_POST_SUSPEND:
	case PM_POST_HIBERNATION:
		on = true;
		break;
	default:
		return NOTIFY_DONE;
	}
	cpus_read_lock();
	mutex_lock(&dwell_mutex);
	if (dwell_is_on) {
		unsigned int number;

		for_each_possible_cpu(number)
			dwell_switch_events(per_cpu_ptr(&dwell_cpus, number), on);
	}
	mutex_unlock(&dwell_mutex);
	cpus_read_unlock();
	return NOTIFY_OK;
}

static struct notifier_block dwell_suspend_block = { .notifier_call = dwell_suspend };

/**
 * dwell_sampler_init() - listens for CPUs that come and go, and for sleep
 *
 * Return: 0, or why not.
 */
int dwell_sampler_init(void)
{
	unsigned int number;
	int state;

	for_each_possible_cpu(number)
		init_irq_work(&per_cpu_ptr(&dwell_cpus, number)->wake, dwell_drain_wake);
	state = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "dwell:online", dwell_cpu_online,
				  dwell_cpu_offline);
	if (state < 0)
		return state;
	dwell_hotplug_state = state;
	state = register_pm_notifier(&dwell_suspend_block);
	if (state)
		cpuhp_remove_state(dwell_hotplug_state);
	return state;
}

/**
 * dwell_sampler_exit() - undoes dwell_sampler_init(); nothing is open any more
 */
void dwell_sampler_exit(void)
{
	unregister_pm_notifier(&dwell_suspend_block);
	cpuhp_remove_state(dwell_hotplug_state);
}
