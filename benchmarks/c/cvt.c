/* The pendulum CVT, one trajectory, written for this system alone.

   q = (x1, x2, xi), mass matrix = identity, V = (x1^2 + x2^2)/2 + W(xi), W = 1 - cos xi + (eps/2) sin 2 xi,
   constraint v1 + sin(xi) v2 = 0. params = {eps}.

   state, updated in place; after a failure it holds the last good state:
     cvt_leapfrog   9: q, v, u        (u = the momentum before the reflection)
     cvt_dla01      6: q, v
     cvt_dla_half   6: q, v
     cvt_dd         9: q, v, u        (u = the method's own velocity)
     cvt_frame      8: q, v, w        (w = the components of v along k(xi) and along xi)
   rows receives q, v after every save_every-th step; it may be NULL. The result is the number of good steps:
   a step fails when the state is not finite or Newton's method does not settle. The angle is not wrapped. */

#include <stddef.h>

#include "common.h"

/* W, W' and W'' from s = sin xi, c = cos xi. */
static inline double driver(double eps, double s, double c) { return 1 - c + eps * s * c; }
static inline double driver1(double eps, double s) { return s + eps * (1 - 2 * s * s); }
static inline double driver2(double eps, double s, double c) { return c * (1 - 4 * eps * s); }

static inline int finite_state(double x1, double x2, double xi, double v1, double v2, double v3) {
    return vanish(x1 * x1 + x2 * x2) + vanish(xi) + vanish(v1) + vanish(v2) + vanish(v3) == 0;
}

static inline double *put(double *row, double x1, double x2, double xi, double v1, double v2, double v3) {
    row[0] = x1, row[1] = x2, row[2] = xi, row[3] = v1, row[4] = v2, row[5] = v3;
    return row + 6;
}

/* uh = u0 - (h/2) V'(q0), q1 = q0 + h uh, u+ = uh - (h/2) V'(q1), v1 = P(q1) u+, u1 = 2 v1 - u+. */
long cvt_leapfrog(double *state, const double *params, double h, long steps, long save_every, double *rows) {
    const double eps = params[0], hh = 0.5 * h;
    double x1 = state[0], x2 = state[1], xi = state[2], v1 = state[3], v2 = state[4], v3 = state[5];
    double u1 = state[6], u2 = state[7], u3 = state[8];
    double slope = driver1(eps, sin(xi));
    long step = 0, wait = save_every;
    for (; step < steps; step++) {
        double a1 = u1 - hh * x1, a2 = u2 - hh * x2, a3 = u3 - hh * slope;
        double y1 = x1 + h * a1, y2 = x2 + h * a2, yi = xi + h * a3;
        double s = sin(yi), next = driver1(eps, s);
        double p1 = a1 - hh * y1, p2 = a2 - hh * y2, p3 = a3 - hh * next;
        double lam = (p1 + s * p2) / (1 + s * s);
        double w1 = p1 - lam, w2 = p2 - s * lam;
        if (!finite_state(y1, y2, yi, w1, w2, p3)) break;
        x1 = y1, x2 = y2, xi = yi, v1 = w1, v2 = w2, v3 = p3;
        u1 = w1 - lam, u2 = w2 - s * lam, u3 = p3, slope = next;
        if (rows != NULL && --wait == 0) rows = put(rows, x1, x2, xi, v1, v2, v3), wait = save_every;
    }
    put(state, x1, x2, xi, v1, v2, v3);
    state[6] = u1, state[7] = u2, state[8] = u3;
    return step;
}

