"""Measures what docs/groups.md says: `python docs/groups.py NAME ...`, or `all`; fails where it is not so.

Needs jaxlie, which is in the extra `dev`.
"""

import subprocess
import sys
import time
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb, factorial

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from entries import show

import dalembert as da
from dalembert import groups
from dalembert.model import as_arrays
from dalembert.simulation.engines import loop_of

ANGLES = (0.0, 1e-12, 1e-9, 1e-7, 1e-6, 9e-6, 1.1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 2.0, 3.0)
TERMS = 130  # (3/2 pi)^130 is below 1e-41; at angles below 0.02 a few do
ROUNDING = 2e-15
"""What counts as rounding: ten units in the last place of a number near one."""


class JaxlieSO3(groups.SO3):
    """SO(3) whose exponential and its derivative are jaxlie's."""

    def exp(self, x):
        return jaxlie.SO3.exp(x).as_matrix().reshape(9)

    def dexp_inverse(self, x):
        # jlog is trivialised on the left: that of exp(-x) is ours of exp(x).
        return jaxlie.SO3.exp(-x).jlog()


class JaxlieExponential(groups.SO3):
    """SO(3) whose exponential alone is."""

    def exp(self, x):
        return jaxlie.SO3.exp(x).as_matrix().reshape(9)


class JaxlieSE2(groups.SE2):
    """SE(2) likewise."""

    def exp(self, x):
        return jnp.concatenate([jaxlie.SE2.exp(x).translation(), x[2:]])

    def dexp_inverse(self, x):
        return jaxlie.SE2.exp(-x).jlog()


class JaxlieSE3(groups.SE3):
    """SE(3) likewise."""

    def exp(self, x):
        made = jaxlie.SE3.exp(x)
        return jnp.concatenate([made.translation(), made.rotation().as_matrix().reshape(9)])

    def dexp_inverse(self, x):
        return jaxlie.SE3.exp(-x).jlog()


PAIRS = ((groups.SO3(), JaxlieSO3()), (groups.SE2(), JaxlieSE2()), (groups.SE3(), JaxlieSE3()))


def _say(*words):
    print("   ", *words)


def _bernoulli(count):
    numbers = []
    for m in range(count):
        numbers.append(
            Fraction(m == 0) - sum((comb(m, k) * numbers[k] / (m - k + 1) for k in range(m)), Fraction(0))
        )
    return numbers


EXP = [Fraction(1, factorial(k)) for k in range(TERMS)]
DEXP_INVERSE = [b / factorial(k) for k, b in enumerate(_bernoulli(TERMS))]


def _series(coefficients, x):
    """The power series of a matrix, with 60 digits."""
    one = np.array([[Decimal(int(i == j)) for j in range(len(x))] for i in range(len(x))])
    total = 0 * one
    for c in reversed(coefficients):
        total = total @ x + one * (Decimal(c.numerator) / Decimal(c.denominator))
    return total


def _decimal(x):
    return np.vectorize(Decimal, otypes=[object])(np.asarray(x, float))


def _exact(group, x, y, angle):
    """exp(x) as a matrix, the inverse of its derivative, and the derivative of that along y."""
    basis = _decimal(np.moveaxis(jax.jacfwd(lambda x: group.matrix(group.exp(x)))(jnp.zeros_like(x)), -1, 0))
    brackets = _decimal([group.bracket(e) for e in jnp.eye(group.dimension)])
    with localcontext() as context:
        context.prec = 60
        hat, ad, along = (
            sum(c * e for c, e in zip(_decimal(z), which, strict=True))
            for z, which in ((x, basis), (x, brackets), (y, brackets))
        )
        n, few = len(ad), 20 if angle < 0.02 else TERMS
        # f([[X, Y], [0, X]]) holds f(X) and the derivative of f at X along Y.
        both = _series(DEXP_INVERSE[:few], np.block([[ad, along], [0 * ad, ad]]))
        return _series(EXP[:few], hat), both[:n, :n], both[:n, n:]


def _errors(group, exact, x, y):
    value, change = jax.jvp(group.dexp_inverse, (x,), (y,))
    found = group.matrix(group.exp(x)), value, change
    return [
        float(np.max(np.abs(_decimal(a) - b))) if np.all(np.isfinite(a)) else np.inf
        for a, b in zip(found, exact, strict=True)
    ]


