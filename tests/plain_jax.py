"""What is compared with plain JAX, and how near it must be."""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

EPS = np.finfo(float).eps


def quick_options():
    """Compiler options that make compiling, nearly all of this file's run time, five times faster; {} if unknown."""
    options = {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    }
    try:
        jax.jit(jnp.sin, compiler_options=options)(1.0)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


compiled = functools.partial(jax.jit, compiler_options=quick_options())


def tolerance(want, moved):
    """4 (eps scale + conditioning), for the entries of one order of derivative at one point.

    The scalariser adds in another order than XLA, and its sine and cosine differ in the last place, so errors are
    relative to the size of the terms that are added, not of their sum: `scale` is the largest entry, at least 1.
    Where the function itself magnifies a rounding of its input, it magnifies roundings inside as well: `moved` are
    plain JAX's own results at points one rounding away, and their distance is added.
    """
    scale = max(1.0, np.max(np.abs(want), initial=0.0))
    conditioning = max(np.max(np.abs(m - want), initial=0.0) for m in moved)
    return 4 * (EPS * scale + conditioning)


def nearby(q, rng, n=4):
    """Points at which every entry of q is moved by one rounding up or down."""
    return [q * (1 + EPS * rng.choice([-1, 1], q.shape)) for _ in range(n)]


def complaint(where, got, want, moved):
    """One line that says how far got is from want, or None when it is near enough."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{where}: {got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
    error, bound = np.max(np.abs(got - want), initial=0.0), tolerance(want, moved)
    return None if error <= bound else f"{where}: off by {error:.3g}, tolerance {bound:.3g}: {got} != {want}"


def latin_points(name, low, high, n=5):
    """Seeded points; in every coordinate one lies in each fifth of the range, so that branches differ."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    strata = np.stack([rng.permutation(n) for _ in range(4)], axis=1)
    return low + (high - low) * (strata + rng.random((n, 4))) / n, rng


def collatz(n):
    def step(state):
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]


BRANCHES = [
    lambda x: lax.cond(x > 0, lambda: jnp.sqrt(x) + jnp.log(x), lambda: x * 2),
    lambda x: lax.switch((x > 0) + (x > 5).astype(int), [lambda x: -x, jnp.sqrt, lambda x: 1 / (x - 4.0)], x),
    lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), x * 2),
    lambda x: lax.cond(x == 4.0, lambda: 1.0 * x, lambda: jnp.arccosh(1 + jnp.abs(1 / (x - 4.0)))),
]
