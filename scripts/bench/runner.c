// Runs a command once for each line on standard input: `runner CMD...`. A line is "WAY ARGUMENT": the command runs with this way
// turned on (turns.h; -1: no change), and with ARGUMENT as its last argument. Each line is answered by the CPU time of the command
// and its children, in ns.

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "turns.h"

static long long ns(struct timeval time)
{
	return time.tv_sec * 1000000000ll + time.tv_usec * 1000ll;
}

int main(int argc, char **argv)
{
	char line[4096], *words[64];
	struct ways ways;
	int status;

	if (argc < 2 || argc > 62)
		return fprintf(stderr, "usage: runner CMD...\n"), 2;
	memcpy(words, argv + 1, (argc - 1) * sizeof(*argv));
	words[argc] = NULL;
	read_ways(&ways);
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		long way = strtol(line, &words[argc - 1], 10);
		struct rusage usage;
		pid_t child;

		words[argc - 1] += strspn(words[argc - 1], " ");
		line[strcspn(line, "\n")] = 0;
		if (way >= 0 && way < ways.count)
			turn(&ways.of[way], 1);
		child = vfork();
		if (child == 0) {
			execvp(words[0], words);
			_exit(127);
		}
		if (child < 0 || wait4(child, &status, 0, &usage) != child || status)
			return fprintf(stderr, "runner: %s %s: status %d\n", words[0], words[argc - 1], status), 1;
		if (way >= 0 && way < ways.count)
			turn(&ways.of[way], 0);
		printf("%lld\n", ns(usage.ru_utime) + ns(usage.ru_stime));
	}
	return 0;
}
