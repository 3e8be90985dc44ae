// crowd N: N processes that each executed this program and wait. Prints how many they are; a line on standard input lets all of
// them run for a moment, its end lets them go. A machine with room for fewer has fewer.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void run(int signal)
{
  volatile unsigned long sum = 0;

  for (unsigned long i = 0; i < 100000; i++)
    sum += (unsigned long)signal;
}

static _Noreturn void one(void)
{
  sigset_t none;

  sigemptyset(&none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGUSR1, run);
  sigprocmask(SIG_SETMASK, &none, NULL); // The parent had blocked it: what came before waits until now.
  for (;;)
    pause();
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: crowd N\n");
    return 2;
  }
  if (strcmp(argv[1], "one") == 0)
    one();

  long wanted = atol(argv[1]), count = 0;
  pid_t *all = malloc((size_t)wanted * sizeof *all);
  sigset_t usr1;
  char line[16];

  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  sigprocmask(SIG_BLOCK, &usr1, NULL);
  for (; count < wanted; count++) {
    pid_t pid = vfork();

    if (pid == 0) {
      execl("/proc/self/exe", "crowd", "one", (char *)NULL);
      _exit(1);
    }
    if (pid < 0)
      break;
    all[count] = pid;
  }
  printf("%ld\n", count);
  fflush(stdout);
  while (fgets(line, sizeof line, stdin))
    for (long i = 0; i < count; i++)
      kill(all[i], SIGUSR1);
  for (long i = 0; i < count; i++)
    kill(all[i], SIGKILL);
  while (wait(NULL) > 0)
    ;
  return 0;
}
