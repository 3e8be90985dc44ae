// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Runs in the probed program at each entry and exit of a probed function, in place of nothing: it
 * must not change anything that the program can see. So it uses no library, no global, no vector
 * register and little stack, reads the stack only where that cannot fault, and takes no lock.
 *
 * A signal handler may interrupt it anywhere and call a probed function. `busy` notices that; such
 * calls are counted as missed.
 */
#include "stack_walk.h"
#include "threads.h"

#define EXPORT(name) __attribute__((section(".text." name), used))

static void miss(struct shared *s, u32 function, enum missed cause)
{
	__atomic_fetch_add(&s->function[function].missed[cause], 1, __ATOMIC_RELAXED);
}

static u64 allocate(struct shared *s, struct thread *t, u64 bytes)
{
	u64 here;

	if (t->chunk_end - t->chunk < bytes) {
		u64 chunk = __atomic_fetch_add(&s->chunks, CHUNK_BYTES, __ATOMIC_RELAXED);

		if (chunk + CHUNK_BYTES > s->bytes)
			return 0;
		t->chunk = chunk;
		t->chunk_end = chunk + CHUNK_BYTES;
	}
	here = t->chunk;
	t->chunk += bytes;
	return here;
}

/* Returns the offset of the path that was walked; 0 if there is no room for a new one. */
static u64 store_path(struct shared *s, struct thread *t, struct walk *w, u32 function, u32 paths_max)
{
	struct path *path;
	u64 offset, place, *address;

	for (place = w->hash >> 32;; place++) {
		place %= PATHS_MAX * 2;
		offset = t->table[place];
		if (!offset)
			break;
		path = at(s, offset);
		if (path->hash == w->hash && path->function == function && path->frames == w->frames)
			return offset;
	}
	if (t->paths >= paths_max)
		return 0;
	offset = allocate(s, t, sizeof(*path) + w->pairs * sizeof(struct pair) + w->frames * sizeof(u64));
	if (!offset)
		return 0;
	path = at(s, offset);
	path->hash = w->hash;
	path->function = function;
	path->end = w->end;
	path->frames = w->frames;
	path->pairs_max = w->pairs;
	address = (u64 *)&path->pair[w->pairs];
	for (u32 i = 0; i < w->pairs; i++)
		if (t->scratch[i].at & 1)
			*address++ = t->scratch[i].value;
	path->next = t->first_path;
	barrier(); /* Dwell sees a path only when it is complete. */
	t->first_path = offset;
	t->paths++;
	t->table[place] = offset;
	return offset;
}

/* Returns the offset of the path of this call, which is looked up by walking the stack; 0 if memory is full. */
static __attribute__((noinline)) u64 find_path(struct shared *s, struct thread *t, u64 slot, u64 rbp, u32 function)
{
	struct walk w = { .hash = function + 1, .rbp = rbp };
	struct path *path;
	u64 offset;

	if (slot < t->readable_from || slot >= t->readable_to) {
		t->readable_from = slot & -PAGE; /* Another stack. */
		t->readable_to = t->readable_from + PAGE;
	}
	walk_stack(s, t, slot, &w);
	keep_readable(t, &w);
	w.hash = (w.hash ^ w.end) * 0xff51afd7ed558ccdul;
	offset = store_path(s, t, &w, function, PATHS_MAX);
	if (!offset) {
		w.frames = w.pairs = 0;
		w.end = END_OTHERS;
		w.hash = (function + 1) * 0xff51afd7ed558ccdul;
		offset = store_path(s, t, &w, function, PATHS_MAX + FUNCTIONS_MAX);
		if (!offset)
			return 0;
	}
	path = at(s, offset);
	path->pairs = 0; /* Not to be compared while it changes. */
	path->base = w.base;
	if (w.pairs <= path->pairs_max) {
		barrier();
		path->rbp = rbp;
		path->needs_rbp = w.needs_rbp;
		for (u32 i = 0; i < w.pairs; i++)
			path->pair[i] = t->scratch[i];
		barrier();
		path->pairs = w.pairs;
	}
	return offset;
}

/* Returns whether the stack is as it was when this path was walked. An address was derived from the values before it, so it may
 * be read only if they are the same. */
static inline int is_same(struct path *path, u64 slot, u64 rbp, u32 function)
{
	u32 pairs = path->pairs;
	struct pair *pair = path->pair, *end = pair + pairs;

	if (!pairs || pair->at != (slot | 1) || path->function != function || (path->needs_rbp && path->rbp != rbp))
		return 0;
	for (; pair < end; pair++)
		if (*(u64 *)(pair->at & -2ul) != pair->value)
			return 0;
	return 1;
}

/* Returns the offset of the path of this call. Calls from one place by several paths share a set of the look-up. */
static inline u64 path_of(struct shared *s, struct thread *t, u64 slot, u64 rbp, u32 function)
{
	u64 key = (slot >> 3 ^ *(u64 *)slot ^ (u64)function << 20) * 0x9e3779b97f4a7c15ul;
	u64 *set = &t->lookup[(key >> 58) * WAYS], offset;

	for (u32 way = 0; way < WAYS && set[way]; way++)
		if (likely(is_same(at(s, set[way]), slot, rbp, function)))
			return set[way];
	offset = find_path(s, t, slot, rbp, function);
	if (offset) {
		for (u32 way = WAYS - 1; way; way--)
			set[way] = set[way - 1];
		set[0] = offset;
	}
	return offset;
}

