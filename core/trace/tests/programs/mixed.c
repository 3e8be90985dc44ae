// What is hard to trace: threads, handlers of signals that arrive at any time and of faults, siglongjmp, fork, vfork and exec, string
// instructions, indirect calls. Prints the same each time.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t alarms;
static sigjmp_buf back;

static void on_alarm(int signal) { alarms += signal == SIGALRM; }
static void on_fault(int signal) { siglongjmp(back, signal); }

static long add(long a, long b) { return a + b; }
static long mix(long a, long b) { return (a ^ b) * 3; }
static long (*volatile functions[])(long, long) = {add, mix};

static void *work(void *seed) {
    unsigned char text[256], copy[256];
    long sum = 0;
    for (long i = 0; i < 20000; i++) {
        memset(text, (int)(i & 0x7f), sizeof text);
        memcpy(copy, text, sizeof copy);
        sum = functions[i & 1](sum, copy[i & 255] + (long)seed);
        __asm__ volatile("rep movsb" : : "S"(text), "D"(copy), "c"(i & 63) : "memory");
    }
    return (void *)sum;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, 0);
    struct itimerval timer = {{0, 10000}, {0, 10000}};
    setitimer(ITIMER_REAL, &timer, 0);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 3; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        printf("%ld\n", (long)sum);
    }
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, 0);
    for (int i = 0; i < 3; i++) {
        int caught = sigsetjmp(back, 1);
        if (caught == 0) *(volatile int *)(long)(8 * i) = 1;
        printf("fault %d\n", caught);
    }
    fflush(stdout);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) _exit((int)((long)work((void *)1L) & 7) + i);
        int status;
        while (waitpid(child, &status, 0) < 0) {}
        printf("child %d\n", WEXITSTATUS(status));
    }
    while (alarms == 0) {}
    timer = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, 0);
    fflush(stdout);
    if (system("echo from a shell; exit 3") == -1) return 1;
    return 5;
}
