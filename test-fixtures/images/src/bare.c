/* Without a C library: a static program of a few KB, for any architecture. */
static inline long mix(long a, long b) {
    return (a ^ b) * 31 + (a >> 3);
}

__attribute__((noinline)) long fold(const long *p, long n) {
    long h = 7;
    for (long i = 0; i < n; i++)
        h = mix(h, p[i]);
    return h;
}

__attribute__((noinline)) double scale(double *v, long n, double by) {
    double sum = 0;
    for (long i = 0; i < n; i++) {
        v[i] = v[i] * by + 1;
        sum += v[i] / by;
    }
    return sum;
}

__attribute__((noinline)) long count(_Atomic long *n, int by) {
    return by > 3 ? (*n += by) : (*n)++;
}

static long data[8] = {3, 1, 4, 1, 5, 9, 2, 6};
static double reals[4] = {1, 2, 3, 4};
static _Atomic long counter;

void _start(void) {
    volatile long sink = fold(data, 8) + (long)scale(reals, 4, 2.5) + count(&counter, (int)data[0]);
    (void)sink;
    for (;;)
        ;
}
