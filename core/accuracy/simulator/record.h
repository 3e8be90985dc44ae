/* Counts a run, and writes its files in the capture format of the accuracy harness. */
#ifndef DWELL_RECORD_H
#define DWELL_RECORD_H

#include "insn.h"

/* Reasons why an instruction stayed at the head of the queue longer than the code explains. */
enum cause { ICACHE, ITLB, DCACHE_SECOND, DCACHE_MEMORY, DTLB, MISPREDICT, WRITEBUFFER, DIVIDER, SYNCHRONIZATION, SYSTEM, CAUSES };

enum event { INSTRUCTIONS, DCACHE_MISSES, ICACHE_MISSES, DTLB_MISSES, BRANCH_MISSES, EVENTS };

struct record_options {
    const char *directory;
    uint64_t period_cycles; /* mean period; each one is drawn within an eighth of it */
    uint64_t seed;
    uint64_t event_periods[EVENTS];
};

void record_init(const struct record_options *options);

/* Returns the instruction at an address, decoded if it is new or its bytes have changed. */
struct insn *record_insn(uint64_t pc, uint32_t word, unsigned size_bytes, void (*decode)(struct insn *, uint32_t));

/* Records that `insn` was at the head of the queue from cycle `from` up to `to`, and takes the samples of that time. */
void record_head(struct insn *insn, uint64_t from, uint64_t to);
/* Records that this many of these cycles had this cause; `culprit` may be null. */
void record_stall(struct insn *insn, enum cause cause, struct insn *culprit, uint64_t cycles);
void record_event(struct insn *insn, enum event event);
/* Returns whether a data page is accessed for the first time, which enters the kernel. */
bool record_page(uint64_t page);
/* Records cycles in the kernel that `insn` caused. They are sampled like time, by a clock of their own. */
void record_kernel(struct insn *insn, uint64_t cycles);
/* Records that a branch was issued, which ends straight-line code. `direction` is 1 if a conditional one was taken, 0
 * if not, -1 for others.
 */
void record_branch(int direction);
/* Records that an indirect branch went to `to`. */
void record_indirect(struct insn *from, uint64_t to);

/* Writes the files, only for addresses in [start, end). */
void record_write(uint64_t start, uint64_t end, uint64_t cycles);

#endif
