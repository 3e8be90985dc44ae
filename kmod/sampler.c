// SPDX-License-Identifier: GPL-2.0
/*
 * Creates and removes a set of counters for each CPU, and reports what became of their samples.
 *
 * Enters: events to count, CPUs that come and go, sleep. Leaves: counters that call handler.c, and
 * a status in which every interrupt has its place. Nothing here runs in an interrupt, except what
 * is said to.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/random.h>
#include <linux/smp.h>
#include <linux/suspend.h>
#include <linux/timekeeping.h>

#include "compat.h"
#include "sampler.h"

DEFINE_MUTEX(dwell_mutex); /* See sampler.h. */

/* The configuration of DWELL_CONFIGURE; event_count is 0 while closed. Guarded by dwell_mutex. */
static struct dwell_config dwell_config;
static bool dwell_is_on; /* The last command was DWELL_START. Guarded by dwell_mutex. */
static enum cpuhp_state dwell_hotplug_state;

/*
 * Whether an event is the module's own clock. perf's clock counts the same, but is throttled
 * and costs about 200 more instructions for each sample.
 */
static bool dwell_is_clock(const struct dwell_event *event)
{
	return event->type == PERF_TYPE_SOFTWARE && event->config == PERF_COUNT_SW_CPU_CLOCK &&
	       (event->flags & ~(DWELL_EVENT_USER_ONLY | DWELL_EVENT_CHARGED)) ==
		       DWELL_EVENT_PINNED;
}

/* Must run on the CPU of the clock, because the timer starts on the current CPU. */
static void dwell_clock_start_here(void *argument)
{
	struct dwell_cpu *cpu = argument;
	u64 period = READ_ONCE(cpu->counter[cpu->clock.index].period);

	hrtimer_start(&cpu->clock.timer, ns_to_ktime(period), HRTIMER_MODE_REL_PINNED_HARD);
}

static void dwell_clock_switch(unsigned int number, bool on)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);
	struct dwell_clock *clock = &cpu->clock;

	if (!clock->is_open || clock->is_on == on)
		return;
	if (on) {
		clock->since_ns = ktime_get_mono_fast_ns();
		smp_call_function_single(number, dwell_clock_start_here, cpu, 1);
	} else {
		hrtimer_cancel(&clock->timer);
		clock->counted_ns += ktime_get_mono_fast_ns() - clock->since_ns;
	}
	clock->is_on = on;
}

static u64 dwell_on_ns(const struct dwell_on *on)
{
	return on->before_ns + (on->is_on ? ktime_get_mono_fast_ns() - on->since_ns : 0);
}

static void dwell_on_switch(struct dwell_on *on, bool is_on)
{
	on->before_ns = dwell_on_ns(on);
	on->since_ns = ktime_get_mono_fast_ns();
	on->is_on = is_on;
}

/*
 * Checks whether perf has given an event up on a CPU because other pinned events held all
 * its counters. It stays given up until we enable it again. Meanwhile perf's record of the
 * event's time does not advance.
 */
static bool dwell_is_given_up(struct dwell_cpu *cpu, unsigned int index)
{
	const struct perf_event *event = cpu->event[index];
	struct dwell_given_up *given_up = &cpu->given_up[index];
	u64 on_ns = dwell_on_ns(&cpu->on);

	if (given_up->is)
		given_up->total_ns += on_ns - given_up->seen_ns;
	given_up->seen_ns = on_ns;
	given_up->is = event && READ_ONCE(event->state) == PERF_EVENT_STATE_ERROR;
	return given_up->is;
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

	if (!cpu->clock.is_open && dwell_is_clock(wanted)) {
		cpu->clock.is_open = true;
		cpu->clock.index = index;
		dwell_timer_setup(&cpu->clock.timer, dwell_clock_expired);
		return 0;
	}
	event = perf_event_create_kernel_counter(&attr, number, NULL, dwell_overflow,
						 (void *)(uintptr_t)index);
	if (IS_ERR(event))
		return PTR_ERR(event);
	cpu->event[index] = event;
	return 0;
}

