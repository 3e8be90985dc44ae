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
 * @samples: two buffers of @capacity, end to end
 * @capacity: of one
 * @spill: which is which
 * @taken: handed on
 * @lost: samples that found both full, or that were not in 64-bit user code
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
 * @timer: on the CPU
 * @index: the event's
 * @is_open: dwell_mutex: there is one, and the CPU is online
 * @is_on: dwell_mutex: it runs
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
 * struct dwell_on - for how long a CPU was to be sampled
 * @is_on: it is
 * @since_ns: since when
 * @before_ns: for how long before that
 */
struct dwell_on {
	bool is_on;
	u64 since_ns;
	u64 before_ns;
};

/**
 * struct dwell_given_up - of an event, whether perf has given it up
 * @is: it was so when it was last looked at
 * @seen_ns: when that was, in time that the CPU was to be sampled
 * @total_ns: for how long it was so
 */
struct dwell_given_up {
	bool is;
	u64 seen_ns;
	u64 total_ns;
};

/**
 * struct dwell_event_time - of an event
 * @enabled_ns: how long it was to count
 * @running_ns: how long it did
 */
struct dwell_event_time {
	u64 enabled_ns;
	u64 running_ns;
};

/**
 * struct dwell_cpu - all of one CPU
 * @busy: a sample is being counted, or buffers are being switched: an NMI must keep off
 * @table: counts
 * @kernel: counted samples that were not in user mode
 * @registers: samples with registers
 * @counter: by event index
 * @clock: the event that needs no counter, if there is one
 * @wake: wakes the reader from a context in which an NMI may not
 * @event: dwell_mutex: by event index; NULL while the CPU is offline
 * @gone: dwell_mutex: by event index, of events that were closed when the CPU went
 * @on: dwell_mutex: for how long events were to count
 * @given_up: dwell_mutex: by event index
 * @sampled: dwell_mutex: there are events
 * @since_ns: the reader's: nothing in @table is older
 * @read_samples: the reader's: sum of counts handed out
 * @read_entries: the reader's: entries handed out
 * @entries_done: the reader's: how far it has got with a FULL overflow buffer, by side
 * @registers_done: the reader's: the same of samples with registers
 */
struct dwell_cpu {
	u32 busy;
	struct dwell_table table;
	u64 kernel;
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
