/* The leap-frog on many pendulum CVTs, one thread a trajectory, in double precision.

   states is (9, N), one row a component: q, v, u as in cvt.c. params = {eps}. */

#include <cuda_runtime.h>

#include "sine.h"

#define THREADS 128

static __device__ __forceinline__ double driver1(double eps, double s) { return s + eps * (1 - 2 * s * s); }

/* uh = u0 - (h/2) V'(q0), q1 = q0 + h uh, u+ = uh - (h/2) V'(q1), v1 = P(q1) u+, u1 = 2 v1 - u+. The state
   stays in registers; v is formed after the last step only, since v = (u+ + u)/2 is not used on the way. */
static __global__ void __launch_bounds__(THREADS)
    cvt_leapfrog_kernel(double *__restrict__ states, double eps, double h, long steps, long N) {
    const long i = (long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= N || steps < 1) return;
    const double hh = 0.5 * h;
    double x1 = states[i], x2 = states[N + i], xi = states[2 * N + i];
    double u1 = states[6 * N + i], u2 = states[7 * N + i], u3 = states[8 * N + i];
    double slope = driver1(eps, sine(xi)), p1 = 0, p2 = 0;
    for (long step = 0; step < steps; step++) {
        double a1 = u1 - hh * x1, a2 = u2 - hh * x2, a3 = u3 - hh * slope;
        x1 += h * a1, x2 += h * a2, xi += h * a3;
        double s = sine(xi);
        slope = driver1(eps, s);
        p1 = a1 - hh * x1, p2 = a2 - hh * x2;
        double twice = 2 * (p1 + s * p2) / (1 + s * s);
        u1 = p1 - twice, u2 = p2 - s * twice, u3 = a3 - hh * slope;
    }
    states[i] = x1, states[N + i] = x2, states[2 * N + i] = xi;
    states[3 * N + i] = 0.5 * (p1 + u1), states[4 * N + i] = 0.5 * (p2 + u2), states[5 * N + i] = u3;
    states[6 * N + i] = u1, states[7 * N + i] = u2, states[8 * N + i] = u3;
}

static int launch(double *states, double eps, double h, long steps, long N) {
    cvt_leapfrog_kernel<<<(unsigned)((N + THREADS - 1) / THREADS), THREADS>>>(states, eps, h, steps, N);
    return cudaGetLastError();
}

/* Runs all trajectories on the GPU, once on a copy to warm up and once on the states themselves; the kernel's
   time goes to `seconds`, without the copies. Returns 0, or CUDA's error code. */
extern "C" int cvt_leapfrog_gpu(double *states_host, const double *params, double h, long steps, long N,
                                double *seconds) {
    const size_t size = 9 * (size_t)N * sizeof(double);
    double *states = NULL, *copy = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    float milliseconds = 0;
    int error = 0;
    if (N < 1) return 0;
    (void)((error = cudaMalloc(&states, size)) || (error = cudaMalloc(&copy, size))
           || (error = cudaEventCreate(&begin)) || (error = cudaEventCreate(&end))
           || (error = cudaMemcpy(states, states_host, size, cudaMemcpyHostToDevice))
           || (error = cudaMemcpy(copy, states, size, cudaMemcpyDeviceToDevice))
           || (error = launch(copy, params[0], h, steps, N)) || (error = cudaDeviceSynchronize())
           || (error = cudaEventRecord(begin)) || (error = launch(states, params[0], h, steps, N))
           || (error = cudaEventRecord(end)) || (error = cudaEventSynchronize(end))
           || (error = cudaEventElapsedTime(&milliseconds, begin, end))
           || (error = cudaMemcpy(states_host, states, size, cudaMemcpyDeviceToHost)));
    *seconds = 1e-3 * milliseconds;
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    cudaFree(states);
    cudaFree(copy);
    return error;
}
