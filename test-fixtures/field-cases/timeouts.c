// Computes, and waits in calls that no signal ends but that fail with EINTR whenever their thread is interrupted. Usage:
// timeouts SECONDS; exit status: how many of them failed so, 99 at most.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <time.h>

static volatile unsigned sink;

static void compute(void)
{
	for (unsigned i = 0; i < 60000; i++) sink = sink / 3 + i;
}

int main(int argc, char **argv)
{
	int epoll = epoll_create1(0), semaphore = semget(IPC_PRIVATE, 1, 0600), failed = 0;
	struct timespec short_time = {0, 100000};
	struct sembuf take = {0, -1, 0};
	struct epoll_event event;
	time_t end = time(0) + (argc > 1 ? atoi(argv[1]) : 1);
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR2);
	while (time(0) < end) {
		compute();
		failed += epoll_wait(epoll, &event, 1, 1) < 0;
		compute();
		failed += semtimedop(semaphore, &take, 1, &short_time) < 0 && errno == EINTR;
		compute();
		failed += sigtimedwait(&signals, 0, &short_time) < 0 && errno == EINTR;
	}
	semctl(semaphore, 0, IPC_RMID);
	return failed < 99 ? failed : 99;
}
