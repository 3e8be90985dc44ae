// A chain of dependent 64-bit divisions: every one waits for the divider to deliver the one before.
#include "workload.h"

__attribute__((noipa))
static uint64_t divide(uint64_t x, uint64_t steps) {
  while (steps--) x = UINT64_MAX / (x | 3) ^ steps; // HOT
  return x;
}

int main(int argc, char **argv) {
  uint64_t rounds = repetitions(argc, argv, 600), sum = 0;
  for (uint64_t round = 0; round < rounds; round++) sum = sum * 31 + divide(random_next(), 1000000);
  printf("divide %016lx\n", sum);
}
