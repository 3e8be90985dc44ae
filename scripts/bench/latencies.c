// Measures the latencies of this machine's caches, memory, address translation and divider in cycles, for its model
// (core/analysis/machines).
//
//     gcc -O2 scripts/bench/latencies.c -o /tmp/latencies && taskset -c 1 /tmp/latencies
//
// Enters: nothing. Leaves: a line for each figure, the minimum of some runs. x86-64 only. A cycle is the time of one in a chain
// of dependent additions, so the clock rate need not be known.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, PAGE = 4096, HUGE = 2 << 20, STEPS = 1000000, RUNS = 7 };

static double now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

// Returns the least time of some runs of `body`, divided by `per`.
#define LEAST_NS(per, body) ({ \
	double least = 1e18; \
	for (int run = 0; run < RUNS; run++) { \
		double begin = now_ns(); \
		body; \
		double each = (now_ns() - begin) / (per); \
		least = each < least ? each : least; \
	} \
	least; \
})

// A random walk through all `places`, each on a cache line of its own, `apart` bytes from the next one.
static double walk_ns(size_t places, size_t apart, int advice)
{
	size_t bytes = places * apart;
	char *mapped = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED) {
		perror("latencies: mmap");
		exit(1);
	}
	char *first = (char *)(((uintptr_t)mapped + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
	madvise(first, bytes, advice);
	uint32_t *order = malloc(places * sizeof *order);
	for (size_t i = 0; i < places; i++)
		order[i] = i;
	for (size_t i = places - 1; i > 0; i--) {
		size_t j = ((uint64_t)random() << 31 | random()) % (i + 1);
		uint32_t other = order[i];
		order[i] = order[j];
		order[j] = other;
	}
	// The lines of different pages lie in different sets of the caches.
#define AT(i) (first + order[i] * apart + order[i] * LINE % apart)
	for (size_t i = 0; i < places; i++)
		*(char **)AT(i) = AT((i + 1) % places);
	char *at = AT(0);
	for (size_t i = 0; i < places; i++)
		at = *(char *volatile *)at;
	double each = LEAST_NS(STEPS, for (int i = 0; i < STEPS; i++) at = *(char *volatile *)at);
	free(order);
	munmap(mapped, bytes + HUGE);
	return each;
}

int main(void)
{
	uint64_t x = 0;
	double cycle = LEAST_NS(20.0 * STEPS,
		for (int i = 0; i < STEPS; i++) asm volatile(".rept 20\n lea 1(%0), %0\n .endr" : "+r"(x)));
	printf("a cycle: %.3f ns (%.2f GHz)\n", cycle, 1 / cycle);
	for (size_t kib = 16; kib <= 1 << 20; kib *= 4)
		printf("a load within %zu KiB: %.1f cycles\n", kib, walk_ns((kib << 10) / LINE, LINE, MADV_HUGEPAGE) / cycle);
	for (size_t pages = 256; pages <= 65536; pages *= 4) {
		double apart = walk_ns(pages, PAGE, MADV_NOHUGEPAGE), packed = walk_ns(pages, LINE, MADV_HUGEPAGE);
		printf("translation, %zu pages: %.1f cycles more\n", pages, (apart - packed) / cycle);
	}
	double chain = LEAST_NS(8.0 * STEPS, for (int i = 0; i < STEPS; i++) asm volatile(
		"mov $7, %%eax\n mov $1, %%ecx\n .rept 8\n xor %%edx, %%edx\n div %%ecx\n .endr" ::: "eax", "ecx", "edx"));
	double apart = LEAST_NS(8.0 * STEPS, for (int i = 0; i < STEPS; i++) asm volatile(
		".rept 8\n mov $7, %%eax\n mov $3, %%ecx\n div %%cl\n .endr" ::: "eax", "ecx"));
	printf("a division of 32 bits: %.1f cycles in a chain; of 8 bits: one in %.1f\n", chain / cycle, apart / cycle);
}
