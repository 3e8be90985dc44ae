// SPDX-License-Identifier: GPL-2.0
/*
 * Instructions that a sample costs, in a machine whose clock is its instruction counter (QEMU's
 * -icount shift=0: one instruction, one ns). The same kernel, module and compiler give the same
 * numbers within a percent on any host, however loaded; the rest depends on where the kernel places
 * code and data.
 *
 * The same work is timed alone, under a timer that samples nothing, under an event whose samples
 * are not read, and under the module. The additional time divided by the number of samples is the
 * cost of one sample.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/perf_event.h>

#include "guest.h"

#define HZ 16129
/* Instructions of each piece of work, roughly. */
#define WORK 100000000ULL
/* Each piece is timed this many times. */
#define ROUNDS 8

void bench_run(void);

/* What samples during a piece of work, from nothing to everything. */
enum way { ALONE, TIMER_ONLY, UNREAD, MODULE, WAYS };
static const char *const way_names[] = { "alone", "timer only", "no consumer", "module" };

/*
 * Cycles, if there is a PMU, whose counter follows QEMU's clock: one cycle is one ns. As in dwell,
 * kernel time is charged.
 */
static struct dwell_event event_sampled(void)
{
	struct dwell_event event = cpu_clock(HZ);
	struct perf_event_attr attr = {
		.size = sizeof(attr), .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_CPU_CYCLES,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0);

	if (fd >= 0) {
		close(fd);
		event.type = attr.type;
		event.config = attr.config;
	}
	event.spread = 0;
	event.flags |= DWELL_EVENT_CHARGED;
	return event;
}

static int open_timer(const struct dwell_event *event, bool counts_nothing)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = event->type,
		.config = event->config,
		.sample_period = event->period,
		.sample_type = PERF_SAMPLE_IP,
		.exclude_user = counts_nothing,
		.exclude_kernel = counts_nothing,
	};

	return syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0);
}

/* Samples in a process of its own until it is told to stop, so that the worker does not change. */
static void sample(enum way way, int ready, int stop)
{
	struct dwell_event event = event_sampled();
	struct reader reader;
	char byte = 'x';

	if (way == TIMER_ONLY || way == UNREAD) {
		open_timer(&event, way == TIMER_ONLY);
	} else if (way == MODULE) {
		if (reader_open(&reader, &event, 1, usual_shape))
			_exit(1);
		reader_start(&reader);
	}
	if (write(ready, &byte, 1) != 1 || read(stop, &byte, 1) < 0)
		_exit(1);
	_exit(0);
}

/* Returns the instructions (= ns) that @work takes. */
static double timed(void (*work)(__u64), __u64 amount)
{
	double start = now_seconds();

	work(amount);
	return (now_seconds() - start) * 1e9;
}

/*
 * Returns the least of all rounds, because other activity can only add time. For work whose time
 * @varies in both directions, it returns the mean.
 */
static double typical(enum way way, void (*work)(__u64), __u64 amount, bool varies)
{
	int ready[2], stop[2], round;
	double best = 1e300, sum = 0;
	char byte;
	pid_t child;

	if (pipe(ready) || pipe(stop))
		return -1;
	child = fork();
	if (!child) {
		close(stop[1]);
		sample(way, ready[1], stop[0]);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1) {
		usleep(20000);
		for (round = 0; round < ROUNDS; round++) {
			double now = timed(work, amount);

			best = now < best ? now : best;
			sum += now;
		}
	}
	close(stop[1]);
	close(stop[0]);
	close(ready[0]);
	waitpid(child, NULL, 0);
	return varies ? sum / ROUNDS : best;
}

void bench_run(void)
{
	static const struct { const char *name; void (*work)(__u64); __u64 amount; bool varies; } all[] = {
		{ "hot", work_hot_amount, WORK / 4, false },
		{ "wide", work_wide_amount, WORK / 30, false },
		{ "forks", work_forks_amount, 200, true },
	};
	const char *limit = boot_option("dwell_limit");
	double bar = limit ? atof(limit) : 1300, most;
	bool is_counter = event_sampled().type == PERF_TYPE_HARDWARE;
	size_t at;

	if (module_load()) {
		tap(false, "the module loads");
		return;
	}
	/*
	 * The kernel does this once after boot. It costs nothing, because no user waits for this
	 * machine.
	 */
	sleep(5);
	for (at = 0; at < sizeof(all) / sizeof(*all); at++) {
		double time[WAYS], cost[WAYS];
		int way;

		/* Brings pages and kernel caches into memory. */
		timed(all[at].work, all[at].amount);
		for (way = 0; way < WAYS; way++) {
			time[way] = typical(way, all[at].work, all[at].amount, all[at].varies);
			/* There is one sample for each period of the time that the work took. */
			cost[way] = (time[way] - time[ALONE]) / (time[way] * HZ / 1e9);
			printf("# %-5s %-11s %.0f instructions, %.0f for each sample\n", all[at].name,
			       way_names[way], time[way], cost[way]);
		}
		/* The cost of forks under a counter differs by 30 between boots. */
		most = bar * (is_counter && all[at].varies && !limit ? 1.03 : 1);
		tap(cost[MODULE] > 0 && cost[MODULE] <= most,
		    "%s: a sample costs at most %.0f instructions (%.0f; an event without a consumer: %.0f)",
		    all[at].name, most, cost[MODULE], cost[UNREAD]);
	}
}
