// SLEEPY's benchmark `call` (section 3.1): a loop of a hundred thousand iterations calls a function that loops as often as the
// caller has so far: 5,000 million iterations in all.
#include "workload.h"
#pragma GCC optimize("O0") // The paper's listings show code that was not optimized.

static unsigned loop(int iterations) {
  unsigned sum = 0;
  for (int i = 0; i < iterations; i++) {
    sum += i; // HOT
  }
  return sum;
}

int main(int argc, char **argv) {
  int iterations = repetitions(argc, argv, 100000);
  unsigned sum = 0;
  for (int i = 0; i < iterations; i++) {
    sum += loop(i);
  }
  printf("call %08x\n", sum);
}
