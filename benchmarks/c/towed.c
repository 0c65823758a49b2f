/* The car with trailers by the frame discrete gradient, for any number of trailers, in two ways.

   q = (x, y, theta_0, ..., theta_k); bodies, metric and constraints are those of zoo.Car. params = {length,
   hitch, mass, turning}. D has two dimensions and is spanned by X(q), whose columns are the motions with the
   speed and the turning rate (1, 0) and (0, 1) of the tractor. The unknown of a step is s in R^2, with
   (q1 - q0)/h = X(qb) s at the middle qb = q0 + (h/2) X(qb) s.

     towed_dense   with matrices: the metric is written down and multiplied by BLAS; qb is found by Newton's
                   method, whose matrix is factored by LAPACK once per step.
     towed_walk    for chains alone: both are found by walking along the chain, in a time that grows with its
                   length and not with a power of it.

   With b0 an orthonormal basis of D at q0 and v0 = b0 w, the equations of the method become 2 by 2: for
   G = X^T M X and T = X^T M b0 at qb, the nearest frame there is b = X R with R = G^-1 T (T^T G^-1 T)^(-1/2);
   with K = b0^T M0 b, the frame that goes back gives w0 = Q^T w for the polar factor Q of K; and
       wb = R^-1 s = w0 + (h/2) b^T g,   w1 = 2 wb - w0,   g = (grad (v.M v) - (D_v M) v)/2 at v = X s.
   Equations in s are solved by Broyden's method, which begins with R^-1.

   state = (q, v), updated in place. The result is the number of good steps. */

#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "lapack.h"

typedef struct {
    long n, bodies;
    double length, hitch, mass, turning;
    const Lapack *lapack; /* NULL: walk */
    double *squares;      /* mass (L^T L) for levers L, bodies by bodies */
    double *carried;      /* mass times the sums of the columns of L */
    double *metric, *matrix;
    int *pivots;
    double *block, *products, *speed, *rate;
} Chain;

/* A configuration with what is computed there: directions, X and M X. */
typedef struct {
    double *q, *c, *s, *x, *mx;
} Place;

/* ---------- 2 by 2 matrices, row by row */

static void times2(const double *a, const double *b, double *out) {
    double r0 = a[0] * b[0] + a[1] * b[2], r1 = a[0] * b[1] + a[1] * b[3];
    double r2 = a[2] * b[0] + a[3] * b[2], r3 = a[2] * b[1] + a[3] * b[3];
    out[0] = r0, out[1] = r1, out[2] = r2, out[3] = r3;
}

static void inverse2(const double *a, double *out) {
    double unit = 1 / (a[0] * a[3] - a[1] * a[2]);
    double r0 = a[3] * unit, r3 = a[0] * unit;
    out[1] = -a[1] * unit, out[2] = -a[2] * unit, out[0] = r0, out[3] = r3;
}

static void transpose2(const double *a, double *out) {
    double r1 = a[2], r2 = a[1];
    out[0] = a[0], out[1] = r1, out[2] = r2, out[3] = a[3];
}

/* N^(-1/2) for a positive definite N: N^(1/2) = (N + sqrt(det) 1)/sqrt(trace + 2 sqrt(det)). */
static void inverse_root2(const double *a, double *out) {
    double root = sqrt(a[0] * a[3] - a[1] * a[2]), scale = 1 / sqrt(a[0] + a[3] + 2 * root);
    double half[4] = {(a[0] + root) * scale, a[1] * scale, a[2] * scale, (a[3] + root) * scale};
    inverse2(half, out);
}

/* The polar factor K (K^T K)^(-1/2). */
static void polar2(const double *k, double *out) {
    double t[4], gram[4], root[4];
    transpose2(k, t), times2(t, k, gram), inverse_root2(gram, root), times2(k, root, out);
}

/* a^T b for matrices of two columns, one column after the other. */
static void inner(long n, const double *a, const double *b, double *out) {
    double r0 = 0, r1 = 0, r2 = 0, r3 = 0;
#pragma omp simd reduction(+ : r0, r1, r2, r3)
    for (long i = 0; i < n; i++) {
        r0 += a[i] * b[i], r1 += a[i] * b[n + i];
        r2 += a[n + i] * b[i], r3 += a[n + i] * b[n + i];
    }
    out[0] = r0, out[1] = r1, out[2] = r2, out[3] = r3;
}

