// A server that forks its workers after it has mapped memory for generated code: each worker generates its own function, all at
// one address, and names it in its own /tmp/perf-PID.map. It writes the CPU time that it used, in ns.
// Usage: prefork NAME ROUNDS [NAME ROUNDS …].
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// long f(long n) { do n--; while (n); return n; }
static const unsigned char machine_code[] = {0x48, 0x89, 0xf8, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3};

static int work(unsigned char *memory, const char *name, int rounds)
{
	long (*generated)(long) = (long (*)(long))memory;
	char path[64];
	struct timespec used;
	long sum = 0;
	FILE *map;

	memcpy(memory, machine_code, sizeof machine_code);
	snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
	map = fopen(path, "w");
	fprintf(map, "%lx %zx %s\n", (unsigned long)memory, sizeof machine_code, name);
	fclose(map);
	while (rounds-- > 0) sum += generated(4000000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	dprintf(1, "%s %lld\n", name, used.tv_sec * 1000000000LL + used.tv_nsec);
	return sum != 0;
}

int main(int argc, char **argv)
{
	int protection = PROT_READ | PROT_WRITE | PROT_EXEC, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned char *memory = mmap(0, 4096, protection, flags, -1, 0);
	pid_t workers[16];
	int count = 0;

	for (int i = 1; i + 1 < argc && count < 16; i += 2) {
		workers[count] = fork();
		if (workers[count] == 0) _exit(work(memory, argv[i], atoi(argv[i + 1])));
		count++;
	}
	while (wait(0) > 0) {}
	for (int i = 0; i < count; i++) {
		char path[64];
		snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)workers[i]);
		unlink(path);
	}
	return 0;
}
