// What every C workload shares: deterministic pseudo-random numbers and the argument.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t random_state = 0x9e3779b97f4a7c15u;

// xorshift64 (Marsaglia 2003), from a fixed seed: the same input on every run and machine.
static inline uint64_t random_next(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

// The first argument, which says how often to repeat; without one, `otherwise`. Exits with 2 on anything but a count.
static inline uint64_t repetitions(int argc, char **argv, uint64_t otherwise) {
  if (argc < 2) return otherwise;
  char *end;
  uint64_t value = strtoull(argv[1], &end, 10);
  if (argc > 2 || *argv[1] < '0' || *argv[1] > '9' || *end) {
    fprintf(stderr, "usage: %s [REPETITIONS]\n", argv[0]);
    exit(2);
  }
  return value;
}