static inline void measure(struct metric *m, u64 value)
{
	u32 octave = 63 - __builtin_clzl(value | 4);
	u32 bucket = value < 4 ? value : (octave - 1) * 4 + (value >> (octave - 2) & 3);

	m->sum += value;
	if (value > m->max)
		m->max = value;
	m->buckets[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
}

/* Begins work for a call. Returns 0 if this thread is interrupted in other work. */
static inline int begin(struct shared *s, struct thread *t, u64 slot)
{
	if (unlikely(t->busy)) {
		/* A handler that left by longjmp has not ended its work. */
		int is_left = slot >= t->busy && slot >= t->readable_from && slot < t->readable_to;

		if (!is_left)
			return 0;
	}
	t->busy = slot;
	barrier();
	if (unlikely(*(u32 *)t->tid_at != t->tid))
		renew_thread(s, t);
	return 1;
}

static inline void end(struct thread *t)
{
	barrier();
	t->busy = 0;
}

/* Counts and removes calls in progress that have ended without a return: those that are further in on the stack of a call.
 * A thread may have several stacks. Returns the number of the others. */
static __attribute__((noinline)) u32 remove_unwound(struct shared *s, struct thread *t, u64 slot)
{
	u32 kept = 0;

	for (u32 i = 0; i < t->depth; i++) {
		struct frame *frame = &t->frame[i];

		if (frame->slot <= slot && slot <= frame->base)
			((struct path *)at(s, frame->path))->unwound++;
		else
			t->frame[kept++] = *frame;
	}
	t->depth = kept;
	return kept;
}

/* Finds the call in progress with this slot and removes it and those that it has left without a return. Returns whether there
 * is one. */
static __attribute__((noinline)) int remove_frame(struct shared *s, struct thread *t, u64 slot, struct frame *found)
{
	for (u32 depth = t->depth; depth--;) {
		if (t->frame[depth].slot != slot)
			continue;
		*found = t->frame[depth];
		t->depth--;
		for (u32 i = depth; i < t->depth; i++)
			t->frame[i] = t->frame[i + 1];
		remove_unwound(s, t, slot);
		return 1;
	}
	return 0;
}

EXPORT("0") void enter(struct gate *gate, u64 slot, u64 rbp, u32 function)
{
	struct shared *s = (struct shared *)*(volatile u64 *)&gate->shared;
	struct thread *t;
	struct path *path;
	struct frame *frame;
	u32 metrics, depth;
	u64 offset;

	if (unlikely(!s))
		return;
	t = this_thread(s);
	if (unlikely(!t))
		return miss(s, function, MISSED_THREADS);
	if (!begin(s, t, slot))
		return miss(s, function, MISSED_BUSY);
	offset = path_of(s, t, slot, rbp, function);
	if (unlikely(!offset)) {
		miss(s, function, MISSED_MEMORY);
		return end(t);
	}
	path = at(s, offset);
	depth = t->depth;
	if (depth) {
		frame = &t->frame[depth - 1];
		/* Usually this call is further in than the latest, on the same stack. */
		if (unlikely(slot >= frame->slot || path->base < frame->slot))
			depth = remove_unwound(s, t, slot);
	}
	metrics = s->function[function].metrics;
	if (unlikely(metrics & WITH_RETURNS && depth == FRAMES_MAX)) {
		miss(s, function, MISSED_FRAMES);
		return end(t);
	}
	path->calls++;
	if (metrics & WITH_RETURNS) {
		frame = &t->frame[depth];
		frame->slot = slot;
		frame->base = path->base;
		frame->path = offset;
		t->depth = depth + 1;
		if (metrics & (WITH_WALL | WITH_CPU))
			frame->wall = ticks();
		if (metrics & WITH_CPU)
			frame->cpu = cpu_time(s, t, frame->wall);
	}
	end(t);
}

EXPORT("1") void leave(struct gate *gate, u64 slot, u64 rbp, u32 function)
{
	u64 now = ticks();
	struct shared *s = (struct shared *)*(volatile u64 *)&gate->shared;
	struct thread *t;
	struct frame *frame, removed;
	struct path *path;

	(void)rbp;
	if (unlikely(!s))
		return;
	t = this_thread(s);
	if (unlikely(!t) || !begin(s, t, slot))
		return; /* Its entry was missed as well, or it counts as unwound. */
	frame = &t->frame[t->depth - 1];
	if (likely(t->depth && frame->slot == slot)) {
		t->depth--;
	} else {
		frame = &removed;
		if (!remove_frame(s, t, slot, frame)) {
			t->unmatched++;
			return end(t);
		}
	}
	path = at(s, frame->path);
	if (likely(path->function == function)) {
		u32 metrics = s->function[function].metrics;

		path->returns++;
		if (metrics & WITH_WALL)
			measure(&path->wall, now - frame->wall);
		if (metrics & WITH_CPU) {
			/* Time that the hypervisor took is no CPU time, but only the kernel knows it. */
			u64 wall = now - frame->wall, cpu = cpu_time(s, t, now);

			cpu = cpu > frame->cpu ? cpu - frame->cpu : 0;
			measure(&path->cpu, cpu);
			if (metrics & WITH_BLOCKED)
				measure(&path->blocked, wall > cpu ? wall - cpu : 0);
		}
	} else {
		path->unwound++; /* Another call began at its slot, and was missed. */
		t->unmatched++;
	}
	end(t);
}