/* qm = q0 + h v0/2, q1 = qm + h v1/2, v1 = f - A(qm)^T (A(q1) f)/(A(q1) A(qm)^T), f = v0 - h V'(qm). */
long cvt_dla01(double *state, const double *params, double h, long steps, long save_every, double *rows) {
    const double eps = params[0], hh = 0.5 * h;
    double x1 = state[0], x2 = state[1], xi = state[2], v1 = state[3], v2 = state[4], v3 = state[5];
    long step = 0, wait = save_every;
    for (; step < steps; step++) {
        double y1 = x1 + hh * v1, y2 = x2 + hh * v2, yi = xi + hh * v3;
        double sm = sin(yi);
        double k1 = h * y1, k2 = h * y2, k3 = h * driver1(eps, sm);
        double f1 = v1 - k1, f2 = v2 - k2, f3 = v3 - k3;
        double resolved = resolution(largest(x1, x2, xi), h);
        double size = larger(largest(v1, v2, v3), largest(k1, k2, k3));
        double unit = 1 / (size + resolved + DBL_MIN), noise = 64 * resolved * unit;
        /* The unknown is mu = h lambda: v1 = f + (1, sm, 0) mu, so xi1 does not depend on it. */
        double s = sin(yi + hh * f3), inverse = 1 / (1 + s * sm), mu = 0, error = DBL_MAX;
        int count = 0, done = 0;
        while (!done && count < MAX_ITERATIONS) {
            double d = -((f1 + mu) + s * (f2 + sm * mu)) * inverse, before = error;
            mu += d;
            error = fabs(d) * unit;
            done = settled(error, before, noise, ++count);
        }
        double w1 = f1 + mu, w2 = f2 + sm * mu, w3 = f3;
        y1 += hh * w1, y2 += hh * w2, yi += hh * w3;
        if (!(done && finite_state(y1, y2, yi, w1, w2, w3))) break;
        x1 = y1, x2 = y2, xi = yi, v1 = w1, v2 = w2, v3 = w3;
        if (rows != NULL && --wait == 0) rows = put(rows, x1, x2, xi, v1, v2, v3), wait = save_every;
    }
    put(state, x1, x2, xi, v1, v2, v3);
    return step;
}

/* qm = q0 + h v0/2, q1 = qm + h v1/2, v1 = f - A(qm)^T (A(q1) f)/(A(q1) A(qm)^T),
   f = v0 - (h/2) (V'(q0) + V'(q1)). */
long cvt_dla_half(double *state, const double *params, double h, long steps, long save_every, double *rows) {
    const double eps = params[0], hh = 0.5 * h, a = hh * hh, shrink = 1 / (1 + a);
    double x1 = state[0], x2 = state[1], xi = state[2], v1 = state[3], v2 = state[4], v3 = state[5];
    double slope = driver1(eps, sin(xi));
    long step = 0, wait = save_every;
    for (; step < steps; step++) {
        double m1 = x1 + hh * v1, m2 = x2 + hh * v2, mi = xi + hh * v3;
        double sm = sin(mi);
        double k1 = hh * x1, k2 = hh * x2, k3 = hh * slope;
        double g1 = v1 - k1, g2 = v2 - k2, g3 = v3 - k3;
        double resolved = resolution(largest(x1, x2, xi), h);
        double size = larger(largest(v1, v2, v3), largest(k1, k2, k3));
        double unit = 1 / (size + resolved + DBL_MIN), noise = 64 * resolved * unit;
        double w1 = v1 - 2 * k1, w2 = v2 - 2 * k2, w3 = v3 - 2 * k3, error = DBL_MAX;
        int count = 0, done = 0;
        while (!done && count < MAX_ITERATIONS) {
            double xi1 = mi + hh * w3, s = sin(xi1), c = cos(xi1);
            double f1 = g1 - hh * (m1 + hh * w1), f2 = g2 - hh * (m2 + hh * w2);
            double f3 = g3 - hh * driver1(eps, s);
            double inverse = 1 / (1 + s * sm), lam = (f1 + s * f2) * inverse;
            /* Third row: 1 + (h^2/4) W''. First two: (1 + a) - a Z A1/(A1 Z) with Z = (1, sm), A1 = (1, s),
               whose inverse is (1 + a Z A1/(A1 Z))/(1 + a), and a third column Z dlam/dw3. */
            double d3 = (f3 - w3) / (1 + a * driver2(eps, s, c));
            double turn = (f2 - lam * sm) * inverse * c * hh * d3;
            double r1 = f1 - w1 - (lam + turn), r2 = f2 - w2 - sm * (lam + turn);
            double along = a * (r1 + s * r2) * inverse;
            double d1 = (r1 + along) * shrink, d2 = (r2 + sm * along) * shrink, before = error;
            w1 += d1, w2 += d2, w3 += d3;
            error = unit * largest(d1, d2, d3);
            done = settled(error, before, noise, ++count);
        }
        m1 += hh * w1, m2 += hh * w2, mi += hh * w3;
        if (!(done && finite_state(m1, m2, mi, w1, w2, w3))) break;
        x1 = m1, x2 = m2, xi = mi, v1 = w1, v2 = w2, v3 = w3;
        slope = driver1(eps, sin(xi));
        if (rows != NULL && --wait == 0) rows = put(rows, x1, x2, xi, v1, v2, v3), wait = save_every;
    }
    put(state, x1, x2, xi, v1, v2, v3);
    return step;
}

