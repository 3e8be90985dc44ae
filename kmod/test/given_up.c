// SPDX-License-Identifier: GPL-2.0
/*
 * Tests an event that perf gives up, because pinned events of others hold all counters of a CPU.
 */
#define _GNU_SOURCE
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/perf_event.h>

#include "guest.h"

#define COUNTERS_MAX 64

static const struct dwell_event cycles = {
	.type = PERF_TYPE_HARDWARE,
	.config = PERF_COUNT_HW_CPU_CYCLES,
	.period = 200000,
	.spread = 25000,
	.flags = DWELL_EVENT_PINNED,
};

static int hold_counter(int cpu)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.pinned = 1,
	};

	return syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/*
 * Opens events until one finds no counter, which reads as end of file. Returns the number of opened
 * events.
 */
static int hold_all_counters(int cpu, int *counters)
{
	int count = 0;
	__u64 value;

	do
		counters[count] = hold_counter(cpu);
	while (read(counters[count++], &value, sizeof(value)) == sizeof(value) &&
	       count < COUNTERS_MAX);
	return count;
}

static struct dwell_event_status event_status(const struct reader *reader, __u32 cpu)
{
	struct dwell_event_status status = { .cpu = cpu };

	ioctl(reader->fd, DWELL_EVENT_STATUS, &status);
	return status;
}

static void check_held(const struct reader *reader, int counters)
{
	struct dwell_event_status status = event_status(reader, 0), other = event_status(reader, 1);

	tap(reader_status(reader, DWELL_ALL_CPUS).given_up == 1 &&
	    reader_status(reader, 0).given_up == 1,
	    "given up: the event is, on the CPU whose %d counters other events hold", counters);
	tap(status.given_up == 1 && !status.samples &&
	    status.given_up_ns * 10 > status.enabled_ns * 9,
	    "given up: the duration is reported (%llu of %llu ns, %llu samples)", status.given_up_ns,
	    status.enabled_ns, status.samples);
	tap(!other.given_up && !other.given_up_ns && other.samples > 0,
	    "given up: the other CPU is sampled (%llu samples)", other.samples);
}

void test_given_up(void)
{
	struct dwell_event_status before, started, after;
	int counters[COUNTERS_MAX], count, at;
	struct reader reader;

	/* This comes before the counters are held, because a child would hold them, too. */
	work_start(work_spin, 2, 1);
	/* This comes before our event is opened, because the first event gets the counter. */
	count = hold_all_counters(0, counters);
	if (counters[0] < 0 || reader_open(&reader, &cycles, 1, usual_shape)) {
		tap_skip("no PMU in this machine", "an event that perf gives up is reported");
		work_wait();
		return;
	}
	reader_start(&reader);
	reader_run(&reader, 0.7, 0.3);
	check_held(&reader, count - 1);
	before = event_status(&reader, 0);
	for (at = 0; at < count; at++)
		close(counters[at]);
	reader_run(&reader, 0.1, 1);
	started = event_status(&reader, 0);
	tap(started.given_up == 1 && started.given_up_ns > before.given_up_ns,
	    "given up: the event stays so until it is started again");
	reader_start(&reader);
	work_start(work_spin, 1, 0);
	started = event_status(&reader, 0);
	reader_run(&reader, 0.7, 0.3);
	after = event_status(&reader, 0);
	tap(!after.given_up && after.samples > 0 &&
	    (after.given_up_ns - started.given_up_ns) * 10 < after.enabled_ns - started.enabled_ns,
	    "given up: after that it counts (%llu samples)", after.samples);
	reader_stop(&reader);
	work_wait();
	reader_flush(&reader);
	tap(!reader.strange && reader.samples + reader_status(&reader, DWELL_ALL_CPUS).table.lost ==
		    reader_status(&reader, DWELL_ALL_CPUS).table.samples,
	    "given up: samples = read + lost");
	reader_close(&reader);
}
