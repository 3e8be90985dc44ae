// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Compares the table with a plain map: random samples, random readers; every seed is printed.
 *
 * Enters: nothing (or a seed and rounds). Leaves: TAP. Built with address and undefined-behaviour
 * sanitizers. Invariants: samples in = entries out + lost, and with room for all, the same count
 * for every place as the map has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sample_table.h"
#include "trace.h"

#define MAP_SLOTS (1 << 17)

/* The reference map: open addressing on the compared part of the key, one count per place. */
struct map {
	struct { __u64 key, place, count; } *slots;
};

static __u64 random_state;

static __u64 random64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static __u64 below(__u64 bound)
{
	return random64() % bound;
}

static __u64 map_slot(__u64 key, __u64 place)
{
	__u64 mix = (key ^ place >> DWELL_COUNT_BITS) * 0xbf58476d1ce4e5b9ULL;

	return (mix ^ mix >> 29) * 0x94d049bb133111ebULL >> 47;
}

static void map_add(struct map *map, const struct dwell_entry *entry, __u64 count)
{
	__u64 key = entry->key & dwell_compared(entry->key);
	__u64 place = entry->place & ~DWELL_COUNT_MAX;
	__u64 at = map_slot(key, place);

	while (map->slots[at].count && (map->slots[at].key != key || map->slots[at].place != place))
		at = (at + 1) % MAP_SLOTS;
	map->slots[at].key = key;
	map->slots[at].place = place;
	map->slots[at].count += count;
}

static __u64 map_count(const struct map *map, __u64 key, __u64 place)
{
	__u64 at = map_slot(key, place);

	while (map->slots[at].count && (map->slots[at].key != key || map->slots[at].place != place))
		at = (at + 1) % MAP_SLOTS;
	return map->slots[at].count;
}

static __u64 map_total(const struct map *map)
{
	__u64 total = 0, at;

	for (at = 0; at < MAP_SLOTS; at++)
		total += map->slots[at].count;
	return total;
}

/*
 * There are processes of few executables, some without one and some kept apart, with frequent and
 * rare places.
 */
static struct dwell_trace_record random_sample(void)
{
	struct dwell_trace_record record = { .pid = 1 + below(below(2) ? 6 : 4000000) };
	__u64 spread = below(3) ? 40 : 20000;

	record.inode = 1 + record.pid % 5;
	record.generation = record.pid % 2;
	record.device = 0x800001 + record.pid % 3;
	record.start_code = 0x555555554000 + (__u64)record.pid * 4096;
	record.end_code = record.start_code + 30000;
	record.event = below(8) ? 0 : below(DWELL_EVENTS_MAX);
	switch (below(6)) {
	case 0:
		record.flags = DWELL_TRACE_KERNEL;
		record.pc = 0xffffffff81000000 + below(spread);
		break;
	case 1:
		record.flags = DWELL_TRACE_KERNEL | DWELL_TRACE_NO_EXECUTABLE;
		record.pc = below(50) ? 0xffff800080000000 + below(spread) : below(spread);
		break;
	case 2:
		record.pc = 0x7fff00000000 + below(spread);
		break;
	case 3:
		record.pc = 0x00ff7fff00000000 + below(spread);
		break;
	default:
		record.pc = record.start_code + below(spread);
	}
	if (!below(10))
		record.flags |= DWELL_TRACE_APART;
	return record;
}

struct machine {
	struct dwell_table table;
	struct dwell_entry *out;
	struct map out_counts;
	__u64 entries;
};

static void machine_take(struct machine *machine, const struct dwell_entry *entries, __u32 count)
{
	for (; count; count--, entries++, machine->entries++)
		map_add(&machine->out_counts, entries, entries->place & DWELL_COUNT_MAX);
}

/* A reader that takes the full buffers. */
static void machine_read(struct machine *machine)
{
	struct dwell_spill *spill = &machine->table.spill;
	int side;

	for (side = 0; side < 2; side++) {
		if (dwell_load_acquire(&spill->state[side]) != DWELL_SPILL_FULL)
			continue;
		machine_take(machine, machine->table.overflow + side * machine->table.capacity,
			     spill->used[side]);
		dwell_store_release(&spill->state[side], DWELL_SPILL_FREE);
	}
}

static void machine_flush(struct machine *machine)
{
	__u32 buckets = 1U << machine->table.bucket_bits;

	machine_read(machine);
	dwell_spill_switch(&machine->table.spill);
	machine_read(machine);
	machine_take(machine, machine->out,
		     dwell_buckets_take(machine->table.buckets, buckets, machine->out));
}

static struct machine machine_new(__u32 bucket_bits, __u32 capacity)
{
	struct machine machine = { .table = { .bucket_bits = bucket_bits, .capacity = capacity } };

	machine.table.buckets = calloc(1U << bucket_bits, sizeof(struct dwell_bucket));
	machine.table.overflow = calloc(2 * (size_t)capacity, sizeof(struct dwell_entry));
	machine.out = calloc((size_t)DWELL_WAYS << bucket_bits, sizeof(struct dwell_entry));
	machine.out_counts.slots = calloc(MAP_SLOTS, sizeof(*machine.out_counts.slots));
	return machine;
}

static void machine_free(struct machine *machine)
{
	free(machine->table.buckets);
	free(machine->table.overflow);
	free(machine->out);
	free(machine->out_counts.slots);
}

