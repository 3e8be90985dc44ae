// Loops whose iterations are known, for docs/measured.md ("Loops that count themselves"):
//   gcc -O2 loops.c -o loops && dwell record -- ./loops KIND REPEATS
// chaseKB: a pointer chase through so many KB; copyKB: a copy of so many KB; multiply: a product of matrices; words: a search for
// blanks that skips a few characters after each; counts: two loops that also count in memory. Prints how often the loop's
// instruction that counts was executed.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void **ring(size_t n) {
    char *cells = malloc(n * 64);
    size_t *order = malloc(n * sizeof *order);
    for (size_t i = 0; i < n; i++) order[i] = i;
    uint64_t s = 88172645463325252ull;
    for (size_t i = n - 1; i > 0; i--) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        size_t j = s % i, t = order[i];
        order[i] = order[j], order[j] = t;
    }
    for (size_t i = 0; i < n; i++) *(void **)(cells + order[i] * 64) = cells + order[(i + 1) % n] * 64;
    free(order);
    return (void **)cells;
}

__attribute__((noinline)) static void **chase(void **p, long n) {
    for (long i = 0; i < n; i++) p = *p;
    return p;
}

__attribute__((noinline)) static void copy(long *to, const long *from, long n) {
    for (long i = 0; i < n; i++) {
        to[i] = from[i];
        __asm__ volatile("");
    }
}

__attribute__((noinline)) static void multiply(double *c, const double *a, const double *b, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}

__attribute__((noinline)) static long words(const char *p, const char *end) {
    long n = 0;
    while (p < end) {
        while (p < end && *p != ' ') p++;
        p += 1 + (p[0] & 7);
        n++;
    }
    return n;
}

static volatile unsigned long scattered, computed;

__attribute__((noinline)) static uint64_t scatter(uint32_t *table, uint64_t x, long n) {
    for (long i = 0; i < n; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        table[x >> 43] += 1;
        scattered += 1;
    }
    return x;
}

__attribute__((noinline)) static uint64_t compute(uint64_t x, long n) {
    for (long i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        x = x * 5 / 3 | 1;
        computed += 1;
    }
    return x;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    const char *kind = arguments[1];
    long n = atol(arguments[2]);
    if (!strncmp(kind, "chase", 5)) {
        void **p = chase(ring(atol(kind + 5) * 16), n);
        printf("%ld (at %p)\n", n, (void *)p);
    } else if (!strncmp(kind, "copy", 4)) {
        long m = atol(kind + 4) * 128, *from = malloc(m * 8), *to = malloc(m * 8);
        memset(from, 1, m * 8), memset(to, 1, m * 8);
        for (long r = 0; r < n; r++) copy(to, from, m);
        printf("%ld\n", n * m);
    } else if (!strcmp(kind, "multiply")) {
        int m = 512;
        double *a = calloc(m * m, 8), *b = calloc(m * m, 8), *c = calloc(m * m, 8);
        for (long r = 0; r < n; r++) multiply(c, a, b, m);
        printf("%ld rows\n", n * m);
    } else if (!strcmp(kind, "counts")) {
        uint64_t x = compute(scatter(calloc(1 << 21, 4), 88172645463325252ull, n), n);
        printf("%ld in each (%lx)\n", n, x);
    } else if (!strcmp(kind, "words")) {
        long m = 64 << 20, found = 0;
        char *text = malloc(m);
        for (long i = 0; i < m; i++) text[i] = (i * 2654435761u >> 7) % 20 == 0 ? ' ' : 'a';
        for (long r = 0; r < n; r++) {
            __asm__ volatile("" ::: "memory");
            found += words(text, text + m - 16);
        }
        printf("%ld\n", found);
    }
}
