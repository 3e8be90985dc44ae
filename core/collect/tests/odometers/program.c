/* Counts in memory in known ways, and writes to the file that it is given how often each was executed:
   all instructions of `work`, and those that one of four values takes. Built by the test with `cc -O2 -pthread`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct object { long pad[3]; volatile unsigned count; };
volatile unsigned long global_word, reset_word, varying_word, raced_word, *shared_word;
volatile unsigned long often, sometimes;

__attribute__((noinline)) static unsigned long work(struct object *object, unsigned long x, int n) {
  unsigned long some = 0;
  for (int i = 0; i < n; i++) {
    x = x * 6364136223846793005ul + 1442695040888963407ul;
    global_word += 1;
    if (x >> 62) { object->count += 1; some++; }
    reset_word += 1;
    varying_word += (x >> 40) & 7;
    *shared_word += 1;
  }
  reset_word = 0;
  sometimes += some;
  often += n;
  return x;
}

__attribute__((noinline)) static void *race(void *rounds) {
  for (long i = 0; i < (long)rounds * 20000; i++) raced_word += 1;
  return 0;
}

int main(int argc, char **argv) {
  long rounds = atol(argv[2]);
  unsigned long x = 1;
  struct object *object = calloc(1, sizeof *object);
  shared_word = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!strcmp(argv[1], "race")) {
    pthread_t other;
    pthread_create(&other, 0, race, (void *)rounds);
    race((void *)rounds);
    pthread_join(other, 0);
    often = 2 * rounds * 20000;
  } else if (!strcmp(argv[1], "fork")) {
    pid_t child = fork();
    for (long i = 0; i < rounds; i++) x = work(object, x, 20000);
    if (!child) return 0;
    waitpid(child, 0, 0);
    often *= 2;
    sometimes *= 2;
  } else if (!strcmp(argv[1], "free")) {
    for (long i = 0; i < rounds; i++) {
      x = work(object, x, 20000);
      if (i % 64 == 0) { free(object); object = calloc(1, sizeof *object); }
    }
  } else {
    for (long i = 0; i < rounds; i++) x = work(object, x, 20000);
  }
  FILE *file = fopen(argv[3], "w");
  fprintf(file, "%lu %lu\n", often, sometimes);
  fclose(file);
  return 0;
}
