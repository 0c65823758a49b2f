/* The snakeboard (phi relative to the board), one trajectory, written for this system alone.

   q = (x, y, theta, psi, phi), M = diag(m, m, J, J0, 2 J1) with J = board + 2 wheel, no potential. Allowed
   velocities: psi' and phi' free, (x', y', theta') along X = (f cos theta, f sin theta, -sin phi),
   f = r cos phi. params = {mass, board, rotor, wheel, radius}.

   state, updated in place; after a failure it holds the last good state:
     snakeboard_leapfrog   15: q, v, u        (u = the momentum before the reflection, as a velocity)
     snakeboard_dla01      10: q, v
     snakeboard_dla_half   10: q, v
     snakeboard_dd         15: q, v, u        (u = the method's own velocity)
   rows receives q, v after every save_every-th step; it may be NULL. The result is the number of good steps:
   a step fails when the state is not finite or Newton's method does not settle. Angles are not wrapped.

   Psi and phi move uniformly under every method here: their equations are linear, and the starting guess of
   Newton's method solves them exactly, so that their corrections are zero and what depends on phi alone is
   constant in the iteration. */

#include <stddef.h>
#include <string.h>

#include "common.h"

static inline int finite_state(const double *q, const double *v) {
    double sum = 0;
    for (int i = 0; i < 5; i++) sum += vanish(q[i]) + vanish(v[i]);
    return sum == 0;
}

static inline double *put(double *row, const double *q, const double *v) {
    memcpy(row, q, 5 * sizeof(double));
    memcpy(row + 5, v, 5 * sizeof(double));
    return row + 10;
}

static inline double size(const double *x) {
    return larger(largest(x[0], x[1], x[2]), larger(fabs(x[3]), fabs(x[4])));
}

/* v = P(q) u: X (X.M u)/(X.M X), the other two as they are. */
static inline void project(const double *q, const double *u, double *v, double m, double J, double r) {
    double s = sin(q[2]), c = cos(q[2]), turn = sin(q[4]), f = r * cos(q[4]);
    double w = (m * f * (c * u[0] + s * u[1]) - J * turn * u[2]) / (m * f * f + J * turn * turn);
    v[0] = f * w * c, v[1] = f * w * s, v[2] = -turn * w, v[3] = u[3], v[4] = u[4];
}

/* q1 = q0 + h u0, v1 = P(q1) u0, u1 = 2 v1 - u0. */
long snakeboard_leapfrog(double *state, const double *params, double h, long steps, long save_every,
                         double *rows) {
    const double m = params[0], J = params[1] + 2 * params[3], r = params[4];
    double q[5], v[5], u[5];
    memcpy(q, state, sizeof q), memcpy(v, state + 5, sizeof v), memcpy(u, state + 10, sizeof u);
    long step = 0, wait = save_every;
    for (; step < steps; step++) {
        double next[5], w[5];
        for (int i = 0; i < 5; i++) next[i] = q[i] + h * u[i];
        project(next, u, w, m, J, r);
        if (!finite_state(next, w)) break;
        for (int i = 0; i < 5; i++) q[i] = next[i], v[i] = w[i], u[i] = 2 * w[i] - u[i];
        if (rows != NULL && --wait == 0) rows = put(rows, q, v), wait = save_every;
    }
    put(state, q, v);
    memcpy(state + 10, u, sizeof u);
    return step;
}

/* qm = q0 + h v0/2, q1 = qm + h v1/2, v1 = X1 w, w = (Xm.M v0)/(Xm.M X1): the projection onto D at q1 along
   the complement of D at qm. Without a potential DLA^{0,1} and DLA^{1/2} are the same equations. */
