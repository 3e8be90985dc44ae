// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Runs in the probed program at each entry and exit of a probed function, in place of nothing: it
 * must not change anything that the program can see. So it uses no library, no global, no vector
 * register and little stack, reads the stack only where that cannot fault, and takes no lock.
 *
 * A signal handler may interrupt it anywhere and call a probed function. `busy` notices that; such
 * calls are counted as missed.
 */
#include "shared.h"

#define EXPORT(name) __attribute__((section(".text." name), used))
#define barrier() __asm__ volatile("" ::: "memory")
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { SYS_mmap = 9, SYS_close = 3, SYS_gettid = 186, SYS_clock_gettime = 228, SYS_perf_event_open = 298, SYS_process_vm_readv = 310 };

/* Offsets in the stack of what a signal pushes: the registers of the interrupted code, from the slot
 * that holds the handler's return address (struct ucontext in arch/x86/include/uapi). */
enum { SIGNAL_RBP = 128, SIGNAL_RSP = 168, SIGNAL_RIP = 176 };

#define PAGE 4096ul
#define STACK_BYTES_MAX (64ul << 20)

static inline long call(long number, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static inline u64 ticks(void)
{
	u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

static inline u64 fs_base(void)
{
	u64 base;

	__asm__ volatile("rdfsbase %0" : "=r"(base));
	return base;
}

static inline void *at(struct shared *s, u64 offset)
{
	return (char *)s + offset;
}

static void miss(struct shared *s, u32 function, enum missed cause)
{
	__atomic_fetch_add(&s->function[function].missed[cause], 1, __ATOMIC_RELAXED);
}

/* Opens the page whose lock changes when the thread is switched. Its descriptor is closed at once: the
 * mapping keeps the event. */
static void open_page(struct thread *t)
{
	u64 attr[16];
	long fd, page;

	for (int i = 0; i < 16; i++)
		attr[i] = 0;
	attr[0] = 1 | 128ul << 32; /* PERF_TYPE_SOFTWARE; size */
	attr[1] = 9; /* PERF_COUNT_SW_DUMMY */
	attr[5] = 1 << 5 | 1 << 6; /* exclude_kernel, exclude_hv */
	fd = call(SYS_perf_event_open, (long)attr, 0, -1, -1, 8 /* CLOEXEC */, 0);
	if (fd < 0)
		return;
	page = call(SYS_mmap, 0, PAGE, 1, 1, fd, 0);
	call(SYS_close, fd, 0, 0, 0, 0, 0);
	if (page > 0)
		t->page = page;
}

static __attribute__((noinline)) struct thread *new_thread(struct shared *s, u64 fs, u32 slot)
{
	u32 number = __atomic_fetch_add(&s->threads, 1, __ATOMIC_RELAXED);
	struct thread *t = (struct thread *)at(s, s->threads_at) + number;

	if (number >= THREADS_MAX) {
		__atomic_fetch_sub(&s->threads, 1, __ATOMIC_RELAXED);
		return 0;
	}
	t->fs = fs;
	t->tid = (u32)call(SYS_gettid, 0, 0, 0, 0, 0, 0);
	if (s->with_cpu)
		open_page(t);
	for (;; slot = (slot + 1) % THREAD_MAP) {
		u32 none = 0;

		if (__atomic_compare_exchange_n(&s->map[slot], &none, number + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return t;
	}
}

static inline struct thread *this_thread(struct shared *s)
{
	u64 fs = fs_base();
	u32 slot = (u32)((fs >> 6) * 2654435761u) >> 20;

	for (;; slot = (slot + 1) % THREAD_MAP) {
		u32 number = s->map[slot];
		struct thread *t = (struct thread *)at(s, s->threads_at) + number - 1;

		if (unlikely(!number))
			return new_thread(s, fs, slot);
		if (likely(t->fs == fs))
			return t;
	}
}

static __attribute__((noinline)) void read_cpu_time(struct shared *s, struct thread *t)
{
	volatile u64 *lock = (volatile u64 *)(t->page + 8);
	u64 time[2], before;

	do {
		before = t->page ? *(volatile u32 *)lock : 1;
		call(SYS_clock_gettime, 3 /* of the thread */, (long)time, 0, 0, 0, 0);
		t->cpu_tsc = ticks();
	} while (t->page && *(volatile u32 *)lock != before);
	t->cpu_ticks = (time[0] * 1000000000 + time[1]) * s->ticks_per_ns >> 20;
	t->cpu_lock = before;
}

/* Returns the thread's CPU time in ticks. `now` is the current tick. */
static inline u64 cpu_time(struct shared *s, struct thread *t, u64 now)
{
	if (likely(t->page && *(volatile u32 *)(t->page + 8) == t->cpu_lock))
		return t->cpu_ticks + (now - t->cpu_tsc);
	read_cpu_time(s, t);
	return t->cpu_ticks;
}

/* Returns whether a word of the stack above `slot` can be read. */
static inline int is_readable(struct thread *t, u64 slot, u64 word)
{
	if (unlikely(word & 7))
		return 0;
	if (likely(word >= t->readable_from && word < t->readable_to))
		return 1;
	if (word < slot || word - slot > STACK_BYTES_MAX)
		return 0;
	while (t->readable_to <= word) {
		u64 byte, own[2] = { (u64)&byte, 1 }, page[2] = { t->readable_to, 1 };

		if (call(SYS_process_vm_readv, t->tid, (long)own, 1, (long)page, 1, 0) != 1)
			return 0;
		t->readable_to += PAGE;
	}
	return 1;
}

static struct image *find_image(struct shared *s, u64 pc)
{
	struct images *images = at(s, __atomic_load_n(&s->images, __ATOMIC_ACQUIRE));
	u64 low = 0, high = images->count;

	while (low < high) {
		u64 middle = (low + high) / 2;

		if (images->image[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low < images->count && images->image[low].start <= pc ? &images->image[low] : 0;
}

static struct rule *find_rule(struct shared *s, u64 pc)
{
	struct image *image = find_image(s, pc);
	u32 *starts, offset, row;

	if (!image)
		return 0;
	starts = at(s, image->starts);
	offset = (u32)(pc - image->start);
	row = ((u32 *)at(s, image->buckets))[offset >> 8];
	while (starts[row + 1] <= offset)
		row++;
	return (struct rule *)at(s, image->table) + ((u16 *)at(s, image->rules))[row];
}

struct walk {
	u64 hash, rbp;
	u32 pairs, frames, end, needs_rbp;
};

/* Reads the return addresses from `slot` outwards into the thread's scratch memory. */
static void walk_stack(struct shared *s, struct thread *t, u64 slot, struct walk *w)
{
	u64 rbp = w->rbp, sp = slot + 8, where = slot, pc = *(u64 *)slot, exact = 0;
	/* Where rbp was loaded from. It is compared only if a caller is found by it. */
	struct pair loaded = { 0, 0 };
	int is_initial = 1;

	w->pairs = w->frames = w->needs_rbp = 0;
	for (;;) {
		struct rule *rule;
		u64 cfa, frame_pointer = rbp;

		t->scratch[w->pairs++] = (struct pair){ where | 1, pc };
		w->frames++;
		w->hash = (w->hash ^ pc) * 0xff51afd7ed558ccdul;
		w->hash ^= w->hash >> 29;
		w->end = END_TOO_DEEP;
		if (w->frames == DEPTH_MAX || w->pairs + 4 > PAIRS_MAX)
			return;
		rule = find_rule(s, pc - 1 + exact);
		w->end = END_UNKNOWN_CODE;
		if (!rule || rule->kind == RULE_UNKNOWN)
			return;
		w->end = END_COMPLETE;
		if (rule->kind == RULE_OUTERMOST)
			return;
		w->end = END_UNREADABLE;
		if (rule->kind == RULE_SIGNAL) {
			u64 frame = sp - 8;

			if (exact || !is_readable(t, slot, frame + SIGNAL_RIP))
				return;
			rbp = *(u64 *)(frame + SIGNAL_RBP);
			sp = *(u64 *)(frame + SIGNAL_RSP);
			where = frame + SIGNAL_RIP;
			pc = *(u64 *)where;
			t->scratch[w->pairs++] = (struct pair){ frame + SIGNAL_RSP, sp };
			loaded = (struct pair){ frame + SIGNAL_RBP, rbp };
			is_initial = 0;
			exact = 1;
			continue;
		}
		if (rule->kind == RULE_STACK) {
			cfa = sp + rule->offset;
		} else {
			w->needs_rbp |= is_initial;
			if (loaded.at)
				t->scratch[w->pairs++] = loaded;
			loaded.at = 0;
			cfa = rbp + rule->offset;
			if (rule->kind == RULE_FRAME_LOAD) {
				if (!is_readable(t, slot, cfa))
					return;
				t->scratch[w->pairs++] = (struct pair){ cfa, *(u64 *)cfa };
				cfa = *(u64 *)cfa;
			}
		}
		if (cfa < sp + 8 || !is_readable(t, slot, cfa - 8))
			return;
		if (rule->saved_rbp) {
			u64 saved = rule->kind == RULE_FRAME_LOAD ? frame_pointer : cfa + rule->saved_rbp;

			if (!is_readable(t, slot, saved))
				return;
			rbp = *(u64 *)saved;
			is_initial = 0;
			loaded = (struct pair){ saved, rbp };
		}
		sp = cfa;
		where = cfa - 8;
		pc = *(u64 *)where;
		exact = 0;
	}
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

/* Returns the offset of the path of this call, which is looked up by walking the stack; 0 if memory is full. */
static __attribute__((noinline)) u64 find_path(struct shared *s, struct thread *t, u64 slot, u64 rbp, u32 function)
{
	struct walk w = { .hash = function + 1, .rbp = rbp };
	struct path *path;
	u64 offset, place;

	if (slot < t->readable_from || slot >= t->readable_to) {
		t->readable_from = slot & -PAGE; /* Another stack. */
		t->readable_to = t->readable_from + PAGE;
	}
	walk_stack(s, t, slot, &w);
	for (place = w.hash >> 32;; place++) {
		place %= PATHS_MAX * 2;
		offset = t->table[place];
		if (!offset)
			break;
		path = at(s, offset);
		if (path->hash == w.hash && path->function == function && path->frames == w.frames)
			goto found;
	}
	if (t->paths == PATHS_MAX)
		return 0;
	offset = allocate(s, t, sizeof(*path) + w.pairs * sizeof(struct pair));
	if (!offset)
		return 0;
	path = at(s, offset);
	path->hash = w.hash;
	path->function = function;
	path->end = w.end;
	path->frames = w.frames;
	path->pairs_max = w.pairs;
	path->next = t->first_path;
	t->paths++;
	t->table[place] = offset;
found:
	if (w.pairs <= path->pairs_max) {
		path->pairs = 0; /* Not to be compared while it changes. */
		barrier();
		path->rbp = rbp;
		path->needs_rbp = w.needs_rbp;
		for (u32 i = 0; i < w.pairs; i++)
			path->pair[i] = t->scratch[i];
		barrier();
		path->pairs = w.pairs;
	}
	if (path->next == t->first_path && t->first_path != offset) {
		barrier(); /* Dwell sees a path only when it is complete. */
		t->first_path = offset;
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
static inline int begin(struct thread *t, u64 slot)
{
	if (unlikely(t->busy)) {
		/* A handler that left by longjmp has not ended its work. */
		int is_left = slot > t->busy && slot >= t->readable_from && slot < t->readable_to;

		if (!is_left)
			return 0;
	}
	t->busy = slot;
	barrier();
	return 1;
}

static inline void end(struct thread *t)
{
	barrier();
	t->busy = 0;
}

EXPORT("0") void enter(struct gate *gate, u64 slot, u64 rbp, u32 function)
{
	struct shared *s = (struct shared *)*(volatile u64 *)&gate->shared;
	struct thread *t;
	struct path *path;
	u32 metrics, depth;
	u64 offset;

	if (unlikely(!s))
		return;
	t = this_thread(s);
	if (unlikely(!t))
		return miss(s, function, MISSED_THREADS);
	if (!begin(t, slot))
		return miss(s, function, MISSED_BUSY);
	/* An exception or longjmp left these. */
	for (depth = t->depth; depth && t->frame[depth - 1].slot <= slot; depth--)
		((struct path *)at(s, t->frame[depth - 1].path))->unwound++;
	t->depth = depth;
	metrics = s->function[function].metrics;
	if (unlikely(metrics & WITH_RETURNS && depth == FRAMES_MAX)) {
		miss(s, function, MISSED_FRAMES);
		return end(t);
	}
	offset = path_of(s, t, slot, rbp, function);
	if (unlikely(!offset)) {
		miss(s, function, MISSED_MEMORY);
		return end(t);
	}
	path = at(s, offset);
	path->calls++;
	if (metrics & WITH_RETURNS) {
		struct frame *frame = &t->frame[depth];

		frame->slot = slot;
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
	struct frame *frame;
	struct path *path;
	u32 depth;

	(void)rbp;
	if (unlikely(!s))
		return;
	t = this_thread(s);
	if (unlikely(!t) || !begin(t, slot))
		return; /* Its entry was missed as well, or it counts as unwound. */
	for (depth = t->depth; depth && t->frame[depth - 1].slot < slot; depth--)
		((struct path *)at(s, t->frame[depth - 1].path))->unwound++;
	frame = &t->frame[depth - 1];
	if (likely(depth && frame->slot == slot)) {
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
			depth--;
		} else {
			t->unmatched++;
		}
	} else {
		t->unmatched++;
	}
	t->depth = depth;
	end(t);
}
