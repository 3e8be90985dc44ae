/*
 * Loads from one kind of data after the other, for as many milliseconds of CPU time each as the argument says:
 * variables of the program, the heap, anonymous memory, a mapped file (the second argument names it), the stacks of two
 * threads, thread-local data.
 * All loads are of volatile words, so that no compiler leaves any out. Compiled by data.rs, beside it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WORDS 4096

static long table_of_constants[WORDS] = { 1 };
long table_of_zeros[WORDS];
static __thread volatile long of_the_thread[8];
static long limit_ns;

/* Eight loads a turn, so that most samples fall on one. */
#define LOAD_ALL(words, count)                                                                                   \
	do {                                                                                                     \
		volatile long *from = (words);                                                                   \
		struct timespec now, start;                                                                      \
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);                                                  \
		do {                                                                                             \
			for (int turn = 0; turn < 2000; turn++)                                                  \
				for (int at = 0; at < (count); at += 8)                                          \
					(void)from[at], (void)from[at + 1], (void)from[at + 2], (void)from[at + 3],  \
						(void)from[at + 4], (void)from[at + 5], (void)from[at + 6],          \
						(void)from[at + 7];                                                  \
			clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);                                            \
		} while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < limit_ns);    \
	} while (0)

__attribute__((noinline)) static void load_constants(void) { LOAD_ALL(table_of_constants, WORDS); }
__attribute__((noinline)) static void load_zeros(void) { LOAD_ALL(table_of_zeros, WORDS); }
__attribute__((noinline)) static void load(long *words) { LOAD_ALL(words, WORDS); }

__attribute__((noinline)) static void load_stack(void)
{
	long words[WORDS];

	memset(words, 1, sizeof(words));
	LOAD_ALL(words, WORDS);
}

__attribute__((noinline)) static void load_thread_local(void)
{
	struct timespec now, start;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
	do {
		for (int turn = 0; turn < 100000; turn++)
			(void)of_the_thread[0], (void)of_the_thread[1], (void)of_the_thread[2], (void)of_the_thread[3];
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < limit_ns);
}

static void *in_a_thread(void *nothing)
{
	load_stack();
	return nothing;
}

int main(int argc, char **argv)
{
	const char *path = argc > 2 ? argv[2] : "mapped-file";
	pthread_t thread;
	long *file;
	int fd;

	limit_ns = (argc > 1 ? atol(argv[1]) : 300) * 1000000L;
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, WORDS * sizeof(long)))
		return 1;
	file = mmap(0, WORDS * sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		return 1;
	load_constants();
	load_zeros();
	load(calloc(WORDS, sizeof(long)));
	load(mmap(0, WORDS * sizeof(long), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	load(file);
	load_stack();
	pthread_create(&thread, 0, in_a_thread, 0);
	pthread_join(thread, 0);
	load_thread_local();
	unlink(path);
	return 0;
}
