"""Discrete Lagrangians and constraints of the user's own: those that do not stand for the system are refused."""

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.discrete import (
    AlphaRule,
    CustomConstraint,
    CustomLagrangian,
    DiscreteLagrangian,
    Midpoint,
    PointConstraint,
    Retraction,
    Trapezoidal,
)
from dalembert.discrete.consistency import (
    check_constraint_at,
    check_lagrangian_at,
    check_rules,
    is_own,
    states_around,
)
from dalembert.model import as_arrays, lower

Z = da.zoo
PARTICLE, SLEIGH = Z.NonholonomicParticle(), Z.ChaplyginSleigh()
PULLED = Z.NonholonomicParticle(lambda q: jnp.sin(q[0]) + q[1] ** 2)
X0 = float(PARTICLE.start()[0][0])


class Units(da.System):
    """The same system whatever the unit of length: waves of that length, kinetic energies of order one."""

    coordinates = ("x", "y")
    unit: float

    def metric(self, q):
        return jnp.diag(jnp.array([1.0, 1.3])) / self.unit**2

    def potential(self, q):
        return jnp.sin(q[0] / self.unit) + 0.3 * jnp.cos(q[1] / self.unit)

    def constraints(self, q):
        x = q[0] / self.unit
        return jnp.stack([jnp.sin(x), jnp.cos(x)])[None]

    def starts(self):
        u = float(self.unit)
        return {"usual": ([0.4 * u, 0.7 * u], [0.8 * u * np.cos(0.4), -0.8 * u * np.sin(0.4)])}


def free(s, q0, q1, h):
    return 0.5 * jnp.sum((q1 - q0) ** 2) / h


def middle(s, q0, q1, h):
    return h * s.lagrangian(0.5 * (q0 + q1), (q1 - q0) / h)


def rectangle(s, q0, q1, h):
    return h * s.lagrangian(q0, (q1 - q0) / h)


def left(s, q0, q1, h):
    return s.constraints(q0) @ (q1 - q0) / h


def point(s, q0, q1, h):
    """Without the 1/h, and another multiple of it at each place."""
    return (1 + q0[0] ** 2 + q1[0] ** 2) * s.constraints(0.5 * (q0 + q1)) @ (q1 - q0)


def magnetic(size):
    return lambda s, q0, q1, h: middle(s, q0, q1, h) + size * q0[0] * (q1 - q0)[1]


def plus(function, more):
    return lambda s, q0, q1, h: function(s, q0, q1, h) + more(s, q0, q1, h)


def asked(system, lagrangian=None, constraint=None, start=None):
    check_rules(system, *(start or system.start()), 0.0, lagrangian, constraint)


MOMENTUM = r"does not stand for the Lagrangian of {}: as h goes to 0 its momentum p\^. = .* differs from M v by .*Use"
FORCE = r"does not stand for the Lagrangian of .*its force .* differs from dL/dq by .*"
SINGULAR = (
    r"is not regular: its mixed second derivative D12 L_d.* is singular at the start \(x=1, .*Midpoint\(\)"
)


@pytest.mark.parametrize(
    ("system", "function", "message"),
    [
        (PARTICLE, magnetic(0.3), MOMENTUM.format("NonholonomicParticle")),
        (PARTICLE, magnetic(1e-4), MOMENTUM.format("NonholonomicParticle")),
        # Zero at the start, with its first derivative.
        (PARTICLE, plus(middle, lambda s, a, b, h: (a[0] - X0) ** 2 * (b - a)[1]), "near the start"),
        # Zero for the start's velocity, (1, 0.5, 0.6): its momentum is not.
        (PARTICLE, plus(middle, lambda s, a, b, h: (b - a)[0] - 2 * (b - a)[1]), "p\\^- = "),
        (PARTICLE, plus(free, lambda s, a, b, h: jnp.sin(b[0]) - jnp.sin(a[0])), "p\\^- = "),
        (PARTICLE, lambda s, a, b, h: free(s, a, b, h) / h, "scaled as an action"),
        (PARTICLE, lambda s, a, b, h: 2 * free(s, a, b, h), "differs from M v by 1 of it"),
        (PULLED, free, FORCE),
        (PULLED, plus(middle, lambda s, a, b, h: 1e-3 * h * a[0] ** 3), FORCE),
        (PARTICLE, lambda s, a, b, h: 0.5 * jnp.sum((b - a)[:2] ** 2) / h, SINGULAR),
        (PARTICLE, lambda s, a, b, h: 0.0 * jnp.sum(b), SINGULAR),
        (
            PARTICLE,
            lambda s, a, b, h: free(s, a, b, h) * jnp.nan,
            "NaN or infinite at the start and around it",
        ),
        (Units(1e-6), magnetic(1e9), MOMENTUM.format("Units")),  # of the natural size 1e12 a thousandth
        (Units(1e6), magnetic(1e-15), MOMENTUM.format("Units")),
    ],
)
def test_lagrangians_that_do_not_stand_for_the_system(system, function, message):
    with pytest.raises(ValueError, match=message):
        asked(system, CustomLagrangian(function))


def test_what_lagrangians_say_of_themselves_is_asked():
    for rule, message in (
        (CustomLagrangian(rectangle, 1, True), "said to be symmetric.*Say is_symmetric=False"),
        (
            CustomLagrangian(rectangle, 2),
            r"said to be of order 2, .* to order 1 in h only.*CustomLagrangian\(..., 1\)",
        ),
        (CustomLagrangian(middle, 4, True), "said to be of order 4, .* to order 2 in h only"),
    ):
        with pytest.raises(ValueError, match=message):
            asked(SLEIGH, rule)


