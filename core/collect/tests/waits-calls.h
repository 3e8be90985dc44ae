// The system calls of signal(7)'s two lists for waits.c: of each a set-up, one round of the thread that waits in it (0: the call
// returned what it should), and one round of the partner that it waits for, if there is one.
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS 300000 // How long a call with a timeout waits.
#define BIG (256 << 10) // More than a pipe or a socket holds.

static char folder[] = "/tmp/dwell-waits-XXXXXX";
static _Thread_local atomic_int handled;

static long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static const struct timespec wait_time = {0, WAIT_NS};
static const struct timeval wait_timeval = {0, WAIT_NS / 1000};

// What a call's thread and its partner, the feeder, share.
struct pair {
	int a, b;	// descriptors or ids
	atomic_int turn;	// the feeder's turn where it is 1
	pthread_t waiter;
	char path[64];
	void *more;
};

// A call that times out: it must say so, and not before its time.
static int timed_out(long start_ns, int is_right)
{
	return is_right && now_ns() - start_ns >= WAIT_NS ? 0 : 1;
}

// Each kind: set-up, one round of the waiter (0: right), one round of the feeder or none.
static void no_setup(struct pair *p) { (void)p; }

static int do_nanosleep(struct pair *p)
{
	struct timespec rest = {7, 7};
	long start = now_ns();
	(void)p;
	return timed_out(start, nanosleep(&wait_time, &rest) == 0 && rest.tv_sec == 7);
}

static int do_clock_nanosleep(struct pair *p)
{
	struct timespec until;
	long start = now_ns();
	(void)p;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += WAIT_NS;
	if (until.tv_nsec >= 1000000000L) { until.tv_sec++; until.tv_nsec -= 1000000000L; }
	return timed_out(start, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0) == 0);
}

static void epoll_setup(struct pair *p) { p->a = epoll_create1(0); }

static int do_epoll_wait(struct pair *p)
{
	struct epoll_event event;
	return epoll_wait(p->a, &event, 1, 1) == 0 ? 0 : 1;
}

static int do_epoll_pwait2(struct pair *p)
{
	struct epoll_event event;
	long start = now_ns();
	return timed_out(start, syscall(SYS_epoll_pwait2, p->a, &event, 1, &wait_time, 0, 8) == 0);
}

static void pipe_setup(struct pair *p)
{
	int ends[2];
	if (pipe(ends)) exit(2);
	p->a = ends[0], p->b = ends[1];
}

static int do_poll(struct pair *p)
{
	struct pollfd fd = {p->a, POLLIN, 0};
	return poll(&fd, 1, 1) == 0 ? 0 : 1;
}

static int do_ppoll(struct pair *p)
{
	struct pollfd fd = {p->a, POLLIN, 0};
	long start = now_ns();
	return timed_out(start, ppoll(&fd, 1, &wait_time, 0) == 0);
}

// The kernel writes the time that is left into the caller's memory: none.
static int do_select(struct pair *p)
{
	struct timeval left = wait_timeval;
	fd_set set;
	long start = now_ns();
	FD_ZERO(&set);
	FD_SET(p->a, &set);
	return timed_out(start, select(p->a + 1, &set, 0, 0, &left) == 0 && left.tv_sec == 0 && left.tv_usec == 0);
}

static int do_pselect(struct pair *p)
{
	fd_set set;
	long start = now_ns();
	FD_ZERO(&set);
	FD_SET(p->a, &set);
	return timed_out(start, pselect(p->a + 1, &set, 0, 0, &wait_time, 0) == 0);
}

static void sem_setup(struct pair *p)
{
	p->a = semget(IPC_PRIVATE, 1, 0600);
	if (p->a < 0) exit(2);
}

static int do_semtimedop(struct pair *p)
{
	struct sembuf take = {0, -1, 0};
	long start = now_ns();
	return timed_out(start, semtimedop(p->a, &take, 1, &wait_time) < 0 && errno == EAGAIN);
}

static int do_semop(struct pair *p)
{
	struct sembuf take = {0, -1, 0};
	return semop(p->a, &take, 1) ? 1 : 0;
}

static void feed_semop(struct pair *p)
{
	struct sembuf give = {0, 1, 0};
	semop(p->a, &give, 1);
}

