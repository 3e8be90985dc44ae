/* Rounds of work whose executions it counts itself.
 *   counters THREADS NUMBERS [signals]
 * Each byte on the standard input lets it do a round: each thread looks at the numbers up to NUMBERS. It prints how often the
 * function was called, its loop was executed, and the loop's two sides, by all threads so far. With `signals` it handles one every
 * 200 µs. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static long numbers;

struct counts {
	long calls, steps, even, odd;
};

/* The sides are apart, with code of their own. */
__attribute__((noinline)) long collatz(long n)
{
	long odd = 0;
	while (n != 1) {
		if (n & 1) {
			n = 3 * n + 1;
			odd++;
			__asm__ volatile("" : "+r"(n), "+r"(odd) : : "memory");
		} else {
			n >>= 1;
			__asm__ volatile("nop\n\tnop\n\tnop\n\tnop" : "+r"(n) : : "memory");
		}
	}
	return odd;
}

static void *work(void *argument)
{
	struct counts *counts = argument;
	for (long n = 1; n <= numbers; n++) {
		counts->calls++;
		counts->odd += collatz(n);
		for (long m = n; m != 1; m = m & 1 ? 3 * m + 1 : m >> 1)
			counts->even += !(m & 1);
	}
	return NULL;
}

/* Lasts for a while, during which the interrupted code may change. */
static void handle(int signal)
{
	for (volatile int i = 0; i < 20000; i++)
		;
	(void)signal;
}

int main(int argc, char **argv)
{
	if (argc > 3) {
		struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
		struct itimerval often = { { 0, 200 }, { 0, 200 } };
		sigaction(SIGPROF, &action, NULL);
		setitimer(ITIMER_PROF, &often, NULL);
	}
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	numbers = argc > 2 ? atol(argv[2]) : 1000;
	static struct counts counts[16];
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF) {
		pthread_t thread[16];
		for (int i = 1; i < threads; i++)
			pthread_create(&thread[i], NULL, work, &counts[i]);
		work(&counts[0]);
		for (int i = 1; i < threads; i++)
			pthread_join(thread[i], NULL);
		struct counts all = { 0, 0, 0, 0 };
		for (int i = 0; i < threads; i++) {
			all.calls += counts[i].calls;
			all.even += counts[i].even;
			all.odd += counts[i].odd;
		}
		printf("%ld %ld %ld %ld\n", all.calls, all.even + all.odd, all.even, all.odd);
		fflush(stdout);
	}
	return 0;
}