def accuracy():
    """Errors of exp, of the inverse of its derivative, and of the derivative of that, beside 60 digits."""
    worst = {}
    random = np.random.default_rng(4)
    for ours, theirs in PAIRS:
        turning = 1 if ours.dimension == 3 and ours.size == 3 else 3
        _say(f"{ours.name}: angle, then exp, dexp^-1, its derivative: jaxlie | ours")
        for angle in ANGLES:
            found = []
            for _ in range(3):
                w = random.normal(size=turning)
                x = np.concatenate(
                    [random.normal(size=ours.dimension - turning), angle * w / np.linalg.norm(w)]
                )
                x, y = jnp.asarray(x), jnp.asarray(random.normal(size=ours.dimension))
                exact = _exact(ours, x, y, angle)
                found.append([_errors(group, exact, x, y) for group in (theirs, ours)])
            row = np.max(found, axis=0)
            worst[ours.name, angle] = row
            _say(f"{angle:8.1e}", *(f"{e:.0e}" for e in row[0]), "|", *(f"{e:.0e}" for e in row[1]))
    for name in ("SO(3)", "SE(2)", "SE(3)"):
        table = np.array([worst[name, angle] for angle in ANGLES])
        for who, k in (("jaxlie", 0), ("ours", 1)):
            at = [ANGLES[i] for i in np.argmax(table[:, k], axis=0)]
            _say(
                name,
                who,
                "worst",
                *(f"{e:.1e} at {a:g}" for e, a in zip(table[:, k].max(0), at, strict=True)),
            )
        assert table[:, 1].max() < ROUNDING * 5
        if name == "SO(3)":
            assert table[:, 0, :2].max() < ROUNDING  # as good as ours
        else:
            assert table[:, 0, 0].max() > 1e-10
            assert table[:, 0, 2].max() > 0.1


def beyond_half_a_turn():
    """jaxlie has the inverse derivative at an element, through its logarithm: from an angle of pi on another one."""
    for angle in (3.1, 3.2, 5.0):
        x = angle * jnp.array([0.6, 0.0, 0.8])
        exact = _exact(groups.SO3(), x, x, angle)[1] if angle < 3.15 else None
        ours, theirs = (g.dexp_inverse(x) for g in (groups.SO3(), JaxlieSO3()))
        if exact is None:  # an independent road beyond the reach of the series: the derivative of exp itself
            columns = jax.jacfwd(lambda z: groups.SO3().matrix(groups.SO3().exp(z)))(x)
            moved = jnp.einsum("ijk,lj->ilk", columns, groups.SO3().matrix(groups.SO3().exp(x)))
            exact = np.linalg.inv(np.stack([moved[2, 1], moved[0, 2], moved[1, 0]]))
        errors = [
            float(np.max(np.abs(np.asarray(a, float) - np.asarray(exact, float)))) for a in (theirs, ours)
        ]
        _say(f"angle {angle}: jaxlie off by {errors[0]:.1e}, ours by {errors[1]:.1e}")
        assert errors[1] < 1e-14
        assert (errors[0] > 0.1) == (angle > np.pi)


class Rotating(da.zoo.Suslov):
    group = JaxlieSO3()


class RotatingHalf(da.zoo.Suslov):
    group = JaxlieExponential()


class Sliding(da.zoo.GroupSleigh):
    group = JaxlieSE2()


class Skate(da.GroupSystem):
    """A body in space that moves along one of its axes and turns as it likes."""

    group = groups.SE3()

    def inertia(self):
        return jnp.diag(jnp.array([1.0, 1.0, 1.0, 0.5, 0.7, 0.9])).at[1, 5].set(0.2).at[5, 1].set(0.2)

    def constraints(self, g):
        return jnp.eye(6)[1:3]


class JaxlieSkate(Skate):
    group = JaxlieSE3()


