// SPDX-License-Identifier: GPL-2.0
/*
 * Tests the module in a running kernel: its counts, and how it is loaded and unloaded.
 *
 * No assertion depends on how fast the machine is: sums must be exact, shares have wide bounds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/perf_event.h>

#include "guest.h"

#define CPUS 2
#define RATE_HZ 5200

static const struct dwell_event cycles = {
	.type = PERF_TYPE_HARDWARE,
	.config = PERF_COUNT_HW_CPU_CYCLES,
	.period = 200000,
	.spread = 25000,
	.flags = DWELL_EVENT_PINNED,
};

/* The event of most tests: cycles, if there is a PMU. */
static struct dwell_event main_event;

/* Checks sums that must be exact once everything has been read. */
static void check_sums(const char *name, const struct reader *reader)
{
	struct dwell_status status = reader_status(reader, DWELL_ALL_CPUS), one;
	struct dwell_table_counts *table = &status.table;
	__u64 elsewhere = status.idle + status.nested + status.register_samples + status.register_lost;
	__u64 by_cpu = 0;
	__u32 cpu;

	for (cpu = 0; cpu < CPUS; cpu++) {
		one = reader_status(reader, cpu);
		by_cpu += one.interrupts;
	}
	printf("# %s: %llu interrupts, %llu idle, %llu nested, %llu kernel, %llu throttled, %llu samples: %llu found, %llu evicted, %llu lost, %llu entries read\n",
	       name, status.interrupts, status.idle, status.nested, status.kernel, status.throttled,
	       table->samples, table->found, table->evicted, table->lost, reader->entries);
	tap(table->samples > 50, "%s: there are samples", name);
	tap(status.interrupts == elsewhere + table->samples - status.charged &&
		    by_cpu == status.interrupts,
	    "%s: interrupts = idle + nested + counted (%llu, %llu, %llu less %llu)", name,
	    status.interrupts, elsewhere, table->samples, status.charged);
	tap(table->found + table->fresh + table->evicted + table->saturated == table->samples,
	    "%s: samples = found + new + evicting + saturating", name);
	tap(reader->samples + table->lost == table->samples && reader->samples == status.read_samples,
	    "%s: samples = read + lost (%llu, %llu, %llu)", name, table->samples, reader->samples,
	    table->lost);
	tap(!reader->strange, "%s: no unknown chunk (%llu)", name, reader->strange);
}

/* Stops sampling, reads the rest, checks the sums and closes. */
static void finish(const char *name, struct reader *reader)
{
	reader_stop(reader);
	work_wait();
	reader_flush(reader);
	check_sums(name, reader);
}

static struct reader begin(const struct dwell_event *events, unsigned int count, struct shape shape)
{
	struct reader reader;
	int error = reader_open(&reader, events, count, shape);

	if (error) {
		tap(false, "opening and configuring: %s", strerror(error));
		reader_open(&reader, &main_event, 1, usual_shape);
	}
	reader_start(&reader);
	return reader;
}

static void choose_event(void)
{
	struct reader reader;

	main_event = cycles;
	if (reader_open(&reader, &cycles, 1, usual_shape)) {
		main_event = cpu_clock(RATE_HZ);
		printf("# no PMU: cpu-clock\n");
		return;
	}
	reader_close(&reader);
	printf("# PMU: cycles\n");
}

