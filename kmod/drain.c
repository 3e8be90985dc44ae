// SPDX-License-Identifier: GPL-2.0
/*
 * Moves counts from the handlers' tables and buffers to the reader (DCPI, SOSP 1997, section
 * 4.2.3).
 *
 * Enters: tables and buffers that handlers filled. Leaves: chunks, see dwell_abi.h. Each CPU has
 * one table and there is one more for each NUMA node: a flush goes from CPU to CPU, puts the spare
 * in the place of the CPU's table by an IPI, copies the old one out, empties it, and has its spare
 * again. The handler never waits for this and loses no sample.
 *
 * Everything here runs with dwell_reader held, unless a comment says otherwise. A table and the
 * spare of a node are exchanged with the CPU hotplug lock held, too: a CPU that comes online makes
 * its own.
 */
#include <linux/cpu.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/timekeeping.h>
#include <linux/topology.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "sampler.h"

DECLARE_WAIT_QUEUE_HEAD(dwell_drain_wait);

/* Buckets whose entries and head fit into DWELL_READ_MIN. */
#define DWELL_BUCKETS_AT_ONCE                                                                      \
	((DWELL_READ_MIN - sizeof(struct dwell_chunk)) / sizeof(struct dwell_bucket))

/**
 * struct dwell_drain - where the reader is
 * @bucket_bits: of every table
 * @overflow_entries: of each overflow buffer
 * @register_samples: of each buffer of samples with registers
 * @spare: by NUMA node, a table that no handler uses
 * @entries: room for what leaves a table at once
 * @cpu: the CPU that is being read
 * @table: table taken from @cpu that is being copied out; NULL before
 * @bucket: the next bucket of @table to copy
 * @table_since_ns: lower bound of the times of samples in @table
 * @table_until_ns: upper bound of the times of samples in @table
 * @next_since_ns: lower bound of the times of samples after the table was taken
 * @partial: an overflow buffer of @cpu could not be switched, since the other one was full
 * @flush_ns: the time up to which the current flush reads all samples
 */
struct dwell_drain {
	u32 bucket_bits;
	u32 overflow_entries;
	u32 register_samples;
	struct dwell_bucket **spare;
	struct dwell_entry entries[DWELL_BUCKETS_AT_ONCE * DWELL_WAYS];
	unsigned int cpu;
	struct dwell_bucket *table;
	u32 bucket;
	u64 table_since_ns;
	u64 table_until_ns;
	u64 next_since_ns;
	bool partial;
	u64 flush_ns;
};

static struct dwell_drain *dwell_drain;

/*
 * Set from DWELL_FLUSH to DWELL_CHUNK_FLUSHED. It is a separate variable because poll reads it
 * without a lock.
 */
static bool dwell_flushing;

/*
 * Runs as interrupt work on the CPU that filled a buffer, because the handler itself must not wake
 * a task.
 */
void dwell_drain_wake(struct irq_work *work)
{
	wake_up_interruptible(&dwell_drain_wait);
}

/* The memory is charged to the process that configures, because that process chooses its size. */
static void *dwell_alloc(size_t bytes, int node)
{
	return kvzalloc_node(bytes, GFP_KERNEL_ACCOUNT, node);
}

static struct dwell_bucket *dwell_table_new(int node)
{
	return dwell_alloc(sizeof(struct dwell_bucket) << dwell_drain->bucket_bits, node);
}

/**
 * dwell_drain_open() - prepares for CPUs
 * @config: sizes
 *
 * Return: 0, or an error number; then there is nothing to close.
 */
int dwell_drain_open(const struct dwell_config *config)
{
	struct dwell_drain *drain = kzalloc(sizeof(*drain), GFP_KERNEL);

	if (!drain)
		return -ENOMEM;
	drain->spare = kcalloc(nr_node_ids, sizeof(*drain->spare), GFP_KERNEL);
	if (!drain->spare) {
		kfree(drain);
		return -ENOMEM;
	}
	drain->bucket_bits = config->bucket_bits;
	drain->overflow_entries = config->overflow_entries;
	drain->register_samples = config->register_samples;
	dwell_drain = drain;
	return 0;
}

