/* Counts a run and writes its capture.
 *
 * In: what the core model says of each executed instruction. Out: executions.tsv, samples.tsv, edges.tsv, stalls.tsv, events.tsv,
 * ahead.tsv and totals.json in the capture's folder. Constant time for each instruction; memory grows with the program's text.
 */
#include "record.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of causes, and of the levels that data came from. */
static const char *const cause_names[CAUSES][2] = {
    [ICACHE] = {"icache-miss"},
    [ITLB] = {"itlb-miss"},
    [DCACHE_SECOND] = {"dcache-miss", "l2"},
    [DCACHE_MEMORY] = {"dcache-miss", "memory"},
    [DTLB] = {"dtlb-miss"},
    [MISPREDICT] = {"branch-mispredict"},
    [WRITEBUFFER] = {"write-buffer"},
    [DIVIDER] = {"divider"},
    [SYNCHRONIZATION] = {"synchronization"},
    [SYSTEM] = {"system"},
};
static const char *const event_names[EVENTS] = {"instructions", "L1-dcache-load-misses", "L1-icache-load-misses",
                                                "dTLB-load-misses", "branch-misses"};

/* An open-addressed table from up to three words to a count. A key of zeros marks a free slot. */
struct entry {
    uint64_t key[3];
    uint64_t count;
};

struct table {
    struct entry *entries;
    uint64_t capacity, used;
};

static struct record_options options;
static struct table stalls, indirects, insns, pages;
static uint64_t next_sample, samples, random_state;
/* The kernel's time has its own random numbers, so that the program's samples do not depend on it. */
static uint64_t kernel_cycles, next_kernel_sample, kernel_random_state;
/* Samples since the last branch. Samples that do not fit are treated as if their branch were unknown. */
enum { PENDING_MAX = 64 };
static struct insn *pending[PENDING_MAX];
static unsigned n_pending;
static uint64_t event_left[EVENTS], event_counts[EVENTS];

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "simulator: out of memory\n");
        abort();
    }
    return memory;
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 33) * 0xff51afd7ed558ccdu;
    return value ^ value >> 29;
}

static struct entry *probe(struct table *table, const uint64_t key[3])
{
    uint64_t at = mix(key[0] ^ mix(key[1] ^ mix(key[2])));
    for (;; at++) {
        struct entry *entry = &table->entries[at & (table->capacity - 1)];
        if (memcmp(entry->key, key, sizeof entry->key) == 0 || !(entry->key[0] | entry->key[1] | entry->key[2]))
            return entry;
    }
}

static void grow(struct table *table)
{
    struct table larger = {.capacity = table->capacity ? table->capacity * 2 : 1 << 12, .used = table->used};
    larger.entries = allocate(larger.capacity, sizeof *larger.entries);
    for (uint64_t i = 0; i < table->capacity; i++) {
        struct entry *entry = &table->entries[i];
        if (entry->key[0] | entry->key[1] | entry->key[2])
            *probe(&larger, entry->key) = *entry;
    }
    free(table->entries);
    *table = larger;
}

static uint64_t *count_of(struct table *table, uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t key[3] = {a, b, c};
    if (table->used * 2 >= table->capacity)
        grow(table);
    struct entry *entry = probe(table, key);
    if (!(entry->key[0] | entry->key[1] | entry->key[2])) {
        memcpy(entry->key, key, sizeof key);
        table->used++;
    }
    return &entry->count;
}

/* xorshift64*: small, seeded, and good enough to draw periods. */
static uint64_t draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

/* Uniform within an eighth of the mean, so that no loop is synchronous with the samples. */
static uint64_t draw_period(uint64_t *state, uint64_t mean)
{
    uint64_t spread = mean / 4 + 1;
    return mean - mean / 8 + draw(state) % spread;
}

void record_init(const struct record_options *given)
{
    options = *given;
    random_state = mix(options.seed + 0x9e3779b97f4a7c15u) | 1;
    kernel_random_state = mix(random_state) | 1;
    next_sample = draw_period(&random_state, options.period_cycles);
    next_kernel_sample = draw_period(&kernel_random_state, options.period_cycles);
    for (int event = 0; event < EVENTS; event++)
        event_left[event] = draw_period(&random_state, options.event_periods[event]);
}

/* Tables store instructions as the words of their pointers. */
static struct insn *insn_of(uint64_t word)
{
    return (struct insn *)(uintptr_t)word;
}