/* Returns mm->start_code of this process, as the kernel reports it. */
static __u64 start_code(void)
{
	char line[2000] = "", *at;
	FILE *file = fopen("/proc/self/stat", "r");
	int field;

	if (!file || !fgets(line, sizeof(line), file))
		return 0;
	fclose(file);
	at = strrchr(line, ')');
	for (field = 2; at && field < 26; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

static __u64 offset(const char *symbol)
{
	return (__u64)symbol - start_code();
}

static void test_spin(void)
{
	struct reader reader = begin(&main_event, 1, usual_shape);
	__u64 in_loop, ours;
	int cpu;

	for (cpu = 0; cpu < CPUS; cpu++)
		work_start(work_spin, 1.5, cpu);
	reader_run(&reader, 1.5, 0.3);
	finish("spin", &reader);
	in_loop = reader_count(&reader, DWELL_EXECUTABLE, offset(work_spin_start), offset(work_spin_end), 0);
	ours = reader_count(&reader, DWELL_EXECUTABLE, 0, DWELL_ADDRESS_MASK, 0);
	tap(in_loop > 50 && in_loop * 10 > ours * 7,
	    "spin: most samples of the executable are at the loop's offsets (%llu of %llu)", in_loop, ours);
	tap(reader_status(&reader, DWELL_ALL_CPUS).table.found * 2 > reader.samples,
	    "spin: most samples find their entry");
	tap(reader_status(&reader, DWELL_ALL_CPUS).cpus == CPUS, "spin: all CPUs are sampled");
	reader_close(&reader);
}

static void test_forks(void)
{
	struct reader reader = begin(&main_event, 1, usual_shape);
	__u64 ours;
	int cpu;

	for (cpu = 0; cpu < CPUS; cpu++)
		work_start(work_forks, 2, cpu);
	reader_run(&reader, 2, 1);
	finish("forks", &reader);
	ours = reader_count(&reader, DWELL_EXECUTABLE, 0, DWELL_ADDRESS_MASK, 0);
	tap(ours * 10 > reader.samples, "forks: short processes share entries by executable (%llu of %llu samples)",
	    ours, reader.samples);
	tap(reader_count(&reader, DWELL_KERNEL, 0, DWELL_ADDRESS_MASK, 0) > 0, "forks: there are samples in the kernel");
	reader_close(&reader);
}

static void test_charging(void)
{
	struct dwell_event event = main_event;
	__u64 there, elsewhere, kernel;
	struct reader reader;
	int cpu;

	event.flags |= DWELL_EVENT_CHARGED;
	reader = begin(&event, 1, usual_shape);
	for (cpu = 0; cpu < CPUS; cpu++)
		work_start(work_read, 1.5, cpu);
	reader_run(&reader, 1.5, 0.3);
	finish("charging", &reader);
	there = reader_charged(&reader, offset(work_read_at), false);
	elsewhere = reader_charged(&reader, offset(work_read_at), true);
	kernel = reader_in_kernel(&reader);
	tap(there > 50 && there > elsewhere,
	    "charging: kernel time is at the system call (%llu, elsewhere %llu)", there, elsewhere);
	tap(there + elsewhere <= kernel && (there + elsewhere) * 20 > kernel * 19 &&
		    there + elsewhere == reader_status(&reader, DWELL_ALL_CPUS).charged,
	    "charging: kernel samples are counted a second time (%llu of %llu)",
	    there + elsewhere, kernel);
	reader_close(&reader);
}

/* The rate is four times the usual one, and the reader reads ten times per second. */
static void test_fast(void)
{
	struct dwell_event event = cpu_clock(20000);
	struct reader reader = begin(&event, 1, usual_shape);

	work_start(work_forks, 1, 0);
	work_start(work_wide, 1, 1);
	reader_run(&reader, 1, 0.1);
	finish("fast", &reader);
	tap(!reader_status(&reader, DWELL_ALL_CPUS).table.lost, "fast: nothing is lost at 20,000 Hz");
	reader_close(&reader);
}

/* The tables lose nothing only if both buffers are read in time, which does not happen here. */
static void test_small(void)
{
	struct reader reader = begin(&main_event, 1, (struct shape){ DWELL_BUCKET_BITS_MIN, DWELL_OVERFLOW_MIN });
	struct dwell_status status;
	int cpu;

	for (cpu = 0; cpu < CPUS; cpu++)
		work_start(work_wide, 1, cpu);
	sleep(1);
	reader_run(&reader, 0.2, 0.1);
	finish("small", &reader);
	status = reader_status(&reader, DWELL_ALL_CPUS);
	tap(status.table.lost > 0, "small: samples without room are counted as lost (%llu)", status.table.lost);
	reader_close(&reader);
}

static void test_apart(void)
{
	struct reader reader = begin(&main_event, 1, usual_shape);
	struct dwell_apart apart = { .count = 1 };
	__u64 first = offset(work_spin_start), last = offset(work_spin_end), before, after;
	size_t at;
	int child;

	work_start(work_spin, 0.7, 0);
	reader_run(&reader, 0.7, 0.2);
	work_wait();
	reader_flush(&reader);
	for (at = 0; at < reader.seen_count; at++)
		if (entry_kind(&reader.seen[at]) == DWELL_EXECUTABLE && entry_address(&reader.seen[at]) >= first &&
		    entry_address(&reader.seen[at]) <= last)
			apart.tag[0] = entry_tag(&reader.seen[at]);
	tap(apart.tag[0] & DWELL_TAG_EXECUTABLE && !ioctl(reader.fd, DWELL_APART, &apart),
	    "apart: an executable is selected by its tag");
	/* This also reads samples that were counted before the request took effect. */
	reader_flush(&reader);
	before = reader_count(&reader, DWELL_EXECUTABLE, first, last, 0);
	child = work_start(work_spin, 0.7, 0);
	reader_run(&reader, 0.7, 0.2);
	finish("apart", &reader);
	after = reader_count(&reader, DWELL_EXECUTABLE, first, last, 0);
	tap(after == before, "apart: there are no further entries by executable");
	tap(reader_count(&reader, DWELL_PROCESS, (__u64)work_spin_start, (__u64)work_spin_end, child) > 10,
	    "apart: the process has entries at its own addresses");
	reader_close(&reader);
}

/* Returns the samples with registers in the addresses from @first up to @last. */
static __u64 registers_count(const struct reader *reader, const char *first, const char *last)
{
	__u64 count = 0;
	size_t at;

	for (at = 0; at < reader->registers_count; at++)
		count += reader->registers[at].pc >= (__u64)first && reader->registers[at].pc < (__u64)last;
	return count;
}

/* It is counted like any other code, but its registers would be misinterpreted. */
static void test_short_registers(__attribute__((unused)) const struct dwell_event *events)
{
#if defined(__x86_64__)
	struct reader reader = begin(events, 2, usual_shape);
	__u64 first = offset(work_short_start), last = offset(work_short_end) - 1, counted, told;

	work_start(work_short, 1, 1);
	reader_run(&reader, 1, 0.25);
	finish("32-bit code", &reader);
	counted = reader_count(&reader, DWELL_EXECUTABLE, first, last, 0);
	told = registers_count(&reader, work_short_start, work_short_end);
	tap(counted > 20 && !told && reader_status(&reader, DWELL_ALL_CPUS).register_lost > 20,
	    "registers: those of 32-bit code are not reported (%llu of %llu)", told, counted);
	reader_close(&reader);
#else
	tap_skip("32-bit code is made for x86 only", "registers: those of 32-bit code are not reported");
#endif
}

static void test_registers(void)
{
	struct dwell_event events[2] = { main_event, cpu_clock(500) };
	__u64 in_loop, magic = 0;
	struct dwell_version version = { 0 };
	struct reader reader;
	size_t at;
	int fd = open("/dev/dwell", O_RDWR);

	ioctl(fd, DWELL_VERSION, &version);
	close(fd);
	tap(version.registers == DWELL_REGISTERS, "registers: their number is the expected one (%u)",
	    version.registers);
	events[1].flags = DWELL_EVENT_REGISTERS;
	reader = begin(events, 2, usual_shape);
	work_start(work_magic, 1.5, 1);
	reader_run(&reader, 1.5, 0.25);
	finish("registers", &reader);
	for (at = 0; at < reader.registers_count; at++) {
		struct dwell_register_sample *sample = &reader.registers[at];
		const __u64 *registers = sample->registers, stack = registers[WORK_STACK_AT];

		if (sample->pc >= (__u64)work_magic_start && sample->pc < (__u64)work_magic_end)
			magic += sample->event == 1 && registers[WORK_MAGIC_AT] == WORK_MAGIC &&
				 stack && stack == registers[WORK_STACK_TOO_AT];
	}
	tap(reader_status(&reader, DWELL_ALL_CPUS).register_samples == reader.register_samples,
	    "registers: all samples with registers were read (%llu)", reader.register_samples);
	in_loop = registers_count(&reader, work_magic_start, work_magic_end);
	tap(in_loop > 20 && magic == in_loop, "registers: they have the values of the loop (%llu of %llu)",
	    magic, in_loop);
	reader_close(&reader);
	test_short_registers(events);
}

static void test_period(void)
{
	struct reader reader = begin(&main_event, 1, usual_shape);
	struct dwell_period period = { .period = main_event.period * 20, .spread = main_event.spread };
	struct dwell_event_status before = { .cpu = DWELL_ALL_CPUS }, middle = before, after = before;
	double rate[2];

	work_start(work_spin, 2.2, 0);
	work_start(work_spin, 2.2, 1);
	reader_run(&reader, 0.2, 1);
	ioctl(reader.fd, DWELL_EVENT_STATUS, &before);
	reader_run(&reader, 0.9, 1);
	ioctl(reader.fd, DWELL_EVENT_STATUS, &middle);
	tap(!ioctl(reader.fd, DWELL_PERIOD, &period), "period: it is changed while sampling");
	reader_run(&reader, 0.9, 1);
	ioctl(reader.fd, DWELL_EVENT_STATUS, &after);
	finish("period", &reader);
	rate[0] = (double)(middle.samples - before.samples) / (middle.running_ns - before.running_ns);
	rate[1] = (double)(after.samples - middle.samples) / (after.running_ns - middle.running_ns);
	tap(rate[1] * 4 < rate[0], "period: a period 20 times as long gives fewer samples (%.0f, then %.0f a second)",
	    rate[0] * 1e9, rate[1] * 1e9);
	period.period = 0;
	tap(ioctl(reader.fd, DWELL_PERIOD, &period) && errno == EINVAL, "period: a period of 0 is refused");
	reader_close(&reader);
}

/* There are more events than counters, so they count in turns. */
static void test_multiplexing(void)
{
	struct dwell_event events[DWELL_EVENTS_MAX - 1];
	struct dwell_event_status status = { .cpu = DWELL_ALL_CPUS };
	unsigned int at, count = DWELL_EVENTS_MAX - 1, turns = 0, partly = 0;
	struct reader reader;

	if (main_event.type != PERF_TYPE_HARDWARE) {
		tap_skip("no PMU in this machine", "events take turns at the counters");
		return;
	}
	for (at = 0; at < count; at++) {
		events[at] = cycles;
		events[at].flags = at ? 0 : DWELL_EVENT_PINNED;
		events[at].period = at ? 400000 : 200000;
	}
	reader = begin(events, count, usual_shape);
	work_start(work_spin, 3, 0);
	work_start(work_spin, 3, 1);
	reader_run(&reader, 3, 1);
	finish("multiplexing", &reader);
	for (status.event = 0; status.event < count; status.event++) {
		ioctl(reader.fd, DWELL_EVENT_STATUS, &status);
		if (!status.event)
			tap(status.running_ns == status.enabled_ns, "multiplexing: the pinned event counts always");
		else
			turns += status.samples > 0 && status.running_ns > 0, partly += status.running_ns < status.enabled_ns;
	}
	tap(turns == count - 1 && partly == count - 1, "multiplexing: %u of %u other events counted, %u of them only part of the time", turns, count - 1, partly);
	reader_close(&reader);
}

static void test_throttling(void)
{
	struct dwell_event event = main_event;
	struct reader reader;

	tap(!limit_rate("1000"), "throttling: the kernel's limit is lowered");
	/* The module's own clock always counts and is not throttled. */
	event.flags &= ~DWELL_EVENT_PINNED;
	reader = begin(&event, 1, usual_shape);
	work_start(work_spin, 1, 0);
	reader_run(&reader, 1, 0.5);
	finish("throttling", &reader);
	tap(reader_status(&reader, DWELL_ALL_CPUS).throttled > 0, "throttling: it is counted");
	reader_close(&reader);
	limit_rate("100000");
}

static void test_hotplug(void)
{
	struct reader reader = begin(&main_event, 1, usual_shape);
	__u64 before, after;
	int round;

	work_start(work_spin, 2.5, -1);
	work_start(work_forks, 2.5, -1);
	work_start(work_pause, 2.5, 0);
	reader_run(&reader, 0.3, 0.1);
	for (round = 0; round < 2; round++) {
		tap(!write_file("/sys/devices/system/cpu/cpu1/online", "0"), "hotplug: a CPU is taken offline");
		tap(reader_status(&reader, DWELL_ALL_CPUS).cpus == CPUS - 1, "hotplug: one CPU fewer is sampled");
		before = reader_status(&reader, 1).interrupts;
		reader_run(&reader, 0.3, 0.1);
		tap(reader_status(&reader, 1).interrupts == before, "hotplug: it delivers no samples");
		tap(!write_file("/sys/devices/system/cpu/cpu1/online", "1"), "hotplug: it is brought online again");
		tap(reader_status(&reader, DWELL_ALL_CPUS).cpus == CPUS, "hotplug: all are sampled again");
		reader_run(&reader, 0.6, 0.1);
		after = reader_status(&reader, 1).interrupts;
		tap(after > before, "hotplug: it is sampled again (%llu, %llu)", before, after);
	}
	finish("hotplug", &reader);
	reader_close(&reader);
}

/* Returns the kernel's messages so far, or an empty text if they cannot be read. */
static const char *kernel_log(void)
{
	static char log[1 << 18];
	int length = klogctl(3, log, sizeof(log) - 1);

	log[length > 0 ? length : 0] = 0;
	return log;
}

/*
 * Hibernates and returns. There is no swap to store the image, so after the kernel has stopped
 * everything and made its image, it starts everything again. Earlier counts are kept, and counting
 * continues.
 */
static void test_sleep(void)
{
	struct reader reader;
	__u64 before[CPUS], after;
	int round, cpu, error;

	if (access("/sys/power/state", W_OK)) {
		tap_skip("this kernel cannot sleep", "sleep");
		return;
	}
	reader = begin(&main_event, 1, usual_shape);
	for (round = 0; round < 2; round++) {
		work_start(work_spin, 0.6, -1);
		work_start(work_pause, 0.6, 0);
		work_start(work_pause, 0.6, 1);
		reader_run(&reader, 0.2, 0.1);
		errno = 0;
		error = write_file("/sys/power/state", "disk") ? errno : 0;
		tap(error == ENOSPC || error == ENODEV, "sleep: hibernation begins and fails without swap space (%s)",
		    strerror(error));
		tap(reader_status(&reader, DWELL_ALL_CPUS).cpus == CPUS, "sleep: all CPUs are sampled again");
		for (cpu = 0; cpu < CPUS; cpu++)
			before[cpu] = reader_status(&reader, cpu).interrupts;
		work_start(work_pause, 0.5, 0);
		work_start(work_pause, 0.5, 1);
		reader_run(&reader, 0.5, 0.1);
		for (cpu = 0; cpu < CPUS; cpu++) {
			after = reader_status(&reader, cpu).interrupts;
			tap(after > before[cpu], "sleep: CPU %d is sampled again (%llu, %llu)", cpu,
			    before[cpu], after);
		}
	}
	tap(strstr(kernel_log(), "Creating image"), "sleep: all devices were stopped, and an image was made");
	finish("sleep", &reader);
	reader_close(&reader);
}

/* A reader is killed while it reads, and the module is removed at once. */
static void test_unloading(void)
{
	struct reader reader;
	int round, refused = 0, errors = 0;
	pid_t child;

	for (round = 0; round < 8; round++) {
		int ready[2];
		char byte;

		if (pipe(ready))
			continue;
		work_start(work_wide, 0.4, 0);
		work_start(work_forks, 0.4, 1);
		child = fork();
		if (!child) {
			reader = begin(&main_event, 1, usual_shape);
			if (write(ready[1], "x", 1) == 1)
				reader_run(&reader, 100, 0.01);
			_exit(0);
		}
		if (read(ready[0], &byte, 1) != 1)
			errors++;
		usleep(30000 + round * 5000);
		refused += module_unload() == EAGAIN;
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		errors += module_unload() != 0;
		errors += module_load() != 0;
		close(ready[0]);
		close(ready[1]);
		work_wait();
	}
	tap(refused == round, "unloading: refused while it samples (%d of %d)", refused, round);
	tap(!errors, "unloading: after its reader was killed under load it is unloaded and loaded again (%d errors)", errors);
	reader = begin(&main_event, 1, usual_shape);
	work_start(work_spin, 0.5, 0);
	reader_run(&reader, 0.5, 0.2);
	finish("reloaded", &reader);
	reader_close(&reader);
}

/* NMIs that arrive anywhere, also in the handler; only in test builds, on x86. */
static void test_nmis(void)
{
	struct reader reader;
	struct dwell_status status;
	int cpu;

	if (!boot_option("dwell_nmi")) {
		printf("# no NMIs are sent in this build\n");
		return;
	}
	main_event = cpu_clock(20000);
	reader = begin(&main_event, 1, (struct shape){ 6, 64 });
	for (cpu = 0; cpu < CPUS; cpu++)
		work_start(work_forks, 2, cpu);
	reader_run(&reader, 2, 0.05);
	finish("NMIs", &reader);
	status = reader_status(&reader, DWELL_ALL_CPUS);
	tap(reader_count(&reader, DWELL_EXECUTABLE, 0, DWELL_ADDRESS_MASK, 0) > 0, "NMIs: %llu interrupted a handler", status.nested);
	reader_close(&reader);
}

/* Messages that the kernel prints if something is wrong with the module. */
static void test_log(void)
{
	static const char *const bad[] = { "BUG:", "WARNING:", "Oops", "Call Trace", "suspicious", "general protection", "KASAN", "lockdep" };
	const char *log = kernel_log();
	size_t at;

	for (at = 0; at < sizeof(bad) / sizeof(*bad); at++) {
		const char *found = strstr(log, bad[at]);

		if (!found)
			continue;
		tap(false, "the kernel's log contains no complaint: %s", bad[at]);
		printf("%.3000s\n", found);
		return;
	}
	tap(*log, "the kernel's log contains no complaint");
}

void tests_run(void)
{
	static const struct { const char *name; void (*run)(void); } all[] = {
		{ "gate", test_gate }, { "spin", test_spin }, { "forks", test_forks },
		{ "charging", test_charging }, { "fast", test_fast },
		{ "small", test_small }, { "apart", test_apart }, { "registers", test_registers },
		{ "period", test_period }, { "multiplexing", test_multiplexing },
		{ "given_up", test_given_up },
		{ "throttling", test_throttling }, { "hotplug", test_hotplug },
		{ "sleep", test_sleep }, { "unloading", test_unloading }, { "nmis", test_nmis },
	};
	const char *only = boot_option("dwell_only");
	size_t at;
	int error = module_load();

	tap(!error, "the module loads%s%s", error ? ": " : "", error ? strerror(error) : "");
	if (error)
		return;
	choose_event();
	for (at = 0; at < sizeof(all) / sizeof(*all); at++) {
		double start = now_seconds();

		if (only && !strstr(only, all[at].name))
			continue;
		all[at].run();
		printf("# %s took %.1f s\n", all[at].name, now_seconds() - start);
	}
	tap(!module_unload(), "the module is unloaded");
	test_log();
}
