/* Many trajectories at once: the loops over a block of lanes vectorise.

   states is (S, N), one row a component, the components as in cvt.c and snakeboard.c; updated in place. The
   equations are those of the same files. In Newton's method each lane stops where it would alone, and the
   block when all its lanes have; a lane that fails carries on, with NaN or its last iterate. */

#include <stddef.h>

#include "common.h"
#include "sine.h"

#define LANES 8
/* Loops over the lanes vectorise. Unrolled, several vectors are under way at once, which hides latency as
   long as there are registers. */
#define PRAGMA_OF(text) _Pragma(#text)
#define PRAGMA(text) PRAGMA_OF(text)
#define LANES_BY(times) PRAGMA(GCC ivdep) PRAGMA(GCC unroll times) for (int i = 0; i < LANES; i++)
#define EACH_LANE LANES_BY(4)

typedef double Lanes[LANES] __attribute__((aligned(64)));
typedef void Block(Lanes *state, const double *params, double h, long steps);

/* Runs the blocks one after the other; the last is filled up with copies of the last trajectory. */
static void in_blocks(Block *block, int size, double *states, const double *params, double h, long steps,
                      long N) {
    Lanes state[15];
    for (long first = 0; first < N; first += LANES) {
        long filled = N - first < LANES ? N - first : LANES;
        for (int j = 0; j < size; j++)
            for (long i = 0; i < LANES; i++)
                state[j][i] = states[j * N + first + (i < filled ? i : filled - 1)];
        block(state, params, h, steps);
        for (int j = 0; j < size; j++)
            for (long i = 0; i < filled; i++) states[j * N + first + i] = state[j][i];
    }
}

/* Of the driver potential, as in cvt.c. */
static inline double driver(double eps, double s, double c) { return 1 - c + eps * s * c; }
static inline double driver1(double eps, double s) { return s + eps * (1 - 2 * s * s); }
static inline double driver2(double eps, double s, double c) { return c * (1 - 4 * eps * s); }

/* What Newton's method remembers of each lane. */
typedef struct {
    Lanes unit, noise, error;
    uint64_t active[LANES]; /* all bits while the lane goes on, else none */
} Progress;

/* Notes the size of a lane's correction; the result is zero once the lane has settled. */
static inline uint64_t progress(Progress *at, int i, double error, int count) {
    uint64_t active = settled(error, at->error[i], at->noise[i], count) ? 0 : at->active[i];
    at->active[i] = active;
    at->error[i] = error;
    return active;
}

/* The correction d, and none for a lane that has settled. */
static inline double masked(uint64_t active, double d) { return of_bits(bits_of(d) & active); }

static void cvt_leapfrog_block(Lanes *state, const double *params, double h, long steps) {
    const double eps = params[0], hh = 0.5 * h;
    double *x1 = state[0], *x2 = state[1], *xi = state[2], *v1 = state[3], *v2 = state[4], *v3 = state[5];
    double *u1 = state[6], *u2 = state[7], *u3 = state[8];
    Lanes slope;
    EACH_LANE slope[i] = driver1(eps, sine(xi[i]));
    for (long step = 0; step < steps; step++) {
        EACH_LANE {
            double a1 = u1[i] - hh * x1[i], a2 = u2[i] - hh * x2[i], a3 = u3[i] - hh * slope[i];
            double y1 = x1[i] + h * a1, y2 = x2[i] + h * a2, yi = xi[i] + h * a3;
            double s = sine(yi), next = driver1(eps, s);
            double p1 = a1 - hh * y1, p2 = a2 - hh * y2, p3 = a3 - hh * next;
            double lam = (p1 + s * p2) / (1 + s * s);
            x1[i] = y1, x2[i] = y2, xi[i] = yi, slope[i] = next;
            v1[i] = p1 - lam, v2[i] = p2 - s * lam, v3[i] = p3;
            u1[i] = p1 - 2 * lam, u2[i] = p2 - 2 * s * lam, u3[i] = p3;
        }
    }
}

