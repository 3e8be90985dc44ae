// McCalpin's copy, as in the DCPI paper's Figure 2: streams memory, so that stores wait for loads that miss.
#include "workload.h"

enum { N = 2000000 };
static uint64_t from[N], to[N];

// Scalar and without memcpy, as in the paper.
__attribute__((noipa, optimize("no-tree-vectorize", "no-tree-loop-distribute-patterns")))
static void copy(uint64_t *restrict c, const uint64_t *restrict a, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) c[i] = a[i]; // HOT
}

int main(int argc, char **argv) {
  uint64_t rounds = repetitions(argc, argv, 2000), sum = 0;
  for (uint64_t i = 0; i < N; i++) from[i] = random_next();
  for (uint64_t round = 0; round < rounds; round++) {
    from[round % N]++;
    copy(to, from, N);
    sum = sum * 31 + to[round % N];
  }
  printf("copy %016lx\n", sum);
}
