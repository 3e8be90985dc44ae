// SPDX-License-Identifier: GPL-2.0
/*
 * The simplest reader of /dev/dwell that takes everything and checks what can be checked at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/perf_event.h>

#include "guest.h"

const struct shape usual_shape = { DWELL_BUCKET_BITS, 8192 };

/* The buffer is small, so that reads end in the middle of tables and buffers. */
#define READ_BYTES 20000

struct dwell_event cpu_clock(unsigned int hz)
{
	__u64 period = 1000000000 / hz;
	struct dwell_event event = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.period = period,
		.spread = period / 8,
		.flags = DWELL_EVENT_PINNED,
	};

	return event;
}

/* Returns 0 or an error number. */
int reader_open(struct reader *reader, const struct dwell_event *events, unsigned int count,
		struct shape shape)
{
	struct dwell_config config = {
		.version = DWELL_ABI_VERSION,
		.event_count = count,
		.bucket_bits = shape.bucket_bits,
		.overflow_entries = shape.overflow_entries,
		.register_samples = 256,
	};

	memset(reader, 0, sizeof(*reader));
	memcpy(config.event, events, count * sizeof(*events));
	reader->fd = open("/dev/" DWELL_DEVICE_NAME, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (reader->fd < 0)
		return errno;
	if (ioctl(reader->fd, DWELL_CONFIGURE, &config)) {
		int error = errno;

		close(reader->fd);
		return error;
	}
	reader->seen = calloc(SEEN_MAX, sizeof(*reader->seen));
	reader->registers = calloc(4096, sizeof(*reader->registers));
	return 0;
}

void reader_start(struct reader *reader)
{
	if (ioctl(reader->fd, DWELL_START))
		perror("DWELL_START");
}

void reader_stop(struct reader *reader)
{
	if (ioctl(reader->fd, DWELL_STOP))
		perror("DWELL_STOP");
}

static void take_entries(struct reader *reader, const struct dwell_entry *entries, __u32 count)
{
	for (; count; count--, entries++) {
		reader->entries++;
		reader->samples += entry_count(entries);
		if (!entry_kind(entries) || !entry_count(entries) || !entry_pid(entries))
			reader->strange++;
		if (reader->seen_count < SEEN_MAX)
			reader->seen[reader->seen_count++] = *entries;
	}
}

static void take_registers(struct reader *reader, const struct dwell_chunk *chunk,
			   const struct dwell_register_sample *samples)
{
	__u32 at;

	reader->register_samples += chunk->count;
	for (at = 0; at < chunk->count; at++) {
		if (samples[at].time_ns < chunk->since_ns || samples[at].time_ns > chunk->until_ns)
			reader->strange++;
		if (reader->registers_count < 4096)
			reader->registers[reader->registers_count++] = samples[at];
	}
}

static void take_chunks(struct reader *reader, const char *bytes, const char *end)
{
	while (bytes < end) {
		const struct dwell_chunk *chunk = (const void *)bytes;

		bytes += sizeof(*chunk);
		if (chunk->kind == DWELL_CHUNK_ENTRIES)
			take_entries(reader, (const void *)bytes, chunk->count);
		else if (chunk->kind == DWELL_CHUNK_REGISTERS)
			take_registers(reader, chunk, (const void *)bytes);
		else if (chunk->kind == DWELL_CHUNK_FLUSHED)
			reader->flushes++;
		else
			reader->strange++;
		if (chunk->since_ns > chunk->until_ns)
			reader->strange++;
		bytes += (size_t)chunk->count * chunk->record_bytes;
	}
	if (bytes != end)
		reader->strange++;
}

/* Reads everything that is ready. */
void reader_read(struct reader *reader)
{
	static char bytes[READ_BYTES] __attribute__((aligned(8)));
	ssize_t count;

	while ((count = read(reader->fd, bytes, sizeof(bytes))) > 0)
		take_chunks(reader, bytes, bytes + count);
	if (count < 0 && errno != EAGAIN) {
		perror("read /dev/dwell");
		reader->strange++;
	}
}

void reader_flush(struct reader *reader)
{
	__u64 before = reader->flushes;

	if (ioctl(reader->fd, DWELL_FLUSH))
		perror("DWELL_FLUSH");
	reader_read(reader);
	if (reader->flushes != before + 1)
		reader->strange++;
}

void reader_run(struct reader *reader, double seconds, double between_flushes)
{
	double end = now_seconds() + seconds, next = now_seconds() + between_flushes;

	while (now_seconds() < end) {
		struct pollfd poll_fd = { .fd = reader->fd, .events = POLLIN };

		poll(&poll_fd, 1, 20);
		if (poll_fd.revents & POLLIN)
			reader_read(reader);
		if (now_seconds() >= next) {
			reader_flush(reader);
			next += between_flushes;
		}
	}
}

struct dwell_status reader_status(const struct reader *reader, __u32 cpu)
{
	struct dwell_status status = { .cpu = cpu };

	if (ioctl(reader->fd, DWELL_STATUS, &status))
		perror("DWELL_STATUS");
	return status;
}

void reader_close(struct reader *reader)
{
	close(reader->fd);
	free(reader->seen);
	free(reader->registers);
}

/*
 * Returns the samples of a kind in the addresses from @first up to @last, of @pid's entries or (0)
 * of all.
 */
__u64 reader_count(const struct reader *reader, enum dwell_kind kind, __u64 first, __u64 last,
		   __u32 pid)
{
	__u64 sum = 0;
	size_t at;

	for (at = 0; at < reader->seen_count; at++) {
		const struct dwell_entry *entry = &reader->seen[at];

		if (entry_kind(entry) == kind && entry_address(entry) >= first &&
		    entry_address(entry) <= last && (!pid || entry_pid(entry) == pid))
			sum += entry_count(entry);
	}
	return sum;
}

/* Samples of kernel time: those at an offset of the executable, or all others. */
__u64 reader_charged(const struct reader *reader, __u64 offset, bool others)
{
	__u64 sum = 0;
	size_t at;

	for (at = 0; at < reader->seen_count; at++) {
		const struct dwell_entry *entry = &reader->seen[at];
		bool there = entry_kind(entry) == DWELL_EXECUTABLE && entry_address(entry) == offset;

		if (entry_event(entry) == DWELL_EVENT_ENTERED && there != others)
			sum += entry_count(entry);
	}
	return sum;
}

/* Samples in the kernel on behalf of an executable, not of a kernel thread. */
__u64 reader_in_kernel(const struct reader *reader)
{
	__u64 sum = 0;
	size_t at;

	for (at = 0; at < reader->seen_count; at++) {
		const struct dwell_entry *entry = &reader->seen[at];

		if (entry_kind(entry) == DWELL_KERNEL && entry_tag(entry) & DWELL_TAG_EXECUTABLE)
			sum += entry_count(entry);
	}
	return sum;
}
