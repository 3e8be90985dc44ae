// Preloaded into a program, has ways (turns.h) take turns while it works, some half a millisecond each, in another order each
// round, so that they are compared within milliseconds. A turn is TURNS_CALLS calls of malloc, and so the same work in every
// run of a program that is given the same. Only in the program TURNS_NAME; when it ends, a line is appended to the file
// TURNS_LOG: for each turn the way's number and the CPU time that the thread took for it, in ns.

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "turns.h"

enum { TURNS_MAX = 1 << 19 };

extern void *__libc_malloc(size_t size);

static struct ways ways;
static struct { uint32_t way, cpu_ns; } turns[TURNS_MAX];
static long every, calls; /* every is 0 while nothing is counted */
static int count, order[WAYS_MAX];
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

static void begin(void)
{
	if (count % ways.count == 0)
		shuffle();
	turn(&ways.of[order[count % ways.count]], 1);
	calls = 0;
	since_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void end(void)
{
	uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - since_ns;
	int way = order[count % ways.count];

	turn(&ways.of[way], 0);
	turns[count].way = way;
	turns[count++].cpu_ns = cpu_ns;
}

void *malloc(size_t size)
{
	if (every && ++calls > every) {
		end();
		if (count < TURNS_MAX)
			begin();
		else
			every = 0;
	}
	return __libc_malloc(size);
}

__attribute__((constructor)) static void start(void)
{
	const char *name = getenv("TURNS_NAME"), *number = getenv("TURNS_CALLS");

	if (!name || !number || !getenv("TURNS_LOG") || strcmp(name, program_invocation_short_name))
		return;
	read_ways(&ways);
	random_state = clock_ns(CLOCK_MONOTONIC);
	for (int way = 0; way < ways.count; way++)
		order[way] = way;
	if (ways.count == 0)
		return;
	begin();
	every = atol(number);
}

__attribute__((destructor)) static void tell(void)
{
	FILE *log;

	if (!every && !count)
		return;
	if (every) /* the last one is no whole turn */
		turn(&ways.of[order[count % ways.count]], 0);
	every = 0;
	log = fopen(getenv("TURNS_LOG"), "a");
	if (!log)
		return;
	for (int i = 0; i < count; i++)
		fprintf(log, "%u %u ", turns[i].way, turns[i].cpu_ns);
	fputc('\n', log);
	fclose(log);
}
