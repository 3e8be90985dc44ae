/* The branch predictor of the simulated core. */
#ifndef DWELL_PREDICTOR_H
#define DWELL_PREDICTOR_H

#include "insn.h"

/* Predicts the branch, learns from its target, and returns whether the prediction was right. */
bool predicted(const struct insn *branch, uint64_t next_pc);

#endif
