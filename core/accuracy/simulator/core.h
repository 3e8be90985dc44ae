/* The timing model: when each instruction leaves the head of the queue, and why it did not leave earlier. */
#ifndef DWELL_CORE_H
#define DWELL_CORE_H

#include "insn.h"
#include "memory.h"

enum { MAX_ACCESSES = 8 };

/* Issues one executed instruction; `next_pc` is the address that followed it. */
void core_issue(struct insn *insn, const struct access *accesses, unsigned n_accesses, uint64_t next_pc);

/* The cycle in which the last instruction was issued. */
uint64_t core_cycles(void);

/* Makes every dynamic event free, so that only delays remain that the code explains. */
void core_set_ideal(void);

#endif