/* Frees a CPU's memory, any part of which may be missing, and clears its counts. */
static void dwell_free_cpu(struct dwell_cpu *cpu)
{
	irq_work_sync(&cpu->wake);
	kvfree(cpu->table.buckets);
	kvfree(cpu->table.overflow);
	kvfree(cpu->registers.samples);
	memset(&cpu->table, 0, sizeof(cpu->table));
	memset(&cpu->registers, 0, sizeof(cpu->registers));
	memset(cpu->entries_done, 0, sizeof(cpu->entries_done));
	memset(cpu->registers_done, 0, sizeof(cpu->registers_done));
	cpu->kernel = 0;
	cpu->charged = 0;
	cpu->read_samples = 0;
	cpu->read_entries = 0;
}

/**
 * dwell_drain_add_cpu() - gives a CPU its table and buffers, unless it still has them
 * @number: the CPU
 *
 * Context: the CPU hotplug lock is held, dwell_reader perhaps not.
 * Return: 0 or -ENOMEM.
 */
int dwell_drain_add_cpu(unsigned int number)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);
	struct dwell_drain *drain = dwell_drain;
	int node = cpu_to_node(number);

	if (cpu->table.buckets)
		return 0;
	if (!drain->spare[node])
		drain->spare[node] = dwell_table_new(node);
	cpu->table.buckets = dwell_table_new(node);
	cpu->table.overflow = dwell_alloc(array3_size(2, drain->overflow_entries,
						      sizeof(struct dwell_entry)), node);
	if (drain->register_samples)
		cpu->registers.samples =
			dwell_alloc(array3_size(2, drain->register_samples,
						sizeof(struct dwell_register_sample)), node);
	if (!drain->spare[node] || !cpu->table.buckets || !cpu->table.overflow ||
	    (drain->register_samples && !cpu->registers.samples)) {
		dwell_free_cpu(cpu);
		return -ENOMEM;
	}
	cpu->table.bucket_bits = drain->bucket_bits;
	cpu->table.capacity = drain->overflow_entries;
	cpu->registers.capacity = drain->register_samples;
	cpu->since_ns = ktime_get_mono_fast_ns();
	return 0;
}

/**
 * dwell_drain_close() - frees everything; no handler runs any more
 */
void dwell_drain_close(void)
{
	struct dwell_drain *drain = dwell_drain;
	unsigned int number;
	int node;

	for_each_possible_cpu(number)
		dwell_free_cpu(per_cpu_ptr(&dwell_cpus, number));
	for (node = 0; node < nr_node_ids; node++)
		kvfree(drain->spare[node]);
	kvfree(drain->table);
	kfree(drain->spare);
	kfree(drain);
	dwell_drain = NULL;
	WRITE_ONCE(dwell_flushing, false);
}

/**
 * dwell_drain_flush() - makes everything sampled so far readable
 *
 * A second request during a flush has no effect: the end of the flush states up to when it read.
 */
void dwell_drain_flush(void)
{
	if (dwell_flushing)
		return;
	dwell_drain->cpu = cpumask_first(cpu_possible_mask);
	dwell_drain->flush_ns = ktime_get_mono_fast_ns();
	WRITE_ONCE(dwell_flushing, true);
	wake_up_interruptible(&dwell_drain_wait);
}

static bool dwell_has_full(struct dwell_spill *spill)
{
	return dwell_load_acquire(&spill->state[0]) == DWELL_SPILL_FULL ||
	       dwell_load_acquire(&spill->state[1]) == DWELL_SPILL_FULL;
}

/**
 * dwell_drain_is_ready() - whether a read would return data
 *
 * Context: an open file; no lock, so the answer may already be outdated.
 */
bool dwell_drain_is_ready(void)
{
	unsigned int number;

	if (READ_ONCE(dwell_flushing))
		return true;
	for_each_possible_cpu(number) {
		struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);

		if (dwell_has_full(&cpu->table.spill) || dwell_has_full(&cpu->registers.spill))
			return true;
	}
	return false;
}

