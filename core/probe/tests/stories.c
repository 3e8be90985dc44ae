// The two stories of Bernat and Miller, "Incremental Call-Path Profiling" (2007), section 5, in small: `stories wait|lookup`.
//   wait    A lattice program gathers values of its neighbours. All waiting goes through one wrapper, but only the gathers of
//           one phase wait long (their MILC). The neighbour is a thread, and the wrapper waits for a condition.
//   lookup  A tool looks up symbols. One of its callers asks for names that are not there, so its look-ups read the whole table
//           (their Paradyn).
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { STEPS = 20, SYMBOLS = 20000, LOOKUPS = 200 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int asked, answered;
static long work_us;

static void *neighbour(void *argument)
{
	(void)argument;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (asked == answered)
			pthread_cond_wait(&changed, &lock);
		long us = work_us;

		pthread_mutex_unlock(&lock);
		if (us < 0)
			return 0;
		nanosleep(&(struct timespec){ 0, us * 1000 }, 0);
		pthread_mutex_lock(&lock);
		answered = asked;
		pthread_cond_broadcast(&changed);
	}
}

static void start_gather(long us)
{
	pthread_mutex_lock(&lock);
	work_us = us;
	asked++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* The wrapper. */
NOINLINE void wait_gather(void)
{
	pthread_mutex_lock(&lock);
	while (asked != answered)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	__asm__ volatile("");
}

static volatile int sum;

NOINLINE void load_links(void) { start_gather(50); wait_gather(); sum++; }
NOINLINE void update_momenta(void) { start_gather(50); wait_gather(); sum += 2; }
/* Its neighbour has more to do. */
NOINLINE void conjugate_gradient(void) { start_gather(15000); wait_gather(); sum += 3; }

static char names[SYMBOLS][16];

NOINLINE int find_symbol(const char *name)
{
	for (int i = 0; i < SYMBOLS; i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

NOINLINE int parse_header(int i) { int at = find_symbol(names[i % 40]); sum++; return at; }
NOINLINE int insert_probe(int i) { int at = find_symbol(names[i % 60]); sum += 2; return at; }
/* Names with a prefix that the table does not have. */
NOINLINE int resolve_alias(int i)
{
	char name[24];

	snprintf(name, sizeof name, "_%s", names[i]);
	int at = find_symbol(name);

	sum += 3;
	return at;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc > 1 && !strcmp(argv[1], "wait")) {
		pthread_create(&thread, 0, neighbour, 0);
		for (int step = 0; step < STEPS; step++) {
			load_links();
			conjugate_gradient();
			update_momenta();
		}
		start_gather(-1);
		pthread_join(thread, 0);
	} else {
		for (int i = 0; i < SYMBOLS; i++)
			snprintf(names[i], sizeof names[i], "symbol%d", i);
		for (int i = 0; i < LOOKUPS; i++)
			sum += parse_header(i) + insert_probe(i) + resolve_alias(i);
	}
	return 0;
}
