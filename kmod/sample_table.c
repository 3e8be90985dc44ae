// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * One CPU's table of samples (DCPI, SOSP 1997, section 4.2.1).
 *
 * Enters: samples, one at a time, from the CPU that owns the table, perhaps in an NMI. Leaves:
 * entries, by two ways: evicted ones through the overflow buffers, the rest when a reader takes a
 * table out of use and empties it. Never here: anything of the kernel; the host builds and tests
 * this file as it is.
 */
#include "sample_table.h"

static void dwell_table_lose(struct dwell_table_counts *counts, const struct dwell_entry *entry)
{
	__u64 samples = entry->place & DWELL_COUNT_MAX;

	counts->lost += samples;
	counts->lost_of[entry->place >> DWELL_COUNT_BITS & (DWELL_EVENTS_MAX - 1)] += samples;
}

static void dwell_table_spill(struct dwell_table *table, const struct dwell_entry *entry)
{
	__u32 slot = dwell_spill_slot(&table->spill, table->capacity);

	if (slot == DWELL_NO_ROOM) {
		dwell_table_lose(&table->counts, entry);
		return;
	}
	table->overflow[slot] = *entry;
	table->counts.spilled++;
}

/**
 * dwell_table_add() - counts a sample
 * @table: of the CPU that this runs on
 * @sample: it
 *
 * Constant time: one bucket, at most one spilled entry. Must not interrupt itself on one table.
 */
void dwell_table_add(struct dwell_table *table, const struct dwell_sample *sample)
{
	struct dwell_entry located = dwell_locate(sample);
	__u32 index = dwell_bucket_of(&located, table->bucket_bits);
	struct dwell_entry spilled;

	table->counts.samples++;
	switch (dwell_bucket_add(&table->buckets[index], &located, &spilled)) {
	case DWELL_FOUND:
		table->counts.found++;
		return;
	case DWELL_NEW:
		table->counts.fresh++;
		return;
	case DWELL_EVICTED:
		table->counts.evicted++;
		break;
	case DWELL_SATURATED:
		table->counts.saturated++;
		break;
	}
	dwell_table_spill(table, &spilled);
}

/**
 * dwell_buckets_take() - takes all entries out of buckets that no handler uses any more
 * @buckets: the first
 * @count: how many
 * @out: room for DWELL_WAYS entries for each bucket
 *
 * Return: the number of entries written. The buckets are free then.
 */
__u32 dwell_buckets_take(struct dwell_bucket *buckets, __u32 count, struct dwell_entry *out)
{
	const struct dwell_entry none = { 0 };
	__u32 taken = 0, index, way;

	for (index = 0; index < count; index++) {
		struct dwell_entry *entry = buckets[index].entry;

		/* New entries push the others back: after a free one there are none. */
		for (way = 0; way < DWELL_WAYS && entry[way].place & DWELL_COUNT_MAX; way++) {
			out[taken++] = entry[way];
			entry[way] = none;
		}
	}
	return taken;
}