/**
 * struct dwell_output - the caller's buffer
 * @to: where the next byte goes
 * @room: bytes that are left
 * @written: bytes before @to
 */
struct dwell_output {
	char __user *to;
	size_t room;
	size_t written;
};

/* Writes a head and as many records as fit. Returns their number, or an error. */
static ssize_t dwell_emit(struct dwell_output *output, struct dwell_chunk *chunk,
			  const void *records)
{
	size_t bytes;

	if (output->room < sizeof(*chunk) + chunk->record_bytes) {
		chunk->count = 0;
		return 0;
	}
	chunk->count = min_t(size_t, chunk->count,
			     (output->room - sizeof(*chunk)) / chunk->record_bytes);
	bytes = (size_t)chunk->count * chunk->record_bytes;
	if (copy_to_user(output->to, chunk, sizeof(*chunk)) ||
	    copy_to_user(output->to + sizeof(*chunk), records, bytes))
		return -EFAULT;
	output->to += sizeof(*chunk) + bytes;
	output->room -= sizeof(*chunk) + bytes;
	output->written += sizeof(*chunk) + bytes;
	return chunk->count;
}

static void dwell_count_read(struct dwell_cpu *cpu, const struct dwell_entry *entries, u32 count)
{
	cpu->read_entries += count;
	for (; count; count--, entries++)
		cpu->read_samples += entries->place & DWELL_COUNT_MAX;
}

/*
 * Hands out a full buffer, or what fits of it; entries are counted as read of that CPU. Returns 1
 * when it is done, 0 if room was short.
 */
static int dwell_emit_full(struct dwell_output *output, struct dwell_chunk *chunk,
			   struct dwell_spill *spill, int side, u32 *done, const void *records,
			   struct dwell_cpu *cpu)
{
	ssize_t count;

	chunk->count = spill->used[side] - *done;
	records += (size_t)*done * chunk->record_bytes;
	count = dwell_emit(output, chunk, records);
	if (count < 0)
		return count;
	if (chunk->kind == DWELL_CHUNK_ENTRIES)
		dwell_count_read(cpu, records, count);
	*done += count;
	if (*done < spill->used[side])
		return 0;
	*done = 0;
	/* B: everything is copied and counted before the handler may write there again. */
	dwell_store_release(&spill->state[side], DWELL_SPILL_FREE);
	return 1;
}

/* The oldest buffer comes first: it is the one that is not being filled. */
static int dwell_full_side(struct dwell_spill *spill)
{
	int side = !(READ_ONCE(spill->active) & 1);

	return dwell_load_acquire(&spill->state[side]) == DWELL_SPILL_FULL ? side : -1;
}

static int dwell_emit_entries(struct dwell_output *output, unsigned int number)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);
	struct dwell_table *table = &cpu->table;
	int side = dwell_full_side(&table->spill);
	struct dwell_chunk chunk = {
		.kind = DWELL_CHUNK_ENTRIES,
		.cpu = number,
		.record_bytes = sizeof(struct dwell_entry),
		.since_ns = cpu->since_ns,
		.until_ns = ktime_get_mono_fast_ns(),
	};

	if (side < 0)
		return 1;
	return dwell_emit_full(output, &chunk, &table->spill, side, &cpu->entries_done[side],
			       table->overflow + (size_t)side * table->capacity, cpu);
}

static int dwell_emit_registers(struct dwell_output *output, unsigned int number)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, number);
	struct dwell_registers *registers = &cpu->registers;
	int side = dwell_full_side(&registers->spill);
	struct dwell_chunk chunk = {
		.kind = DWELL_CHUNK_REGISTERS,
		.cpu = number,
		.record_bytes = sizeof(struct dwell_register_sample),
		.since_ns = cpu->since_ns,
		.until_ns = ktime_get_mono_fast_ns(),
	};

	if (side < 0)
		return 1;
	return dwell_emit_full(output, &chunk, &registers->spill, side,
			       &cpu->registers_done[side],
			       registers->samples + (size_t)side * registers->capacity, cpu);
}

