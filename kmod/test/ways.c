// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Measures how well a table with this many ways aggregates a recorded trace (DCPI, section 5.4).
 * scripts/bench-ways.mjs builds it once for 4 and once for 6 ways.
 *   ways BUCKET_BITS FLUSH < TRACE
 * TRACE: struct dwell_trace_record, in the order of time. The tables are emptied after each FLUSH
 * samples, as a reader does every so often. Prints: samples, entries found, entries evicted,
 * entries handed out in all.
 */
#include <stdio.h>
#include <stdlib.h>

#include "trace.h"

#define CPUS 256

struct counts {
	unsigned long long samples, found, evicted, handed_out;
};

static void count(struct dwell_bucket *buckets, __u32 bits, const struct dwell_trace_record *record,
		  struct counts *counts)
{
	struct dwell_sample sample = dwell_sample_of(record);
	struct dwell_entry located = dwell_locate(&sample), spilled;

	counts->samples++;
	switch (dwell_bucket_add(&buckets[dwell_bucket_of(&located, bits)], &located, &spilled)) {
	case DWELL_FOUND:
		counts->found++;
		break;
	case DWELL_EVICTED:
		counts->evicted++;
		counts->handed_out++;
		break;
	case DWELL_SATURATED:
		counts->found++;
		counts->handed_out++;
		break;
	case DWELL_NEW:
		break;
	}
}

static void flush(struct dwell_bucket **tables, __u32 bits, struct counts *counts)
{
	struct dwell_entry *out = calloc((size_t)DWELL_WAYS << bits, sizeof(*out));
	int cpu;

	for (cpu = 0; out && cpu < CPUS; cpu++)
		if (tables[cpu])
			counts->handed_out += dwell_buckets_take(tables[cpu], 1U << bits, out);
	free(out);
}

int main(int argc, char **argv)
{
	__u32 bits = argc > 2 ? atoi(argv[1]) : 0;
	unsigned long long every = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	static struct dwell_bucket *tables[CPUS];
	struct dwell_trace_record record;
	struct counts counts = { 0 };

	if (bits < DWELL_BUCKET_BITS_MIN || bits > DWELL_BUCKET_BITS_MAX || !every)
		return 2;
	while (fread(&record, sizeof(record), 1, stdin) == 1) {
		struct dwell_bucket **table = &tables[record.cpu % CPUS];

		if (!*table)
			*table = calloc(1U << bits, sizeof(**table));
		if (!*table)
			return 1;
		count(*table, bits, &record, &counts);
		if (counts.samples % every == 0)
			flush(tables, bits, &counts);
	}
	flush(tables, bits, &counts);
	printf("%llu %llu %llu %llu\n", counts.samples, counts.found, counts.evicted, counts.handed_out);
	return 0;
}
