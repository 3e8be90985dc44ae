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

/* Where data came from, nearest first. */
enum level { FIRST_LEVEL, SECOND_LEVEL, MEMORY };

/* When a load's result is usable, and what of it came last. */
struct arrival {
    uint64_t done;
    enum level from;
};

/* A load's line on its way; `done` may be past. */
struct miss {
    struct arrival arrival;
    struct insn *loader;
};

void memory_init(void);

/* Cycles that the fetch of the line of `pc` is late; zero from the first level. */
unsigned fetch_line_cycles(uint64_t pc);
/* Cycles that the translation of the page of `pc` is late. */
unsigned fetch_page_cycles(uint64_t pc);

/* Cycles that translating the access is late. `*touched` grows by the pages that nobody accessed before. */
unsigned data_page_cycles(const struct access *access, unsigned *touched);

/* Whether all of the access is in the first level or on its way there. */
bool data_is_near(const struct access *access);

/* Of the load misses that fill all places the one that is done first: another can be added then. */
struct miss *first_miss(void);

/* Performs a load issued at `now` by `loader`. */
struct arrival load(const struct access *access, uint64_t now, struct insn *loader);

/* When the last outstanding load miss has arrived, and whose it is. */
uint64_t loads_done(uint64_t now, struct insn **whose);

/* When the store buffer has a free entry, and when it is empty. */
uint64_t store_slot_free(uint64_t now);
uint64_t stores_done(void);

/* Puts a store issued at `now` into the store buffer, which must have a free entry. */
void store(const struct access *access, uint64_t now);

#endif
