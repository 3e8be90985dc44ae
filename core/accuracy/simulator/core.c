/* The timing model of the simulated core: in order, two instructions a cycle.
 *
 * In: executed instructions in program order with their accesses and successors. Out: to the recorder, for each the cycles that it
 * was the oldest instruction not yet issued (DCPI section 4.1: what a sample sees), by cause. Constant time for each instruction.
 *
 * An instruction owns the cycles from the issue of its predecessor to its own issue; one that is issued beside its predecessor owns
 * none. The cycles that pairing rules, operand latencies and, within a block, busy units explain come first and are its base; then,
 * each for what it adds, the front end, operands of loads that missed, translation, and full buffers.
 */
#include "core.h"
#include "machine.h"
#include "predictor.h"
#include "record.h"
#include <stddef.h>

/* When a register can be read: after the latency that the code determines, and after dynamic events. */
struct readiness {
    uint64_t known;
    struct arrival actual;
    struct insn *producer;
};

struct unit_use {
    uint64_t free;
    uint64_t block; /* the block in which it was taken */
    struct insn *user;
};

/* A delay of the delivery of the next instruction: its end, cause and culprit. */
struct delay {
    uint64_t until;
    struct insn *culprit;
};

static struct readiness registers[REGS];
static struct unit_use multiplier, float_unit;
static struct delay redirect, entered_system;
static uint64_t now;         /* the cycle of the last issue */
static unsigned slots_taken; /* slots used in that cycle */
static unsigned units_taken;
static bool cycle_closed = true;
/* number of transfers of control; the code of a block does not determine what happened before */
static uint64_t block;
static uint64_t fetched_line = UINT64_MAX, fetched_page = UINT64_MAX;
static bool ideal;

void core_set_ideal(void)
{
    ideal = true;
}

uint64_t core_cycles(void)
{
    return now;
}

static bool pairs(const struct insn *insn)
{
    return !cycle_closed && slots_taken < ISSUE_SLOTS && !insn->alone && !(insn->units & units_taken);
}

static struct unit_use *occupied_unit(const struct insn *insn)
{
    if (insn->units & UNIT_MULTIPLY)
        return &multiplier;
    return insn->units & UNIT_FLOAT ? &float_unit : NULL;
}

/* Returns the earliest cycle that the code alone allows. */
static uint64_t known_cycle(const struct insn *insn)
{
    uint64_t cycle = pairs(insn) ? now : now + 1;
    for (unsigned i = 0; i < insn->n_sources; i++) {
        uint64_t known = registers[insn->sources[i]].known;
        cycle = known > cycle ? known : cycle;
    }
    struct unit_use *unit = occupied_unit(insn);
    if (unit && unit->block == block && unit->free > cycle)
        cycle = unit->free;
    return cycle;
}

/* Moves `cycle` to `until` and charges the added cycles. */
static uint64_t held_until(struct insn *insn, uint64_t cycle, uint64_t until, enum cause cause, struct insn *culprit)
{
    if (until <= cycle)
        return cycle;
    record_stall(insn, cause, culprit, until - cycle);
    return until;
}

/* A fetch starts when the predecessor was issued, or when the branch was known to go elsewhere. */
static uint64_t front_end(struct insn *insn, uint64_t cycle)
{
    uint64_t fetch = now;
    if (redirect.culprit) {
        cycle = held_until(insn, cycle, redirect.until, MISPREDICT, redirect.culprit);
        fetch = redirect.until;
        redirect.culprit = NULL;
    }
    if (entered_system.culprit) {
        cycle = held_until(insn, cycle, entered_system.until, SYSTEM, entered_system.culprit);
        fetch = entered_system.until;
        entered_system.culprit = NULL;
    }
    if (insn->pc >> PAGE_SHIFT != fetched_page) {
        fetched_page = insn->pc >> PAGE_SHIFT;
        fetch += fetch_page_cycles(insn->pc);
        cycle = held_until(insn, cycle, fetch, ITLB, insn);
    }
    uint64_t last_line = (insn->pc + insn->size_bytes - 1) >> LINE_SHIFT;
    if (last_line != fetched_line) {
        for (uint64_t line = insn->pc >> LINE_SHIFT; line <= last_line; line++) {
            if (line == fetched_line)
                continue;
            unsigned late = fetch_line_cycles(line << LINE_SHIFT);
            fetch += late;
            if (late)
                record_event(insn, ICACHE_MISSES);
        }
        fetched_line = last_line;
        cycle = held_until(insn, cycle, fetch, ICACHE, insn);
    }
    return cycle;
}

static enum cause dcache_miss(enum level from)
{
    return from == SECOND_LEVEL ? DCACHE_SECOND : DCACHE_MEMORY;
}

static uint64_t operands(struct insn *insn, uint64_t cycle)
{
    struct readiness *last = NULL;
    for (unsigned i = 0; i < insn->n_sources; i++) {
        struct readiness *source = &registers[insn->sources[i]];
        if (source->actual.done > cycle && (!last || source->actual.done > last->actual.done))
            last = source;
    }
    return last ? held_until(insn, cycle, last->actual.done, dcache_miss(last->actual.from), last->producer) : cycle;
}

