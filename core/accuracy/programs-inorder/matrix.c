/* Floating point: matrix products in three orders, an LU decomposition, a stencil, n bodies. */
#include "random.h"
#include <math.h>
#include <stdio.h>

enum { N = 120, BODIES = 40, GRID = 200 };

static double a[N][N], b[N][N], c[N][N], grid[2][GRID][GRID];
static struct body {
    double x[3], v[3], mass;
} bodies[BODIES];

static double any(void)
{
    return random_word() / 4294967296.0 + 0.1;
}

static void product_ijk(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
}

static void product_ikj(void)
{
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            double x = a[i][k];
            for (int j = 0; j < N; j++)
                c[i][j] += x * b[k][j];
        }
}

static void product_blocked(void)
{
    for (int jj = 0; jj < N; jj += 24)
        for (int kk = 0; kk < N; kk += 24)
            for (int i = 0; i < N; i++)
                for (int j = jj; j < jj + 24; j++) {
                    double sum = c[i][j];
                    for (int k = kk; k < kk + 24; k++)
                        sum += a[i][k] * b[k][j];
                    c[i][j] = sum;
                }
}

static double decompose(void)
{
    double determinant = 1;
    for (int k = 0; k < N; k++) {
        int best = k;
        for (int i = k + 1; i < N; i++)
            if (fabs(a[i][k]) > fabs(a[best][k]))
                best = i;
        for (int j = 0; best != k && j < N; j++) {
            double t = a[k][j];
            a[k][j] = a[best][j];
            a[best][j] = t;
        }
        determinant *= a[k][k];
        for (int i = k + 1; i < N; i++) {
            double factor = a[i][k] /= a[k][k];
            for (int j = k + 1; j < N; j++)
                a[i][j] -= factor * a[k][j];
        }
    }
    return determinant;
}

static void relax(int from)
{
    for (int i = 1; i < GRID - 1; i++)
        for (int j = 1; j < GRID - 1; j++)
            grid[!from][i][j] = 0.25 * (grid[from][i - 1][j] + grid[from][i + 1][j] + grid[from][i][j - 1] + grid[from][i][j + 1]);
}

static void attract(double dt)
{
    for (int i = 0; i < BODIES; i++)
        for (int j = 0; j < i; j++) {
            double d[3], square = 1e-3;
            for (int k = 0; k < 3; k++) {
                d[k] = bodies[i].x[k] - bodies[j].x[k];
                square += d[k] * d[k];
            }
            double pull = dt / (square * sqrt(square));
            for (int k = 0; k < 3; k++) {
                bodies[i].v[k] -= d[k] * bodies[j].mass * pull;
                bodies[j].v[k] += d[k] * bodies[i].mass * pull;
            }
        }
    for (int i = 0; i < BODIES; i++)
        for (int k = 0; k < 3; k++)
            bodies[i].x[k] += dt * bodies[i].v[k];
}

int main(void)
{
    for (int i = 0; i < N * N; i++) {
        (&a[0][0])[i] = any();
        (&b[0][0])[i] = any();
    }
    for (int i = 0; i < GRID * GRID; i++)
        (&grid[0][0][0])[i] = any();
    for (int i = 0; i < BODIES * 7; i++)
        ((double *)bodies)[i] = any();
    product_ijk();
    product_ikj();
    product_blocked();
    for (int step = 0; step < 60; step++)
        relax(step & 1);
    for (int step = 0; step < 400; step++)
        attract(1e-4);
    printf("%g %g %g %g\n", c[5][7], decompose(), grid[0][9][9], bodies[3].x[1]);
}
