/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Replays a trace through the table as the host compiles it, for comparison with the BPF program:
 *   replay_host BUCKET_BITS CAPACITY < TRACE > ENTRIES
 * TRACE: struct dwell_trace_record. ENTRIES: words key, place of what each CPU has left; its overflow
 * buffers as they are, then its buckets; then the words samples, lost. CPUs 0 and 1.
 */
#include <stdio.h>
#include <stdlib.h>

#include "test/trace.h"

#define CPUS 2

static void put(__u64 first, __u64 second)
{
	__u64 words[2] = { first, second };

	fwrite(words, sizeof(words), 1, stdout);
}

int main(int argc, char **argv)
{
	__u32 bits = argc > 2 ? atoi(argv[1]) : 0, capacity = argc > 2 ? atoi(argv[2]) : 0;
	struct dwell_table tables[CPUS] = { 0 };
	struct dwell_trace_record record;
	int cpu, buffer;
	__u32 at, way;

	if (!bits || !capacity)
		return 2;
	for (cpu = 0; cpu < CPUS; cpu++) {
		tables[cpu].buckets = calloc(1u << bits, sizeof(struct dwell_bucket));
		tables[cpu].overflow = calloc(2 * capacity, sizeof(struct dwell_entry));
		tables[cpu].bucket_bits = bits;
		tables[cpu].capacity = capacity;
	}
	while (fread(&record, sizeof(record), 1, stdin) == 1) {
		struct dwell_sample sample = dwell_sample_of(&record);

		dwell_table_add(&tables[record.cpu % CPUS], &sample);
	}
	for (cpu = 0; cpu < CPUS; cpu++) {
		const struct dwell_table *table = &tables[cpu];

		for (buffer = 0; buffer < 2; buffer++)
			for (at = 0; at < table->spill.used[buffer]; at++)
				put(table->overflow[buffer * capacity + at].key,
				    table->overflow[buffer * capacity + at].place);
		for (at = 0; at < 1u << bits; at++)
			for (way = 0; way < DWELL_WAYS; way++)
				if (table->buckets[at].entry[way].place & DWELL_COUNT_MAX)
					put(table->buckets[at].entry[way].key,
					    table->buckets[at].entry[way].place);
		put(table->counts.samples, table->counts.lost);
	}
	return 0;
}
