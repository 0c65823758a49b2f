"""The action sum, what its derivative consists of, and momenta of symmetries, also of those that act on time.

The other road is the transcription: L_d as plain NumPy, whose derivatives are complex steps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import discrete_mechanics as reference
from equations import variable_steps as in_time

import dalembert as da
from dalembert import discrete as d
from dalembert.discrete import Midpoint
from dalembert.groups import SE2, Rn

Z = da.zoo
H, LD = 0.1, Midpoint()
PROBLEM, SLEIGH = reference.sleigh_contact(), Z.ChaplyginSleigh()
# Momenta come from positions that are known to eps: eps |q|/h = 1e-14, times a mass of order one.
ROUNDING = 1e-13
TIME = da.Symmetry(Rn(1), on=("t",))


def at_triples(function, rows, *given):
    """The function at all neighbouring rows, compiled once."""
    parts = [rows[i : len(rows) - 2 + i] for i in range(3)]
    return np.asarray(jax.jit(jax.vmap(lambda *x: function(*x, *given)))(*map(jnp.asarray, parts)))


def at_pairs(function, rows, *given):
    parts = [rows[i : len(rows) - 1 + i] for i in range(2)]
    return np.asarray(jax.jit(jax.vmap(lambda *x: function(*x, *given)))(*map(jnp.asarray, parts)))


@pytest.fixture(scope="module")
def run():
    return da.simulate(SLEIGH, da.VariationalDLA(), PROBLEM.q0, PROBLEM.v0, h=H, steps=20)


@pytest.fixture(scope="module")
def well():
    """A run by EDLA in the well that travels, its points of space and time, and the transcription of the well."""
    system = Z.TravellingWell()
    sol = da.simulate(system, da.EDLA(), *system.start(), h=0.1, steps=16)
    return system, sol, np.concatenate([sol.t[:, None], sol.q], axis=1), in_time.particle("travelling")


def test_the_action_sum_and_its_derivative(run):
    """S_d and dS_d = sum D_DEL L_d . dq_k + Theta^+ - Theta^-, by complex steps of the NumPy sum."""

    def total(q):
        q = q.reshape(run.q.shape)
        return sum(reference.midpoint(PROBLEM, q[k], q[k + 1], H) for k in range(len(q) - 1))

    assert float(d.action_sum(LD, SLEIGH, run.q, H)) == pytest.approx(total(run.q.ravel()), rel=1e-14)
    slope = reference.gradient(total, run.q.ravel()).reshape(run.q.shape)
    inner = at_triples(lambda *x: d.euler_lagrange(LD, SLEIGH, *x, H), run.q)
    first, last = (jnp.asarray(run.q[i : i + 2]) for i in (0, len(run.q) - 2))
    minus, plus = d.theta_minus(LD, SLEIGH, *first, H), d.theta_plus(LD, SLEIGH, *last, H)
    n = SLEIGH.dimension
    assert np.max(np.abs(inner - slope[1:-1])) < ROUNDING
    assert np.max(np.abs(-minus[:n] - slope[0])) < ROUNDING
    assert np.max(np.abs(plus[n:] - slope[-1])) < ROUNDING
    assert not np.any(minus[n:])
    assert not np.any(plus[:n])
    # The principle: the derivative vanishes on D, and only there, because the reactions are not zero.
    frames = np.stack([np.asarray(da.model.lower(SLEIGH).frame(jnp.asarray(q))) for q in run.q[1:-1]])
    assert np.max(np.abs(np.einsum("kni,kn->ki", frames, inner))) < ROUNDING
    assert np.max(np.abs(inner)) > 1e-3
    # It is not zero on D along other rows, such as those of the exact motion.
    exact = da.simulate(SLEIGH, da.Reference(), PROBLEM.q0, PROBLEM.v0, h=H, steps=20).q
    other = at_triples(lambda *x: d.euler_lagrange(LD, SLEIGH, *x, H), exact)
    assert np.max(np.abs(np.einsum("kni,kn->ki", frames, other))) > 1e6 * ROUNDING


def test_the_one_forms_of_space_and_time(well):
    """dL_d = Theta^+ - Theta^-, the energies, and the sum, by the slots of the transcription."""
    system, sol, z, problem = well
    plus = at_pairs(lambda *x: d.spacetime_theta_plus(LD, system, *x), z)
    minus = at_pairs(lambda *x: d.spacetime_theta_minus(LD, system, *x), z)
    energies = at_pairs(
        lambda *x: jnp.stack([d.energy_minus(LD, system, *x), d.energy_plus(LD, system, *x)]), z
    )
    steps, total = np.diff(z, axis=0), 0.0
    for k, (step, (t, *q)) in enumerate(zip(steps, z[:-1], strict=True)):
        before, after = in_time.slots(problem, 0.5, t, np.array(q), step[0], step[1:])
        total += in_time.ld(problem, 0.5, t, np.array(q), step[0], step[1:])
        # Times are differences of numbers of order one, over steps of 0.1.
        assert np.max(np.abs(plus[k] - np.concatenate([0 * after, after]))) < ROUNDING
        assert np.max(np.abs(minus[k] + np.concatenate([before, 0 * before]))) < ROUNDING
        assert np.max(np.abs(energies[k] - [before[0], -after[0]])) < ROUNDING
    assert float(d.spacetime_action_sum(LD, system, z)) == pytest.approx(total, abs=ROUNDING)
    assert np.max(np.abs(energies[:, 1] - sol.step_data["E_plus"][1:])) < ROUNDING
    assert np.ptp(energies[:, 1]) > 1e-2  # the well carries energy: it is not constant


def test_the_operator_of_space_and_time(well):
    """EDLA makes D_DEL zero on D in space and time: the energies meet, and the momenta along D do."""
    system, _, z, _ = well
    found = at_triples(lambda *x: d.spacetime_euler_lagrange(LD, system, *x), z)
    allowed = np.stack([np.eye(4)[0], np.eye(4)[2], np.zeros(4)], axis=1)[None].repeat(len(found), 0)
    allowed[:, 1, 2], allowed[:, 3, 2] = 1.0, z[1:-1, 2]  # d_t, d_y and d_x + y d_z
    on = np.einsum("kni,kn->ki", allowed, found)
    # The equation of the energy is solved to a few eps of the energy, divided by nothing.
    assert np.max(np.abs(on)) < ROUNDING
    assert np.max(np.abs(found[:, 3])) > 1e-3  # the reaction
    # Equal steps meet the momenta alone.
    equal = da.simulate(system, da.VariationalDLA(), *system.start(), h=0.1, steps=16)
    rows = np.concatenate([equal.t[:, None], equal.q], axis=1)
    other = np.einsum(
        "kni,kn->ki",
        allowed[:, :, 1:2],
        at_triples(lambda *x: d.spacetime_euler_lagrange(LD, system, *x), rows),
    )
    assert np.max(np.abs(other)) < ROUNDING
    energy = at_triples(lambda *x: d.spacetime_euler_lagrange(LD, system, *x)[0], rows)
    assert np.max(np.abs(energy)) > 1e-5


def test_momenta_of_symmetries_that_act_on_time(well):
    """Moving with the well, t -> t + g and y -> y + c g, is a horizontal symmetry, so its momentum is constant."""
    system, _, z, _ = well
    along = da.Symmetry(Rn(1), on=("t",), action=lambda g, z: z + g[0] * jnp.array([1.0, 0.0, 0.4, 0.0]))
    one = lambda z: jnp.ones(1)
    momenta = at_pairs(lambda *x: d.spacetime_momentum_map(LD, system, *x, along), z)[:, 0]
    nonholonomic = at_pairs(lambda *x: d.spacetime_nonholonomic_momentum(LD, system, one, *x, along), z)
    own = at_pairs(lambda *x: d.spacetime_momentum_map(LD, system, *x), z)[:, 0]
    assert np.ptp(momenta) < ROUNDING * 10  # 16 steps, each with the rounding of an energy of order one
    assert np.array_equal(nonholonomic, momenta)
    assert np.max(np.abs(own - momenta)) < ROUNDING  # the generators that the system itself defines
    residual = at_triples(lambda *x: d.spacetime_momentum_residual(LD, system, one, jnp.stack(x), along), z)
    assert np.max(np.abs(residual)) < ROUNDING
    # From configurations and the time of the beginning.
    here = d.momentum_map(LD, system.at(z[3, 0]), z[3, 1:], z[4, 1:], z[4, 0] - z[3, 0], along)
    assert abs(float(here[0]) - momenta[3]) < ROUNDING
    # Time alone: the momentum is -E^+, and it is not constant, because the well is not invariant.
    time = at_pairs(lambda *x: d.spacetime_momentum_map(LD, system, *x, TIME), z)[:, 0]
    energy = at_pairs(lambda *x: d.energy_plus(LD, system, *x), z)
    assert np.max(np.abs(time + energy)) < ROUNDING
    assert np.ptp(time) > 1e-2
    # A symmetry of space alone has no part in time.
    flat = da.Symmetry(Rn(2), on=("x", "y"))
    columns = d.spacetime_generators(system, jnp.asarray(z[0]), flat)
    assert np.array_equal(columns, np.eye(4)[:, 1:3])


def test_time_translation_of_a_system_without_time():
    """J_d of time translation is -E^+ = -E^-, which EDLA keeps and equal steps do not."""
    sol = da.simulate(SLEIGH, da.EDLA(), PROBLEM.q0, PROBLEM.v0, h=0.2, steps=10)
    h = np.asarray(sol.step_data["h"])[1:]
    there = [
        float(d.momentum_map(LD, SLEIGH, jnp.asarray(a), jnp.asarray(b), k, TIME)[0])
        for a, b, k in zip(sol.q[:-1], sol.q[1:], h, strict=True)
    ]
    first = d.momentum_map_minus(LD, SLEIGH, jnp.asarray(sol.q[0]), jnp.asarray(sol.q[1]), h[0], TIME)
    assert np.ptp(there) < ROUNDING
    assert abs(float(first[0]) - there[0]) < ROUNDING
    assert np.max(np.abs(np.array(there) + sol.step_data["E_plus"][1:])) < ROUNDING
    equal = da.simulate(SLEIGH, da.VariationalDLA(), PROBLEM.q0, PROBLEM.v0, h=0.2, steps=10)
    other = at_pairs(lambda *x: d.momentum_map(LD, SLEIGH, *x, 0.2, TIME), equal.q)
    assert np.ptp(other) > 1e-6


def test_a_symmetry_gives_the_momenta_of_its_generators(run):
    """SE(2) moves the sleigh by (u - w y, v + w x, w): momenta by the transcription's p^+, at both ends."""
    symmetry = da.Symmetry(SE2(), on=("x", "y", "theta"))
    q0, q1 = run.q[4], run.q[5]
    columns = lambda q: np.array([[1.0, 0.0, -q[1]], [0.0, 1.0, q[0]], [0.0, 0.0, 1.0]])
    wanted = columns(q1).T @ reference.d2(PROBLEM, reference.midpoint, q0, q1, H)
    given = (LD, SLEIGH, jnp.asarray(q0), jnp.asarray(q1), H, symmetry)
    assert np.max(np.abs(d.momentum_map(*given) - wanted)) < ROUNDING
    before = columns(q0).T @ -reference.d1(PROBLEM, reference.midpoint, q0, q1, H)
    assert np.max(np.abs(d.momentum_map_minus(*given) - before)) < ROUNDING
    # Turns and translations are linear in (x, y) and shift theta, so that midpoints go along: L_d is invariant.
    assert np.max(np.abs(wanted - before)) < ROUNDING
    assert np.min(np.abs(wanted)) > 1e-3


