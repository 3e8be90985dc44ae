// Calls on stacks of many kinds: `stacks MODE`. For each byte of its standard input, the program makes calls that are known and
// prints how many of hot() and slow() there were so far.
//   threads     five threads, one after the other, on the same memory; each calls slow() four times, which sleeps for 10 ms
//   coroutines  two coroutines and their caller, all within calls of between(), take turns to call hot()
//   handlers    a signal handler on an alternate stack calls hot() in the middle of between()
//   buffer      like "plain", but main() waits with a large buffer that it has not written to
//   plain       hot() is called 1,000 times
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned long sink;
static unsigned long hot_calls, slow_calls;
static ucontext_t caller, coroutine[2];

NOINLINE int hot(int x)
{
	hot_calls++;
	if (x < 0) {
		sink += 3;
		return 1;
	}
	sink += (unsigned long)x;
	return x + 1;
}

NOINLINE int slow(int x)
{
	struct timespec time = { 0, 10 * 1000 * 1000 };

	slow_calls++;
	nanosleep(&time, 0);
	sink++;
	return x + 1;
}

/* Has a sequence that the kernel would restart, if the thread had registered for that. */
NOINLINE int restartable(int x)
{
	__asm__ volatile(".pushsection __rseq_cs, \"aw\"\n\t.balign 32\n\t.long 0, 0\n\t.quad 1f, 2f - 1f, 3f\n\t.popsection\n"
			 "1:\tnop\n2:\tnop\n3:\n" ::: "memory");
	sink++;
	return x + 1;
}

static void *sleeper(void *argument)
{
	for (int i = 0; i < 4; i++)
		sink += (unsigned long)slow(i);
	return argument;
}

/* Leaves its stack `turns` times for another one. */
NOINLINE int between(int turns, ucontext_t *own, ucontext_t *other)
{
	int result = 0;

	for (int i = 0; i < turns; i++) {
		result += hot(i);
		swapcontext(own, other);
	}
	sink++;
	return result;
}

static void start(int number)
{
	sink += (unsigned long)between(3, &coroutine[number], &caller);
	sink++;
}

/* Both stacks are within the memory of the other mappings, in this order or the other. */
NOINLINE int take_turns(char *stacks, size_t bytes)
{
	for (int i = 0; i < 2; i++) {
		getcontext(&coroutine[i]);
		coroutine[i].uc_stack.ss_sp = stacks + (size_t)i * bytes;
		coroutine[i].uc_stack.ss_size = bytes;
		coroutine[i].uc_link = &caller;
		makecontext(&coroutine[i], (void (*)(void))start, 1, i);
	}
	for (int turn = 0; turn < 4; turn++)
		for (int i = 0; i < 2; i++) {
			swapcontext(&caller, &coroutine[i]);
			sink += (unsigned long)hot(restartable(turn));
		}
	return 0;
}

static void handler(int signal)
{
	(void)signal;
	sink += (unsigned long)hot(1);
}

NOINLINE int interrupted(int x)
{
	raise(SIGUSR1);
	sink++;
	return x + 1;
}

static void *interrupted_thread(void *stack)
{
	stack_t alternate = { .ss_sp = stack, .ss_size = 65536 };

	sigaltstack(&alternate, 0);
	for (int i = 0; i < 10; i++)
		sink += (unsigned long)interrupted(i);
	return 0;
}

/* Most of the buffer has what earlier calls left there. */
NOINLINE long wait_for_byte(void)
{
	char buffer[32768];
	long number = read(0, buffer, 1);

	sink += (unsigned long)buffer[0];
	return number;
}

NOINLINE void plain(void)
{
	for (int i = 0; i < 1000; i++)
		sink += (unsigned long)hot(i);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "plain";
	/* A handler's stack below that of its thread, and one above it. */
	char above[65536] __attribute__((aligned(64)));
	char *below = malloc(65536), *stacks = malloc(2 * 65536);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };

	sigaction(SIGUSR1, &action, 0);
	puts("ready");
	fflush(stdout);
	for (;;) {
		pthread_t thread;

		if (!strcmp(mode, "buffer") ? wait_for_byte() <= 0 : getchar() == EOF)
			return 0;
		if (!strcmp(mode, "threads"))
			for (int i = 0; i < 5; i++) {
				pthread_create(&thread, 0, sleeper, 0);
				pthread_join(thread, 0);
			}
		else if (!strcmp(mode, "coroutines"))
			for (int i = 0; i < 10; i++)
				take_turns(stacks, 65536);
		else if (!strcmp(mode, "handlers")) {
			pthread_create(&thread, 0, interrupted_thread, above);
			pthread_join(thread, 0);
			interrupted_thread(below);
		} else
			plain();
		printf("%lu %lu\n", hot_calls, slow_calls);
		fflush(stdout);
	}
}
