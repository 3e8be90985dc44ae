/* A decoded instruction: what the timing model needs to know of it, and what the run has counted of it.
 *
 * Entered by the decoders once for each address, then carried by pointer into every execution.
 */
#ifndef DWELL_INSN_H
#define DWELL_INSN_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers of registers: 0-30 general, 31 the stack pointer (or RISC-V's x31), 32-63 floating point and SIMD, 64 the
 * flags.
 */
enum { REG_SP = 31, REG_FP0 = 32, REG_FLAGS = 64, REGS = 65, REG_NONE = 255 };

/* Execution units, one of each per cycle. An instruction without a unit takes any slot. */
enum { UNIT_MEMORY = 1, UNIT_BRANCH = 2, UNIT_FLOAT = 4, UNIT_MULTIPLY = 8 };

enum branch { NOT_A_BRANCH, CONDITIONAL, JUMP, CALL, INDIRECT_JUMP, INDIRECT_CALL, RETURN };

/* How an instruction orders memory or enters the system. */
enum special { PLAIN, ORDERED, BARRIER, SYSTEM_CALL };

enum { MAX_SOURCES = 8, MAX_RESULTS = 5 };

struct insn {
    uint64_t pc;
    uint64_t target; /* target of a direct branch */
    uint8_t size_bytes;
    uint8_t units;
    uint8_t busy_cycles; /* cycles for which its unit is busy; 0 or 1: fully pipelined */
    uint8_t latency;     /* latency of the results from index 0 on */
    bool alone;          /* must be issued alone in its cycle */
    bool load, store;
    uint8_t branch;  /* enum branch */
    uint8_t special; /* enum special */
    uint8_t n_sources, n_results;
    uint8_t n_quick; /* number of last results that are updated base registers: usable after one cycle */
    uint8_t sources[MAX_SOURCES];
    uint8_t results[MAX_RESULTS];

    uint64_t executions, taken;
    uint64_t base_cycles; /* cycles at the head of the queue for reasons that the code explains */
    uint64_t samples;
    /* samples by the direction of the conditional branch that followed in straight-line code: no jump, jump */
    uint64_t samples_ahead[2];
    uint64_t kernel_samples; /* samples of the kernel's time on its behalf */
    uint32_t *event_samples; /* one for each event, allocated at the first sample */
};

/* Both fill everything except `pc`, `size_bytes` and the counts, which the caller sets. Unknown encodings become
 * integer work of one cycle.
 */
void decode_a64(struct insn *insn, uint32_t word);
void decode_rv64(struct insn *insn, uint32_t word);

/* Helper functions of both decoders. */
static inline void add_source(struct insn *insn, unsigned reg)
{
    if (reg < REGS && insn->n_sources < MAX_SOURCES)
        insn->sources[insn->n_sources++] = (uint8_t)reg;
}

static inline void add_result(struct insn *insn, unsigned reg)
{
    if (reg < REGS && insn->n_results < MAX_RESULTS)
        insn->results[insn->n_results++] = (uint8_t)reg;
}

static inline uint32_t bits(uint32_t word, unsigned high, unsigned low)
{
    return (word >> low) & ((2u << (high - low)) - 1);
}

static inline bool bit(uint32_t word, unsigned at)
{
    return (word >> at) & 1;
}

static inline int64_t sign_extend(uint64_t value, unsigned width_bits)
{
    return (int64_t)(value << (64 - width_bits)) >> (64 - width_bits);
}

#endif