/* out = a r for a of two columns; out may be a. */
static void combined(long n, const double *a, const double *r, double *out) {
    for (long i = 0; i < n; i++) {
        double left = a[i], right = a[n + i];
        out[i] = left * r[0] + right * r[2], out[n + i] = left * r[1] + right * r[3];
    }
}

/* ---------- the chain */

static void directions(const Chain *of, const Place *at) {
    for (long i = 0; i < of->bodies; i++) at->c[i] = cos(at->q[2 + i]), at->s[i] = sin(at->q[2 + i]);
}

/* The columns of X, by walking from the tractor to the last trailer. */
static void spanning(const Chain *of, const Place *at) {
    const long n = of->n;
    const double hitch = of->hitch, unit = 1 / of->length;
    double *x = at->x, v[2] = {1, 0}, w[2] = {0, 1};
    x[0] = at->c[0], x[1] = at->s[0], x[2] = 0, x[n] = x[n + 1] = 0, x[n + 2] = 1;
    for (long i = 1; i < of->bodies; i++) {
        double cd = at->c[i - 1] * at->c[i] + at->s[i - 1] * at->s[i];
        double sd = at->s[i - 1] * at->c[i] - at->c[i - 1] * at->s[i];
        for (int k = 0; k < 2; k++) {
            double next = cd * v[k] + hitch * sd * w[k];
            w[k] = (sd * v[k] - hitch * cd * w[k]) * unit, v[k] = next;
            x[k * n + 2 + i] = w[k];
        }
    }
}

/* M times a velocity, by the velocities of the bodies and the momenta behind each joint. */
static void moved(const Chain *of, const Place *at, const double *v, double *out) {
    const double hitch = of->hitch, length = of->length, m = of->mass;
    double *px = of->speed, *py = of->rate, vx = v[0], vy = v[1];
    px[0] = m * vx, py[0] = m * vy;
    for (long i = 1; i < of->bodies; i++) {
        double before = hitch * v[1 + i], behind = length * v[2 + i];
        vx += at->s[i - 1] * before + at->s[i] * behind, vy -= at->c[i - 1] * before + at->c[i] * behind;
        px[i] = m * vx, py[i] = m * vy;
    }
    double sx = 0, sy = 0;
    for (long i = of->bodies - 1; i >= 0; i--) {
        double ax = hitch * sx, ay = hitch * sy, own = i > 0 ? length : 0;
        sx += px[i], sy += py[i];
        ax += own * sx, ay += own * sy;
        out[2 + i] = at->s[i] * ax - at->c[i] * ay + of->turning * v[2 + i];
    }
    out[0] = sx, out[1] = sy;
}

/* g = (grad (v.M v) - (D_v M) v)/2, walking; S and S' are the momenta behind a joint and their rates. */
static void turned(const Chain *of, const Place *at, const double *v, double *g) {
    const double hitch = of->hitch, length = of->length, m = of->mass;
    double *px = of->speed, *py = of->rate, *fx = of->block, *fy = of->block + of->bodies;
    double vx = v[0], vy = v[1], ux = 0, uy = 0;
    px[0] = m * vx, py[0] = m * vy, fx[0] = fy[0] = 0;
    for (long i = 1; i < of->bodies; i++) {
        double before = hitch * v[1 + i], behind = length * v[2 + i];
        vx += at->s[i - 1] * before + at->s[i] * behind, vy -= at->c[i - 1] * before + at->c[i] * behind;
        before *= v[1 + i], behind *= v[2 + i];
        ux += at->c[i - 1] * before + at->c[i] * behind, uy += at->s[i - 1] * before + at->s[i] * behind;
        px[i] = m * vx, py[i] = m * vy, fx[i] = m * ux, fy[i] = m * uy;
    }
    double sx = 0, sy = 0, rx = 0, ry = 0;
    for (long i = of->bodies - 1; i >= 0; i--) {
        double ax = hitch * sx, ay = hitch * sy, bx = hitch * rx, by = hitch * ry, own = i > 0 ? length : 0;
        sx += px[i], sy += py[i], rx += fx[i], ry += fy[i];
        ax += own * sx, ay += own * sy, bx += own * rx, by += own * ry;
        g[2 + i] = 0.5 * (v[2 + i] * (at->c[i] * ax + at->s[i] * ay) + at->c[i] * by - at->s[i] * bx);
    }
    g[0] = -0.5 * rx, g[1] = -0.5 * ry;
}

