// A program whose calls are known: `calls THREADS ROUNDS DEPTH [jump|fork|forever]`. For each byte of its standard input, each
// thread calls hot() ROUNDS times by three paths from DEPTH frames of loop(), without frame pointers. Then the program prints how
// many calls there were so far, and how many of them did not return.
//   jump     every third call ends by longjmp
//   fork     a child process makes the same calls meanwhile; the program ends with 1 if it does not end well
//   forever  threads go on until a second byte
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static _Thread_local volatile unsigned long sink;
static _Thread_local jmp_buf back;
static _Atomic unsigned long calls, left;
static int rounds, jumps, forever;
static atomic_int is_over;

NOINLINE int hot(int x)
{
	if (jumps && x % 3 == 0)
		longjmp(back, 1);
	if (x < 0) {
		sink += 3;
		return 1;
	}
	unsigned long s = sink;
	if (x & 1)
		s ^= (unsigned long)x;
	sink = s + (unsigned long)x;
	return x + 1;
}

NOINLINE int library(int x) { int r = hot(x); sink++; return r; }
NOINLINE int path_a(int x) { int r = library(x); sink += 2; return r; }
NOINLINE int path_b(int x) { int r = library(x + 1); sink += 3; return r; }
NOINLINE int path_c(int x) { int r = hot(x); sink += 4; return r; }

NOINLINE int loop(int depth)
{
	volatile int s = 0;

	if (depth) {
		s = loop(depth - 1);
		sink++;
		return s;
	}
	for (volatile int i = 0; i < rounds; i++) {
		if (setjmp(back)) {
			left++;
			continue;
		}
		s += i & 2 ? path_a(i) : i & 1 ? path_b(i) : path_c(i);
	}
	return s;
}

static int depth;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *run(void *argument)
{
	double begin = now();

	(void)argument;
	do {
		sink += (unsigned long)loop(depth);
		calls += (unsigned long)rounds;
	} while (forever && !is_over);
	fprintf(stderr, "%.2f ns a call\n", (now() - begin) / rounds);
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int number = atoi(argv[1]);

	rounds = atoi(argv[2]);
	depth = atoi(argv[3]);
	const char *mode = argc > 4 ? argv[4] : "";
	jumps = !strcmp(mode, "jump");
	forever = !strcmp(mode, "forever");
	puts("ready");
	fflush(stdout);
	for (;;) {
		if (getchar() == EOF)
			return 0;
		is_over = 0;
		for (int i = 0; i < number; i++)
			pthread_create(&threads[i], 0, run, 0);
		if (forever) {
			getchar();
			is_over = 1;
		}
		for (int i = 0; i < 10 && !strcmp(mode, "fork"); i++) {
			pid_t child = fork();
			int status = 0;

			if (!child) {
				run(0);
				_exit(7);
			}
			if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
				return 1;
		}
		for (int i = 0; i < number; i++)
			pthread_join(threads[i], 0);
		printf("%lu %lu\n", calls, left);
		fflush(stdout);
	}
}
