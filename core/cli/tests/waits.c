/* A program whose threads wait in known places for known times: 400 ms in a sleep, 300 ms for a lock, and 600 waits of half a
 * millisecond for a pipe. Meanwhile the main thread waits for them to end. The time of each is printed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int pipe_ends[2];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pause_for(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9) };
	nanosleep(&t, NULL);
}

__attribute__((noinline)) static void sleeps(void)
{
	pause_for(0.4);
}

__attribute__((noinline)) static void locks(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void reads(void)
{
	char byte;
	for (int i = 0; i < 600; i++)
		if (read(pipe_ends[0], &byte, 1) != 1)
			perror("read");
}

__attribute__((noinline)) static void writes(void)
{
	for (int i = 0; i < 600; i++) {
		pause_for(0.0005);
		if (write(pipe_ends[1], "x", 1) != 1)
			perror("write");
	}
}

static void spins_and_sleeps(void)
{
	double until = now() + 0.4;
	while (now() < until)
		;
	pause_for(0.5);
}

static void report(const char *name, void (*function)(void))
{
	double before = now();
	function();
	printf("%s %.6f\n", name, now() - before);
	fflush(stdout);
}

static void *sleeper(void *unused) { report("sleeps", sleeps); return unused; }
static void *locker(void *unused) { report("locks", locks); return unused; }
static void *reader(void *unused) { report("reads", reads); return unused; }
static void *writer(void *unused) { report("writes", writes); return unused; }

int main(int argc, char **argv)
{
	void *(*bodies[])(void *) = { sleeper, locker, reader, writer };
	pthread_t threads[4];

	if (argc > 1 && !strcmp(argv[1], "sleep")) { /* waits before anybody looks, and until the end */
		pause_for(30);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "wall")) {
		report("wall", spins_and_sleeps);
		return 0;
	}
	if (pipe(pipe_ends))
		return 1;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, bodies[i], NULL);
	pause_for(0.3);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