STANDS = r"does not stand for the constraint of NonholonomicParticle: .* misses it by .* Use PointConstraint\(0.5\)"


@pytest.mark.filterwarnings("error::RuntimeWarning")  # a sentence, and nothing beside it
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s, a, b, h: (s.constraints(a) @ (b - a) + 0.02) / h, STANDS),
        (lambda s, a, b, h: s.constraints(a) @ (b - a) + 0.02, STANDS),
        (lambda s, a, b, h: left(s, a, b, h) + 0.02, STANDS),
        (lambda s, a, b, h: (b - a)[:1] / h, STANDS),
        (lambda s, a, b, h: left(s, a, b, h) + (a[0] - X0) ** 2 * (b - a)[1] / h, "near the start"),
        (lambda s, a, b, h: left(s, a, b, h) ** 2, "does not have 1 independent rows"),
        (lambda s, a, b, h: 0 * left(s, a, b, h), "does not have 1 independent rows"),
        (lambda s, a, b, h: left(s, a, b, h) * jnp.nan, "NaN or infinite"),
    ],
)
def test_constraints_that_do_not_stand_for_the_system(function, message):
    with pytest.raises(ValueError, match=message):
        asked(PARTICLE, None, CustomConstraint(function))


def test_a_constraint_that_is_not_symmetric_must_not_say_so():
    with pytest.raises(ValueError, match=r"own-constraint is said to be symmetric.*Say is_symmetric=False"):
        asked(PARTICLE, None, CustomConstraint(left, True))


@pytest.mark.parametrize(
    ("system", "lagrangian", "constraint"),
    [
        (PARTICLE, CustomLagrangian(free), CustomConstraint(left)),
        (SLEIGH, CustomLagrangian(middle, 2, True), CustomConstraint(point, True)),
        (SLEIGH, CustomLagrangian(rectangle), None),
        (
            PULLED,
            CustomLagrangian(plus(middle, lambda s, a, b, h: 7.0 * h)),
            None,
        ),  # a constant changes nothing
        (Units(1e-6), CustomLagrangian(middle, 2, True), CustomConstraint(point, True)),
        (Units(1e6), CustomLagrangian(middle, 2, True), CustomConstraint(point, True)),
    ],
)
def test_right_ones_are_taken(system, lagrangian, constraint):
    asked(system, lagrangian, constraint)
    q0, v0 = system.start()
    asked(system, lagrangian, constraint, (q0, 0 * v0))  # and from rest


# Every rule of the library, which is trusted where it runs; Gauss is measured with its orders in the laws.
BUILT_IN = [
    (SLEIGH, [Midpoint(), Trapezoidal(), AlphaRule(0.2), PointConstraint(), PointConstraint(0.0)]),
    (Z.PendulumCVT(eps=0.5), [AlphaRule(0.2), PointConstraint()]),
    (Z.RheonomicParticle(), [Trapezoidal(), PointConstraint()]),
    (Z.BallOnTurntable(), [PointConstraint()]),
    (Z.GroupSleigh(), [Retraction("exp"), PointConstraint()]),
    (Units(1e-6), [Midpoint(), PointConstraint()]),
    (Units(1e6), [Midpoint(), PointConstraint()]),
]


@pytest.mark.parametrize(("system", "rules"), BUILT_IN, ids=lambda x: type(x).__name__)
def test_the_librarys_own_rules_pass(system, rules):
    m = lower(as_arrays(system))
    at = states_around(m, *system.start())
    for rule in rules:
        assert not is_own(rule)
        ask = check_lagrangian_at if isinstance(rule, DiscreteLagrangian) else check_constraint_at
        ask(as_arrays(rule), m, at)


def test_methods_ask_their_own_rules():
    class Mine(Midpoint):
        """A class of the user's is asked too."""

        def value(self, system, q0, q1, u, h):
            return 2 * super().value(system, q0, q1, u, h)

    start = PARTICLE.start()
    for method in (da.GNI(magnetic(0.3)), da.VariationalDLA(Mine()), da.EDLA(Mine())):
        with pytest.raises(ValueError, match="differs from M v"):
            method.check_start(PARTICLE, *start, 0.0)
    for method in (
        da.VariationalDLA(discrete_constraint=lambda *given: left(*given) + 0.02),
        da.Composition(da.VariationalDLA(Midpoint(), CustomConstraint(left, True))),
    ):
        with pytest.raises(ValueError, match="discrete constraint"):
            method.check_start(PARTICLE, *start, 0.0)
    for method in (da.GNI(), da.EDLA(), da.DLA(), da.Composition(da.DLA01())):
        method.check_start(PARTICLE, *start, 0.0)


def test_simulate_asks():
    with pytest.raises(ValueError, match="differs from M v"):
        da.simulate(PARTICLE, da.GNI(magnetic(0.3)), *PARTICLE.start(), h=0.1, steps=2)


def test_a_rule_that_changes_after_it_passed_is_looked_at_again():
    wrong = {"now": False}

    def changing(s, q0, q1, h):
        value = middle(s, q0, q1, h)
        return jnp.stack([value, value]) if wrong["now"] else value

    method, start = da.GNI(changing), PARTICLE.start()
    for factor in (1.0, 1.1):
        da.simulate(PARTICLE, method, start[0], factor * np.asarray(start[1]), h=0.1, steps=2)
    wrong["now"] = True
    for factor in (1.1, 1.2):
        with pytest.raises(ValueError, match=r"must return a number \(shape \(\)\), got shape \(2,\)"):
            da.simulate(PARTICLE, method, start[0], factor * np.asarray(start[1]), h=0.1, steps=2)
