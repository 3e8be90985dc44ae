// Pointer chasing through one random cycle of 32 MiB: every step waits for a load that misses the caches.
#include "workload.h"

enum { N = 1 << 19 };
struct node {
  struct node *next;
  uint64_t value[7]; // fills a cache line
};
static struct node nodes[N];

// Sattolo's algorithm (1986): a permutation that is a single cycle.
static void link_cycle(void) {
  static uint32_t order[N];
  for (uint32_t i = 0; i < N; i++) order[i] = i;
  for (uint32_t i = N - 1; i > 0; i--) {
    uint32_t j = random_next() % i, swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
  }
  for (uint32_t i = 0; i < N; i++) {
    nodes[i].next = &nodes[order[i]];
    nodes[i].value[0] = random_next();
  }
}

__attribute__((noipa))
static const struct node *chase(const struct node *node, uint64_t steps) {
  while (steps--) node = node->next; // HOT
  return node;
}

int main(int argc, char **argv) {
  uint64_t rounds = repetitions(argc, argv, 32), sum = 0;
  link_cycle();
  const struct node *node = nodes;
  for (uint64_t round = 0; round < rounds; round++) {
    node = chase(node, N - 1);
    sum = sum * 31 + node->value[0];
  }
  printf("chase %016lx\n", sum);
}