def _per_step(cases, start):
    """The least time of a run by each (system, method), in that of the first; all go to the end."""
    best = [np.inf] * len(cases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the parasitic mode; here only the time counts
        for _ in range(8):
            for k, (system, method) in enumerate(cases):
                began = time.perf_counter()
                da.simulate(system, method, *start, h=0.1, steps=20_000, save_every=20_000)
                best[k] = min(best[k], time.perf_counter() - began)
    return [x / best[0] for x in best]


def kernels():
    """The kernels take steps made of jaxlie's functions; most of these steps are longer."""
    turning = [0.0, 0.0, 0.0, 3.0, 2.0, 4.0]
    cases = (
        (da.zoo.Suslov(), da.zoo.Suslov().start(), {"exp alone": RotatingHalf(), "both": Rotating()}),
        (da.zoo.GroupSleigh(offset=0.0), (jnp.zeros(3), [1.0, 0.0, 5.0]), {"both": Sliding(offset=0.0)}),
        (Skate(), (Skate.group.identity(), turning), {"both": JaxlieSkate()}),
    )
    for ours, start, theirs in cases:
        for system in (ours, *theirs.values()):
            loop_of(as_arrays(system), as_arrays(da.LieGNI()))  # raises Unsupported where there is no kernel
        times = _per_step([(system, da.LieGNI()) for system in (ours, *theirs.values())], start)
        _say(
            f"{ours.group.name}: a kernel; time of a run with jaxlie's exp and dexp^-1 in that with ours:",
            ", ".join(f"{name} {x:.1f}" for name, x in zip(theirs, times[1:], strict=True)),
        )
    body = da.zoo.RoundBody()
    ratio = _per_step([(body, da.LieGNI()), (body, da.LieGNI("cayley"))], body.start())[1]
    _say(f"our own Cayley map on SO(3) takes {ratio:.1f} of the time of our exp")
    assert ratio < 1


def slow_turning():
    """A sleigh that turns by little in a step: with jaxlie's SE(2) Newton's method fails, its derivative is wrong."""
    ends = {}
    for angle in (1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2):
        words = []
        for kind in (Sliding, da.zoo.GroupSleigh):
            sol = da.simulate(
                kind(), da.LieGNI(), [0.0, 0.0, 0.0], [1.0, 0.0, angle / 0.1], h=0.1, steps=100, throw=False
            )
            words.append(f"{sol.status.name} after {int(sol.steps)} steps")
            ends[angle, kind] = int(sol.steps)
        _say(f"angle {angle:g} a step: jaxlie {words[0]}, ours {words[1]}")
        assert ends[angle, da.zoo.GroupSleigh] == 100
    assert ends[1e-4, Sliding] == 0


def import_time():
    """Importing jaxlie costs little beside importing dalembert, both after jax."""
    best = {}
    for name in ("dalembert", "jaxlie"):
        code = f"import time, jax; a = time.perf_counter(); import {name}; print(time.perf_counter() - a)"
        found = [
            float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
            for _ in range(5)
        ]
        best[name] = min(found)
    ratio = best["jaxlie"] / best["dalembert"]
    _say(f"import of jaxlie: {ratio:.2f} of that of dalembert")
    assert ratio < 0.3  # so much for other loads of the machine


def what_there_is():
    """What jaxlie has of the things a step needs."""
    names = [x for x in ("SO2", "SO3", "SE2", "SE3") if hasattr(jaxlie, x)]
    lacking = [x for x in ("S3", "H3", "Heisenberg", "Rn", "Torus", "Product") if not hasattr(jaxlie, x)]
    functions = {
        x: hasattr(jaxlie.SE3, x)
        for x in ("exp", "log", "adjoint", "jlog", "cayley", "jexp", "ad", "bracket")
    }
    _say("groups:", *names, "lacking:", *lacking)
    _say("functions:", {k: "yes" if v else "no" for k, v in functions.items()})
    x = jnp.array([0.3, -0.2, 0.5])
    off = float(jnp.max(jnp.abs(jaxlie.SO3.exp(x).wxyz - groups.S3().exp(x))))
    _say(f"its SO3 is our S^3, quaternions with the halved algebra: exp differs by {off:.0e}")
    assert off < ROUNDING
    assert functions["jlog"]
    assert not functions["cayley"]


def table():
    """The groups, their numbers and maps."""
    kinds = (
        groups.SO3(),
        groups.S3(),
        groups.SE2(),
        groups.SE3(),
        groups.H3(),
        groups.Rn(3),
        groups.Torus(2),
    )
    for group in (*kinds, groups.Product(groups.SE2(), groups.Torus(2))):
        _say(
            f"{group.name}: {group.size} numbers, {group.dimension} velocities;", ", ".join(group.retractions)
        )


ENTRIES = {
    name.replace("_", "-"): function
    for name, function in list(globals().items())
    if callable(function) and getattr(function, "__module__", "") == __name__ and name[0].islower()
}


def main(names):
    """Shows the entries of these names."""
    show(ENTRIES, names)


if __name__ == "__main__":
    main(sys.argv[1:])
