// SPDX-License-Identifier: GPL-2.0
/*
 * The real dwell in the machine: the same work recorded by the module and by rings at the same
 * time. What it says goes to the console, where the host compares.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

void end_to_end_run(void);

static int run(char *const arguments[])
{
	pid_t child = fork();
	int status = -1;

	if (!child) {
		execv(arguments[0], arguments);
		_exit(127);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What is between the marks is one answer. */
static void ask(const char *name, const char *database, const char *verb, const char *argument,
		const char *value)
{
	char *arguments[] = { "/dwell", "--db", (char *)database, "--json", (char *)verb,
			      (char *)argument, (char *)value, NULL };

	printf("BEGIN %s\n", name);
	fflush(stdout);
	run(arguments);
	printf("\nEND %s\n", name);
}

void end_to_end_run(void)
{
	char *record[] = { "/dwell", "--db", "/tmp/perf", "record", "-a", "--backend", "perf", "-F", "2000",
			   "--", "/dwell", "--db", "/tmp/kmod", "record", "-a", "--backend", "kmod", "-F",
			   "2000", "--", "/init", "work", NULL };
	int error = module_load(), status;

	tap(!error, "the module loads");
	setenv("HOME", "/tmp", 1);
	status = run(record);
	tap(!status, "dwell records by the module and by rings at once (status %d)", status);
	ask("kmod epochs", "/tmp/kmod", "epoch", "list", NULL);
	ask("perf epochs", "/tmp/perf", "epoch", "list", NULL);
	ask("kmod top", "/tmp/kmod", "top", "--by", "image");
	ask("perf top", "/tmp/perf", "top", "--by", "image");
	tap(!module_unload(), "the module goes");
}
