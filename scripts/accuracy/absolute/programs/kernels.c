// Kernels with known counts; each has one hot loop. Usage: kernels NAME PASSES, where NAME is chase-l1, chase-l2, chase-llc,
// chase-dram, copy, matmul, sort or hashjoin. A pass takes some tens of milliseconds. The judged loop is in the function
// `hot_NAME`.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOT __attribute__((noipa, optimize("no-tree-vectorize", "no-tree-loop-distribute-patterns", "no-unroll-loops")))

static uint64_t state = 0x9e3779b97f4a7c15u;

// xorshift64 (Marsaglia 2003).
static uint64_t random_next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static void *memory(size_t bytes) {
  void *block = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
  if (!block) exit(1);
  memset(block, 1, bytes);
  return block;
}

struct node {
  struct node *next;
  uint64_t padding[7]; // fills a cache line
};

// Sattolo's algorithm (1986): a permutation that is a single cycle.
static struct node *cycle(size_t bytes) {
  size_t count = bytes / sizeof(struct node);
  struct node *nodes = memory(bytes);
  uint32_t *order = memory(count * sizeof *order);
  for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
  for (size_t i = count - 1; i > 0; i--) {
    size_t j = random_next() % i;
    uint32_t swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
  }
  for (size_t i = 0; i < count; i++) nodes[i].next = &nodes[order[i]];
  free(order);
  return nodes;
}

HOT static const struct node *hot_chase(const struct node *node, uint64_t steps) {
  while (steps--) node = node->next;
  return node;
}

HOT static void hot_copy(uint64_t *restrict to, const uint64_t *restrict from, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) to[i] = from[i];
}

enum { SIDE = 160 };
HOT static void hot_matmul(double (*restrict c)[SIDE], const double (*a)[SIDE], const double (*b)[SIDE]) {
  for (int i = 0; i < SIDE; i++)
    for (int k = 0; k < SIDE; k++)
      for (int j = 0; j < SIDE; j++) c[i][j] += a[i][k] * b[k][j];
}

// Quicksort with Lomuto's partition: its comparison is a branch that cannot be predicted.
HOT static void hot_sort(uint32_t *values, int64_t low, int64_t high) {
  while (low < high) {
    uint32_t pivot = values[high];
    int64_t below = low;
    for (int64_t at = low; at < high; at++)
      if (values[at] < pivot) {
        uint32_t swapped = values[at];
        values[at] = values[below];
        values[below++] = swapped;
      }
    values[high] = values[below];
    values[below] = pivot;
    hot_sort(values, low, below - 1);
    low = below + 1;
  }
}

struct slot {
  uint64_t key, payload;
};

HOT static uint64_t hot_hashjoin(const struct slot *slots, uint64_t mask, const uint64_t *keys, uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t at = (keys[i] * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (slots[at].key != keys[i]) at = (at + 1) & mask;
    sum = (sum << 1 | sum >> 63) + slots[at].payload;
  }
  return sum;
}

static uint64_t chase(size_t bytes, uint64_t steps, uint64_t passes) {
  const struct node *node = cycle(bytes);
  for (uint64_t pass = 0; pass < passes; pass++) node = hot_chase(node, steps);
  return node->padding[0];
}

static uint64_t copy(uint64_t passes) {
  enum { COUNT = 1 << 20 };
  uint64_t *from = memory(COUNT * sizeof *from), *to = memory(COUNT * sizeof *to);
  for (uint64_t pass = 0; pass < passes; pass++)
    for (int round = 0; round < 16; round++) hot_copy(to, from, COUNT);
  return to[7];
}

static uint64_t matmul(uint64_t passes) {
  double(*a)[SIDE] = memory(sizeof(double[SIDE][SIDE])), (*b)[SIDE] = memory(sizeof(double[SIDE][SIDE])), (*c)[SIDE] = memory(sizeof(double[SIDE][SIDE]));
  for (int i = 0; i < SIDE * SIDE; i++) a[0][i] = b[0][i] = i % 7, c[0][i] = 0;
  for (uint64_t pass = 0; pass < passes; pass++)
    for (int round = 0; round < 8; round++) hot_matmul(c, (const double(*)[SIDE])a, (const double(*)[SIDE])b);
  return (uint64_t)c[3][4];
}

static uint64_t sort(uint64_t passes) {
  enum { COUNT = 1 << 18 };
  uint32_t *values = memory(COUNT * sizeof *values);
  uint64_t sum = 0;
  for (uint64_t pass = 0; pass < passes; pass++) {
    state = 88172645463325252u; // Each pass sorts the same numbers.
    for (int i = 0; i < COUNT; i++) values[i] = (uint32_t)(random_next() >> 16);
    hot_sort(values, 0, COUNT - 1);
    sum = sum * 31 + values[COUNT / 2];
  }
  return sum;
}

static uint64_t hashjoin(uint64_t passes) {
  enum { COUNT = 1 << 20 };
  struct slot *slots = calloc(2 * COUNT, sizeof *slots);
  uint64_t *keys = memory(COUNT * sizeof *keys), mask = 2 * COUNT - 1, sum = 0;
  if (!slots) exit(1);
  for (uint64_t i = 0; i < COUNT; i++) {
    uint64_t at = ((keys[i] = random_next() | 1) * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (slots[at].key) at = (at + 1) & mask;
    slots[at] = (struct slot){keys[i], i};
  }
  for (uint64_t i = COUNT - 1; i > 0; i--) {
    uint64_t j = random_next() % i, swapped = keys[i];
    keys[i] = keys[j];
    keys[j] = swapped;
  }
  for (uint64_t pass = 0; pass < passes; pass++) sum += hot_hashjoin(slots, mask, keys, COUNT);
  return sum;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  const char *name = argv[1];
  uint64_t passes = strtoull(argv[2], NULL, 10), sum;
  if (!strcmp(name, "chase-l1")) sum = chase(16 << 10, 20000000, passes);
  else if (!strcmp(name, "chase-l2")) sum = chase(256 << 10, 8000000, passes);
  else if (!strcmp(name, "chase-llc")) sum = chase(6 << 20, 2000000, passes);
  else if (!strcmp(name, "chase-dram")) sum = chase(256 << 20, 500000, passes);
  else if (!strcmp(name, "copy")) sum = copy(passes);
  else if (!strcmp(name, "matmul")) sum = matmul(passes);
  else if (!strcmp(name, "sort")) sum = sort(passes);
  else if (!strcmp(name, "hashjoin")) sum = hashjoin(passes);
  else return 2;
  printf("%s %016lx\n", name, sum);
}
