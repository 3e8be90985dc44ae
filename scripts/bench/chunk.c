// A victim on one CPU: `chunk CPU` does the same work over and over, some two milliseconds at a time, until its standard input
// ends, and prints for each chunk when it ended (CLOCK_MONOTONIC) and the CPU time it took, both in ns.

#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TABLE = 1 << 17, CHUNKS_MAX = 1 << 20, STEPS = 300000 };
static uint32_t table[TABLE];
static struct { uint64_t end_ns, cpu_ns; } chunks[CHUNKS_MAX];

static uint64_t now_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Dependent loads over half a megabyte, so that what an interrupt throws out of the caches is paid for here. */
__attribute__((noinline)) static uint64_t work(uint64_t state)
{
	for (int i = 0; i < STEPS; i++) {
		state = state * 6364136223846793005ull + table[(state >> 40) % TABLE];
		state ^= state >> 29;
	}
	return state;
}

int main(int argc, char **argv)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	uint64_t state = 1;
	int count = 0;
	cpu_set_t set;

	if (argc != 2)
		return fprintf(stderr, "usage: chunk CPU\n"), 2;
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[1]), &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (int i = 0; i < TABLE; i++)
		table[i] = i * 2654435761u;
	while (count < CHUNKS_MAX && poll(&input, 1, 0) == 0) {
		uint64_t before = now_ns(CLOCK_THREAD_CPUTIME_ID);

		state = work(state);
		chunks[count].cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - before;
		chunks[count++].end_ns = now_ns(CLOCK_MONOTONIC);
	}
	for (int i = 0; i < count; i++)
		printf("%llu %llu\n", (unsigned long long)chunks[i].end_ns, (unsigned long long)chunks[i].cpu_ns);
	return state == 42;
}