static void dwell_add_event_time(struct dwell_event_time *sum, struct perf_event *event)
{
	u64 enabled, running;

	perf_event_read_value(event, &enabled, &running);
	sum->enabled_ns += enabled;
	sum->running_ns += running;
}

static void dwell_close_events(unsigned int number)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);
	unsigned int index;

	cpu->sampled = false;
	dwell_clock_switch(number, false);
	cpu->clock.is_open = false;
	for (index = 0; index < DWELL_EVENTS_MAX; index++) {
		struct perf_event *event = cpu->event[index];

		if (!event)
			continue;
		dwell_add_event_time(&cpu->gone[index], event);
		cpu->event[index] = NULL;
		perf_event_release_kernel(event);
		dwell_is_given_up(cpu, index);
	}
	dwell_on_switch(&cpu->on, false);
}

static void dwell_switch_events(unsigned int number, bool on)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);
	unsigned int index;

	dwell_on_switch(&cpu->on, on && cpu->sampled);
	dwell_clock_switch(number, on);
	for (index = 0; index < DWELL_EVENTS_MAX; index++) {
		if (!cpu->event[index])
			continue;
		if (on)
			perf_event_enable(cpu->event[index]);
		else
			perf_event_disable(cpu->event[index]);
		dwell_is_given_up(cpu, index);
	}
}

/* Opens all events on a CPU that is online, or none of them. */
static int dwell_open_cpu(unsigned int number)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);
	unsigned int index;
	int error;

	error = dwell_drain_add_cpu(number);
	for (index = 0; !error && index < dwell_config.event_count; index++)
		error = dwell_open_event(cpu, number, index);
	if (error) {
		dwell_close_events(number);
		return error;
	}
	cpu->sampled = true;
	if (dwell_is_on)
		dwell_switch_events(number, true);
	return 0;
}

static void dwell_reset_counters(struct dwell_cpu *cpu)
{
	unsigned int index;

	memset(cpu->counter, 0, sizeof(cpu->counter));
	memset(cpu->gone, 0, sizeof(cpu->gone));
	memset(&cpu->on, 0, sizeof(cpu->on));
	memset(cpu->given_up, 0, sizeof(cpu->given_up));
	cpu->clock.counted_ns = 0;
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
	/* The random draw multiplies twice the spread by 32 bits. */
	return period && period <= S64_MAX && spread < period && spread < 1U << 31;
}

/*
 * Events of counters, and clocks. Other software events and tracepoints overflow outside of
 * interrupts, where the buffers may be switched while the handler runs, and they are opened under a
 * lock that is already held when a CPU goes offline.
 */
static bool dwell_is_supported(const struct dwell_event *event)
{
	switch (event->type) {
	case PERF_TYPE_HARDWARE:
	case PERF_TYPE_HW_CACHE:
	case PERF_TYPE_RAW:
		return true;
	case PERF_TYPE_SOFTWARE:
		return event->config == PERF_COUNT_SW_CPU_CLOCK ||
		       event->config == PERF_COUNT_SW_TASK_CLOCK;
	default:
		return false;
	}
}

