/* What a run counts, and the files it leaves: the capture format of the accuracy harness. */
#ifndef DWELL_RECORD_H
#define DWELL_RECORD_H

#include "insn.h"

/* Why an instruction was held at the head of the queue beyond what the program's text explains. */
enum cause { ICACHE, ITLB, DCACHE_SECOND, DCACHE_MEMORY, DTLB, MISPREDICT, WRITEBUFFER, DIVIDER, SYNCHRONIZATION, SYSTEM, CAUSES };

enum event { INSTRUCTIONS, DCACHE_MISSES, ICACHE_MISSES, DTLB_MISSES, BRANCH_MISSES, EVENTS };

struct record_options {
    const char *directory;
    uint64_t period_cycles; /* the mean; each is drawn within an eighth of it */
    uint64_t seed;
    uint64_t event_periods[EVENTS];
};

void record_init(const struct record_options *options);

/* The instruction at an address, decoded when it is new or its bytes have changed. */
struct insn *record_insn(uint64_t pc, uint32_t word, unsigned size_bytes, void (*decode)(struct insn *, uint32_t));

/* `insn` was at the head of the queue from cycle `from` up to `to`; takes the samples that fall there. */
void record_head(struct insn *insn, uint64_t from, uint64_t to);
/* Of which so many cycles had this cause; `culprit` may be null. */
void record_stall(struct insn *insn, enum cause cause, struct insn *culprit, uint64_t cycles);
void record_event(struct insn *insn, enum event event);
/* Whether a data page is accessed for the first time, which enters the kernel. */
bool record_page(uint64_t page);
/* Cycles in the kernel that `insn` caused: sampled as time is, on a clock of their own. */
void record_kernel(struct insn *insn, uint64_t cycles);
/* A branch was issued, which ends what ran straight on; `direction` is 1 where a conditional one was taken, 0 where not, -1 for others. */
void record_branch(int direction);
/* An indirect branch went to `to`. */
void record_indirect(struct insn *from, uint64_t to);

/* Writes the files, for the addresses in [start, end) only. */
void record_write(uint64_t start, uint64_t end, uint64_t cycles);

#endif