static uint64_t translation(struct insn *insn, uint64_t cycle, const struct access *accesses, unsigned n_accesses)
{
    unsigned late = 0, touched = 0;
    for (unsigned i = 0; i < n_accesses; i++)
        late += data_page_cycles(&accesses[i], &touched);
    record_kernel(insn, (uint64_t)touched * PAGE_FAULT_CYCLES);
    if (late && insn->load)
        record_event(insn, DTLB_MISSES);
    return held_until(insn, cycle, cycle + late, DTLB, insn);
}

static bool any_load_misses(const struct access *accesses, unsigned n_accesses)
{
    for (unsigned i = 0; i < n_accesses; i++)
        if (!accesses[i].store && !data_is_near(&accesses[i]))
            return true;
    return false;
}

/* Waits for all earlier loads and stores. */
static uint64_t everything_done(struct insn *insn, uint64_t cycle)
{
    struct insn *whose;
    uint64_t loads = loads_done(cycle, &whose), stores = stores_done();
    return held_until(insn, cycle, loads > stores ? loads : stores, SYNCHRONIZATION, insn);
}

static uint64_t memory(struct insn *insn, uint64_t cycle, const struct access *accesses, unsigned n_accesses)
{
    cycle = translation(insn, cycle, accesses, n_accesses);
    if (insn->special == ORDERED)
        cycle = everything_done(insn, cycle);
    if (insn->load && any_load_misses(accesses, n_accesses)) {
        const struct miss *first = first_miss();
        record_event(insn, DCACHE_MISSES);
        cycle = held_until(insn, cycle, first->arrival.done, dcache_miss(first->arrival.from), first->loader);
    }
    if (insn->store)
        cycle = held_until(insn, cycle, store_slot_free(cycle), WRITEBUFFER, insn);
    return cycle;
}

static uint64_t busy_unit(struct insn *insn, uint64_t cycle)
{
    struct unit_use *unit = occupied_unit(insn);
    return unit ? held_until(insn, cycle, unit->free, DIVIDER, unit->user) : cycle;
}

static void take_slot(const struct insn *insn, uint64_t cycle)
{
    if (cycle > now) {
        slots_taken = 0;
        units_taken = 0;
        cycle_closed = false;
    }
    now = cycle;
    slots_taken++;
    units_taken |= insn->units;
    if (insn->alone || insn->branch)
        cycle_closed = true;
}

static void take_unit(struct insn *insn)
{
    struct unit_use *unit = occupied_unit(insn);
    if (unit)
        *unit = (struct unit_use){.free = now + insn->busy_cycles, .block = block, .user = insn};
}

/* Performs the accesses. Returns when the data of the last load arrives. */
static struct arrival access_all(struct insn *insn, const struct access *accesses, unsigned n_accesses)
{
    struct arrival last = {.done = now + insn->latency, .from = FIRST_LEVEL};
    for (unsigned i = 0; i < n_accesses; i++) {
        if (accesses[i].store) {
            store(&accesses[i], now);
        } else {
            struct arrival loaded = load(&accesses[i], now, insn);
            last = loaded.done > last.done ? loaded : last;
        }
    }
    return last;
}

static void publish(struct insn *insn, struct arrival arrival)
{
    for (unsigned i = 0; i < insn->n_results; i++) {
        bool quick = i + insn->n_quick >= insn->n_results;
        uint64_t known = now + (quick ? LATENCY_ALU : insn->latency);
        struct arrival actual = quick ? (struct arrival){.done = known} : arrival;
        registers[insn->results[i]] = (struct readiness){.known = known, .actual = actual, .producer = insn};
    }
}

static void follow(struct insn *insn, uint64_t next_pc)
{
    if (insn->special == SYSTEM_CALL && !ideal)
        entered_system = (struct delay){.until = now + 1 + SYSTEM_CALL_CYCLES, .culprit = insn};
    if (!insn->branch)
        return;
    block++;
    bool taken = next_pc != insn->pc + insn->size_bytes;
    record_branch(insn->branch == CONDITIONAL ? taken : -1);
    if (insn->branch == CONDITIONAL)
        insn->taken += taken;
    else if (insn->branch == INDIRECT_JUMP || insn->branch == INDIRECT_CALL)
        record_indirect(insn, next_pc);
    if (!predicted(insn, next_pc) && !ideal) {
        record_event(insn, BRANCH_MISSES);
        redirect = (struct delay){.until = now + 1 + MISPREDICT_CYCLES, .culprit = insn};
    }
}

void core_issue(struct insn *insn, const struct access *accesses, unsigned n_accesses, uint64_t next_pc)
{
    uint64_t cycle = known_cycle(insn);
    insn->executions++;
    insn->base_cycles += cycle - now;
    record_event(insn, INSTRUCTIONS);
    if (!ideal) {
        cycle = front_end(insn, cycle);
        cycle = operands(insn, cycle);
        cycle = busy_unit(insn, cycle);
        if (insn->special == BARRIER)
            cycle = everything_done(insn, cycle);
        if (insn->units & UNIT_MEMORY)
            cycle = memory(insn, cycle, accesses, n_accesses);
    }
    record_head(insn, now, cycle);
    take_slot(insn, cycle);
    take_unit(insn);
    publish(insn, access_all(insn, accesses, ideal ? 0 : n_accesses));
    follow(insn, next_pc);
}