static int dwell_check_config(const struct dwell_config *config)
{
	unsigned int index;

	if (config->version != DWELL_ABI_VERSION)
		return -EPROTO;
	if (!config->event_count || config->event_count > DWELL_EVENT_ENTERED || config->reserved ||
	    config->bucket_bits < DWELL_BUCKET_BITS_MIN ||
	    config->bucket_bits > DWELL_BUCKET_BITS_MAX ||
	    config->overflow_entries < DWELL_OVERFLOW_MIN ||
	    config->overflow_entries > DWELL_OVERFLOW_MAX ||
	    config->register_samples > DWELL_REGISTER_SAMPLES_MAX)
		return -EINVAL;
	for (index = 0; index < config->event_count; index++) {
		const struct dwell_event *event = &config->event[index];

		if (!dwell_is_valid_period(event->period, event->spread) || event->flags & ~15U)
			return -EINVAL;
		if (!dwell_is_supported(event))
			return -EOPNOTSUPP;
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
 * @config: the configuration
 *
 * Context: the CPU hotplug lock and dwell_mutex are held.
 * Return: 0, or an error number; then nothing is left open.
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
		dwell_close_events(number);
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
		dwell_switch_events(number, on);
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

/* A clock of the module's own always counts. Open events have the same index on all CPUs. */
static void dwell_add_clock_time(struct dwell_event_time *sum, const struct dwell_clock *clock)
{
	u64 counted_ns = clock->counted_ns;

	if (clock->is_on)
		counted_ns += ktime_get_mono_fast_ns() - clock->since_ns;
	sum->enabled_ns += counted_ns;
	sum->running_ns += counted_ns;
}

static void dwell_add_time(struct dwell_event_status *status, struct dwell_cpu *cpu)
{
	unsigned int index = status->event;
	struct dwell_event_time time = cpu->gone[index];

	if (cpu->clock.index == index)
		dwell_add_clock_time(&time, &cpu->clock);
	if (cpu->event[index])
		dwell_add_event_time(&time, cpu->event[index]);
	status->given_up += dwell_is_given_up(cpu, index);
	status->given_up_ns += cpu->given_up[index].total_ns;
	status->enabled_ns += time.enabled_ns + cpu->given_up[index].total_ns;
	status->running_ns += time.running_ns;
}

/**
 * dwell_sampler_event_status() - reports the state of an event
 * @status: has CPU and index, receives the rest
 *
 * Context: dwell_mutex is held; sleeps.
 * Return: 0 or -EINVAL.
 */
int dwell_sampler_event_status(struct dwell_event_status *status)
{
	unsigned int number;

	if (status->event >= dwell_config.event_count)
		return -EINVAL;
	status->samples = 0;
	status->idle = 0;
	status->nested = 0;
	status->lost = 0;
	status->throttled = 0;
	status->given_up = 0;
	status->given_up_ns = 0;
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
		dwell_add_time(status, cpu);
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

static void dwell_add_status(struct dwell_status *sum, struct dwell_cpu *cpu)
{
	unsigned int index;

	sum->cpus += cpu->sampled;
	sum->kernel += READ_ONCE(cpu->kernel);
	sum->charged += READ_ONCE(cpu->charged);
	sum->register_samples += READ_ONCE(cpu->registers.taken);
	sum->register_lost += READ_ONCE(cpu->registers.lost);
	sum->read_samples += cpu->read_samples;
	sum->read_entries += cpu->read_entries;
	for (index = 0; index < DWELL_EVENTS_MAX; index++) {
		sum->interrupts += READ_ONCE(cpu->counter[index].samples);
		sum->idle += READ_ONCE(cpu->counter[index].idle);
		sum->nested += READ_ONCE(cpu->counter[index].nested);
		sum->throttled += READ_ONCE(cpu->counter[index].throttled);
		sum->given_up += dwell_is_given_up(cpu, index);
	}
	dwell_add_table_counts(&sum->table, &cpu->table.counts);
}

/**
 * dwell_sampler_status() - reports all counts; they are read at slightly different times
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
	/* A failure must not keep a CPU offline. */
	if (error)
		pr_warn("dwell: CPU %u is not sampled: error %d\n", number, error);
	return 0;
}

/* Its table and buffers remain until the reader has emptied them. */
static int dwell_cpu_offline(unsigned int number)
{
	mutex_lock(&dwell_mutex);
	dwell_close_events(number);
	mutex_unlock(&dwell_mutex);
	return 0;
}

/* Counters lose their state while the machine sleeps, so they are stopped before. */
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
			dwell_switch_events(number, on);
	}
	mutex_unlock(&dwell_mutex);
	cpus_read_unlock();
	return NOTIFY_OK;
}

static struct notifier_block dwell_suspend_block = { .notifier_call = dwell_suspend };

/**
 * dwell_sampler_init() - listens for CPUs that come and go, and for sleep
 *
 * Return: 0, or an error number.
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