static void cvt_dla01_block(Lanes *state, const double *params, double h, long steps) {
    const double eps = params[0], hh = 0.5 * h, per_h = DBL_EPSILON / fabs(h);
    double *x1 = state[0], *x2 = state[1], *xi = state[2], *v1 = state[3], *v2 = state[4], *v3 = state[5];
    Lanes sm, f1, f2, f3;
    Progress at;
    for (long step = 0; step < steps; step++) {
        EACH_LANE {
            double resolved = per_h * largest(x1[i], x2[i], xi[i]);
            x1[i] += hh * v1[i], x2[i] += hh * v2[i], xi[i] += hh * v3[i];
            sm[i] = sine(xi[i]);
            double k1 = h * x1[i], k2 = h * x2[i], k3 = h * driver1(eps, sm[i]);
            f1[i] = v1[i] - k1, f2[i] = v2[i] - k2, f3[i] = v3[i] - k3;
            double size = larger(largest(v1[i], v2[i], v3[i]), largest(k1, k2, k3));
            at.unit[i] = 1 / (size + resolved + DBL_MIN);
            at.noise[i] = 64 * resolved * at.unit[i], at.error[i] = DBL_MAX, at.active[i] = -1;
        }
        uint64_t going = 1;
        for (int count = 1; going && count <= MAX_ITERATIONS; count++) {
            going = 0;
            EACH_LANE {
                double s, c;
                uint64_t active = at.active[i];
                sine_cosine(xi[i] + hh * v3[i], &s, &c);
                double inverse = 1 / (1 + s * sm[i]), lam = (f1[i] + s * f2[i]) * inverse;
                double d3 = f3[i] - v3[i], turn = (f2[i] - lam * sm[i]) * inverse * c * hh * d3;
                double d1 = f1[i] - v1[i] - (lam + turn), d2 = f2[i] - v2[i] - sm[i] * (lam + turn);
                double error = at.unit[i] * largest(d1, d2, d3);
                v1[i] += masked(active, d1), v2[i] += masked(active, d2), v3[i] += masked(active, d3);
                going |= progress(&at, i, error, count);
            }
        }
        EACH_LANE x1[i] += hh * v1[i], x2[i] += hh * v2[i], xi[i] += hh * v3[i];
    }
}

static void cvt_dla_half_block(Lanes *state, const double *params, double h, long steps) {
    const double eps = params[0], hh = 0.5 * h, a = hh * hh, shrink = 1 / (1 + a);
    const double per_h = DBL_EPSILON / fabs(h);
    double *x1 = state[0], *x2 = state[1], *xi = state[2], *v1 = state[3], *v2 = state[4], *v3 = state[5];
    Lanes sm, g1, g2, g3, slope;
    Progress at;
    EACH_LANE slope[i] = driver1(eps, sine(xi[i]));
    for (long step = 0; step < steps; step++) {
        EACH_LANE {
            double resolved = per_h * largest(x1[i], x2[i], xi[i]);
            double k1 = hh * x1[i], k2 = hh * x2[i], k3 = hh * slope[i];
            x1[i] += hh * v1[i], x2[i] += hh * v2[i], xi[i] += hh * v3[i];
            sm[i] = sine(xi[i]);
            g1[i] = v1[i] - k1, g2[i] = v2[i] - k2, g3[i] = v3[i] - k3;
            double size = larger(largest(v1[i], v2[i], v3[i]), largest(k1, k2, k3));
            at.unit[i] = 1 / (size + resolved + DBL_MIN);
            at.noise[i] = 64 * resolved * at.unit[i], at.error[i] = DBL_MAX, at.active[i] = -1;
        }
        uint64_t going = 1;
        for (int count = 1; going && count <= MAX_ITERATIONS; count++) {
            going = 0;
            EACH_LANE {
                uint64_t active = at.active[i];
                double s, c, w1 = v1[i], w2 = v2[i], w3 = v3[i];
                sine_cosine(xi[i] + hh * w3, &s, &c);
                double f1 = g1[i] - hh * (x1[i] + hh * w1), f2 = g2[i] - hh * (x2[i] + hh * w2);
                double f3 = g3[i] - hh * driver1(eps, s);
                double inverse = 1 / (1 + s * sm[i]), lam = (f1 + s * f2) * inverse;
                double d3 = (f3 - w3) / (1 + a * driver2(eps, s, c));
                double turn = (f2 - lam * sm[i]) * inverse * c * hh * d3;
                double r1 = f1 - w1 - (lam + turn), r2 = f2 - w2 - sm[i] * (lam + turn);
                double along = a * (r1 + s * r2) * inverse;
                double d1 = (r1 + along) * shrink, d2 = (r2 + sm[i] * along) * shrink;
                double error = at.unit[i] * largest(d1, d2, d3);
                v1[i] = w1 + masked(active, d1), v2[i] = w2 + masked(active, d2);
                v3[i] = w3 + masked(active, d3);
                going |= progress(&at, i, error, count);
            }
        }
        EACH_LANE {
            x1[i] += hh * v1[i], x2[i] += hh * v2[i], xi[i] += hh * v3[i];
            slope[i] = driver1(eps, sine(xi[i]));
        }
    }
}

