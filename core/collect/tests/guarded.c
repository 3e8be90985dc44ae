// Programs for tests of guards. Each waits for a byte on its standard input first.
//   guarded lost TIMES   four threads raise TIMES signals each, as the kernel does for a debug exception without a cause
//   guarded blocked      the same once, in a thread that blocks every signal; exit status 1 if it does not afterwards
//   guarded int1         executes int1, which ends it with SIGTRAP
//   guarded children     has a child process
//   guarded handler      handles SIGTRAP
//   guarded signals      counts SIGUSR1 in a handler until SIGTERM ends it, and prints the number after each
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int times;

static void lose_exception(void)
{
	siginfo_t info;

	memset(&info, 0, sizeof info);
	info.si_signo = SIGTRAP;
	info.si_code = TRAP_BRKPT; // A process may send this to itself.
	syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGTRAP, &info);
}

static void *lose(void *ready)
{
	pthread_barrier_wait(ready);
	pthread_barrier_wait(ready);
	for (int i = 0; i < times; i++)
		lose_exception();
	return 0;
}

static void handle(int signal)
{
	static volatile int count;

	(void)signal;
	dprintf(1, "%d\n", ++count); // stdio is not to be interrupted by itself.
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	pthread_barrier_t ready;
	pthread_t threads[4];
	sigset_t all, now;

	times = argc > 2 ? atoi(argv[2]) : 1;
	if (!strcmp(mode, "handler"))
		signal(SIGTRAP, handle);
	if (!strcmp(mode, "signals"))
		signal(SIGUSR1, handle);
	if (!strcmp(mode, "children") && !fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		return 0;
	}
	if (!strcmp(mode, "lost") || !strcmp(mode, "children")) {
		pthread_barrier_init(&ready, 0, 5);
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], 0, lose, &ready);
		pthread_barrier_wait(&ready);
	}
	sigfillset(&all);
	if (!strcmp(mode, "blocked"))
		sigprocmask(SIG_SETMASK, &all, 0);
	dprintf(1, "ready\n");
	if (getchar() == EOF)
		return 2;
	if (!strcmp(mode, "lost")) {
		pthread_barrier_wait(&ready);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], 0);
	}
	if (!strcmp(mode, "blocked")) {
		lose_exception();
		sigprocmask(SIG_SETMASK, 0, &now);
		return !sigismember(&now, SIGTRAP);
	}
	if (!strcmp(mode, "int1"))
		__asm__ volatile(".byte 0xf1");
	while (!strcmp(mode, "signals"))
		pause();
	return 0;
}
