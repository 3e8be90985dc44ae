// Calls whose stacks are known. Built without frame pointers and without debug information (core/cli/tests/stacks.rs).
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned long sink;

NOINLINE void leaf(int rounds)
{
	for (int i = 0; i < rounds; i++)
		sink += i * sink;
}

// Different bodies, so that the compiler does not merge them.
NOINLINE void parse(int rounds) { leaf(rounds); sink += 1; }
NOINLINE void load(int rounds) { leaf(rounds); sink += 2; }

NOINLINE void aligned(int rounds)
{
	char *some = __builtin_alloca(rounds % 64 + 1);
	char wide[64] __attribute__((aligned(64)));
	memset(wide, rounds, sizeof wide);
	some[0] = wide[rounds % 64];
	leaf(rounds);
	sink += some[0] + wide[3];
}

NOINLINE void deep(int depth, int rounds)
{
	volatile char room[256];
	room[depth % 256] = 1;
	if (depth)
		deep(depth - 1, rounds);
	else
		leaf(rounds);
	sink += room[depth % 256];
}

NOINLINE void handler(int number) { leaf(20000); sink += number; }
NOINLINE void interrupted(void) { raise(SIGUSR1); sink += 3; }

NOINLINE void *worker(void *nothing)
{
	for (int i = 0; i < 4000; i++)
		leaf(20000);
	return nothing;
}

static ucontext_t caller, coroutine;

NOINLINE void routine(void)
{
	for (int i = 0; i < 4000; i++)
		leaf(20000);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "callers")) {
		for (int i = 0; i < 4000; i++) {
			parse(15000);
			load(5000);
		}
	} else if (!strcmp(what, "aligned")) {
		for (int i = 0; i < 4000; i++)
			aligned(20000);
	} else if (!strcmp(what, "deep")) {
		for (int i = 0; i < 400; i++)
			deep(1500, 200000);
	} else if (!strcmp(what, "signal")) {
		signal(SIGUSR1, handler);
		for (int i = 0; i < 4000; i++)
			interrupted();
	} else if (!strcmp(what, "thread")) {
		pthread_t thread;
		pthread_create(&thread, 0, worker, 0);
		pthread_join(thread, 0);
	} else if (!strcmp(what, "coroutine")) {
		getcontext(&coroutine);
		coroutine.uc_stack.ss_sp = malloc(1 << 16);
		coroutine.uc_stack.ss_size = 1 << 16;
		coroutine.uc_link = &caller;
		makecontext(&coroutine, routine, 0);
		swapcontext(&caller, &coroutine);
	} else {
		return 1;
	}
	return 0;
}
