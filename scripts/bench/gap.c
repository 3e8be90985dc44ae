// What one interruption costs: `gap CPU SECONDS` reads the time-stamp counter in a tight loop and notes every gap over
// 150 ns; those over 40 us are other processes. Prints: gaps, gaps a second, and their 10th, 50th, 90th percentile in ns.

#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

enum { GAPS_MAX = 4000000 };
static double gaps_ns[GAPS_MAX];

static double now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static double tsc_per_ns(void)
{
	struct timespec pause = { .tv_nsec = 50000000 };
	double start_s = now_s();
	uint64_t start = __rdtsc();

	nanosleep(&pause, NULL);
	return (__rdtsc() - start) / ((now_s() - start_s) * 1e9);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	cpu_set_t set;
	double rate, seconds, ours_ns = 0;
	uint64_t now, last, end, start;
	int count = 0;

	if (argc != 3)
		return fprintf(stderr, "usage: gap CPU SECONDS\n"), 2;
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[1]), &set);
	sched_setaffinity(0, sizeof(set), &set);
	rate = tsc_per_ns();
	start = last = __rdtsc();
	end = start + (uint64_t)(atof(argv[2]) * 1e9 * rate);
	do {
		double gap_ns;

		now = __rdtsc();
		gap_ns = (now - last) / rate;
		if (gap_ns < 40000)
			ours_ns += gap_ns;
		if (gap_ns > 150 && gap_ns < 40000 && count < GAPS_MAX)
			gaps_ns[count++] = gap_ns;
		last = now;
	} while (now < end);
	seconds = ours_ns / 1e9;
	if (!count || seconds <= 0)
		return 1;
	qsort(gaps_ns, count, sizeof(*gaps_ns), ascending);
	printf("%d %.1f %.0f %.0f %.0f\n", count, count / seconds, gaps_ns[count / 10], gaps_ns[count / 2],
	       gaps_ns[count * 9 / 10]);
	return 0;
}
