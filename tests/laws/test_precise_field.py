"""Steps and modified fields with more digits than double precision has."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import Array
from oscillator import Oscillator, W

import dalembert as da
from dalembert.diagnostics.iterates import begun, forth
from dalembert.kernels import ManyDigits, Unsupported
from dalembert.numerics import PathRule, cosine, cotangent_ratio, excess_ratio, sine_ratio, solve, solve_spd

DIGITS = 40
MP = mpmath.MPContext()
MP.dps = DIGITS + 20


def with_digits(function: Callable, *arguments: Any) -> Any:
    like = jax.tree.map(lambda x: np.asarray(x, float), arguments)
    return ManyDigits(function, *like, digits=DIGITS)(*arguments)


def off(found: Any, wanted: Any) -> float:
    """The largest difference of two arrays of numbers with many digits."""
    differences = np.asarray(found, object).reshape(-1) - np.asarray(wanted, object).reshape(-1)
    return max(float(abs(MP.mpf(x))) for x in differences)


FUNCTIONS = [
    (jnp.sin, MP.sin), (jnp.cos, MP.cos), (jnp.tan, MP.tan), (jnp.arcsin, MP.asin), (jnp.arccos, MP.acos),
    (jnp.arctan, MP.atan), (jnp.sinh, MP.sinh), (jnp.cosh, MP.cosh), (jnp.tanh, MP.tanh), (jnp.arcsinh, MP.asinh),
    (jnp.arctanh, MP.atanh), (jnp.exp, MP.exp), (jnp.expm1, MP.expm1), (jnp.log, MP.log), (jnp.log1p, MP.log1p),
    (jnp.sqrt, MP.sqrt), (jnp.cbrt, MP.cbrt), (jax.lax.rsqrt, lambda x: 1 / MP.sqrt(x)),
    (jax.scipy.special.erf, MP.erf),
    (jax.nn.sigmoid, lambda x: 1 / (1 + MP.exp(-x))), (lambda x: x**3, lambda x: x * x * x),
    (lambda x: x**-2, lambda x: 1 / (x * x)), (lambda x: x**2.5, lambda x: MP.sqrt(x) ** 5),
    (lambda x: jnp.arctan2(x, -2.0), lambda x: MP.pi - MP.atan(x / 2)),
    (lambda x: jax.grad(jnp.arcsin)(x), lambda x: 1 / MP.sqrt(1 - x * x)),
    (lambda x: jnp.floor(7 * x) + jnp.fmod(-5 * x, 1.0) + jnp.abs(-x) + jnp.maximum(x, 0.5) + jnp.sign(-x),
     lambda x: MP.floor(7 * x) - MP.fmod(5 * x, 1) + x + max(x, MP.mpf(1) / 2) - 1),
]  # fmt: skip


@pytest.mark.parametrize(("function", "exact"), FUNCTIONS)
def test_elementary_functions_have_all_digits(function: Callable, exact: Callable) -> None:
    for x in (0.3, 0.925):
        found = with_digits(function, x).item()
        assert off([found], [exact(MP.mpf(x))]) < 1e-38 * max(1, abs(float(found)))  # two digits of slack


def test_loops_branches_and_linear_algebra_have_all_digits() -> None:
    def root(a: Array) -> Array:
        return jax.lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-44, lambda x: 0.5 * (x + a / x), a)

    assert off([with_digits(root, 2.0).item()], [MP.sqrt(2)]) < 1e-39

    def summed(x: Array) -> tuple[Array, Array]:
        return jax.lax.scan(lambda c, y: (c + y / 3, c * y), jnp.zeros(()), x)

    x = np.array([0.1, 0.7, -2.0])
    last, each = with_digits(summed, x)
    exact = [MP.mpf(y) for y in x]
    assert off([last.item()], [sum(exact) / 3]) < 1e-39
    assert off(each, [0, exact[0] * exact[1] / 3, (exact[0] + exact[1]) / 3 * exact[2]]) < 1e-39
    branch = with_digits(lambda x: jax.lax.cond(x[0] > x[1], lambda: x[0] / 3, lambda: x[1] / 3), x)
    assert off([branch.item()], [exact[1] / 3]) < 1e-39
    rng = np.random.default_rng(0)
    for n in (1, 2, 4, 7):
        a, b = rng.normal(size=(n, n)), rng.normal(size=n)
        spd = a @ a.T + np.eye(n)
        matrix = MP.matrix(spd.tolist())
        wanted = list(MP.lu_solve(matrix, MP.matrix(b.tolist())))
        for solver in (solve, solve_spd, jnp.linalg.solve):
            assert off(with_digits(solver, spd, b), wanted) < 1e-36  # conditions below a thousand


@pytest.mark.parametrize("t", [1e-9, 0.3, 0.999, 1.001, 2.5])
def test_functions_of_squared_angles_have_all_digits(t: float) -> None:
    t, s = MP.mpf(t), MP.mpf(t) ** 2
    with MP.workdps(120):
        wanted = (
            MP.cos(t), MP.sin(t) / t, (t - MP.sin(t)) / t**3, (1 - t / 2 * MP.cot(t / 2)) / t**2,
        )  # fmt: skip
    for function, exact in zip((cosine, sine_ratio, excess_ratio, cotangent_ratio), wanted, strict=True):
        found = with_digits(function, np.array(s, object)).item()
        assert off([found], [exact]) < 1e-38, function.__name__


def test_rules_of_quadrature_have_all_digits() -> None:
    """Polynomials of the highest degree that the rules are exact for, integrated with double-precision tables."""
    for stages in (1, 2, 5):
        rule = PathRule.of(stages)
        for nodes, weights in ((rule.nodes, rule.weights), (rule.fine, rule.fine_weights)):
            degree = 2 * len(nodes) - 1

            def integral(_: Array, nodes=nodes, weights=weights, degree=degree) -> Array:
                return jnp.sum(jnp.asarray(weights) * jnp.asarray(nodes) ** degree)

            assert off([with_digits(integral, 0.0).item()], [MP.mpf(1) / (degree + 1)]) < 1e-39
    # Other numbers are what they are in double precision.
    plain = with_digits(lambda x: x * 0.1, 1.0).item()
    assert off([plain], [MP.mpf(0.1)]) == 0


def test_an_operation_without_digits_is_named() -> None:
    with pytest.raises(Unsupported, match="bessel"):
        ManyDigits(lambda x: jax.scipy.special.i0e(x), 1.0, digits=30)(1.0)


def _midpoint(x: Any) -> Any:
    return 2 * MP.atan(x / 2)


@pytest.mark.parametrize(
    ("method", "turn"),
    [
        (da.LeapFrog(), lambda x: 2 * MP.asin(x / 2)),
        (da.VariationalDLA(), _midpoint),
        (da.FrameGradient(), _midpoint),
        # Gauss's rule with two nodes: the diagonal Pade approximation of the exponential.
        (da.FrameCollocation(2), lambda x: 2 * MP.atan(x / 2 / (1 - x * x / 12))),
    ],
)
def test_frequencies_of_an_oscillator_to_28_digits(method: da.Method, turn: Callable) -> None:
    h = 0.1
    f = da.modified_field(Oscillator(), method, h)
    frequency = turn(MP.mpf(h) * MP.mpf(W)) / MP.mpf(h)
    x, v = (f.precise(q, v, 30) for q, v in (([1.0], [0.0]), ([0.0], [1.0])))
    assert off([MP.sqrt(x.q[0] * v.v[0] - v.q[0] * x.v[0])], [frequency]) < 1e-28
    assert off([x.q[0] + v.v[0]], [0]) < 1e-28
    assert max(x.q_error, x.v_error, v.q_error, v.v_error) < 1e-28


CVT = da.zoo.PendulumCVT(eps=0.5)
START = (np.array([0.7, -0.4, 0.3]), np.array([0.0, 0.0, 0.9]))


def steps_of(method: da.Method, h: float, points: list[tuple[Any, Any]], count: int = 1) -> list[tuple]:
    """The states after some steps with 40 digits, from each of the points (q, v)."""
    f = da.modified_field(CVT, method, h)
    arrays, static = eqx.partition(f, eqx.is_array)

    def run(a: Any, q: Array, v: Array) -> tuple[Array, Array]:
        whole = eqx.combine(a, static)
        x = begun(whole, q, v, jnp.zeros(()))
        for _ in range(count):
            x = forth(whole, x)
        return x.q, x.u

    step = ManyDigits(run, arrays, *START, digits=DIGITS)
    return [step(arrays, *(np.asarray(x, object) for x in point)) for point in points]


def test_a_step_of_leap_frog_by_hand() -> None:
    """The equations written for this system with mpmath: q1 = q0 + h p, then the reflection at D."""
    h = MP.mpf(0.1)
    q, u = ([MP.mpf(x) for x in y] for y in START)

    def force(q: list) -> list:
        return [-q[0], -q[1], -MP.sin(q[2]) - MP.mpf(0.5) * MP.cos(2 * q[2])]

    for _ in range(2):
        half = [x + h / 2 * y for x, y in zip(u, force(q), strict=True)]
        q = [x + h * y for x, y in zip(q, half, strict=True)]
        plus = [x + h / 2 * y for x, y in zip(half, force(q), strict=True)]
        a = [MP.mpf(1), MP.sin(q[2]), MP.mpf(0)]
        along = sum(x * y for x, y in zip(a, plus, strict=True)) / sum(x * x for x in a)
        u = [x - 2 * along * y for x, y in zip(plus, a, strict=True)]
    ((found, velocity),) = steps_of(da.LeapFrog(), 0.1, [START])
    assert off(found, q) < 1e-38
    assert off(velocity, u) < 1e-38


def energies(q: Any, v: Any) -> tuple[Any, Any]:
    """The driver's and the passenger's energy with all digits."""
    driver = v[2] ** 2 / 2 + 1 - MP.cos(q[2]) + MP.mpf(0.5) / 2 * MP.sin(2 * MP.mpf(q[2]))
    return driver, (q[0] ** 2 + q[1] ** 2 + v[0] ** 2 + v[1] ** 2) / 2


def allowed(passenger: Any, angle: float) -> Any:
    """A velocity of the passenger in D, of this length, at this angle of the driver."""
    sine = MP.sin(MP.mpf(angle))
    return [-sine * passenger / MP.sqrt(1 + sine**2), passenger / MP.sqrt(1 + sine**2)]


@pytest.mark.parametrize(
    "method", [da.FrameGradient(), da.FrameCollocation(2), da.DiscreteGradient("average")]
)
def test_what_the_proof_uses_holds_to_38_digits(method: da.Method) -> None:
    """The driver does not see the passenger, and the two energies are kept separately; DLA has a linear passenger, too,
    but does not keep its energy."""

    def after(method: da.Method, passenger: tuple[float, float, float]) -> tuple[Any, Any]:
        x1, x2, v = (MP.mpf(x) for x in passenger)
        q, u = [x1, x2, MP.mpf(0.3)], [*allowed(v, 0.3), MP.mpf(0.9)]
        ((q1, u1),) = steps_of(method, 0.1, [(q, u)])
        return (energies(q, u), energies(q1, u1)), (q1[2], u1[2])

    seen = [after(method, x) for x in ((1.0, 0.2, -0.5), (-3.0, 0.7, 2.0))]
    for (before, later), _ in seen:
        assert off(before, later) < 1e-37  # energies are up to seven
    assert off(seen[0][1], seen[1][1]) < 1e-38
    (before, later), driver = after(da.DLA(0.5), (1.0, 0.2, -0.5))
    assert off(driver, after(da.DLA(0.5), (-3.0, 0.7, 2.0))[1]) < 1e-38
    assert off(before[1:], later[1:]) > 1e-6


def test_the_passenger_is_skew_to_20_digits_and_that_of_dla_is_not() -> None:
    """At a slow state, where the field is known so well. For DLA(1/2) the symmetric part falls as h^2."""

    def symmetric_part(method: da.Method, h: float) -> tuple[float, float]:
        f = da.modified_field(CVT, method, h)
        length = MP.sqrt(1 + MP.sin(MP.mpf(0.3)) ** 2)
        rows, errors = [], []
        for x in np.eye(3):
            there = f.precise([x[0], x[1], 0.3], [*(float(y) for y in allowed(MP.mpf(x[2]), 0.3)), 0.4], 22)
            # The length of the passenger's velocity is u = x2' sqrt(1 + sin^2), and changes with the driver, too.
            change = (
                there.v[1] * length + there.state[1][1] * MP.sin(2 * MP.mpf(0.3)) / 2 * there.q[2] / length
            )
            speed = there.state[1][1] * length  # one, but the given velocity was rounded
            rows.append([y / (speed if x[2] else 1) for y in (there.q[0], there.q[1], change)])
            errors.append(there.q_error + there.v_error)
        matrix = np.array(rows, object)
        return off(matrix + matrix.T, np.zeros((3, 3))), max(errors)

    kept, error = symmetric_part(da.FrameGradient(), 0.02)
    assert error < 1e-19
    assert kept < 10 * error  # nine entries, each with this error
    parts = [symmetric_part(da.DLA(0.5), h)[0] for h in (0.04, 0.02)]
    assert parts[1] > 1e-6
    assert parts[0] / parts[1] == pytest.approx(4, rel=0.01)  # the next power is h^4


@pytest.mark.parametrize(
    ("system", "method", "h"),
    [
        (da.zoo.RoundBody(), da.LieGNI(), 0.01),
        (da.zoo.Suslov(), da.FrameGradient(), 0.01),
        (da.zoo.NonholonomicParticle(), da.EDLA(), 0.02),
        (da.zoo.RheonomicParticle(), da.FrameGradient(), 0.02),
    ],
)
def test_double_precision_is_within_its_error_bar(system: da.System, method: da.Method, h: float) -> None:
    """On groups, with steps that differ in size, and with time."""
    f = da.modified_field(system, method, h)
    q, v = (np.asarray(x) for x in system.start())
    exact, rows = f.precise(q, v, 20), f.rows(q[None], v[None])
    assert max(exact.q_error, exact.v_error) < 1e-18
    assert off(exact.q, rows.q[0]) < rows.q_error[0] + 1e-15
    assert off(exact.v, rows.v[0]) < rows.v_error[0] + 1e-15
    if isinstance(system, da.zoo.RoundBody):  # Theorem 1 of Ferraro and others: the energy is kept exactly
        assert off([sum(exact.state[1] * exact.v)], [0]) < 1e-18


def test_what_cannot_have_more_digits_is_refused() -> None:
    f = da.modified_field(CVT, da.LeapFrog(), 0.1)
    for digits in (16, 1000, 30.5):
        with pytest.raises(ValueError, match="from 17 to 300"):
            f.precise(*START, digits)
    with pytest.raises(ValueError, match="taylor_series"):
        da.modified_field(da.zoo.ChaplyginSleigh(), da.Taylor(), 0.1).precise(
            *da.zoo.ChaplyginSleigh().start(), 20
        )
