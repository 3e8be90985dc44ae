// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * One CPU's table of samples (DCPI, SOSP 1997, section 4.2.1).
 *
 * Enters: samples, one at a time, from the CPU that owns the table, perhaps in an NMI. Leaves:
 * entries, in two ways: evicted ones through the overflow buffers, the rest when a reader takes a
 * table out of use and empties it. Never here: functions of the kernel; the host builds and tests
 * this file as it is.
 */
#include "sample_table.h"

static void dwell_table_lose(struct dwell_table_counts *counts, const struct dwell_entry *entry)
{
	__u64 samples = entry->place & DWELL_COUNT_MAX;

	counts->lost += samples;
	counts->lost_of[entry->place >> DWELL_COUNT_BITS & (DWELL_EVENTS_MAX - 1)] += samples;
}

/**
 * dwell_table_spill() - puts an entry that left its bucket where the reader finds it
 * @table: its
 * @entry: it; its samples are lost if both overflow buffers are full
 *
 * Return: whether a buffer became full.
 */
int dwell_table_spill(struct dwell_table *table, const struct dwell_entry *entry)
{
	__u32 full_count = table->spill.full_count;
	__u32 slot = dwell_spill_slot(&table->spill, table->capacity);

	if (slot == DWELL_NO_ROOM) {
		dwell_table_lose(&table->counts, entry);
		return 0;
	}
	table->overflow[slot] = *entry;
	table->counts.spilled++;
	return table->spill.full_count != full_count;
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

		/*
		 * New entries push the older ones back, so there are no used entries after a free
		 * one.
		 */
		for (way = 0; way < DWELL_WAYS && entry[way].place & DWELL_COUNT_MAX; way++) {
			out[taken++] = entry[way];
			entry[way] = none;
		}
	}
	return taken;
}
