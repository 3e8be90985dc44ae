/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One CPU's counters and the data that their handler writes. Access is divided as follows:
 *
 * - The handler, on its own CPU, perhaps in an NMI: all of struct dwell_cpu except marked members.
 * - The reader, holding dwell_reader: overflow buffers that are FULL, tables out of use, members
 *   marked so. It reaches the rest by an IPI to that CPU with @busy set, or when it is offline.
 * - Hotplug, suspend and the reader's ioctls, holding dwell_mutex: events and the configuration.
 *
 * Locks nest in this order: dwell_reader, the CPU hotplug lock, dwell_mutex. Memory of the reader's
 * process is accessed while only the first one is held.
 */
#ifndef DWELL_SAMPLER_H
#define DWELL_SAMPLER_H

#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>

#include "dwell_abi.h"

/**
 * struct dwell_counter - one event on one CPU
 * @period: mean occurrences between two samples; written by the reader in one store
 * @spread: half the width of the range of periods; written in the same way
 * @samples: interrupts of it
 * @idle: of these, the ones in the idle task
 * @nested: of these, the ones that found the CPU busy with another, or came without registers
 * @throttled: of these, the ones after which the kernel stopped it until the next tick
 * @random: state of the generator that draws periods, never 0
 * @flags: DWELL_EVENT_…
 */
struct dwell_counter {
	u64 period;
	u64 spread;
	u64 samples;
	u64 idle;
	u64 nested;
	u64 throttled;
	u32 random;
	u32 flags;
} __aligned(64);

/**
 * struct dwell_registers - samples with registers, in two buffers like entries
 * @samples: two buffers of @capacity samples, end to end
 * @capacity: the number of samples in one buffer
 * @spill: the states of the two buffers
 * @taken: samples that were passed on
 * @lost: samples that found both buffers full, or that were not in 64-bit user code
 */
struct dwell_registers {
	struct dwell_register_sample *samples;
	u32 capacity;
	struct dwell_spill spill;
	u64 taken;
	u64 lost;
};

/**
 * struct dwell_clock - one event that is a timer of the module's own
 * @timer: the timer, which runs on the CPU
 * @index: the index of the event
 * @is_open: dwell_mutex: the event exists, and the CPU is online
 * @is_on: dwell_mutex: the timer runs
 * @since_ns: dwell_mutex: when it was started
 * @counted_ns: dwell_mutex: for how long it ran before that
 */
struct dwell_clock {
	struct hrtimer timer;
	u32 index;
	bool is_open;
	bool is_on;
	u64 since_ns;
	u64 counted_ns;
};

/**
 * struct dwell_on - how long sampling of a CPU has been on
 * @is_on: whether it is on
 * @since_ns: the time since which it is on
 * @before_ns: how long it was on before that
 */
struct dwell_on {
	bool is_on;
	u64 since_ns;
	u64 before_ns;
};

/**
 * struct dwell_given_up - whether perf has given an event up
 * @is: whether it was given up at the last check
 * @seen_ns: the time of the last check, in time that sampling of the CPU was on
 * @total_ns: how long it was given up
 */
struct dwell_given_up {
	bool is;
	u64 seen_ns;
	u64 total_ns;
};

/**
 * struct dwell_event_time - the times of an event
 * @enabled_ns: how long it was enabled
 * @running_ns: how long it counted
 */
struct dwell_event_time {
	u64 enabled_ns;
	u64 running_ns;
};

/**
 * struct dwell_cpu - the state of one CPU
 * @busy: a sample is being counted, or buffers are being switched; an NMI must not touch them
 * @table: the table of counts
 * @kernel: counted samples that were not in user mode
 * @charged: of these, the ones that were counted a second time as DWELL_EVENT_ENTERED
 * @registers: samples with registers
 * @counter: the counters, by event index
 * @clock: the event that needs no counter, if there is one
 * @wake: wakes the reader from a context in which an NMI may not
 * @event: dwell_mutex: the events, by event index; NULL while the CPU is offline
 * @gone: dwell_mutex: times of events that were closed when the CPU went offline, by event index
 * @on: dwell_mutex: how long the events were enabled
 * @given_up: dwell_mutex: whether events are given up, by event index
 * @sampled: dwell_mutex: whether there are events
 * @since_ns: the reader's: lower bound of the times of samples in @table
 * @read_samples: the reader's: sum of the counts that were passed to the reader
 * @read_entries: the reader's: entries that were passed to the reader
 * @entries_done: the reader's: entries already read of a FULL overflow buffer, by side
 * @registers_done: the reader's: samples with registers already read of a FULL buffer, by side
 */
struct dwell_cpu {
	u32 busy;
	struct dwell_table table;
	u64 kernel;
	u64 charged;
	struct dwell_registers registers;
	struct dwell_counter counter[DWELL_EVENTS_MAX];
	struct dwell_clock clock;
	struct irq_work wake;

	struct perf_event *event[DWELL_EVENTS_MAX];
	struct dwell_event_time gone[DWELL_EVENTS_MAX];
	struct dwell_on on;
	struct dwell_given_up given_up[DWELL_EVENTS_MAX];
	bool sampled;
	u64 since_ns;
	u64 read_samples;
	u64 read_entries;
	u32 entries_done[2];
	u32 registers_done[2];
};

DECLARE_PER_CPU_ALIGNED(struct dwell_cpu, dwell_cpus);

/* Guards events and what is configured. Never taken by a handler. */
extern struct mutex dwell_mutex;

/* handler.c */
extern struct dwell_apart dwell_apart;
void dwell_overflow(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs);
enum hrtimer_restart dwell_clock_expired(struct hrtimer *timer);

/* sampler.c */
int dwell_sampler_init(void);
void dwell_sampler_exit(void);
int dwell_sampler_open(const struct dwell_config *config);
void dwell_sampler_close(void);
bool dwell_sampler_is_open(void);
void dwell_sampler_switch(bool on);
void dwell_sampler_status(struct dwell_status *status);
int dwell_sampler_period(const struct dwell_period *period);
int dwell_sampler_apart(const struct dwell_apart *apart);
int dwell_sampler_event_status(struct dwell_event_status *status);

/* drain.c */
int dwell_drain_open(const struct dwell_config *config);
int dwell_drain_add_cpu(unsigned int cpu);
void dwell_drain_close(void);
void dwell_drain_flush(void);
bool dwell_drain_is_ready(void);
ssize_t dwell_drain_read(char __user *to, size_t room);
void dwell_drain_wake(struct irq_work *work);
extern struct wait_queue_head dwell_drain_wait;

/* chardev.c */
int dwell_chardev_init(void);
void dwell_chardev_exit(void);

/* test_nmi.c, in test builds only */
#ifdef DWELL_TEST_NMI
int dwell_test_nmi_init(void);
void dwell_test_nmi_exit(void);
/* handler.c */
void dwell_count_nmi(struct dwell_cpu *cpu, unsigned int index, struct pt_regs *regs);
#else
static inline int dwell_test_nmi_init(void)
{
	return 0;
}

static inline void dwell_test_nmi_exit(void)
{
}
#endif

#endif