struct insn *record_insn(uint64_t pc, uint32_t word, unsigned size_bytes, void (*decode)(struct insn *, uint32_t))
{
    uint64_t *slot = count_of(&insns, pc, (uint64_t)word << 8 | size_bytes, 0);
    if (*slot)
        return insn_of(*slot);
    struct insn *insn = allocate(1, sizeof *insn);
    insn->pc = pc;
    insn->size_bytes = (uint8_t)size_bytes;
    decode(insn, word);
    *slot = (uintptr_t)insn;
    return insn;
}

void record_head(struct insn *insn, uint64_t from, uint64_t to)
{
    while (next_sample >= from && next_sample < to) {
        insn->samples++;
        samples++;
        if (n_pending < PENDING_MAX)
            pending[n_pending++] = insn;
        next_sample += draw_period(&random_state, options.period_cycles);
    }
}

void record_stall(struct insn *insn, enum cause cause, struct insn *culprit, uint64_t cycles)
{
    *count_of(&stalls, (uintptr_t)insn, cause, (uintptr_t)culprit) += cycles;
}

void record_event(struct insn *insn, enum event event)
{
    event_counts[event]++;
    if (--event_left[event])
        return;
    event_left[event] = draw_period(&random_state, options.event_periods[event]);
    if (!insn->event_samples)
        insn->event_samples = allocate(EVENTS, sizeof *insn->event_samples);
    insn->event_samples[event]++;
}

bool record_page(uint64_t page)
{
    return !(*count_of(&pages, page + 1, 0, 0))++;
}

void record_kernel(struct insn *insn, uint64_t cycles)
{
    kernel_cycles += cycles;
    for (; next_kernel_sample < kernel_cycles; next_kernel_sample += draw_period(&kernel_random_state, options.period_cycles))
        insn->kernel_samples++;
}

void record_branch(int direction)
{
    for (unsigned i = 0; direction >= 0 && i < n_pending; i++)
        pending[i]->samples_ahead[direction]++;
    n_pending = 0;
}

void record_indirect(struct insn *from, uint64_t to)
{
    ++*count_of(&indirects, (uintptr_t)from, to, 0);
}

