// Threads that compute and wait in turn, each in one of the system calls of signal(7)'s two lists, and check that every call
// returns what it would return without anybody looking on: no EINTR, no short transfer, no early or spurious end.
// Usage: waits SECONDS [FIRST COUNT]: all calls at once, or some of them, for that time or (0) until the standard input ends.
// Prints a line for each call, `NAME rounds N wrong N`; exit status 0 if nothing was wrong, 3 otherwise, 4 if there are no such calls.
#define _GNU_SOURCE
#include "waits-calls.h"

#define KINDS (sizeof kinds / sizeof *kinds)

static atomic_int over;

struct thread {
	const struct kind *kind;
	struct pair pair;
	unsigned rounds, wrong;
	int error;
	pthread_t feeder;
};

// Between the calls, so that there is something to sample: of random length, lest calls begin in step with anything.
static void compute(unsigned *seed)
{
	static _Thread_local volatile unsigned sink;
	int turns = (int)(rand_r(seed) % 40000);

	for (int i = 0; i < turns; i++) sink = sink / 3 + (unsigned)i;
}

static void *feed(void *argument)
{
	struct thread *t = argument;

	for (;;) {
		while (!atomic_load(&t->pair.turn)) {
			if (over == 2) return 0;
			usleep(50);
		}
		usleep(100); // The waiter is in its call by now, as a rule.
		t->kind->feed(&t->pair);
		atomic_store(&t->pair.turn, 0);
	}
}

static void *wait_in_turn(void *argument)
{
	struct thread *t = argument;
	unsigned seed = (unsigned)(t->kind - kinds) + 1;

	t->pair.waiter = pthread_self();
	while (!over) {
		compute(&seed);
		atomic_store(&t->pair.turn, t->kind->feed != 0);
		errno = 0;
		if (t->kind->round(&t->pair)) {
			t->wrong++;
			t->error = errno;
		}
		t->rounds++;
		while (atomic_load(&t->pair.turn)) usleep(20);
	}
	return 0;
}

static void on_usr1(int signal) { (void)signal; handled++; }

int main(int argc, char **argv)
{
	static struct thread threads[KINDS];
	pthread_t waiters[KINDS];
	sigset_t blocked = set_of(SIGUSR2);
	unsigned first = argc > 2 ? (unsigned)atoi(argv[2]) : 0, end = argc > 3 ? first + (unsigned)atoi(argv[3]) : KINDS;
	int wrong = 0;

	if (argc < 2) return 2;
	if (first >= KINDS) return 4;
	if (end > KINDS) end = KINDS;
	if (!mkdtemp(folder)) return 2;
	sigaddset(&blocked, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &blocked, 0);
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_usr1}, 0);
	for (unsigned i = first; i < end; i++) {
		threads[i].kind = &kinds[i];
		kinds[i].setup(&threads[i].pair);
		pthread_create(&waiters[i], 0, wait_in_turn, &threads[i]);
		if (kinds[i].feed) pthread_create(&threads[i].feeder, 0, feed, &threads[i]);
	}
	if (atof(argv[1]) > 0) usleep((useconds_t)(atof(argv[1]) * 1e6));
	else while (read(0, &(char){0}, 1) > 0);
	over = 1;
	for (unsigned i = first; i < end; i++) pthread_join(waiters[i], 0);
	over = 2;
	for (unsigned i = first; i < end; i++) {
		struct thread *t = &threads[i];
		if (t->kind->feed) pthread_join(t->feeder, 0);
		if (t->kind->setup == sem_setup) semctl(t->pair.a, 0, IPC_RMID);
		if (t->kind->setup == msg_setup || t->kind->setup == msgsnd_setup) msgctl(t->pair.a, IPC_RMID, 0);
		printf("%s rounds %u wrong %u%s%s\n", t->kind->name, t->rounds, t->wrong, t->wrong ? ": " : "",
		       t->wrong ? strerror(t->error) : "");
		wrong += t->wrong != 0 || t->rounds == 0;
	}
	if (chdir(folder) == 0) {
		const char *names[] = {"accept-timed", "accept", "connect", "flock", "ofd", "fifo", "watched"};
		for (unsigned i = 0; i < sizeof names / sizeof *names; i++) unlink(names[i]);
		rmdir(folder);
	}
	return wrong ? 3 : 0;
}