/**
 * struct dwell_swap - argument of the IPI that exchanges a table
 * @cpu: state of the CPU
 * @fresh: replaces its table, if not NULL
 * @old: receives the replaced table
 * @since_ns: receives a time before the first sample that @fresh takes
 * @partial: receives whether a buffer could not be switched, since the other one is full
 */
struct dwell_swap {
	struct dwell_cpu *cpu;
	struct dwell_bucket *fresh;
	struct dwell_bucket *old;
	u64 since_ns;
	bool partial;
};

static bool dwell_switch_partial(struct dwell_spill *spill)
{
	return !spill->used[spill->active & 1] || dwell_spill_switch(spill);
}

/*
 * Runs on the CPU itself with interrupts off, or anywhere when it is offline. The handler is not
 * running; an NMI that comes meanwhile finds @busy set and its sample is counted as nested.
 */
static void dwell_swap_here(void *argument)
{
	struct dwell_swap *swap = argument;
	struct dwell_cpu *cpu = swap->cpu;

	WRITE_ONCE(cpu->busy, 1);
	/* An NMI on this CPU sees these accesses in program order, as in dwell_count(). */
	barrier();
	swap->since_ns = ktime_get_mono_fast_ns();
	if (swap->fresh) {
		swap->old = cpu->table.buckets;
		cpu->table.buckets = swap->fresh;
	}
	if (!dwell_switch_partial(&cpu->table.spill))
		swap->partial = true;
	if (!dwell_switch_partial(&cpu->registers.spill))
		swap->partial = true;
	/* An NMI sees them in program order, too. */
	barrier();
	WRITE_ONCE(cpu->busy, 0);
}

/* The hotplug lock keeps the CPU from going online or offline meanwhile. */
static void dwell_swap_on(unsigned int number, struct dwell_swap *swap)
{
	if (smp_call_function_single(number, dwell_swap_here, swap, 1))
		dwell_swap_here(swap);
}

/*
 * Takes the table of the current CPU. Returns 1 on success, and 0 if there is no memory or there
 * was none when the CPU came online a moment ago: the next read tries again.
 */
static int dwell_take_table(struct dwell_drain *drain)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, drain->cpu);
	int node = cpu_to_node(drain->cpu);
	struct dwell_swap swap = { .cpu = cpu };

	cpus_read_lock();
	/* A CPU that was unplugged may have returned on another node. */
	if (!drain->spare[node])
		drain->spare[node] = dwell_table_new(node);
	swap.fresh = drain->spare[node];
	if (!swap.fresh || !cpu->table.buckets) {
		cpus_read_unlock();
		return 0;
	}
	dwell_swap_on(drain->cpu, &swap);
	drain->spare[node] = NULL;
	cpus_read_unlock();
	drain->partial = swap.partial;
	drain->table = swap.old;
	drain->bucket = 0;
	drain->table_since_ns = cpu->since_ns;
	drain->table_until_ns = ktime_get_mono_fast_ns();
	drain->next_since_ns = swap.since_ns;
	return 1;
}

static void dwell_switch_again(struct dwell_drain *drain)
{
	struct dwell_swap swap = { .cpu = per_cpu_ptr(&dwell_cpus, drain->cpu) };

	cpus_read_lock();
	dwell_swap_on(drain->cpu, &swap);
	cpus_read_unlock();
	drain->partial = swap.partial;
}

/* The table is empty now and becomes the spare of its node again. */
static void dwell_return_table(struct dwell_drain *drain)
{
	int node = cpu_to_node(drain->cpu);

	per_cpu_ptr(&dwell_cpus, drain->cpu)->since_ns = drain->next_since_ns;
	cpus_read_lock();
	/* A CPU that came online meanwhile may have allocated one. */
	if (drain->spare[node])
		kvfree(drain->table);
	else
		drain->spare[node] = drain->table;
	cpus_read_unlock();
	drain->table = NULL;
}