/* ---------- the same with matrices */

/* Column by column; the upper triangle is enough for dsymm. */
static void write_metric(const Chain *of, const Place *at) {
    const long n = of->n, k = of->bodies;
    double *a = of->metric;
    a[0] = a[n + 1] = k * of->mass, a[n] = 0;
    for (long j = 0; j < k; j++) {
        double *column = a + (2 + j) * n, c = at->c[j], s = at->s[j];
        const double *squares = of->squares + j * k;
        column[0] = of->carried[j] * s, column[1] = -of->carried[j] * c;
        for (long i = 0; i <= j; i++) column[2 + i] = squares[i] * (c * at->c[i] + s * at->s[i]);
        column[2 + j] += of->turning;
    }
}

/* g by products of the constant matrix of squares with (c w, s w, c w^2, s w^2), w the turning rates:
   (grad (v.M v))_j = 2 w_j (e_j . momenta), (D_v M v)_j = w_j (e_j . momenta) - n_j . (their rates). */
static void turned_dense(const Chain *of, const Place *at, const double *v, double *g) {
    const long k = of->bodies;
    const double *w = v + 2, one = 1, zero = 0;
    double *b = of->block, *p = of->products, rx = 0, ry = 0;
    for (long i = 0; i < k; i++) {
        b[i] = at->s[i] * w[i], b[k + i] = -at->c[i] * w[i];
        b[2 * k + i] = at->c[i] * w[i] * w[i], b[3 * k + i] = at->s[i] * w[i] * w[i];
        rx += of->carried[i] * b[2 * k + i], ry += of->carried[i] * b[3 * k + i];
    }
    int size = (int)k, four = 4;
    of->lapack->dsymm("L", "U", &size, &four, &one, of->squares, &size, b, &size, &zero, p, &size);
    for (long j = 0; j < k; j++) {
        double ax = of->carried[j] * v[0] + p[j], ay = of->carried[j] * v[1] + p[k + j];
        double turn = at->c[j] * p[3 * k + j] - at->s[j] * p[2 * k + j];
        g[2 + j] = 0.5 * (w[j] * (at->c[j] * ax + at->s[j] * ay) + turn);
    }
    g[0] = -0.5 * rx, g[1] = -0.5 * ry;
}

/* The matrix 1 - (h/2) d(X s)/dq of Newton's method for qb, factored; derivatives along each heading by the
   recursion of the chain. */
static int factor(const Chain *of, const Place *at, const double *s, double h) {
    const long n = of->n, k = of->bodies;
    const double hitch = of->hitch, unit = 1 / of->length, hh = 0.5 * h;
    double *v = of->speed, *w = of->rate, *a = of->matrix;
    v[0] = s[0], w[0] = s[1];
    for (long i = 1; i < k; i++) {
        double cd = at->c[i - 1] * at->c[i] + at->s[i - 1] * at->s[i];
        double sd = at->s[i - 1] * at->c[i] - at->c[i - 1] * at->s[i];
        v[i] = cd * v[i - 1] + hitch * sd * w[i - 1], w[i] = (sd * v[i - 1] - hitch * cd * w[i - 1]) * unit;
    }
    memset(a, 0, (size_t)(n * n) * sizeof(double));
    a[0] = a[n + 1] = 1;
    for (long j = 0; j < k; j++) {
        double *column = a + (2 + j) * n, dv = 0, dw = 0;
        column[2 + j] = 1;
        if (j == 0) column[0] = hh * at->s[0] * s[0], column[1] = -hh * at->c[0] * s[0];
        for (long i = j > 0 ? j : 1; i < k; i++) {
            double cd = at->c[i - 1] * at->c[i] + at->s[i - 1] * at->s[i];
            double sd = at->s[i - 1] * at->c[i] - at->c[i - 1] * at->s[i];
            double next = cd * dv + hitch * sd * dw, rate = (sd * dv - hitch * cd * dw) * unit;
            double bend = i == j ? -1 : i == j + 1 ? 1 : 0; /* the derivative of theta_(i-1) - theta_i */
            next += bend * (-sd * v[i - 1] + hitch * cd * w[i - 1]);
            rate += bend * (cd * v[i - 1] + hitch * sd * w[i - 1]) * unit;
            dv = next, dw = rate;
            column[2 + i] -= hh * dw;
        }
    }
    int size = (int)n, info = 0;
    of->lapack->dgetrf(&size, &size, a, &size, of->pivots, &info);
    return info;
}

