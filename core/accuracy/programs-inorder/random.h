/* A seeded generator, so that a program does the same work in each run. */
#include <stdint.h>

static uint64_t random_state = 88172645463325252u;

static inline uint32_t random_word(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}
