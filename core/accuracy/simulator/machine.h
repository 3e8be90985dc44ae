/* The simulated core: generic-inorder-2, whose figures are a contract (docs/measured.md, "Frequencies, in order").
 *
 * Nothing here comes from the scheduler or the model files of core/analysis: this is the judge, they are the judged.
 */
#ifndef DWELL_MACHINE_H
#define DWELL_MACHINE_H

enum {
    ISSUE_SLOTS = 2,

    LATENCY_ALU = 1,
    LATENCY_LOAD = 3, /* from the first level, load to use */
    LATENCY_MULTIPLY = 3,
    LATENCY_DIVIDE = 12, /* the unit is busy throughout */
    LATENCY_FLOAT = 4,
    LATENCY_TRANSFER = 3, /* between register files */
    LATENCY_VECTOR = 3,   /* SIMD integer */
    LATENCY_FLOAT_DIVIDE = 18, /* and square root; the unit is busy throughout */

    MISPREDICT_CYCLES = 8, /* in addition to the cycle that the next instruction takes anyway */
    SYSTEM_CALL_CYCLES = 400,
    /* Cycles in the kernel, in addition to the program's own time: an order of magnitude, and prime, so that no loop is
     * synchronous with it.
     */
    PAGE_FAULT_CYCLES = 1009,

    LINE_SHIFT = 6,
    PAGE_SHIFT = 12,
    L1I_BYTES = 32 << 10,
    L1I_WAYS = 2,
    L1D_BYTES = 32 << 10,
    L1D_WAYS = 4,
    L2_BYTES = 512 << 10,
    L2_WAYS = 8,
    L2_CYCLES = 12,      /* load to use, or fetch to issue */
    MEMORY_CYCLES = 110, /* load to use, or fetch to issue */

    DTLB_ENTRIES = 64,
    DTLB_CYCLES = 25,
    ITLB_ENTRIES = 32,
    ITLB_CYCLES = 20,

    LOAD_MISSES = 4,   /* outstanding at the same time */
    STORE_ENTRIES = 6, /* the store buffer drains in order, a first-level store each cycle */

    GSHARE_BITS = 12,
    TARGET_ENTRIES = 512, /* last targets of indirect jumps and calls */
    RETURN_ENTRIES = 8,
};

#endif
