// A victim: repeats the same work, about half a millisecond each time, until its standard input ends. Each time it allocates
// memory once, by which turns are counted (turns.c).

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>

enum { TABLE = 1 << 17, STEPS = 35000 };
static uint32_t table[TABLE];

/* Dependent loads over half a megabyte, so that the work slows down if an interrupt evicts cache lines. */
__attribute__((noinline)) static uint64_t work(uint64_t state)
{
	for (int i = 0; i < STEPS; i++) {
		state = state * 6364136223846793005ull + table[(state >> 40) % TABLE];
		state ^= state >> 29;
	}
	return state;
}

int main(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	uint64_t state = 1;

	for (int i = 0; i < TABLE; i++)
		table[i] = i * 2654435761u;
	while (poll(&input, 1, 0) == 0) {
		void *volatile memory = malloc(16);

		free(memory);
		state = work(state);
	}
	return state == 42;
}
