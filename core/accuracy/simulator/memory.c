/* Caches, TLBs, outstanding misses and the store buffer of the simulated core.
 *
 * In: fetches, loads and stores in program order with the cycle each was issued in. Out: how late each is.
 * Constant time for each access: sets are searched whole, and a hint finds a TLB entry without search.
 * Physical and virtual addresses are the same; writing back dirty lines costs nothing, as its buffer is never full.
 */
#include "memory.h"
#include "machine.h"
#include "record.h"
#include <stdlib.h>
#include <string.h>

struct line {
    uint64_t number;
    uint64_t used;     /* time of the last use, for least recently used */
    struct arrival arrival;
};

struct cache {
    struct line *lines;
    unsigned sets, ways;
};

enum { TLB_MAX = 64, HINTS = 256 };

struct tlb {
    unsigned entries;
    uint64_t pages[TLB_MAX], used[TLB_MAX];
    uint8_t hints[HINTS];
};

struct pending_store {
    uint64_t done;
    struct access access;
};

static struct cache l1i, l1d, l2;
static struct tlb itlb = {.entries = ITLB_ENTRIES}, dtlb = {.entries = DTLB_ENTRIES};
static struct miss misses[LOAD_MISSES];
static struct pending_store stores[STORE_ENTRIES];
static unsigned next_store; /* the oldest entry, which is filled next */
static uint64_t uses;       /* counts accesses: the clock of "least recently used" */

static void cache_init(struct cache *cache, unsigned bytes, unsigned ways)
{
    cache->ways = ways;
    cache->sets = (bytes >> LINE_SHIFT) / ways;
    cache->lines = calloc(cache->sets * ways, sizeof *cache->lines);
    if (!cache->lines)
        abort();
    for (unsigned i = 0; i < cache->sets * ways; i++)
        cache->lines[i].number = UINT64_MAX;
}

void memory_init(void)
{
    cache_init(&l1i, L1I_BYTES, L1I_WAYS);
    cache_init(&l1d, L1D_BYTES, L1D_WAYS);
    cache_init(&l2, L2_BYTES, L2_WAYS);
    memset(itlb.pages, 0xff, sizeof itlb.pages);
    memset(dtlb.pages, 0xff, sizeof dtlb.pages);
}

static struct line *cache_set(struct cache *cache, uint64_t number)
{
    return &cache->lines[number % cache->sets * cache->ways];
}

static struct line *find(struct cache *cache, uint64_t number)
{
    struct line *set = cache_set(cache, number);
    for (unsigned way = 0; way < cache->ways; way++)
        if (set[way].number == number)
            return &set[way];
    return NULL;
}

static struct line *replace(struct cache *cache, uint64_t number)
{
    struct line *set = cache_set(cache, number), *victim = set;
    for (unsigned way = 1; way < cache->ways; way++)
        if (set[way].used < victim->used)
            victim = &set[way];
    *victim = (struct line){.number = number};
    return victim;
}

/* Returns the line in `cache`, after loading it if it was missing; `was_there` reports that. */
static struct line *touch(struct cache *cache, uint64_t number, bool *was_there)
{
    struct line *line = find(cache, number);
    *was_there = line;
    if (!line)
        line = replace(cache, number);
    line->used = ++uses;
    return line;
}

static enum level beyond_first_level(uint64_t number)
{
    bool in_l2;
    touch(&l2, number, &in_l2);
    return in_l2 ? SECOND_LEVEL : MEMORY;
}

static unsigned cycles_from(enum level level)
{
    return level == SECOND_LEVEL ? L2_CYCLES : MEMORY_CYCLES;
}

/* Returns the arrival of a line that is requested at `start` and is not in the first level. */
static struct arrival fetched(uint64_t number, uint64_t start)
{
    enum level from = beyond_first_level(number);
    return (struct arrival){.done = start + cycles_from(from), .from = from};
}

static bool translated(struct tlb *tlb, uint64_t page)
{
    uint8_t *hint = &tlb->hints[page % HINTS];
    unsigned oldest = 0;
    if (tlb->pages[*hint] != page) {
        for (*hint = 0; *hint < tlb->entries && tlb->pages[*hint] != page; ++*hint)
            if (tlb->used[*hint] < tlb->used[oldest])
                oldest = *hint;
    }
    bool known = *hint < tlb->entries;
    if (!known) {
        *hint = (uint8_t)oldest;
        tlb->pages[oldest] = page;
    }
    tlb->used[*hint] = ++uses;
    return known;
}