/* Copies out the table that was taken. Returns 1 when it is complete, 0 if room was short. */
static int dwell_emit_table(struct dwell_output *output, struct dwell_drain *drain)
{
	struct dwell_cpu *cpu = per_cpu_ptr(&dwell_cpus, drain->cpu);
	u32 buckets = 1U << drain->bucket_bits;
	struct dwell_chunk chunk = {
		.kind = DWELL_CHUNK_ENTRIES,
		.cpu = drain->cpu,
		.record_bytes = sizeof(struct dwell_entry),
		.since_ns = drain->table_since_ns,
		.until_ns = drain->table_until_ns,
	};
	ssize_t count;

	while (drain->bucket < buckets) {
		u32 now = min_t(u32, buckets - drain->bucket, DWELL_BUCKETS_AT_ONCE);

		if (output->room < DWELL_READ_MIN)
			return 0;
		chunk.count = dwell_buckets_take(drain->table + drain->bucket, now, drain->entries);
		drain->bucket += now;
		if (!chunk.count)
			continue;
		count = dwell_emit(output, &chunk, drain->entries);
		if (count < 0)
			return count;
		dwell_count_read(cpu, drain->entries, count);
	}
	dwell_return_table(drain);
	return 1;
}

/* Reads the buffers that handlers have filled on one CPU. */
static int dwell_emit_buffers(struct dwell_output *output, unsigned int number)
{
	int result = dwell_emit_entries(output, number);

	return result == 1 ? dwell_emit_registers(output, number) : result;
}

static int dwell_emit_flushed(struct dwell_output *output, struct dwell_drain *drain)
{
	const struct dwell_chunk chunk = {
		.kind = DWELL_CHUNK_FLUSHED,
		.cpu = DWELL_ALL_CPUS,
		.until_ns = drain->flush_ns,
	};

	if (output->room < sizeof(chunk))
		return 0;
	if (copy_to_user(output->to, &chunk, sizeof(chunk)))
		return -EFAULT;
	output->written += sizeof(chunk);
	output->room = 0;
	WRITE_ONCE(dwell_flushing, false);
	return 1;
}

/*
 * Reads everything of one CPU. A full buffer comes first, so that the partial one can be switched.
 */
static int dwell_flush_cpu(struct dwell_output *output, struct dwell_drain *drain)
{
	int result;

	if (!drain->table) {
		result = dwell_emit_buffers(output, drain->cpu);
		if (result != 1 || !dwell_take_table(drain))
			return min(result, 0);
	}
	for (;;) {
		result = dwell_emit_buffers(output, drain->cpu);
		if (result != 1)
			return result;
		if (!drain->partial)
			return dwell_emit_table(output, drain);
		dwell_switch_again(drain);
	}
}

static int dwell_flush(struct dwell_output *output, struct dwell_drain *drain)
{
	int result;

	for (; drain->cpu < nr_cpu_ids; drain->cpu = cpumask_next(drain->cpu, cpu_possible_mask)) {
		if (!per_cpu_ptr(&dwell_cpus, drain->cpu)->table.buckets)
			continue;
		result = dwell_flush_cpu(output, drain);
		if (result != 1)
			return result;
	}
	return dwell_emit_flushed(output, drain);
}

/**
 * dwell_drain_read() - fills the reader's buffer
 * @to: it
 * @room: its bytes, DWELL_READ_MIN or more
 *
 * Return: bytes written, perhaps 0; or -EFAULT, and what could not be written is lost.
 */
ssize_t dwell_drain_read(char __user *to, size_t room)
{
	struct dwell_output output = { .to = to, .room = room };
	unsigned int number;
	int result = 1;

	for_each_possible_cpu(number) {
		result = dwell_emit_buffers(&output, number);
		if (result != 1)
			break;
	}
	if (result == 1 && dwell_flushing)
		result = dwell_flush(&output, dwell_drain);
	return result < 0 ? result : output.written;
}