def test_the_momentum_equation_of_a_symmetry():
    """The free particle: sections (1, 0, y) and (0, 1, 0) of g^D for R^3; a constant one off D has no equation."""
    system, symmetry = Z.NonholonomicParticle(), da.Symmetry(Rn(3), on=("x", "y", "z"))
    along = lambda q: jnp.stack([jnp.ones(()), jnp.zeros(()), q[1]])
    for method in (da.GNI(), da.VariationalDLA()):
        rows = da.simulate(system, method, *system.start(), h=H, steps=20).q

        def residual(section, rows=rows):
            return at_triples(lambda *x: d.momentum_residual(LD, system, section, *x, H, symmetry), rows)

        assert np.max(np.abs(residual(along))) < ROUNDING
        assert np.max(np.abs(residual(lambda q: jnp.array([0.0, 1.0, 0.0])))) < ROUNDING
        assert np.max(np.abs(residual(lambda q: jnp.array([1.0, 0.0, 0.0])))) > 1e-4
    # With a potential, translations are no symmetry, and the momenta of the two ends of a step differ.
    pulled = Z.NonholonomicParticle(lambda q: q[0] ** 2 / 2)
    step = (jnp.asarray(rows[3]), jnp.asarray(rows[4]), H, symmetry)
    both = [np.asarray(f(LD, pulled, *step)) for f in (d.momentum_map, d.momentum_map_minus)]
    assert np.max(np.abs(both[0] - both[1])[1:]) < ROUNDING
    assert abs(both[0] - both[1])[0] == pytest.approx(H * (rows[3, 0] + rows[4, 0]) / 2, rel=1e-12)


def test_what_is_refused():
    q = np.zeros((2, 3))
    with pytest.raises(ValueError, match="expected a Symmetry"):
        d.momentum_map(LD, SLEIGH, *q, H, Rn(1))
    with pytest.raises(ValueError, match="no coordinate w"):
        d.momentum_map(LD, SLEIGH, *q, H, da.Symmetry(Rn(1), on=("w",)))
    timed = Z.RheonomicParticle()
    for call in (
        lambda: d.momentum_map(LD, timed, *q, H, TIME),
        lambda: d.action_sum(LD, timed, q, H),
        lambda: d.euler_lagrange(LD, timed, q[0], *q, H),
        lambda: d.theta_plus(LD, timed, *q, H),
        lambda: d.theta_minus(LD, timed, *q, H),
    ):
        with pytest.raises(ValueError, match=r"RheonomicParticle.at\(t0\)"):
            call()