/* Returns how the two differ, or NULL. */
static const char *compare(const struct machine *machine, const struct map *in, __u64 samples)
{
	const struct dwell_table_counts *counts = &machine->table.counts;
	__u64 at, in_count, out_count;

	if (counts->samples != samples)
		return "the table missed samples";
	if (counts->found + counts->fresh + counts->evicted + counts->saturated != samples)
		return "the samples are not the sum of what became of them";
	if (map_total(&machine->out_counts) + counts->lost != samples)
		return "samples in are not entries out + lost";
	for (at = 0; at < MAP_SLOTS; at++) {
		in_count = in->slots[at].count;
		out_count = map_count(&machine->out_counts, in->slots[at].key, in->slots[at].place);
		if (out_count > in_count || (!counts->lost && out_count != in_count))
			return "a place has another count than the map has";
	}
	return NULL;
}

/* A reader that reads every @capacity samples loses none, because a buffer cannot fill faster. */
static const char *round_of(__u32 bucket_bits, __u32 capacity, int reads, __u64 samples)
{
	struct machine machine = machine_new(bucket_bits, capacity);
	struct map in = { calloc(MAP_SLOTS, sizeof(*in.slots)) };
	const char *problem;
	__u64 number;

	for (number = 0; number < samples; number++) {
		struct dwell_trace_record record = random_sample();
		struct dwell_sample sample = dwell_sample_of(&record);
		struct dwell_entry located = dwell_locate(&sample);

		dwell_table_add(&machine.table, &sample);
		map_add(&in, &located, 1);
		if (reads && number % capacity == 0)
			machine_read(&machine);
		if (!below(samples / 3))
			machine_flush(&machine);
	}
	machine_flush(&machine);
	problem = compare(&machine, &in, samples);
	if (!problem && reads && machine.table.counts.lost)
		problem = "samples were lost although the reader kept up";
	machine_free(&machine);
	free(in.slots);
	return problem;
}

/* One place has more samples than a count can represent. */
static const char *saturation(void)
{
	struct machine machine = machine_new(4, 64);
	struct dwell_sample sample = { .pc = 0x1000, .pid = 7 };
	const char *problem = NULL;
	__u64 number, samples = 10 * DWELL_COUNT_MAX + 3;

	for (number = 0; number < samples; number++)
		dwell_table_add(&machine.table, &sample);
	machine_flush(&machine);
	if (map_total(&machine.out_counts) != samples)
		problem = "samples of a full entry are missing";
	else if (machine.table.counts.saturated != 10 || machine.entries != 11)
		problem = "a full entry was not spilled once for each 4,095 samples";
	machine_free(&machine);
	return problem;
}

static __u64 located_key(struct dwell_sample sample)
{
	struct dwell_entry located = dwell_locate(&sample);

	return located.key & dwell_compared(located.key);
}

/* Checks which samples share an entry and which must not. */
static const char *keys(void)
{
	const __u64 a = dwell_executable_tag(11, 0x800001, 0), b = dwell_executable_tag(11, 0x800001, 1);
	const struct dwell_sample in = { .pc = 5000, .tag = a, .start_code = 4096, .end_code = 9000, .pid = 1 };
	struct dwell_sample other = in;

	if (a == b || a == dwell_executable_tag(12, 0x800001, 0) || a == dwell_executable_tag(11, 0x800002, 0))
		return "two executables have one tag";
	other.pid = 2;
	if (located_key(in) != located_key(other))
		return "two processes of one executable are kept apart";
	other.flags = DWELL_SAMPLE_APART;
	if (located_key(in) == located_key(other))
		return "a process to be kept apart is not";
	other = in;
	other.tag = b;
	if (located_key(in) == located_key(other))
		return "two executables share an entry";
	other.pc = in.end_code;
	if (located_key(other) >> 62 != DWELL_PROCESS)
		return "a pc outside the executable is not its process's";
	other.tag = 0;
	other.flags = DWELL_SAMPLE_KERNEL;
	other.pc = 0xffffffff81000000;
	if (located_key(other) >> 62 != DWELL_KERNEL || (located_key(other) >> 22 & DWELL_TAG_MASK) != 1)
		return "a kernel thread's sample does not name it";
	other = in;
	other.pc = 0xffffffff81000000;
	other.flags = DWELL_SAMPLE_KERNEL;
	dwell_charge(&other, in.pc);
	if (located_key(other) != located_key(in) ||
	    (dwell_locate(&other).place >> 12) != (904 << 4 | DWELL_EVENT_ENTERED))
		return "kernel time is not at the instruction of the executable that entered the kernel";
	return NULL;
}

static int test_count, failures;

static void tell(const char *name, const char *problem)
{
	test_count++;
	failures += problem != NULL;
	printf("%s %d - %s%s%s\n", problem ? "not ok" : "ok", test_count, name, problem ? ": " : "",
	       problem ? problem : "");
}

int main(int argc, char **argv)
{
	static const struct { __u32 bits, capacity; int reads; } shapes[] = {
		{ 4, 4, 0 }, { 4, 64, 1 }, { 6, 1, 1 }, { 8, 4096, 1 }, { 14, 8192, 1 }, { 14, 64, 0 },
	};
	__u64 seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20261121;
	int rounds = argc > 2 ? atoi(argv[2]) : 5, round;
	char name[200];
	size_t shape;

	tell("what shares an entry", keys());
	tell("a full entry is spilled", saturation());
	for (round = 0; round < rounds; round++) {
		for (shape = 0; shape < sizeof(shapes) / sizeof(*shapes); shape++) {
			random_state = seed + round * 1000003 + shape + 1;
			snprintf(name, sizeof(name), "2^%u buckets, buffers of %u, %s, seed %llu",
				 shapes[shape].bits, shapes[shape].capacity,
				 shapes[shape].reads ? "read" : "unread", random_state);
			tell(name, round_of(shapes[shape].bits, shapes[shape].capacity,
					    shapes[shape].reads, 60000));
		}
	}
	printf("1..%d\n", test_count);
	return failures != 0;
}
