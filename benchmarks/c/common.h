/* What the C files share: when Newton's method stops, and Lobatto's rule. */
#ifndef COMMON_H
#define COMMON_H

#include <float.h>
#include <math.h>

#define MAX_ITERATIONS 50

/* fmax is one instruction on Arm, a call elsewhere. */
#ifdef __aarch64__
static inline double larger(double a, double b) { return fmax(a, b); }
#else
static inline double larger(double a, double b) { return a > b ? a : b; }
#endif

static inline double largest(double a, double b, double c) {
    return larger(fabs(a), larger(fabs(b), fabs(c)));
}

/* Zero for a finite number, NaN for any other. */
static inline double vanish(double a) { return a - a; }

/* Positions are known to eps |q|, so velocities to this. */
static inline double resolution(double size_of_q, double h) { return DBL_EPSILON * size_of_q / fabs(h); }

/* Corrections no longer shrink, at rounding or below what the equations resolve. */
static inline int stalled(double error, double before, double noise) {
    return (error > 0.25 * before) & ((before < 1e-11) | (error < noise));
}

/* Whether Newton's method is done: the rule of dalembert.numerics.newton, multiplied out so that nothing is
   divided. `error` and `before` are the last two corrections, relative to the natural size of the unknowns;
   errors go like e (e/before)^2. */
static inline int settled(double error, double before, double noise, int count) {
    int predicted = error * error * error <= 0.25 * DBL_EPSILON * (before * before);
    return (error <= 2 * DBL_EPSILON) | ((count > 1) & (predicted | stalled(error, before, noise)));
}

/* The same for Broyden's method, whose errors go like e (e/before). */
static inline int settled_broyden(double error, double before, double noise, int count) {
    int predicted = error * error <= 0.25 * DBL_EPSILON * before;
    return (error <= 2 * DBL_EPSILON) | ((count > 1) & (predicted | stalled(error, before, noise)));
}

/* Lobatto's rule with six points on [0, 1]: nodes 0, NODE1 .. NODE4, 1 with the weights FINE0, FINE1, FINE2,
   FINE2, FINE1, FINE0. The coarse rule, which estimates its error, leaves out nodes 1 and 4. */
#define NODE1 0.11747233803526763
#define NODE2 0.3573842417596775
#define NODE3 0.6426157582403225
#define NODE4 0.8825276619647324
#define FINE0 0.03333333333333333
#define FINE1 0.1892374781489235
#define FINE2 0.2774291885177432
#define COARSE0 0.1371459425887159
#define COARSE2 0.36285405741128407

#endif
