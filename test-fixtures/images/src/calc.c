/* Small code with everything the image room must read: an inlined call, a static procedure, a call through the PLT,
   an alias, a jump table. */
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t square(uint64_t x) {
    return x * x + (uint64_t)rand();
}

__attribute__((noinline)) static uint64_t sum_squares(const uint32_t *values, int n) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += square(values[i]);
    return sum;
}

__attribute__((noinline)) int choose(int what, int a, int b) {
    switch (what) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return b ? a / b : 0;
    case 4: return a & b;
    case 5: return a | rand();
    default: return -1;
    }
}

int choose_alias(int what, int a, int b) __attribute__((alias("choose")));

int main(int argc, char **argv) {
    uint32_t values[64];
    (void)argv;
    for (int i = 0; i < 64; i++)
        values[i] = (uint32_t)(argc * i);
    return choose(argc, (int)sum_squares(values, 64), argc);
}