/* qb by Newton's method with the factored matrix; `at` holds a guess, and the result with its X. */
static int middle_dense(const Chain *of, const double *q0, const double *s, double h, const Place *at) {
    const long n = of->n;
    const double hh = 0.5 * h;
    double *off = of->products, before = DBL_MAX, size_of_q = 1;
    for (long i = 0; i < n; i++) size_of_q = larger(size_of_q, fabs(q0[i]));
    for (int count = 1; count <= MAX_ITERATIONS; count++) {
        int size = (int)n, one = 1, info = 0;
        double error = 0;
        directions(of, at), spanning(of, at);
        for (long i = 0; i < n; i++)
            off[i] = at->q[i] - q0[i] - hh * (at->x[i] * s[0] + at->x[n + i] * s[1]);
        of->lapack->dgetrs("N", &size, &one, of->matrix, &size, of->pivots, off, &size, &info);
        for (long i = 0; i < n; i++) at->q[i] -= off[i], error = larger(error, fabs(off[i]));
        if (!(error < DBL_MAX)) return 0;
        if (error <= 4 * DBL_EPSILON * size_of_q || (before < 1e-8 && error * error < 1e-3 * DBL_EPSILON * before)
            || (before < 1e-12 && error > 0.25 * before)) {
            directions(of, at), spanning(of, at);
            return 1;
        }
        before = error;
    }
    return 0;
}

/* qb by walking: the heading of a trailer at the middle depends on what is ahead of it alone. */
static int middle_walk(const Chain *of, const double *q0, const double *s, double h, const Place *at) {
    const double hitch = of->hitch, unit = 1 / of->length, hh = 0.5 * h;
    double v = s[0], w = s[1];
    at->q[2] = q0[2] + hh * w;
    at->c[0] = cos(at->q[2]), at->s[0] = sin(at->q[2]);
    at->q[0] = q0[0] + hh * v * at->c[0], at->q[1] = q0[1] + hh * v * at->s[0];
    for (long i = 1; i < of->bodies; i++) {
        double theta = at->q[2 + i], base = q0[2 + i], cd = 0, sd = 0, before = DBL_MAX;
        const double noise = 2 * DBL_EPSILON * (1 + fabs(base));
        int done = 0;
        for (int count = 0; !done && count < MAX_ITERATIONS; count++) {
            double c = cos(theta), sine = sin(theta);
            cd = at->c[i - 1] * c + at->s[i - 1] * sine, sd = at->s[i - 1] * c - at->c[i - 1] * sine;
            double rate = (sd * v - hitch * cd * w) * unit, slope = -(cd * v + hitch * sd * w) * unit;
            double d = (theta - base - hh * rate) / (1 - hh * slope), error = fabs(d);
            theta -= d, done = error <= noise || (before < 1e-3 && error < 1e-9);
            /* Sines and cosines follow a last small turn by their series. */
            at->c[i] = c + d * sine - 0.5 * d * d * c, at->s[i] = sine - d * c - 0.5 * d * d * sine;
            before = error;
        }
        if (!done) return 0;
        cd = at->c[i - 1] * at->c[i] + at->s[i - 1] * at->s[i];
        sd = at->s[i - 1] * at->c[i] - at->c[i - 1] * at->s[i];
        double next = cd * v + hitch * sd * w;
        w = (sd * v - hitch * cd * w) * unit, v = next, at->q[2 + i] = theta;
    }
    spanning(of, at);
    return 1;
}