static void msg_setup(struct pair *p)
{
	p->a = msgget(IPC_PRIVATE, 0600);
	if (p->a < 0) exit(2);
}

struct message { long kind; char text[64]; };

static int do_msgrcv(struct pair *p)
{
	struct message m;
	return msgrcv(p->a, &m, sizeof m.text, 0, 0) == sizeof m.text ? 0 : 1;
}

static void feed_msgrcv(struct pair *p)
{
	struct message m = {1, ""};
	msgsnd(p->a, &m, sizeof m.text, 0);
}

static void msgsnd_setup(struct pair *p)
{
	struct msqid_ds ds;
	msg_setup(p);
	msgctl(p->a, IPC_STAT, &ds);
	ds.msg_qbytes = sizeof ((struct message *)0)->text;
	msgctl(p->a, IPC_SET, &ds);
}

static int do_msgsnd(struct pair *p)
{
	struct message m = {1, ""};
	return msgsnd(p->a, &m, sizeof m.text, 0) ? 1 : 0;
}

static void feed_msgsnd(struct pair *p)
{
	struct message m;
	msgrcv(p->a, &m, sizeof m.text, 0, IPC_NOWAIT);
}

static sigset_t set_of(int signal)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signal);
	return set;
}

static int do_sigtimedwait(struct pair *p)
{
	sigset_t set = set_of(SIGUSR2);
	long start = now_ns();
	(void)p;
	return timed_out(start, sigtimedwait(&set, 0, &wait_time) < 0 && errno == EAGAIN);
}

static int do_sigwaitinfo(struct pair *p)
{
	sigset_t set = set_of(SIGUSR2);
	(void)p;
	return sigwaitinfo(&set, 0) == SIGUSR2 ? 0 : 1;
}

static void feed_usr2(struct pair *p) { pthread_kill(p->waiter, SIGUSR2); }

// sigsuspend ends by EINTR as it must: once for each signal that was sent.
static int do_sigsuspend(struct pair *p)
{
	sigset_t none;
	int before = handled;
	(void)p;
	sigemptyset(&none);
	return sigsuspend(&none) < 0 && errno == EINTR && handled == before + 1 ? 0 : 1;
}

static void feed_usr1(struct pair *p) { pthread_kill(p->waiter, SIGUSR1); }

static int do_ppoll_signal(struct pair *p)
{
	int before = handled;
	(void)p;
	return ppoll(0, 0, 0, &(sigset_t){{0}}) < 0 && errno == EINTR && handled == before + 1 ? 0 : 1;
}

static void io_setup(struct pair *p)
{
	aio_context_t context = 0;
	if (syscall(SYS_io_setup, 4, &context)) exit(2);
	p->more = (void *)context;
}

static int do_io_getevents(struct pair *p)
{
	struct io_event event;
	struct timespec time = wait_time;
	long start = now_ns();
	return timed_out(start, syscall(SYS_io_getevents, (aio_context_t)p->more, 1, 1, &event, &time) == 0);
}

static void futex_setup(struct pair *p) { p->more = calloc(1, sizeof(int)); }

static int do_futex_timed(struct pair *p)
{
	long start = now_ns();
	return timed_out(start, syscall(SYS_futex, p->more, FUTEX_WAIT_PRIVATE, 0, &wait_time, 0, 0) < 0 && errno == ETIMEDOUT);
}

// Woken only by the feeder, which changes the word first.
static int do_futex(struct pair *p)
{
	atomic_int *word = p->more;
	int got = (int)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
	int is_right = (got == 0 || errno == EAGAIN) && *word == 1;
	*word = 0;
	return is_right ? 0 : 1;
}