static inline long dla(double *state, const double *params, double h, long steps, long save_every,
                       double *rows) {
    const double m = params[0], J = params[1] + 2 * params[3], r = params[4], hh = 0.5 * h;
    double q[5], v[5];
    memcpy(q, state, sizeof q), memcpy(v, state + 5, sizeof v);
    long step = 0, wait = save_every;
    for (; step < steps; step++) {
        double middle[5], next[5];
        for (int i = 0; i < 5; i++) middle[i] = q[i] + hh * v[i];
        double sm = sin(middle[2]), cm = cos(middle[2]), turn_m = sin(middle[4]), fm = r * cos(middle[4]);
        double phi = middle[4] + hh * v[4], turn = sin(phi), f = r * cos(phi);
        double number = m * fm * (cm * v[0] + sm * v[1]) - J * turn_m * v[2];
        double mixed = m * fm * f, offset = J * turn_m * turn;
        double resolved = resolution(size(q), h);
        double unit = 1 / (size(v) + resolved + DBL_MIN), noise = 64 * resolved * unit;
        double w1 = v[0], w2 = v[1], w3 = v[2], error = DBL_MAX;
        int count = 0, done = 0;
        while (!done && count < MAX_ITERATIONS) {
            double theta = middle[2] + hh * w3, s = sin(theta), c = cos(theta);
            double inverse = 1 / (mixed * (cm * c + sm * s) + offset), w = number * inverse;
            /* t = dw/dw3; F = (w1, w2, w3) - X1 w: the Jacobian is the identity but for its third column. */
            double t = -hh * w * mixed * (sm * c - cm * s) * inverse;
            double d3 = -(w3 + turn * w) / (1 + turn * t), along = f * (w + t * d3), across = hh * f * w * d3;
            double d1 = c * along - s * across - w1, d2 = s * along + c * across - w2, before = error;
            w1 += d1, w2 += d2, w3 += d3;
            error = unit * largest(d1, d2, d3);
            done = settled(error, before, noise, ++count);
        }
        double after[5] = {w1, w2, w3, v[3], v[4]};
        for (int i = 0; i < 5; i++) next[i] = middle[i] + hh * after[i];
        if (!(done && finite_state(next, after))) break;
        memcpy(q, next, sizeof q), memcpy(v, after, sizeof v);
        if (rows != NULL && --wait == 0) rows = put(rows, q, v), wait = save_every;
    }
    put(state, q, v);
    return step;
}

long snakeboard_dla01(double *state, const double *params, double h, long steps, long save_every,
                      double *rows) {
    return dla(state, params, h, steps, save_every, rows);
}

long snakeboard_dla_half(double *state, const double *params, double h, long steps, long save_every,
                         double *rows) {
    return dla(state, params, h, steps, save_every, rows);
}

/* q1 = q0 + h ub, ub = P(q0 + h ub/2) u0, u1 = 2 ub - u0, v1 = P(q1) u1. The unknown is ub. */
long snakeboard_dd(double *state, const double *params, double h, long steps, long save_every, double *rows) {
    const double m = params[0], J = params[1] + 2 * params[3], r = params[4], hh = 0.5 * h;
    double q[5], v[5], u[5];
    memcpy(q, state, sizeof q), memcpy(v, state + 5, sizeof v), memcpy(u, state + 10, sizeof u);
    long step = 0, wait = save_every;
    for (; step < steps; step++) {
        double phi = q[4] + hh * u[4], turn = sin(phi), f = r * cos(phi);
        double inverse = 1 / (m * f * f + J * turn * turn), push = m * f * inverse;
        double rest = J * turn * u[2] * inverse;
        double resolved = resolution(size(q), h);
        double unit = 1 / (size(u) + resolved + DBL_MIN), noise = 64 * resolved * unit;
        double w1 = u[0], w2 = u[1], w3 = u[2], error = DBL_MAX;
        int count = 0, done = 0;
        while (!done && count < MAX_ITERATIONS) {
            double theta = q[2] + hh * w3, s = sin(theta), c = cos(theta);
            double w = push * (c * u[0] + s * u[1]) - rest;
            /* t = dw/dw3; F = (w1, w2, w3) - X w: the Jacobian is the identity but for its third column. */
            double t = hh * push * (c * u[1] - s * u[0]);
            double d3 = -(w3 + turn * w) / (1 + turn * t), along = f * (w + t * d3), across = hh * f * w * d3;
            double d1 = c * along - s * across - w1, d2 = s * along + c * across - w2, before = error;
            w1 += d1, w2 += d2, w3 += d3;
            error = unit * largest(d1, d2, d3);
            done = settled(error, before, noise, ++count);
        }
        double after[5] = {2 * w1 - u[0], 2 * w2 - u[1], 2 * w3 - u[2], u[3], u[4]}, w[5];
        double next[5] = {q[0] + h * w1, q[1] + h * w2, q[2] + h * w3, q[3] + h * u[3], q[4] + h * u[4]};
        project(next, after, w, m, J, r);
        if (!(done && finite_state(next, w))) break;
        memcpy(q, next, sizeof q), memcpy(v, w, sizeof v), memcpy(u, after, sizeof u);
        if (rows != NULL && --wait == 0) rows = put(rows, q, v), wait = save_every;
    }
    put(state, q, v);
    memcpy(state + 10, u, sizeof u);
    return step;
}
