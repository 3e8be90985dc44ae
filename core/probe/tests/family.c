// A program with child processes whose calls of work() are known: `family MODE …`. It ends with 5 if all went well, else with 99.
//   fork N             calls work() 10 times, forks N children, and calls it 10 times again. Each child calls it 100 times and
//                      forks one of its own, which calls it 1,000 times.
//   spawn N CMD…       executes CMD, which must end with 3, N times by posix_spawn and N times by fork
//   quiet              waits in epoll_wait while a signal comes that the program ignores: the call must not end for that
//   loop               a parent and a child call work() until the standard input has data or ends; then each prints its code
//                      of work(), in hex, on a line. The first line has both process ids.
//   later LIBRARY      loads a library when it runs, and calls its function cbrt() there
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

__attribute__((noinline, noclone)) int work(int x)
{
	volatile int sum = x;

	for (int i = 0; i < 3; i++)
		sum += i * x;
	return sum;
}

static int all(int number)
{
	int right = 1;

	for (int i = 0; i < number; i++)
		right &= work(i) == 4 * i;
	return right;
}

static int ends_with(pid_t child, int code)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static int forks(int number)
{
	pid_t children[64];
	int right = all(10);

	for (int i = 0; i < number; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			int fine = all(100);
			pid_t grandchild = fork();

			if (grandchild == 0)
				_exit(all(1000) ? 8 : 99);
			_exit(fine && ends_with(grandchild, 8) ? 7 : 99);
		}
	}
	for (int i = 0; i < number; i++)
		right &= ends_with(children[i], 7);
	return right & all(10);
}

static int spawns(int number, char **command)
{
	int right = 1;

	for (int i = 0; i < number; i++) {
		pid_t child;

		right &= posix_spawnp(&child, command[0], NULL, NULL, command, environ) == 0;
		right &= ends_with(child, 3);
		child = fork();
		if (child == 0) {
			execvp(command[0], command);
			_exit(99);
		}
		right &= ends_with(child, 3);
	}
	return right;
}

static int is_asleep(pid_t process)
{
	char path[64], text[512] = "";
	int file;

	snprintf(path, sizeof path, "/proc/%d/stat", process);
	file = open(path, O_RDONLY);
	if (read(file, text, sizeof text - 1) < 0)
		return 0;
	close(file);
	return strstr(text, ") S ") != NULL;
}

static int is_quiet(void)
{
	int ends[2], set = epoll_create1(0), result;
	struct epoll_event event = { .events = EPOLLIN };
	pid_t child, parent = getpid();

	if (pipe(ends) || epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event))
		return 0;
	child = fork();
	if (child == 0) {
		for (int i = 0; i < 20; i++) {
			while (!is_asleep(parent))
				usleep(100);
			kill(parent, SIGWINCH);
			usleep(1000);
		}
		_exit(write(ends[1], "x", 1) == 1 ? 7 : 99);
	}
	result = epoll_wait(set, &event, 1, -1);
	return result == 1 && ends_with(child, 7);
}

static void print_code(const char *who)
{
	const unsigned char *code = (const unsigned char *)work;
	char text[256];
	int length = snprintf(text, sizeof text, "%s ", who);

	for (int i = 0; i < 32; i++)
		length += snprintf(text + length, sizeof text - length, "%02x", code[i]);
	text[length++] = '\n';
	if (write(1, text, length) != length)
		_exit(99);
}

static int loops(void)
{
	volatile int *is_over = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pollfd input = { .fd = 0, .events = POLLIN };
	int right = 1;
	pid_t child = fork();

	if (child == 0) {
		while (!*is_over)
			right &= all(100);
		print_code("child");
		_exit(right ? 7 : 99);
	}
	printf("%d %d\n", getpid(), child);
	fflush(stdout);
	while (poll(&input, 1, 0) == 0)
		right &= all(100);
	*is_over = 1;
	right &= ends_with(child, 7);
	print_code("parent");
	return right;
}

static int loads(const char *library)
{
	void *loaded = dlopen(library, RTLD_NOW);
	double (*root)(double) = loaded ? (double (*)(double))dlsym(loaded, "cbrt") : NULL;

	return root && root(27) == 3;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int right = 0;

	if (argc > 2 && !strcmp(mode, "fork"))
		right = forks(atoi(argv[2]));
	else if (argc > 3 && !strcmp(mode, "spawn"))
		right = spawns(atoi(argv[2]), argv + 3);
	else if (!strcmp(mode, "quiet"))
		right = is_quiet();
	else if (!strcmp(mode, "loop"))
		right = loops();
	else if (argc > 2 && !strcmp(mode, "later"))
		right = loads(argv[2]);
	return right ? 5 : 99;
}