/* The average of W' on [xi, xi + d] by Lobatto's rule from its values at the ends, and by how much the coarse
   rule differs. On x1, x2 both rules are exact, since V is quadratic there: the average is the midpoint's. */
static inline double average(double eps, double xi, double d, double first, double last, double *gap) {
    double outer = driver1(eps, sin(xi + NODE1 * d)) + driver1(eps, sin(xi + NODE4 * d));
    double inner = driver1(eps, sin(xi + NODE2 * d)) + driver1(eps, sin(xi + NODE3 * d)), ends = first + last;
    double fine = FINE0 * ends + FINE1 * outer + FINE2 * inner;
    *gap = fabs(fine - (COARSE0 * ends + COARSE2 * inner));
    return fine;
}

/* The derivative of that average by d; `last` is W'' at xi + d. */
static double average1(double eps, double xi, double d, double last) {
    static const double node[4] = {NODE1, NODE2, NODE3, NODE4}, weight[4] = {FINE1, FINE2, FINE2, FINE1};
    double sum = FINE0 * last;
    for (int i = 0; i < 4; i++) {
        double x = xi + node[i] * d;
        sum += weight[i] * node[i] * driver2(eps, sin(x), cos(x));
    }
    return sum;
}

/* q1 = q0 + h ub, ub = P(q0 + h ub/2) (u0 - (h/2) DV(q0, q1)), u1 = 2 ub - u0, v1 = P(q1) u1;
   DV = V'(qb) + d rho, d = q1 - q0, rho = (V(q1) - V(q0) - V'(qb).d)/(d.d). The unknown is ub. */