/* M X at a place whose X is known. */
static void weigh(const Chain *of, const Place *at) {
    if (of->lapack == NULL) {
        moved(of, at, at->x, at->mx), moved(of, at, at->x + of->n, at->mx + of->n);
        return;
    }
    int size = (int)of->n, two = 2;
    double one = 1, zero = 0;
    write_metric(of, at);
    of->lapack->dsymm("L", "U", &size, &two, &one, of->metric, &size, at->x, &size, &zero, at->mx, &size);
}

/* R with X R the frame nearest to b at a place whose X and M X are known. */
static void nearest(long n, const Place *at, const double *b, double *r) {
    double gram[4], other[4], solved[4], t[4], n2[4], root[4];
    inner(n, at->x, at->mx, gram), inner(n, at->mx, b, other);
    inverse2(gram, t), times2(t, other, solved);
    transpose2(other, t), times2(t, solved, n2), inverse_root2(n2, root), times2(solved, root, r);
}

/* The middle of the step for s, the frame b = X R there, and w0 in it. */
static int at_middle(const Chain *of, const Place *here, const double *s, double h, const Place *mid,
                     const double *p0, const double *b0, const double *w, double *b, double *r, double *w0) {
    double turn[4], polar[4];
    if (!(of->lapack ? middle_dense : middle_walk)(of, here->q, s, h, mid)) return 0;
    weigh(of, mid);
    nearest(of->n, mid, b0, r);
    combined(of->n, mid->x, r, b);
    inner(of->n, p0, b, turn), polar2(turn, polar);
    w0[0] = polar[0] * w[0] + polar[2] * w[1], w0[1] = polar[1] * w[0] + polar[3] * w[1];
    return 1;
}

static long run(Chain *of, double *state, double h, long steps, double *room) {
    const long n = of->n, k = of->bodies;
    Place here = {room, room + n, room + n + k, room + n + 2 * k, room + 3 * n + 2 * k};
    room += 5 * n + 2 * k;
    Place mid = {room, room + n, room + n + k, room + n + 2 * k, room + 3 * n + 2 * k};
    room += 5 * n + 2 * k;
    double *b0 = room, *p0 = room + 2 * n, *b = room + 4 * n, *velocity = room + 6 * n, *g = room + 7 * n;
    double w[2] = {0, 0}, r[4], small[4];
    const double hh = 0.5 * h;
    memcpy(here.q, state, (size_t)n * sizeof(double));
    directions(of, &here), spanning(of, &here), weigh(of, &here);
    inner(n, here.x, here.mx, small), inverse_root2(small, r);
    combined(n, here.x, r, b0), combined(n, here.mx, r, p0);
    for (long i = 0; i < n; i++) w[0] += p0[i] * state[n + i], w[1] += p0[n + i] * state[n + i];
    double s[2] = {here.c[0] * state[n] + here.s[0] * state[n + 1], state[n + 2]};
    long step = 0;
    for (; step < steps; step++) {
        double jacobian[4], off[2] = {0, 0}, d[2] = {0, 0}, w0[2], wb[2], error = DBL_MAX;
        double size = fabs(s[0]) + fabs(s[1]), place = 0;
        for (long i = 0; i < n; i++) place += fabs(here.q[i]);
        double resolved = resolution(place, h), unit = 1 / (size + resolved + DBL_MIN);
        int done = 0;
        for (long i = 0; i < n; i++) mid.q[i] = here.q[i] + hh * (here.x[i] * s[0] + here.x[n + i] * s[1]);
        if (of->lapack != NULL && factor(of, &here, s, h)) break;
        for (int count = 1; !done && count <= MAX_ITERATIONS; count++) {
            double inverse[4], before = error, value[2];
            if (!at_middle(of, &here, s, h, &mid, p0, b0, w, b, r, w0)) break;
            for (long i = 0; i < n; i++) velocity[i] = mid.x[i] * s[0] + mid.x[n + i] * s[1];
            (of->lapack ? turned_dense : turned)(of, &mid, velocity, g);
            double g0 = 0, g1 = 0;
            for (long i = 0; i < n; i++) g0 += b[i] * g[i], g1 += b[n + i] * g[i];
            inverse2(r, inverse);
            wb[0] = w0[0] + hh * g0, wb[1] = w0[1] + hh * g1;
            value[0] = inverse[0] * s[0] + inverse[1] * s[1] - wb[0];
            value[1] = inverse[2] * s[0] + inverse[3] * s[1] - wb[1];
            if (count == 1) {
                memcpy(jacobian, inverse, sizeof inverse);
            } else { /* Broyden: what the last step missed is the value itself */
                double scale = 1 / (d[0] * d[0] + d[1] * d[1]);
                for (int i = 0; i < 2; i++)
                    jacobian[2 * i] += value[i] * d[0] * scale, jacobian[2 * i + 1] += value[i] * d[1] * scale;
            }
            inverse2(jacobian, inverse);
            memcpy(off, value, sizeof off);
            d[0] = -(inverse[0] * off[0] + inverse[1] * off[1]);
            d[1] = -(inverse[2] * off[0] + inverse[3] * off[1]);
            s[0] += d[0], s[1] += d[1];
            error = (fabs(d[0]) + fabs(d[1])) * unit;
            done = settled_broyden(error, before, 64 * resolved * unit, count);
            if (vanish(error) != 0) break;
        }
        if (!done) break;
        if (!at_middle(of, &here, s, h, &mid, p0, b0, w, b, r, w0)) break;
        for (long i = 0; i < n; i++) here.q[i] += h * (mid.x[i] * s[0] + mid.x[n + i] * s[1]);
        inverse2(r, small);
        wb[0] = small[0] * s[0] + small[1] * s[1], wb[1] = small[2] * s[0] + small[3] * s[1];
        w[0] = 2 * wb[0] - w0[0], w[1] = 2 * wb[1] - w0[1];
        directions(of, &here), spanning(of, &here), weigh(of, &here);
        nearest(n, &here, b, r);
        combined(n, here.x, r, b0), combined(n, here.mx, r, p0);
        s[0] = r[0] * w[0] + r[1] * w[1], s[1] = r[2] * w[0] + r[3] * w[1];
    }
    memcpy(state, here.q, (size_t)n * sizeof(double));
    for (long i = 0; i < n; i++) state[n + i] = b0[i] * w[0] + b0[n + i] * w[1];
    return step;
}

