/* Sorting: quicksort with insertion sort below sixteen, a bottom-up merge sort, a heap sort. */
#include "random.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 60000, ROUNDS = 6 };

static void insertion(uint32_t *a, int n)
{
    for (int i = 1; i < n; i++) {
        uint32_t x = a[i];
        int j = i;
        for (; j > 0 && a[j - 1] > x; j--)
            a[j] = a[j - 1];
        a[j] = x;
    }
}

static uint32_t median(uint32_t a, uint32_t b, uint32_t c)
{
    return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
}

static void quick(uint32_t *a, int n)
{
    while (n > 16) {
        uint32_t pivot = median(a[0], a[n / 2], a[n - 1]);
        int i = 0, j = n - 1;
        while (i <= j) {
            while (a[i] < pivot)
                i++;
            while (a[j] > pivot)
                j--;
            if (i <= j) {
                uint32_t t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        if (j + 1 < n - i) {
            quick(a, j + 1);
            a += i;
            n -= i;
        } else {
            quick(a + i, n - i);
            n = j + 1;
        }
    }
    insertion(a, n);
}

static void merge(const uint32_t *a, int na, const uint32_t *b, int nb, uint32_t *to)
{
    int i = 0, j = 0;
    while (i < na && j < nb)
        *to++ = a[i] <= b[j] ? a[i++] : b[j++];
    memcpy(to, a + i, (size_t)(na - i) * sizeof *a);
    memcpy(to + (na - i), b + j, (size_t)(nb - j) * sizeof *b);
}

static void merge_sort(uint32_t *a, uint32_t *spare, int n)
{
    for (int i = 0; i < n; i += 32)
        insertion(a + i, n - i < 32 ? n - i : 32);
    for (int width = 32; width < n; width *= 2) {
        for (int i = 0; i < n; i += 2 * width) {
            int left = n - i < width ? n - i : width;
            int right = n - i - left < width ? n - i - left : width;
            merge(a + i, left, a + i + left, right, spare + i);
        }
        memcpy(a, spare, (size_t)n * sizeof *a);
    }
}

static void sift(uint32_t *a, int root, int n)
{
    for (int child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && a[child] < a[child + 1])
            child++;
        if (a[root] >= a[child])
            return;
        uint32_t t = a[root];
        a[root] = a[child];
        a[child] = t;
    }
}

static void heap_sort(uint32_t *a, int n)
{
    for (int i = n / 2; i-- > 0;)
        sift(a, i, n);
    for (int i = n; i-- > 1;) {
        uint32_t t = a[0];
        a[0] = a[i];
        a[i] = t;
        sift(a, 0, i);
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    uint32_t *a = malloc(COUNT * sizeof *a), *spare = malloc(COUNT * sizeof *spare), sum = 0;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            a[i] = random_word() >> (round % 3 * 6);
        switch (round % 4) {
        case 0: quick(a, COUNT); break;
        case 1: merge_sort(a, spare, COUNT); break;
        case 2: heap_sort(a, COUNT); break;
        default: qsort(a, COUNT / 2, sizeof *a, compare);
        }
        sum = sum * 31 + a[COUNT / 3];
    }
    printf("%u\n", sum);
}