long cvt_dd(double *state, const double *params, double h, long steps, long save_every, double *rows) {
    const double eps = params[0], hh = 0.5 * h;
    double x1 = state[0], x2 = state[1], xi = state[2], v1 = state[3], v2 = state[4], v3 = state[5];
    double u1 = state[6], u2 = state[7], u3 = state[8];
    double s0 = sin(xi), value0 = driver(eps, s0, cos(xi)), slope0 = driver1(eps, s0);
    long step = 0, wait = save_every;
    for (; step < steps; step++) {
        double k1 = hh * x1, k2 = hh * x2, k3 = hh * slope0;
        double resolved = resolution(largest(x1, x2, xi), h);
        double size = larger(largest(u1, u2, u3), largest(k1, k2, k3));
        double unit = 1 / (size + resolved + DBL_MIN), noise = 64 * resolved * unit;
        double w1 = u1 - k1, w2 = u2 - k2, w3 = u3 - k3, error = DBL_MAX;
        int count = 0, done = 0;
        while (!done && count < MAX_ITERATIONS) {
            double d1 = h * w1, d2 = h * w2, d3 = h * w3;
            double m1 = x1 + hh * w1, m2 = x2 + hh * w2, mi = xi + hh * w3, xi1 = xi + d3;
            double s = sin(mi), c = cos(mi), s1 = sin(xi1), c1 = cos(xi1);
            double mid = driver1(eps, s), mid1 = driver2(eps, s, c), slope1 = driver1(eps, s1);
            double gap, fine = average(eps, xi, d3, slope0, slope1, &gap);
            /* r = V(q1) - V(q0) - V'(qb).d, and its derivative by d3. */
            double r = (fine - mid) * d3, r1;
            if (gap > 1e-8 * largest(m1, m2, fine)) {
                r += driver(eps, s1, c1) - value0 - fine * d3;
                r1 = slope1 - mid - 0.5 * mid1 * d3;
            } else {
                r1 = fine - mid + (average1(eps, xi, d3, driver2(eps, s1, c1)) - 0.5 * mid1) * d3;
            }
            double square = d1 * d1 + d2 * d2 + d3 * d3, over = square > 0 ? 1 / square : 0;
            double rho = r * over;
            /* drho/dw */
            double e1 = -2 * h * rho * d1 * over, e2 = -2 * h * rho * d2 * over;
            double e3 = h * (r1 - 2 * rho * d3) * over;
            double f1 = u1 - hh * (m1 + d1 * rho), f2 = u2 - hh * (m2 + d2 * rho);
            double f3 = u3 - hh * (mid + d3 * rho);
            /* P x = t (t.x)/(t.t) with t = (-s, 1); F = w - P f. */
            double tt = 1 / (1 + s * s), tau = (f2 - s * f1) * tt;
            double F1 = w1 + s * tau, F2 = w2 - tau, F3 = w3 - f3;
            /* J = B + (h/2) (P d) e^T, B = [1 + a P, -p'; 0, b], p' = d(P f)/dw3 at fixed f. */
            double a = hh * (hh + h * rho), b = 1 + hh * (hh * mid1 + h * rho), cut = a / (1 + a) * tt;
            double tau1 = -(f1 + 2 * s * tau) * tt * c * hh;
            double p1 = -c * hh * tau - s * tau1, p2 = tau1;
            /* y = -B^-1 F, z = B^-1 (h/2) P d, then Sherman-Morrison. */
            double inverse = 1 / b, y3 = -F3 * inverse, y1 = p1 * y3 - F1, y2 = p2 * y3 - F2;
            double along = cut * (y2 - s * y1);
            y1 += s * along, y2 -= along;
            double pd = (d2 - s * d1) * tt * hh, z3 = hh * d3 * inverse;
            double z1 = -s * pd + p1 * z3, z2 = pd + p2 * z3;
            along = cut * (z2 - s * z1);
            z1 += s * along, z2 -= along;
            double part = (e1 * y1 + e2 * y2 + e3 * y3) / (1 + (e1 * z1 + e2 * z2 + e3 * z3));
            double n1 = y1 - part * z1, n2 = y2 - part * z2, n3 = y3 - part * z3, before = error;
            w1 += n1, w2 += n2, w3 += n3;
            error = unit * largest(n1, n2, n3);
            done = settled(error, before, noise, ++count);
        }
        double y1 = x1 + h * w1, y2 = x2 + h * w2, yi = xi + h * w3;
        double next1 = 2 * w1 - u1, next2 = 2 * w2 - u2, next3 = 2 * w3 - u3;
        double s = sin(yi), c = cos(yi), lam = (next1 + s * next2) / (1 + s * s);
        double z1 = next1 - lam, z2 = next2 - s * lam;
        if (!(done && finite_state(y1, y2, yi, z1, z2, next3))) break;
        x1 = y1, x2 = y2, xi = yi, v1 = z1, v2 = z2, v3 = next3;
        u1 = next1, u2 = next2, u3 = next3;
        value0 = driver(eps, s, c), slope0 = driver1(eps, s);
        if (rows != NULL && --wait == 0) rows = put(rows, x1, x2, xi, v1, v2, v3), wait = save_every;
    }
    put(state, x1, x2, xi, v1, v2, v3);
    state[6] = u1, state[7] = u2, state[8] = u3;
    return step;
}

/* k = (-sin xi, 1)/|.| spans, with the direction of xi, the velocities that the constraint allows. */
#define FRAME(s, k1, k2) double k2 = 1 / sqrt(1 + (s) * (s)), k1 = -(s) * k2

/* q1 = q0 + h u, u = B(qb) (w0 - (h/2) B(qb)^T DV(q0, q1)), w1 = 2 B(qb)^T u - w0, v1 = B(q1) w1;
   B = (k, e3), DV = the average of V' + d (what the quadrature misses)/(d.d). The unknown is u; Broyden's
   method starts from the inverse of 1 + (h^2/4) B B^T V'' at q0. */
