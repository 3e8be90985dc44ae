/* Caches, TLBs, outstanding misses and the store buffer of the simulated core. Times are cycles since the start. */
#ifndef DWELL_MEMORY_H
#define DWELL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct insn;

/* One access of an executed instruction, of `size_bytes` from `address`. */
struct access {
    uint64_t address;
    uint32_t size_bytes;
    bool store;
};

/* The level that data came from, the nearest one first. */
enum level { FIRST_LEVEL, SECOND_LEVEL, MEMORY };

/* When the result of a load is usable, and which part of it came last. */
struct arrival {
    uint64_t done;
    enum level from;
};

/* The line of a load on its way; `done` may be in the past. */
struct miss {
    struct arrival arrival;
    struct insn *loader;
};

void memory_init(void);

/* Returns by how many cycles the fetch of the line of `pc` is late; 0 from the first level. */
unsigned fetch_line_cycles(uint64_t pc);
/* Returns by how many cycles the translation of the page of `pc` is late. */
unsigned fetch_page_cycles(uint64_t pc);

/* Returns by how many cycles the translation of the access is late. Adds to `*touched` the pages that were never
 * accessed before.
 */
unsigned data_page_cycles(const struct access *access, unsigned *touched);

/* Returns whether the whole access is in the first level or on its way there. */
bool data_is_near(const struct access *access);

/* If load misses fill all places, returns the one that is done first: then another one can be added. */
struct miss *first_miss(void);

/* Performs a load issued at `now` by `loader`. */
struct arrival load(const struct access *access, uint64_t now, struct insn *loader);

/* Returns when the last outstanding load miss arrives, and which instruction caused it. */
uint64_t loads_done(uint64_t now, struct insn **whose);

/* Returns when the store buffer has a free entry, and when it is empty. */
uint64_t store_slot_free(uint64_t now);
uint64_t stores_done(void);

/* Puts a store issued at `now` into the store buffer, which must have a free entry. */
void store(const struct access *access, uint64_t now);

#endif
