// A branch on pseudo-random bits, too many to learn: half of its predictions fail.
#include "workload.h"

enum { N = 1 << 20 };
static uint8_t data[N];

// The empty asm statements keep the compiler from turning the branch into a conditional move. All on one line, since
// the samples of a mispredicted branch land anywhere on its two ways.
__attribute__((noipa))
static uint64_t walk(const uint8_t *data, uint64_t n, uint64_t sum) {
  while (n--) if (data[n] & 1) { sum += n; __asm__("" : "+r"(sum)); } else { sum ^= n; __asm__("" : "+r"(sum)); } // HOT
  return sum;
}

int main(int argc, char **argv) {
  uint64_t rounds = repetitions(argc, argv, 700), sum = 0;
  for (uint64_t i = 0; i < N; i++) data[i] = random_next() >> 32;
  for (uint64_t round = 0; round < rounds; round++) sum = walk(data, N, sum * 31);
  printf("mispredict %016lx\n", sum);
}
