/* Runs KISS FFT: transforms of several sizes in both directions, and a filter. */
#include "kiss_fft.h"
#include "random.h"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    static const int sizes[] = {1024, 900, 2187, 625, 1536, 343};
    static kiss_fft_cpx in[4096], out[4096];
    double sum = 0;
    for (int round = 0; round < 60; round++) {
        int size = sizes[round % 6];
        kiss_fft_cfg there = kiss_fft_alloc(size, 0, NULL, NULL), back = kiss_fft_alloc(size, 1, NULL, NULL);
        for (int i = 0; i < size; i++)
            in[i] = (kiss_fft_cpx){.r = (float)(random_word() % 1000) / 1000, .i = 0};
        for (int pass = 0; pass < 8; pass++) {
            kiss_fft(there, in, out);
            for (int i = size / 8; i < size - size / 8; i++)
                out[i] = (kiss_fft_cpx){0};
            kiss_fft(back, out, in);
            for (int i = 0; i < size; i++)
                in[i].r /= (float)size;
        }
        for (int i = 0; i < size; i++)
            sum += in[i].r;
        free(there);
        free(back);
    }
    printf("%.3f\n", sum);
}
