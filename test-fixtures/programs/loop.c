// SLEEPY's benchmark `loop` (section 3.1): one loop that adds its index to a sum, for a thousand million iterations.
#include "workload.h"
#pragma GCC optimize("O0") // The paper's listings show code that was not optimized.

int main(int argc, char **argv) {
  int iterations = repetitions(argc, argv, 1000000000);
  unsigned sum = 0;
  for (int i = 0; i < iterations; i++) {
    sum += i; // HOT
  }
  printf("loop %08x\n", sum);
}