static FILE *create(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", options.directory, name);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

static void finish(FILE *file)
{
    if (ferror(file) | fclose(file)) {
        perror("simulator: writing the capture");
        exit(1);
    }
}

static int order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_address(const void *left, const void *right)
{
    return order((*(struct insn *const *)left)->pc, (*(struct insn *const *)right)->pc);
}

static uint64_t address_or_zero(const struct insn *insn)
{
    return insn ? insn->pc : 0;
}

/* Compares entries whose first word is an instruction: by its address, then by the second word, then by the third one,
 * also an instruction.
 */
static int by_key(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    int first = order(insn_of(a->key[0])->pc, insn_of(b->key[0])->pc), second = order(a->key[1], b->key[1]);
    if (first || second)
        return first ? first : second;
    return order(address_or_zero(insn_of(a->key[2])), address_or_zero(insn_of(b->key[2])));
}

/* Returns the instructions of the main image in the order of addresses. */
static struct insn **sorted_insns(uint64_t start, uint64_t end, size_t *count)
{
    struct insn **list = allocate(insns.used + 1, sizeof *list);
    *count = 0;
    for (uint64_t i = 0; i < insns.capacity; i++) {
        struct insn *insn = insn_of(insns.entries[i].count);
        if (insn && insn->pc >= start && insn->pc < end)
            list[(*count)++] = insn;
    }
    qsort(list, *count, sizeof *list, by_address);
    return list;
}

/* Returns the entries whose instruction is in the main image, in an order that makes the files of equal runs equal. */
static struct entry *sorted_entries(const struct table *table, uint64_t start, uint64_t end, size_t *count)
{
    struct entry *list = allocate(table->used + 1, sizeof *list);
    *count = 0;
    for (uint64_t i = 0; i < table->capacity; i++) {
        const struct insn *insn = insn_of(table->entries[i].key[0]);
        if (insn && insn->pc >= start && insn->pc < end)
            list[(*count)++] = table->entries[i];
    }
    qsort(list, *count, sizeof *list, by_key);
    return list;
}

static void write_direct_edges(FILE *file, const struct insn *insn)
{
    uint64_t next = insn->pc + insn->size_bytes;
    if (insn->branch == CONDITIONAL) {
        if (insn->taken)
            fprintf(file, "%" PRIx64 "\t%" PRIx64 "\t%" PRIu64 "\n", insn->pc, insn->target, insn->taken);
        if (insn->executions > insn->taken)
            fprintf(file, "%" PRIx64 "\t%" PRIx64 "\t%" PRIu64 "\n", insn->pc, next, insn->executions - insn->taken);
    } else if (insn->branch == JUMP || insn->branch == CALL) {
        fprintf(file, "%" PRIx64 "\t%" PRIx64 "\t%" PRIu64 "\n", insn->pc, insn->target, insn->executions);
    }
}

static void write_edges(struct insn **list, size_t count, const struct entry *jumps, size_t n_jumps)
{
    FILE *file = create("edges.tsv");
    for (size_t i = 0; i < count; i++)
        if (list[i]->executions)
            write_direct_edges(file, list[i]);
    for (size_t i = 0; i < n_jumps; i++)
        fprintf(file, "%" PRIx64 "\t%" PRIx64 "\t%" PRIu64 "\n", insn_of(jumps[i].key[0])->pc, jumps[i].key[1], jumps[i].count);
    finish(file);
}

static void write_stalls(struct insn **list, size_t count, const struct entry *held, size_t n_held)
{
    FILE *file = create("stalls.tsv");
    for (size_t i = 0; i < count; i++)
        if (list[i]->base_cycles)
            fprintf(file, "%" PRIx64 "\tbase\t-\t%" PRIu64 "\n", list[i]->pc, list[i]->base_cycles);
    for (size_t i = 0; i < n_held; i++) {
        const struct insn *culprit = insn_of(held[i].key[2]);
        const char *const *name = cause_names[held[i].key[1]];
        fprintf(file, "%" PRIx64 "\t%s\t", insn_of(held[i].key[0])->pc, name[0]);
        if (culprit)
            fprintf(file, "%" PRIx64, culprit->pc);
        else
            fputc('-', file);
        fprintf(file, "\t%" PRIu64 "%s%s\n", held[i].count, name[1] ? "\t" : "", name[1] ? name[1] : "");
    }
    finish(file);
}

static void write_counts(struct insn **list, size_t count)
{
    FILE *executions = create("executions.tsv"), *sampled = create("samples.tsv"), *events = create("events.tsv");
    FILE *ahead = create("ahead.tsv");
    for (size_t i = 0; i < count; i++) {
        const struct insn *insn = list[i];
        if (insn->executions)
            fprintf(executions, "%" PRIx64 "\t%" PRIu64 "\n", insn->pc, insn->executions);
        if (insn->samples)
            fprintf(sampled, "%" PRIx64 "\t%" PRIu64 "\n", insn->pc, insn->samples);
        if (insn->samples_ahead[0] | insn->samples_ahead[1])
            fprintf(ahead, "%" PRIx64 "\t%" PRIu64 "\t%" PRIu64 "\n", insn->pc, insn->samples_ahead[1], insn->samples_ahead[0]);
        if (insn->kernel_samples)
            fprintf(events, "kernel-time\t%" PRIu64 "\t%" PRIx64 "\t%" PRIu64 "\n", options.period_cycles, insn->pc,
                    insn->kernel_samples);
        for (int event = 0; insn->event_samples && event < EVENTS; event++)
            if (insn->event_samples[event])
                fprintf(events, "%s\t%" PRIu64 "\t%" PRIx64 "\t%" PRIu32 "\n", event_names[event], options.event_periods[event],
                        insn->pc, insn->event_samples[event]);
    }
    finish(executions);
    finish(sampled);
    finish(events);
    finish(ahead);
}

static void write_totals(uint64_t cycles)
{
    FILE *totals = create("totals.json");
    fprintf(totals, "{\"cycles\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"period\": %" PRIu64 ", \"events\": {", cycles, samples,
            options.period_cycles);
    for (int event = 0; event < EVENTS; event++)
        fprintf(totals, "%s\"%s\": %" PRIu64, event ? ", " : "", event_names[event], event_counts[event]);
    fprintf(totals, "}}\n");
    finish(totals);
}

void record_write(uint64_t start, uint64_t end, uint64_t cycles)
{
    size_t count, n_jumps, n_held;
    struct insn **list = sorted_insns(start, end, &count);
    struct entry *jumps = sorted_entries(&indirects, start, end, &n_jumps), *held = sorted_entries(&stalls, start, end, &n_held);
    write_counts(list, count);
    write_edges(list, count, jumps, n_jumps);
    write_stalls(list, count, held, n_held);
    free(list);
    free(jumps);
    free(held);
    write_totals(cycles);
}