static void feed_futex(struct pair *p)
{
	atomic_store((atomic_int *)p->more, 1);
	syscall(SYS_futex, p->more, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

static int do_read_pipe(struct pair *p)
{
	char byte;
	return read(p->a, &byte, 1) == 1 ? 0 : 1;
}

static void feed_pipe(struct pair *p)
{
	if (write(p->b, "x", 1) != 1) exit(2);
}

// A write that the reader takes in pieces is whole all the same.
static int do_write_pipe(struct pair *p)
{
	static char zeros[BIG];
	return write(p->b, zeros, BIG) == BIG ? 0 : 1;
}

static void feed_write(struct pair *p)
{
	static _Thread_local char taken[BIG];
	for (int left = BIG; left > 0;) {
		int got = (int)read(p->a, taken, left < 20000 ? left : 20000);
		if (got <= 0) exit(2);
		left -= got;
		usleep(20);
	}
}

static void timer_setup(struct pair *p) { p->a = timerfd_create(CLOCK_MONOTONIC, 0); }

static int do_read_timer(struct pair *p)
{
	struct itimerspec once = {{0, 0}, wait_time};
	unsigned long times = 0;
	timerfd_settime(p->a, 0, &once, 0);
	return read(p->a, &times, sizeof times) == sizeof times && times == 1 ? 0 : 1;
}

#include "waits-sockets.h"

static void lock_file(struct pair *p, const char *name)
{
	snprintf(p->path, sizeof p->path, "%s/%s", folder, name);
	p->a = open(p->path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	p->b = open(p->path, O_RDWR | O_CLOEXEC);
}

static void flock_setup(struct pair *p) { lock_file(p, "flock"); }

static int do_flock(struct pair *p)
{
	int got = flock(p->a, LOCK_EX);
	flock(p->a, LOCK_UN);
	return got ? 1 : 0;
}

static void feed_flock(struct pair *p)
{
	flock(p->b, LOCK_EX);
	usleep(200);
	flock(p->b, LOCK_UN);
}

static void ofd_setup(struct pair *p) { lock_file(p, "ofd"); }

static int ofd(int fd, int kind)
{
	struct flock lock = {.l_type = (short)kind, .l_whence = SEEK_SET, .l_len = 1};
	return fcntl(fd, F_OFD_SETLKW, &lock);
}

static int do_ofd(struct pair *p)
{
	int got = ofd(p->a, F_WRLCK);
	ofd(p->a, F_UNLCK);
	return got ? 1 : 0;
}

static void feed_ofd(struct pair *p)
{
	ofd(p->b, F_WRLCK);
	usleep(200);
	ofd(p->b, F_UNLCK);
}

static void mq_setup(struct pair *p)
{
	struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = 8};
	snprintf(p->path, sizeof p->path, "/dwell-waits-%d-%p", getpid(), (void *)p);
	p->a = (int)mq_open(p->path, O_CREAT | O_RDWR, 0600, &attr);
	mq_unlink(p->path);
	if (p->a < 0) exit(2);
}

static int do_mq_receive(struct pair *p)
{
	char text[8];
	return mq_receive(p->a, text, sizeof text, 0) == 1 ? 0 : 1;
}

static void feed_mq_receive(struct pair *p) { mq_send(p->a, "x", 1, 0); }

static int do_mq_timedreceive(struct pair *p)
{
	char text[8];
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += WAIT_NS;
	if (until.tv_nsec >= 1000000000L) { until.tv_sec++; until.tv_nsec -= 1000000000L; }
	return mq_timedreceive(p->a, text, sizeof text, 0, &until) < 0 && errno == ETIMEDOUT ? 0 : 1;
}

static int do_mq_send(struct pair *p) { return mq_send(p->a, "x", 1, 0) ? 1 : 0; }

static void feed_mq_send(struct pair *p)
{
	char text[8];
	struct timespec past = {0, 0};
	mq_timedreceive(p->a, text, sizeof text, 0, &past);
}

static void child_run(struct pair *p)
{
	// It shares our descriptors: copies would keep FIFOs open behind our back.
	p->b = (int)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (p->b == 0) {
		nanosleep(&wait_time, 0);
		_exit(5);
	}
}

static int do_wait4(struct pair *p)
{
	int status = 0;
	child_run(p);
	return wait4(p->b, &status, 0, 0) == p->b && WEXITSTATUS(status) == 5 ? 0 : 1;
}

static int do_waitid(struct pair *p)
{
	siginfo_t info = {0};
	child_run(p);
	return waitid(P_PID, p->b, &info, WEXITED) == 0 && info.si_status == 5 ? 0 : 1;
}

static void fifo_setup(struct pair *p)
{
	snprintf(p->path, sizeof p->path, "%s/fifo", folder);
	if (mkfifo(p->path, 0600)) exit(2);
}

static int do_open_fifo(struct pair *p)
{
	int fd = open(p->path, O_RDONLY | O_CLOEXEC);
	close(fd);
	return fd >= 0 ? 0 : 1;
}

static void feed_fifo(struct pair *p) { close(open(p->path, O_WRONLY | O_CLOEXEC)); }

static void inotify_setup(struct pair *p)
{
	lock_file(p, "watched");
	p->a = inotify_init1(IN_CLOEXEC);
	inotify_add_watch(p->a, p->path, IN_MODIFY);
}

static int do_read_inotify(struct pair *p)
{
	struct inotify_event event;
	return read(p->a, &event, sizeof event) == sizeof event ? 0 : 1;
}

static void feed_inotify(struct pair *p)
{
	if (pwrite(p->b, "x", 1, 0) != 1) exit(2);
}

static int do_getrandom(struct pair *p)
{
	static _Thread_local char bytes[BIG];
	(void)p;
	return getrandom(bytes, BIG, 0) == BIG ? 0 : 1;
}

static const struct kind {
	const char *name;
	void (*setup)(struct pair *);
	int (*round)(struct pair *);
	void (*feed)(struct pair *);
} kinds[] = {
	{"nanosleep", no_setup, do_nanosleep, 0},
	{"clock_nanosleep", no_setup, do_clock_nanosleep, 0},
	{"epoll_wait", epoll_setup, do_epoll_wait, 0},
	{"epoll_pwait2", epoll_setup, do_epoll_pwait2, 0},
	{"poll", pipe_setup, do_poll, 0},
	{"ppoll", pipe_setup, do_ppoll, 0},
	{"select", pipe_setup, do_select, 0},
	{"pselect", pipe_setup, do_pselect, 0},
	{"semtimedop", sem_setup, do_semtimedop, 0},
	{"semop", sem_setup, do_semop, feed_semop},
	{"msgrcv", msg_setup, do_msgrcv, feed_msgrcv},
	{"msgsnd", msgsnd_setup, do_msgsnd, feed_msgsnd},
	{"sigtimedwait", no_setup, do_sigtimedwait, 0},
	{"sigwaitinfo", no_setup, do_sigwaitinfo, feed_usr2},
	{"sigsuspend", no_setup, do_sigsuspend, feed_usr1},
	{"ppoll for a signal", no_setup, do_ppoll_signal, feed_usr1},
	{"io_getevents", io_setup, do_io_getevents, 0},
	{"futex with a timeout", futex_setup, do_futex_timed, 0},
	{"futex", futex_setup, do_futex, feed_futex},
	{"read of a pipe", pipe_setup, do_read_pipe, feed_pipe},
	{"write to a pipe", pipe_setup, do_write_pipe, feed_write},
	{"read of a timer", timer_setup, do_read_timer, 0},
	{"read of inotify", inotify_setup, do_read_inotify, feed_inotify},
	{"recv with SO_RCVTIMEO", timed_socket_setup, do_recv_timed, 0},
	{"recvmsg with SO_RCVTIMEO", timed_socket_setup, do_recvmsg_timed, 0},
	{"send with SO_SNDTIMEO", full_socket_setup, do_send_timed, 0},
	{"recv", socket_setup, do_recv, feed_pipe},
	{"recv of all", socket_setup, do_recv_all, feed_halves},
	{"accept with SO_RCVTIMEO", accept_timed_setup, do_accept_timed, 0},
	{"accept4", accept_setup, do_accept, feed_accept},
	{"connect with SO_SNDTIMEO", connect_timed_setup, do_connect_timed, 0},
	{"flock", flock_setup, do_flock, feed_flock},
	{"fcntl F_OFD_SETLKW", ofd_setup, do_ofd, feed_ofd},
	{"mq_receive", mq_setup, do_mq_receive, feed_mq_receive},
	{"mq_timedreceive", mq_setup, do_mq_timedreceive, 0},
	{"mq_send", mq_setup, do_mq_send, feed_mq_send},
	{"open of a FIFO", fifo_setup, do_open_fifo, feed_fifo},
	{"getrandom", no_setup, do_getrandom, 0},
	// These two last: processes of several threads that have children are not followed.
	{"wait4", no_setup, do_wait4, 0},
	{"waitid", no_setup, do_waitid, 0},
};
