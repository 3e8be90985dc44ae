/* Calls a function that loops, and prints how often it was called and how often its loop was executed.
 *   count CALLS */
#include <stdio.h>
#include <stdlib.h>

static unsigned long iterations;

__attribute__((noinline)) unsigned long mix(unsigned long n)
{
	unsigned long hash = n | 1, rounds = (n % 97 + 3) * 20;
	for (unsigned long i = 0; i < rounds; i++) {
		hash ^= hash << 13;
		hash ^= hash >> 7;
		hash ^= hash << 17;
	}
	iterations += rounds;
	return hash;
}

int main(int argc, char **argv)
{
	unsigned long calls = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000, sum = 0;
	for (unsigned long n = 0; n < calls; n++)
		sum += mix(n);
	printf("%lu %lu\n", calls, iterations);
	return sum == 1;
}