static void cvt_dd_block(Lanes *state, const double *params, double h, long steps) {
    const double eps = params[0], hh = 0.5 * h, per_h = DBL_EPSILON / fabs(h);
    double *x1 = state[0], *x2 = state[1], *xi = state[2], *v1 = state[3], *v2 = state[4], *v3 = state[5];
    double *u1 = state[6], *u2 = state[7], *u3 = state[8];
    Lanes value0, slope0, w1, w2, w3;
    Progress at;
    EACH_LANE {
        double s, c;
        sine_cosine(xi[i], &s, &c);
        value0[i] = driver(eps, s, c), slope0[i] = driver1(eps, s);
    }
    for (long step = 0; step < steps; step++) {
        EACH_LANE {
            double k1 = hh * x1[i], k2 = hh * x2[i], k3 = hh * slope0[i];
            double resolved = per_h * largest(x1[i], x2[i], xi[i]);
            double size = larger(largest(u1[i], u2[i], u3[i]), largest(k1, k2, k3));
            at.unit[i] = 1 / (size + resolved + DBL_MIN);
            at.noise[i] = 64 * resolved * at.unit[i], at.error[i] = DBL_MAX, at.active[i] = -1;
            w1[i] = u1[i] - k1, w2[i] = u2[i] - k2, w3[i] = u3[i] - k3;
        }
        uint64_t going = 1;
        for (int count = 1; going && count <= MAX_ITERATIONS; count++) {
            going = 0;
            LANES_BY(1) {
                uint64_t active = at.active[i];
                double o1 = w1[i], o2 = w2[i], o3 = w3[i], x = xi[i];
                double d1 = h * o1, d2 = h * o2, d3 = h * o3, m1 = x1[i] + hh * o1, m2 = x2[i] + hh * o2;
                double s, c, s1, c1;
                sine_cosine(x + hh * o3, &s, &c);
                sine_cosine(x + d3, &s1, &c1);
                double mid = driver1(eps, s), mid1 = driver2(eps, s, c), slope1 = driver1(eps, s1);
                double outer = driver1(eps, sine(x + NODE1 * d3)) + driver1(eps, sine(x + NODE4 * d3));
                double inner = driver1(eps, sine(x + NODE2 * d3)) + driver1(eps, sine(x + NODE3 * d3));
                double ends = slope0[i] + slope1, fine = FINE0 * ends + FINE1 * outer + FINE2 * inner;
                double gap = fabs(fine - (COARSE0 * ends + COARSE2 * inner));
                double square = d1 * d1 + d2 * d2 + d3 * d3, over = square > 0 ? 1 / square : 0;
                int needed = gap > 1e-8 * largest(m1, m2, fine);
                double smooth = (fine - mid) * d3, defect = driver(eps, s1, c1) - value0[i] - fine * d3;
                double r = smooth + (needed ? defect : 0);
                /* Where the quadrature is exact d3 is small, and a series does not cancel: at the midpoint,
                   which moves with d3, r = W''' d3^3/24 + W''''' d3^5/1920. */
                double twice = 1 - 2 * s * s, mid2 = -s - 4 * eps * twice, mid3 = -c * (1 - 16 * eps * s);
                double mid4 = s + 16 * eps * twice;
                double small = d3 * d3 * (mid2 / 8 + d3 * (mid3 / 48 + d3 * mid4 / 384));
                double r1 = needed ? slope1 - mid - 0.5 * mid1 * d3 : small;
                double rho = r * over;
                double e1 = -2 * h * rho * d1 * over, e2 = -2 * h * rho * d2 * over;
                double e3 = h * (r1 - 2 * rho * d3) * over;
                double f1 = u1[i] - hh * (m1 + d1 * rho), f2 = u2[i] - hh * (m2 + d2 * rho);
                double f3 = u3[i] - hh * (mid + d3 * rho);
                double tt = 1 / (1 + s * s), tau = (f2 - s * f1) * tt;
                double F1 = o1 + s * tau, F2 = o2 - tau, F3 = o3 - f3;
                double a = hh * (hh + h * rho), b = 1 + hh * (hh * mid1 + h * rho), cut = a / (1 + a) * tt;
                double tau1 = -(f1 + 2 * s * tau) * tt * c * hh;
                double p1 = -c * hh * tau - s * tau1, p2 = tau1;
                double inverse = 1 / b, y3 = -F3 * inverse, y1 = p1 * y3 - F1, y2 = p2 * y3 - F2;
                double along = cut * (y2 - s * y1);
                y1 += s * along, y2 -= along;
                double pd = (d2 - s * d1) * tt * hh, z3 = hh * d3 * inverse;
                double z1 = -s * pd + p1 * z3, z2 = pd + p2 * z3;
                along = cut * (z2 - s * z1);
                z1 += s * along, z2 -= along;
                double part = (e1 * y1 + e2 * y2 + e3 * y3) / (1 + (e1 * z1 + e2 * z2 + e3 * z3));
                double n1 = y1 - part * z1, n2 = y2 - part * z2, n3 = y3 - part * z3;
                double error = at.unit[i] * largest(n1, n2, n3);
                w1[i] = o1 + masked(active, n1), w2[i] = o2 + masked(active, n2);
                w3[i] = o3 + masked(active, n3);
                going |= progress(&at, i, error, count);
            }
        }
        EACH_LANE {
            double s, c;
            x1[i] += h * w1[i], x2[i] += h * w2[i], xi[i] += h * w3[i];
            u1[i] = 2 * w1[i] - u1[i], u2[i] = 2 * w2[i] - u2[i], u3[i] = 2 * w3[i] - u3[i];
            sine_cosine(xi[i], &s, &c);
            value0[i] = driver(eps, s, c), slope0[i] = driver1(eps, s);
            double lam = (u1[i] + s * u2[i]) / (1 + s * s);
            v1[i] = u1[i] - lam, v2[i] = u2[i] - s * lam, v3[i] = u3[i];
        }
    }
}

