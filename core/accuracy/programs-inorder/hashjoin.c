/* Memory: a hash join of two tables that exceed the caches, a group-by, and a Bloom filter before it. */
#include "random.h"
#include <stdio.h>
#include <stdlib.h>

enum { BUILD = 120000, PROBE = 500000, BUCKETS = 1 << 17, FILTER_BITS = 1 << 20, GROUPS = 1024 };

struct row {
    uint32_t key, value;
    struct row *next;
};

static struct row *buckets[BUCKETS];
static uint8_t filter[FILTER_BITS / 8];
static struct group {
    uint64_t sum;
    uint32_t count, largest;
} groups[GROUPS];

static uint32_t hash(uint32_t key)
{
    key = (key ^ key >> 16) * 0x85ebca6bu;
    key = (key ^ key >> 13) * 0xc2b2ae35u;
    return key ^ key >> 16;
}

static void build(struct row *rows)
{
    for (int i = 0; i < BUILD; i++) {
        uint32_t h = hash(rows[i].key);
        rows[i].next = buckets[h % BUCKETS];
        buckets[h % BUCKETS] = &rows[i];
        filter[h % FILTER_BITS / 8] |= (uint8_t)(1u << (h % 8));
    }
}

static const struct row *find(uint32_t key, uint32_t h)
{
    const struct row *row = buckets[h % BUCKETS];
    while (row && row->key != key)
        row = row->next;
    return row;
}

static void add(const struct row *row, uint32_t amount)
{
    struct group *group = &groups[row->value % GROUPS];
    group->sum += amount;
    group->count++;
    if (amount > group->largest)
        group->largest = amount;
}

static int probe(int filtered)
{
    int joined = 0;
    for (int i = 0; i < PROBE; i++) {
        uint32_t key = random_word() % (BUILD * 4), h = hash(key);
        if (filtered && !(filter[h % FILTER_BITS / 8] >> (h % 8) & 1))
            continue;
        const struct row *row = find(key, h);
        if (row) {
            add(row, key >> 3);
            joined++;
        }
    }
    return joined;
}

int main(void)
{
    struct row *rows = malloc(BUILD * sizeof *rows);
    for (int i = 0; i < BUILD; i++)
        rows[i] = (struct row){.key = random_word() % (BUILD * 4), .value = random_word()};
    build(rows);
    int joined = probe(0) + probe(1) + probe(1);
    uint64_t total = 0;
    for (int i = 0; i < GROUPS; i++)
        if (groups[i].count)
            total += groups[i].sum / groups[i].count + groups[i].largest;
    printf("%d %llu\n", joined, (unsigned long long)total);
}