unsigned fetch_line_cycles(uint64_t pc)
{
    bool near;
    touch(&l1i, pc >> LINE_SHIFT, &near);
    return near ? 0 : cycles_from(beyond_first_level(pc >> LINE_SHIFT));
}

unsigned fetch_page_cycles(uint64_t pc)
{
    return translated(&itlb, pc >> PAGE_SHIFT) ? 0 : ITLB_CYCLES;
}

static uint64_t last_byte(const struct access *access)
{
    return access->address + access->size_bytes - 1;
}

unsigned data_page_cycles(const struct access *access, unsigned *touched)
{
    unsigned cycles = 0;
    for (uint64_t page = access->address >> PAGE_SHIFT; page <= last_byte(access) >> PAGE_SHIFT; page++) {
        if (!translated(&dtlb, page)) {
            cycles += DTLB_CYCLES;
            *touched += record_page(page);
        }
    }
    return cycles;
}

bool data_is_near(const struct access *access)
{
    for (uint64_t number = access->address >> LINE_SHIFT; number <= last_byte(access) >> LINE_SHIFT; number++)
        if (!find(&l1d, number))
            return false;
    return true;
}

struct miss *first_miss(void)
{
    struct miss *first = misses;
    for (unsigned i = 1; i < LOAD_MISSES; i++)
        if (misses[i].arrival.done < first->arrival.done)
            first = &misses[i];
    return first;
}

uint64_t loads_done(uint64_t now, struct insn **whose)
{
    for (unsigned i = 0; i < LOAD_MISSES; i++) {
        if (misses[i].arrival.done > now) {
            now = misses[i].arrival.done;
            *whose = misses[i].loader;
        }
    }
    return now;
}

/* A store in the buffer that covers a load completely forwards its data. */
static bool forwarded(const struct access *access, uint64_t now)
{
    for (unsigned i = 0; i < STORE_ENTRIES; i++) {
        const struct access *held = &stores[i].access;
        if (stores[i].done > now && held->address <= access->address && last_byte(held) >= last_byte(access))
            return true;
    }
    return false;
}

static struct arrival later(struct arrival a, struct arrival b)
{
    return b.done > a.done ? b : a;
}

static struct arrival from_first_level(uint64_t now)
{
    return (struct arrival){.done = now + LATENCY_LOAD, .from = FIRST_LEVEL};
}

static struct arrival load_line(uint64_t number, uint64_t now, struct insn *loader)
{
    bool near;
    struct line *line = touch(&l1d, number, &near);
    if (!near) {
        struct miss *slot = first_miss();
        uint64_t free = slot->arrival.done; /* later than `now` for the second line of one load */
        line->arrival = fetched(number, free > now ? free : now);
        *slot = (struct miss){.arrival = line->arrival, .loader = loader};
    }
    return later(from_first_level(now), line->arrival);
}

struct arrival load(const struct access *access, uint64_t now, struct insn *loader)
{
    struct arrival arrival = from_first_level(now);
    if (forwarded(access, now))
        return arrival;
    for (uint64_t number = access->address >> LINE_SHIFT; number <= last_byte(access) >> LINE_SHIFT; number++)
        arrival = later(arrival, load_line(number, now, loader));
    return arrival;
}

uint64_t store_slot_free(uint64_t now)
{
    return stores[next_store].done > now ? stores[next_store].done : now;
}

uint64_t stores_done(void)
{
    return stores[(next_store + STORE_ENTRIES - 1) % STORE_ENTRIES].done;
}

void store(const struct access *access, uint64_t now)
{
    uint64_t done = stores_done() > now ? stores_done() : now;
    for (uint64_t number = access->address >> LINE_SHIFT; number <= last_byte(access) >> LINE_SHIFT; number++) {
        bool near;
        struct line *line = touch(&l1d, number, &near);
        if (!near)
            line->arrival = fetched(number, done);
        /* A store to the first level takes a cycle, and no line arrives earlier. */
        done = line->arrival.done > done + 1 ? line->arrival.done : done + 1;
    }
    stores[next_store] = (struct pending_store){.done = done, .access = *access};
    next_store = (next_store + 1) % STORE_ENTRIES;
}
