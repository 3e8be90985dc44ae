/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Walks a stack by unwind tables. */
#ifndef DWELL_PROBE_STACK_WALK_H
#define DWELL_PROBE_STACK_WALK_H

#include "machine.h"

/* Offsets in the stack of what a signal pushes: the registers of the interrupted code, from the slot
 * that holds the handler's return address (struct ucontext in arch/x86/include/uapi). */
enum { SIGNAL_RBP = 128, SIGNAL_RSP = 168, SIGNAL_RIP = 176 };
/* More than a signal pushes: if the interrupted code is further up, its stack is another one. */
#define SIGNAL_BYTES_MAX 16384ul
#define STACK_BYTES_MAX (64ul << 20)

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
	u64 low, from, to; /* Where the stack begins, and its part that is known to be readable. */
	u64 base;	/* The outermost slot on the stack of the call. */
	u32 pairs, frames, end, needs_rbp;
	int is_other_stack; /* Whether the walk has crossed to another stack. */
};

/* Returns whether a word of the stack can be read. */
static inline int is_readable(struct walk *w, u64 word)
{
	if (unlikely(word & 7))
		return 0;
	if (likely(word >= w->from && word < w->to))
		return 1;
	if (word < w->low || word - w->low > STACK_BYTES_MAX)
		return 0;
	for (; w->to <= word; w->to += PAGE) {
		u8 byte;

		if (!read_memory(w->to, &byte, 1))
			return 0;
	}
	return 1;
}

/* Lets the next walk know which part of the stack can be read. */
static void keep_readable(struct thread *t, struct walk *w)
{
	if (w->is_other_stack)
		return;
	t->readable_from = w->from;
	t->readable_to = w->to;
}

/* Reads the return addresses from `slot` outwards into the thread's scratch memory. */
static void walk_stack(struct shared *s, struct thread *t, u64 slot, struct walk *w)
{
	u64 rbp = w->rbp, sp = slot + 8, where = slot, pc = *(u64 *)slot, exact = 0;
	/* Where rbp was loaded from. It is compared only if a caller is found by it. */
	struct pair loaded = { 0, 0 };
	int is_initial = 1;

	w->low = slot;
	w->from = t->readable_from;
	w->to = t->readable_to;
	w->pairs = w->frames = w->needs_rbp = 0;
	for (;;) {
		struct rule *rule;
		u64 cfa, frame_pointer = rbp;

		t->scratch[w->pairs++] = (struct pair){ where | 1, pc };
		w->frames++;
		if (!w->is_other_stack)
			w->base = where;
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

			if (exact || !is_readable(w, frame + SIGNAL_RIP))
				return;
			w->base = w->is_other_stack ? w->base : frame;
			rbp = *(u64 *)(frame + SIGNAL_RBP);
			sp = *(u64 *)(frame + SIGNAL_RSP);
			where = frame + SIGNAL_RIP;
			pc = *(u64 *)where;
			t->scratch[w->pairs++] = (struct pair){ frame + SIGNAL_RSP, sp };
			loaded = (struct pair){ frame + SIGNAL_RBP, rbp };
			is_initial = 0;
			exact = 1;
			if (sp - frame > SIGNAL_BYTES_MAX) {
				keep_readable(t, w);
				w->is_other_stack = 1;
				w->low = sp & -8;
				w->from = w->to = sp & -PAGE;
			}
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
				if (!is_readable(w, cfa))
					return;
				t->scratch[w->pairs++] = (struct pair){ cfa, *(u64 *)cfa };
				cfa = *(u64 *)cfa;
			}
		}
		if (cfa < sp + 8 || !is_readable(w, cfa - 8))
			return;
		if (rule->saved_rbp) {
			u64 saved = rule->kind == RULE_FRAME_LOAD ? frame_pointer : cfa + rule->saved_rbp;

			if (!is_readable(w, saved))
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

#endif
