/* Jump tables as compilers make them: a dense switch, a loop with one, a masked index, a switch that starts at 40, one
   too large for byte-sized entries, and jumps through a table of labels. Linked without a library, never run. */
#define NOINLINE __attribute__((noinline))

NOINLINE int f(int x) { __asm__ volatile("" : "+r"(x)); return x; }
NOINLINE int g(int x) { __asm__ volatile("" : "+r"(x)); return x + 1; }

int dense(unsigned x, int y)
{
    switch (x) {
    case 0: return f(y);
    case 1: return g(y) + 1;
    case 2: return f(y) * 3;
    case 3: return g(y) - 4;
    case 4: return f(y + 5);
    case 5: return g(y ^ 6);
    case 7: return y * 9;
    }
    return 0;
}

long loop(const unsigned char *p, long *s)
{
    for (;;)
        switch (*p++) {
        case 0: return *s;
        case 1: s[-1] = s[0] + s[-1]; s--; break;
        case 2: s[-1] = s[0] * s[-1]; s--; break;
        case 3: *++s = *p++; break;
        case 4: s[0] = -s[0]; break;
        case 5: s[1] = s[0]; s++; break;
        case 6: s[0] = f(s[0]); break;
        case 7: s[0] = g(s[0]); break;
        default: return -1;
        }
}

int masked(unsigned x, int y)
{
    switch (x & 7) {
    case 0: return f(y);
    case 1: return g(y) + 1;
    case 2: return f(y) * 3;
    case 3: return g(y) - 4;
    case 4: return f(y + 5);
    case 5: return g(y ^ 6);
    case 6: return f(y / 7);
    case 7: return y * 9;
    }
    return 0;
}

int shifted(int x, int y)
{
    switch (x) {
    case 40: return f(y);
    case 41: return g(y) + 1;
    case 42: return f(y) * 3;
    case 43: return g(y) - 4;
    case 44: return f(y + 5);
    case 45: return g(y ^ 6);
    case 47: return f(y / 7);
    }
    return 7;
}

#define CASE(n) case n: q[n & 3] += p[(n * 7) & 15] * n; q[(n + 1) & 7] ^= p[n & 15] + n; \
    q[(n * 3) & 7] -= p[(n * 5) & 15] * (n + 3); q[(n * 5) & 7] |= p[(n + 9) & 15] << 3; f(n); break;

long wide(unsigned long x, long *p, long *q)
{
    switch (x) {
    CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11)
    CASE(12) CASE(13) CASE(14) CASE(15) CASE(16) CASE(17) CASE(18) CASE(19) CASE(20)
    }
    return q[0];
}

int labels(const unsigned char *p)
{
    static const void *const table[] = { &&add, &&triple, &&subtract, &&end };
    int r = 0;
    goto *table[*p++ & 3];
add:
    r += 1;
    goto *table[*p++ & 3];
triple:
    r *= 3;
    goto *table[*p++ & 3];
subtract:
    r -= 7;
    goto *table[*p++ & 3];
end:
    return r;
}
