// storm RATE SECONDS: forks so often; each child has a mapping of its own, runs for a moment and ends, every other one after it
// executed this program once more. Prints how many it forked. A machine that is too busy forks less often.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void child(void)
{
  volatile unsigned long sum = 0;

  // What samples of it are explained by must not be its parent's mappings alone.
  mmap(NULL, 1 << 16, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (unsigned long i = 0; i < 20000; i++)
    sum += i;
  _exit(0);
}

static long long now_ns(void)
{
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv)
{
  if (argc == 2 && strcmp(argv[1], "child") == 0)
    child();
  if (argc != 3) {
    fprintf(stderr, "usage: storm RATE SECONDS\n");
    return 2;
  }
  long rate = atol(argv[1]), forked = 0;
  long long start = now_ns(), end = start + atol(argv[2]) * 1000000000LL;

  for (long long next = start; next < end; next += 1000000000LL / rate) {
    struct timespec until = { next / 1000000000LL, next % 1000000000LL };

    if (now_ns() >= end)
      break;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    pid_t pid = fork();

    if (pid == 0 && forked % 2)
      execl("/proc/self/exe", "storm", "child", (char *)NULL);
    if (pid == 0)
      child();
    forked += pid > 0;
    while (waitpid(-1, NULL, WNOHANG) > 0)
      ;
  }
  while (wait(NULL) > 0)
    ;
  printf("%ld\n", forked);
  return 0;
}
