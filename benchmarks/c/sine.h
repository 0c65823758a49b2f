/* Sine and cosine without branches, so that loops over them vectorise; good to two units in the last place
   for |x| < 1e6. */
#ifndef SINE_H
#define SINE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SINE_INLINE static __device__ __forceinline__
#else
#define SINE_INLINE static inline __attribute__((always_inline))
#endif

/* Adding it rounds to the nearest whole number, which then sits in the lowest bits. */
#define ROUND_SHIFT 6755399441055744.0
#define SIGN 0x8000000000000000u

SINE_INLINE uint64_t bits_of(double x) {
    uint64_t n;
    memcpy(&n, &x, sizeof n);
    return n;
}

SINE_INLINE double of_bits(uint64_t n) {
    double x;
    memcpy(&x, &n, sizeof n);
    return x;
}

/* sin x = +-sin r, r = x - k pi in [-pi/2, pi/2]; polynomial: interpolation at Chebyshev's points, 4e-17. */
SINE_INLINE double sine(double x) {
    double shifted = fma(x, 0.3183098861837907, ROUND_SHIFT), k = shifted - ROUND_SHIFT;
    double r = fma(-k, 3.141592653589793, x);
    r = fma(-k, 1.2246467991473532e-16, r);
    r = fma(k, 2.9947698097183397e-33, r);
    double z = r * r, p = 2.731428986122616e-15;
    p = fma(p, z, -7.643969031052769e-13);
    p = fma(p, z, 1.6058977272815506e-10);
    p = fma(p, z, -2.5052107616384595e-08);
    p = fma(p, z, 2.755731921915843e-06);
    p = fma(p, z, -0.00019841269841254955);
    p = fma(p, z, 0.008333333333333316);
    p = fma(p, z, -0.16666666666666666);
    return of_bits(bits_of(fma(r * z, p, r)) ^ bits_of(shifted) << 63);
}

/* Both, from r = x - k pi/2 in [-pi/4, pi/4] and the polynomials of fdlibm. */
SINE_INLINE void sine_cosine(double x, double *s, double *c) {
    double shifted = fma(x, 0.6366197723675814, ROUND_SHIFT), k = shifted - ROUND_SHIFT;
    uint64_t n = bits_of(shifted);
    double r = fma(-k, 1.5707963267948966, x);
    r = fma(-k, 6.123233995736766e-17, r);
    r = fma(k, 1.4973849048591698e-33, r);
    double z = r * r, p = 1.58969099521155010221e-10, q = -1.13596475577881948265e-11;
    p = fma(p, z, -2.50507602534068634195e-08);
    q = fma(q, z, 2.08757232129817482790e-09);
    p = fma(p, z, 2.75573137070700676789e-06);
    q = fma(q, z, -2.75573143513906633035e-07);
    p = fma(p, z, -1.98412698298579493134e-04);
    q = fma(q, z, 2.48015872894767294178e-05);
    p = fma(p, z, 8.33333333332248946124e-03);
    q = fma(q, z, -1.38888888888741095749e-03);
    p = fma(p, z, -1.66666666666666324348e-01);
    q = fma(q, z, 4.16666666666666019037e-02);
    double sr = fma(r * z, p, r), half = 0.5 * z, one = 1 - half;
    double cr = one + fma(z * z, q, (1 - one) - half);
    uint64_t swap = (bits_of(sr) ^ bits_of(cr)) & -(n & 1);
    *s = of_bits(bits_of(sr) ^ swap ^ (n << 62 & SIGN));
    *c = of_bits(bits_of(cr) ^ swap ^ ((n + 1) << 62 & SIGN));
}

#endif
