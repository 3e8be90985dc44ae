// Runs a command as often as it is told to: `runner CMD...`, one run for each line on standard input. Answers each with the
// CPU time that the command and its children took, in ns; a line in the input is handed to the command as last argument.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static long long ns(struct timeval time)
{
	return time.tv_sec * 1000000000ll + time.tv_usec * 1000ll;
}

int main(int argc, char **argv)
{
	char line[4096], *words[64];
	int status;

	if (argc < 2 || argc > 62)
		return fprintf(stderr, "usage: runner CMD...\n"), 2;
	memcpy(words, argv + 1, (argc - 1) * sizeof(*argv));
	words[argc - 1] = line;
	words[argc] = NULL;
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		struct rusage usage;
		pid_t child;

		line[strcspn(line, "\n")] = 0;
		child = vfork();
		if (child == 0) {
			execvp(words[0], words);
			_exit(127);
		}
		if (child < 0 || wait4(child, &status, 0, &usage) != child || status)
			return fprintf(stderr, "runner: %s %s: status %d\n", words[0], line, status), 1;
		printf("%lld\n", ns(usage.ru_utime) + ns(usage.ru_stime));
	}
	return 0;
}