static long start(double *state, const double *params, long n, double h, long steps, const Lapack *lapack) {
    const long k = n - 2;
    size_t doubles = (size_t)(2 * n * n + k * k + 40 * n);
    double *room = malloc(doubles * sizeof(double));
    int *pivots = malloc((size_t)n * sizeof(int));
    long good = 0;
    if (room != NULL && pivots != NULL) {
        Chain of = {.n = n, .bodies = k, .length = params[0], .hitch = params[1], .mass = params[2],
                    .turning = params[3], .lapack = lapack, .pivots = pivots};
        of.metric = room, of.matrix = room + n * n, of.squares = of.matrix + n * n;
        of.carried = of.squares + k * k;
        of.block = of.carried + k, of.products = of.block + 4 * k, of.speed = of.products + 4 * n;
        of.rate = of.speed + k;
        for (long j = 0; j < k; j++) {
            /* Lever of heading j on body i: the hitch behind it and, but for the tractor, its own length. */
            double own = j > 0 ? of.length : 0;
            of.carried[j] = of.mass * ((double)(k - 1 - j) * of.hitch + (double)(k - j) * own);
            for (long i = 0; i <= j; i++) {
                double other = of.hitch + (i > 0 ? of.length : 0), sum = (double)(k - 1 - j) * (of.hitch + own) * other;
                sum += own * (i == j ? own : other);
                of.squares[j * k + i] = of.squares[i * k + j] = of.mass * sum;
            }
        }
        good = run(&of, state, h, steps, of.rate + k);
    }
    free(room), free(pivots);
    return good;
}

long towed_dense(double *state, const double *params, long n, double h, long steps, const Lapack *lapack) {
    return start(state, params, n, h, steps, lapack);
}

long towed_walk(double *state, const double *params, long n, double h, long steps, const Lapack *lapack) {
    (void)lapack;
    return start(state, params, n, h, steps, NULL);
}
