// A library that is preloaded into a program and lets ways (turns.h) take turns while the program works. A turn takes some
// milliseconds, and each round has another order, so that the compared turns are close in time. A turn consists of TURNS_PIECES
// pieces of TURNS_CALLS calls of malloc, so it is the same work in every run of a program with the same input. The library acts
// only in the program TURNS_NAME. When that ends, a line is appended to the file TURNS_LOG: for each piece the number of the way
// and the CPU time that the thread took for it, in ns.

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "turns.h"

enum { LOG_MAX = 1 << 19 };

extern void *__libc_malloc(size_t size);

static struct ways ways;
static struct { uint32_t way, cpu_ns; } done[LOG_MAX];
static long every, calls; /* `every` is 0 while nothing is counted. */
static int count, pieces, order[WAYS_MAX];
static uint64_t since_ns, random_state;

static uint64_t draw(uint64_t below)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (random_state >> 33) % below;
}

static void shuffle(void)
{
	for (int last = ways.count - 1; last > 0; last--) {
		int other = draw(last + 1), way = order[last];

		order[last] = order[other];
		order[other] = way;
	}
}

static int way_now(void)
{
	return order[count / pieces % ways.count];
}

static void begin(void)
{
	if (count % (pieces * ways.count) == 0)
		shuffle();
	if (count % pieces == 0)
		turn(&ways.of[way_now()], 1);
	calls = 0;
	since_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void end(void)
{
	uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - since_ns;
	int way = way_now();

	done[count].way = way;
	done[count++].cpu_ns = cpu_ns;
	if (count % pieces == 0 || count == LOG_MAX)
		turn(&ways.of[way], 0);
}

void *malloc(size_t size)
{
	if (every && ++calls > every) {
		end();
		if (count < LOG_MAX)
			begin();
		else
			every = 0;
	}
	return __libc_malloc(size);
}

__attribute__((constructor)) static void start(void)
{
	const char *name = getenv("TURNS_NAME"), *number = getenv("TURNS_CALLS"), *parts = getenv("TURNS_PIECES");

	if (!name || !number || !parts || !getenv("TURNS_LOG") || strcmp(name, program_invocation_short_name))
		return;
	pieces = atoi(parts);
	read_ways(&ways);
	random_state = clock_ns(CLOCK_MONOTONIC);
	for (int way = 0; way < ways.count; way++)
		order[way] = way;
	if (ways.count == 0 || pieces < 1)
		return;
	begin();
	every = atol(number);
}

__attribute__((destructor)) static void tell(void)
{
	FILE *log;

	if (!every && !count)
		return;
	if (every) /* The last piece is incomplete. */
		turn(&ways.of[way_now()], 0);
	every = 0;
	log = fopen(getenv("TURNS_LOG"), "a");
	if (!log)
		return;
	for (int i = 0; i < count; i++)
		fprintf(log, "%u %u ", done[i].way, done[i].cpu_ns);
	fputc('\n', log);
	fclose(log);
}