static void snakeboard_leapfrog_block(Lanes *state, const double *params, double h, long steps) {
    const double m = params[0], J = params[1] + 2 * params[3], r = params[4];
    double *x = state[0], *y = state[1], *theta = state[2], *psi = state[3], *phi = state[4];
    double *v1 = state[5], *v2 = state[6], *v3 = state[7], *v4 = state[8], *v5 = state[9];
    double *u1 = state[10], *u2 = state[11], *u3 = state[12], *u4 = state[13], *u5 = state[14];
    for (long step = 0; step < steps; step++) {
        EACH_LANE {
            double s, c, turn, f;
            x[i] += h * u1[i], y[i] += h * u2[i], theta[i] += h * u3[i];
            psi[i] += h * u4[i], phi[i] += h * u5[i];
            sine_cosine(theta[i], &s, &c);
            sine_cosine(phi[i], &turn, &f);
            f *= r;
            double w = (m * f * (c * u1[i] + s * u2[i]) - J * turn * u3[i]) / (m * f * f + J * turn * turn);
            v1[i] = f * w * c, v2[i] = f * w * s, v3[i] = -turn * w, v4[i] = u4[i], v5[i] = u5[i];
            u1[i] = 2 * v1[i] - u1[i], u2[i] = 2 * v2[i] - u2[i], u3[i] = 2 * v3[i] - u3[i];
        }
    }
}

void cvt_leapfrog_many(double *states, const double *params, double h, long steps, long N) {
    in_blocks(cvt_leapfrog_block, 9, states, params, h, steps, N);
}

void cvt_dla01_many(double *states, const double *params, double h, long steps, long N) {
    in_blocks(cvt_dla01_block, 6, states, params, h, steps, N);
}

void cvt_dla_half_many(double *states, const double *params, double h, long steps, long N) {
    in_blocks(cvt_dla_half_block, 6, states, params, h, steps, N);
}

void cvt_dd_many(double *states, const double *params, double h, long steps, long N) {
    in_blocks(cvt_dd_block, 9, states, params, h, steps, N);
}

void snakeboard_leapfrog_many(double *states, const double *params, double h, long steps, long N) {
    in_blocks(snakeboard_leapfrog_block, 15, states, params, h, steps, N);
}

/* sine and sine_cosine of N numbers, for their test. */
void sines(const double *x, long N, double *alone, double *s, double *c) {
    for (long i = 0; i < N; i++) {
        alone[i] = sine(x[i]);
        sine_cosine(x[i], &s[i], &c[i]);
    }
}
