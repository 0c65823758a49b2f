/* A lattice of angles with a constant mass matrix by the nonholonomic leap-frog, for any number of them.

   The system is Lattice of dalembert.lab.bench.size_c: L = v.M v/2 - stiffness sum_i (1 - cos(q_i - q_(i+1)))
   with M constant, and a row for every third coordinate, A_ji = cos(q_i + phase_ji). params = {stiffness,
   M (n by n), the cosines of the phases (rows by n), their sines}; everything is stored row by row.

   state = (q, v, u), updated in place, where u is the momentum before the reflection, as a velocity. The mass
   matrix is factored once, M = L L^T; a step solves the multipliers from W^T W with W = L^-1 A^T. The result is
   the number of good steps. */

#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "lapack.h"

/* M^-1 grad V. */
static void pulled(const Lapack *lapack, int n, const double *mass, double k, const double *q, double *out) {
    int one = 1, info = 0;
    double before = 0;
    for (int i = 0; i < n; i++) {
        double next = i + 1 < n ? k * sin(q[i] - q[i + 1]) : 0;
        out[i] = next - before, before = next;
    }
    lapack->dpotrs("L", &n, &one, mass, &n, out, &n, &info);
}

long lattice_leapfrog(double *state, const double *params, long size, double h, long steps,
                      const Lapack *lapack) {
    int n = (int)size, m = n / 3, one_column = 1, info = 0;
    const double hh = 0.5 * h, k = params[0], one = 1, zero = 0;
    const double *cosines = params + 1 + n * n, *sines = cosines + m * n;
    double *q = state, *v = state + n, *u = state + 2 * n;
    double *mass = malloc((size_t)(n * n + m * n + m * m + 4 * n + m) * sizeof(double));
    if (mass == NULL) return 0;
    double *w = mass + n * n, *gram = w + m * n, *pull = gram + m * m, *p = pull + n, *c = p + n, *s = c + n;
    double *lam = s + n;
    long step = 0;
    memcpy(mass, params + 1, (size_t)(n * n) * sizeof(double));
    lapack->dpotrf("L", &n, mass, &n, &info);
    pulled(lapack, n, mass, k, q, pull);
    for (; info == 0 && step < steps; step++) {
        double sum = 0;
        for (int i = 0; i < n; i++) p[i] = u[i] - hh * pull[i], q[i] += h * p[i];
        pulled(lapack, n, mass, k, q, pull);
        for (int i = 0; i < n; i++) p[i] -= hh * pull[i], c[i] = cos(q[i]), s[i] = sin(q[i]);
        /* A row of A is a column of A^T. */
        for (int j = 0; j < m; j++) {
            double *row = w + j * n;
            const double *a = cosines + j * n, *b = sines + j * n;
            for (int i = 0; i < n; i++) row[i] = a[i] * c[i] - b[i] * s[i];
        }
        lapack->dgemv("T", &n, &m, &one, w, &n, p, &one_column, &zero, lam, &one_column);
        lapack->dtrsm("L", "L", "N", "N", &n, &m, &one, mass, &n, w, &n);
        lapack->dsyrk("L", "T", &m, &n, &one, w, &n, &zero, gram, &m);
        lapack->dposv("L", &m, &one_column, gram, &m, lam, &m, &info);
        /* M^-1 A^T lam = L^-T W lam. */
        lapack->dgemv("N", &n, &m, &one, w, &n, lam, &one_column, &zero, u, &one_column);
        lapack->dtrsm("L", "L", "T", "N", &n, &one_column, &one, mass, &n, u, &n);
        for (int i = 0; i < n; i++) v[i] = p[i] - u[i], u[i] = v[i] - u[i], sum += vanish(u[i]);
        if (sum != 0) break;
    }
    free(mass);
    return step;
}