long cvt_frame(double *state, const double *params, double h, long steps, long save_every, double *rows) {
    const double eps = params[0], hh = 0.5 * h, a = hh * hh, cut = a / (1 + a);
    double x1 = state[0], x2 = state[1], xi = state[2], v1 = state[3], v2 = state[4], v3 = state[5];
    double wk = state[6], wx = state[7];
    double s0 = sin(xi), c0 = cos(xi), value0 = driver(eps, s0, c0), slope0 = driver1(eps, s0);
    FRAME(s0, b1, b2);
    long step = 0, wait = save_every;
    for (; step < steps; step++) {
        double push = hh * (b1 * x1 + b2 * x2), k1 = b1 * push, k2 = b2 * push, k3 = hh * slope0;
        double o1 = b1 * wk, o2 = b2 * wk;
        double resolved = resolution(largest(x1, x2, xi), h);
        double size = larger(largest(o1, o2, wx), largest(k1, k2, k3));
        double unit = 1 / (size + resolved + DBL_MIN), noise = 64 * resolved * unit;
        double u1 = o1 - k1, u2 = o2 - k2, u3 = wx - k3, error = DBL_MAX;
        /* The inverse i, the last step n and the last value l. */
        double i11 = 1 - cut * b1 * b1, i12 = -cut * b1 * b2, i13 = 0, i21 = i12, i22 = 1 - cut * b2 * b2;
        double i23 = 0, i31 = 0, i32 = 0, i33 = 1 / (1 + a * driver2(eps, s0, c0));
        double n1 = 0, n2 = 0, n3 = 0, l1 = 0, l2 = 0, l3 = 0;
        int count = 0, done = 0;
        while (!done && count < MAX_ITERATIONS) {
            double d1 = h * u1, d2 = h * u2, d3 = h * u3, xi1 = xi + d3;
            double g1 = x1 + hh * u1, g2 = x2 + hh * u2, s = sin(xi + hh * u3), s1 = sin(xi1);
            double gap, g3 = average(eps, xi, d3, slope0, driver1(eps, s1), &gap);
            if (gap > 1e-8 * largest(g1, g2, g3)) {
                double square = d1 * d1 + d2 * d2 + d3 * d3;
                double defect = driver(eps, s1, cos(xi1)) - value0 - g3 * d3;
                double part = square > 0 ? defect / square : 0;
                g1 += part * d1, g2 += part * d2, g3 += part * d3;
            }
            FRAME(s, m1, m2);
            double along = wk - hh * (m1 * g1 + m2 * g2);
            double F1 = u1 - m1 * along, F2 = u2 - m2 * along, F3 = u3 - (wx - hh * g3);
            /* i += (n - i y) (n^T i)/(n.i y), y the change of F. */
            double y1 = F1 - l1, y2 = F2 - l2, y3 = F3 - l3;
            double z1 = i11 * y1 + i12 * y2 + i13 * y3, z2 = i21 * y1 + i22 * y2 + i23 * y3;
            double z3 = i31 * y1 + i32 * y2 + i33 * y3, length = n1 * z1 + n2 * z2 + n3 * z3;
            if (length != 0) {
                double inverse = 1 / length;
                double t1 = (n1 * i11 + n2 * i21 + n3 * i31) * inverse;
                double t2 = (n1 * i12 + n2 * i22 + n3 * i32) * inverse;
                double t3 = (n1 * i13 + n2 * i23 + n3 * i33) * inverse;
                z1 = n1 - z1, z2 = n2 - z2, z3 = n3 - z3;
                i11 += z1 * t1, i12 += z1 * t2, i13 += z1 * t3;
                i21 += z2 * t1, i22 += z2 * t2, i23 += z2 * t3;
                i31 += z3 * t1, i32 += z3 * t2, i33 += z3 * t3;
            }
            l1 = F1, l2 = F2, l3 = F3;
            n1 = -(i11 * F1 + i12 * F2 + i13 * F3), n2 = -(i21 * F1 + i22 * F2 + i23 * F3);
            n3 = -(i31 * F1 + i32 * F2 + i33 * F3);
            double before = error;
            u1 += n1, u2 += n2, u3 += n3;
            error = unit * largest(n1, n2, n3);
            done = settled_broyden(error, before, noise, ++count);
        }
        double s = sin(xi + hh * u3);
        FRAME(s, m1, m2);
        /* w1 = 2 B^T u - w0, written so that rounding in k touches the increment only. */
        double nk = wk + 2 * (m1 * (u1 - m1 * wk) + m2 * (u2 - m2 * wk)), nx = wx + 2 * (u3 - wx);
        double y1 = x1 + h * u1, y2 = x2 + h * u2, yi = xi + h * u3;
        double s1 = sin(yi), c1 = cos(yi);
        FRAME(s1, e1, e2);
        if (!(done && finite_state(y1, y2, yi, e1 * nk, e2 * nk, nx))) break;
        x1 = y1, x2 = y2, xi = yi, v1 = e1 * nk, v2 = e2 * nk, v3 = nx, wk = nk, wx = nx;
        s0 = s1, c0 = c1, b1 = e1, b2 = e2, value0 = driver(eps, s1, c1), slope0 = driver1(eps, s1);
        if (rows != NULL && --wait == 0) rows = put(rows, x1, x2, xi, v1, v2, v3), wait = save_every;
    }
    put(state, x1, x2, xi, v1, v2, v3);
    state[6] = wk, state[7] = wx;
    return step;
}
