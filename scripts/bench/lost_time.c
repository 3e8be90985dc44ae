/* How much of its time a program loses to whoever stops or disturbs it: `./lost_time SECONDS` prints the part.
 *
 * It does equal pieces of work, of some microseconds each, and reads the clock after each. In every stretch of 255 pieces the time beyond
 * the median piece is lost: stops, and what they leave behind (cold caches, forgotten branches). A processor that is slower for
 * a whole stretch, because of its clock or its neighbours, loses nothing, so that a per cent can be told from noise. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECES = 255, TABLE = 1 << 14 };

static uint32_t table[TABLE];
static uint64_t words;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* As a compressor does: hashes, a table that fits into the second cache, branches that depend on data. */
__attribute__((noinline)) static uint64_t piece(uint64_t seed)
{
	for (int i = 0; i < 2000; i++) {
		uint32_t *slot;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		slot = &table[seed >> 50];
		if (*slot & 1)
			words++;
		*slot += seed >> 33;
	}
	return seed;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	double seconds = argc == 2 ? atof(argv[1]) : 0;
	uint64_t took[PIECES], sorted[PIECES], lost = 0, seed = 1, start = now(), before = start;

	if (seconds <= 0) {
		fprintf(stderr, "usage: %s SECONDS\n", argv[0]);
		return 2;
	}
	while (before - start < seconds * 1e9) {
		for (int i = 0; i < PIECES; i++) {
			uint64_t after;

			seed = piece(seed);
			after = now();
			took[i] = after - before;
			before = after;
		}
		memcpy(sorted, took, sizeof took);
		qsort(sorted, PIECES, sizeof *sorted, by_size);
		for (int i = 0; i < PIECES; i++)
			lost += took[i] > sorted[PIECES / 2] ? took[i] - sorted[PIECES / 2] : 0;
		before = now();
	}
	printf("%.6f\n", lost / (double)(before - start));
	return (int)(words == seed);
}
