"""EDLA on Lie groups with functions that depend on time, and its symplectic law in space and time on groups."""

import jax.numpy as jnp
import numpy as np
import pytest
from equations import group_mechanics as plain

import dalembert as da
from dalembert.diagnostics import variable_step_laws
from dalembert.discrete import (
    Retraction,
    energy_minus,
    energy_plus,
    spacetime_action_sum,
    spacetime_euler_lagrange,
    spacetime_form,
    spacetime_momentum_map,
)
from dalembert.model import lower, nearest_velocity

SO3 = da.groups.SO3()
H, STEPS = 0.05, 20
# With exp, this body comes to a zero of G soon; it begins where there is time for some steps.
BEGIN = {"exp": 0.0, "cayley": 0.6}
INERTIA = np.asarray(da.zoo.Suslov().inertia())


class Moving(da.RheonomicSystem):
    """A body on SO(3) whose potential and one-form change with g and t."""

    group = SO3
    coordinates = SO3.coordinates
    velocity_names = SO3.velocities

    def metric(self, t, g):
        return jnp.asarray(INERTIA)

    def potential(self, t, g):
        return 0.4 * jnp.cos(t) * g[0] - 0.3 * g[5] + 0.2 * jnp.sin(2 * t) * g[8]

    def constraints(self, t, g):
        return jnp.stack([0.3 * g[2], 0.2 * jnp.sin(t), 1.0 + 0.2 * g[7]])[None]


def form(t, g):
    return np.array([[0.3 * g[0, 2], 0.2 * np.sin(t), 1.0 + 0.2 * g[2, 1]]])


def potential(t, g):
    return 0.4 * np.cos(t) * g[..., 0, 0] - 0.3 * g[..., 1, 2] + 0.2 * np.sin(2 * t) * g[..., 2, 2]


class Turned(da.GroupSystem):
    """The same at rest: a body of which only the one-form changes with g."""

    group = SO3

    def inertia(self):
        return jnp.asarray(INERTIA)

    def constraints(self, g):
        return jnp.stack([0.3 * g[2], 0.2, 1.0 + 0.2 * g[7]])[None]


class Free(da.GroupSystem):
    """A heavy body without constraints."""

    group = SO3

    def inertia(self):
        return jnp.asarray(INERTIA)

    def potential(self, g):
        return 0.4 * g[0] - 0.3 * g[5] + 0.2 * g[8]


def start_of(system, t=0.0):
    g = SO3.exp(jnp.array([0.3, -0.4, 0.5]))
    m = lower(system).at(jnp.asarray(t))
    return np.asarray(g), np.asarray(nearest_velocity(m, g, jnp.array([1.0, 0.7, 0.2])))


def run(system, tau="exp", h=H, steps=STEPS, t=0.0):
    return da.simulate(system, da.EDLA(Retraction(tau)), *start_of(system, t), h=h, steps=steps, t0=t)


@pytest.fixture(scope="module", params=["exp", "cayley"])
def moving(request):
    """A map, and a run with it."""
    return request.param, run(Moving(), request.param, t=BEGIN[request.param])


# The equations, from L_d as a function of two points of space and time, in NumPy alone.


GROUP = plain.SO3()


def lagrangian(tau, t0, g0, t1, g1):
    h = t1 - t0
    kinetic = plain.discrete_lagrangian(GROUP, tau, INERTIA, g0, g1, h)
    return kinetic - h / 2 * (potential(t0, g0) + potential(t1, g1))


def slots(tau, t0, g0, t1, g1):
    """(D1, D2, D3, D4) L_d, by differences of order ten; those by time have steps of a hundredth of h."""
    d = 0.01 * (t1 - t0)
    times = np.array(
        [
            [lagrangian(tau, t0 + a * k, g0, t1 + b * k, g1) for k in d * plain.OFFSETS]
            for a, b in ((1, 0), (0, 1))
        ]
    )
    first, last = times @ plain.WEIGHTS / d
    before = lagrangian(tau, t0, GROUP.mul(g0, GROUP.stencil), t1, g1) @ plain.WEIGHTS / plain.SPREAD
    after = lagrangian(tau, t0, g0, t1, GROUP.mul(g1, GROUP.stencil)) @ plain.WEIGHTS / plain.SPREAD
    return first, before, last, after


def test_the_equations_of_every_step(moving):
    """[cortes2003] (6) with omega0 = 0: energy, momentum along D and constraint where two steps meet."""
    tau, sol = moving
    t, g, h = sol.t, sol.q.reshape(-1, 3, 3), sol.step_data["h"]
    assert np.ptp(h) > 1e-3 * H  # the steps do differ
    for k in range(1, STEPS):
        _, _, energy, plus = slots(tau, t[k - 1], g[k - 1], t[k], g[k])
        rate, minus, *_ = slots(tau, t[k], g[k], t[k + 1], g[k + 1])
        # Differences of numbers of size 1/h over a hundredth of h.
        assert abs(energy + rate) < 2e-11
        assert -energy == pytest.approx(sol.step_data["E_plus"][k], abs=2e-11)
        lam = sol.multipliers[k + 1] * 0.5 * (h[k] + h[k + 1])
        np.testing.assert_allclose(-minus - plus, form(t[k], g[k]).T @ lam, rtol=0, atol=2e-12)
        u = GROUP.untau(tau, GROUP.mul(GROUP.inv(g[k]), g[k + 1])) / h[k + 1]
        held = 0.5 * (form(t[k], g[k]) + form(t[k + 1], g[k + 1])) @ u
        assert np.max(np.abs(held)) < 1e-14 / H  # rounding of an element, over h


def test_what_is_measured_would_show_a_wrong_time(moving):
    """The potential and the one-form at the other end's time do not satisfy the equations."""
    tau, sol = moving
    t, g, h = sol.t, sol.q.reshape(-1, 3, 3), sol.step_data["h"]
    _, _, energy, _ = slots(tau, t[4], g[4], t[5], g[5])
    late = slots(tau, t[5] + h[6], g[5], t[6] + h[6], g[6])[0]
    assert abs(energy + late) > 1e-4
    u = GROUP.untau(tau, GROUP.mul(GROUP.inv(g[5]), g[6])) / h[6]
    assert np.max(np.abs(form(t[5], g[5]) @ u)) > 1e-4


def test_order_and_energy(moving):
    """Order 2, and an energy that changes as that of the motion does."""
    tau, sol = moving
    t0, errors = BEGIN[tau], []
    assert np.ptp(sol.step_data["E_plus"][1:]) > 0.01
    for n in (1, 2, 4):
        one = run(Moving(), tau, H / n, 16 * n, t0)
        exact = da.simulate(
            Moving(), da.Reference(), *start_of(Moving(), t0), h=float(one.t[-1] - t0), steps=1, t0=t0
        )
        ends = (one.q, exact.q), (one.v, exact.v), (one.energy(full=True), exact.energy())
        errors.append([np.max(np.abs(x[-1] - y[-1])) for x, y in ends])
    # The runs end at times that differ by O(h^2), and so do the next terms.
    np.testing.assert_allclose(np.divide(errors[1], errors[2]), 4, rtol=0.15)
    assert np.max(errors[2]) < 1e-3


def test_a_run_ends_at_the_zero_of_g():
    sol = da.simulate(
        Moving(),
        da.EDLA(Retraction("exp")),
        *start_of(Moving(), 0.6),
        h=H / 4,
        steps=400,
        t0=0.6,
        throw=False,
    )
    found = da.edla_well_posedness(Moving(), *start_of(Moving(), 0.6), method=sol.method, t0=0.6, ahead=3.0)
    assert sol.status is da.Status.NO_ROOT
    assert found.zero is not None
    assert abs(sol.t[-1] - found.zero) < 0.05 * found.zero  # O(h)


class Field(da.RheonomicSystem):
    """A body in a field that turns about the vertical, which its one-form lets it turn about, too."""

    group = SO3
    coordinates = SO3.coordinates
    velocity_names = SO3.velocities
    rate: float = 0.7

    def metric(self, t, g):
        return jnp.asarray(INERTIA)

    def potential(self, t, g):
        g, angle = g.reshape(3, 3), self.rate * t
        return (jnp.cos(angle) * g[0] + jnp.sin(angle) * g[1]) @ jnp.array([0.3, 0.1, -0.2]) + 0.1 * g[2, 0]

    def constraints(self, t, g):
        return jnp.cross(g.reshape(3, 3)[2], jnp.array([1.0, 0.0, 0.3]))[None]

    def generators(self, t, g):
        return jnp.concatenate([jnp.ones(1), self.rate * g.reshape(3, 3)[2]])[:, None]

    def sections(self):
        return {"turning along": lambda t, g: jnp.ones(1)}


def test_the_momentum_equation_with_its_part_along_time():
    """Going with the field is horizontal: rate times the vertical momentum minus E^+ is kept, and neither alone."""
    sol = run(Field(), "cayley")
    laws = variable_step_laws(sol)
    assert laws.energy is None
    assert laws.momentum["turning along"] < 1e-14  # a few products of numbers of size one
    assert laws.symplectic < 3e-13
    vertical = np.sum(sol.q.reshape(-1, 3, 3)[:, 2] * sol.step_data["p_plus"], axis=1)[1:]
    energy = sol.step_data["E_plus"][1:]
    assert np.ptp(0.7 * vertical - energy) < 1e-13  # rounding of twenty steps
    assert np.ptp(energy) > 0.02
    sol.step_data.update(E_plus=sol.step_data["E_plus"] + 1e-3 * np.arange(STEPS + 1))
    assert variable_step_laws(sol).momentum["turning along"] > 1e-5


def test_functions_of_space_and_time_on_a_group(moving):
    """The energies, the momentum, the action sum and its derivative, from points alone."""
    tau, sol = moving
    ld, system = Retraction(tau), Moving()
    z = jnp.asarray(np.concatenate([sol.t[:, None], sol.q], axis=1))
    g = sol.q.reshape(-1, 3, 3)
    # The step size is a difference of times: the energy has an error of eps t/h.
    assert energy_plus(ld, system, z[3], z[4]) == pytest.approx(sol.step_data["E_plus"][4], abs=1e-12)
    assert energy_minus(ld, system, z[4], z[5]) == pytest.approx(sol.step_data["E_plus"][4], abs=1e-12)
    jump = np.asarray(spacetime_euler_lagrange(ld, system, z[3], z[4], z[5]))
    lam = sol.multipliers[5] * 0.5 * (sol.step_data["h"][4] + sol.step_data["h"][5])
    np.testing.assert_allclose(jump, [0, *(-form(sol.t[4], g[4]).T @ lam)], rtol=0, atol=1e-12)
    steps = (lagrangian(tau, sol.t[k], g[k], sol.t[k + 1], g[k + 1]) for k in range(3))
    assert spacetime_action_sum(ld, system, z[:4]) == pytest.approx(sum(steps), abs=1e-13)
    run_of_field = run(Field(), "cayley")
    z = jnp.asarray(np.concatenate([run_of_field.t[:, None], run_of_field.q], axis=1))
    kept = [spacetime_momentum_map(Retraction("cayley"), Field(), z[k], z[k + 1])[0] for k in (1, 8, 15)]
    assert np.ptp(kept) < 1e-12


def test_an_inertia_that_changes_with_time_is_refused():
    """L_d takes it at one end alone, so that the energy would be wrong."""

    class Growing(Moving):
        def metric(self, t, g):
            return (1 + 0.1 * jnp.sin(t)) * jnp.asarray(INERTIA)

    with pytest.raises(ValueError, match="EDLA is defined for a constant mass matrix"):
        run(Growing())


# The symplectic law.


LAWS = {
    "Suslov": lambda: run_of(da.zoo.Suslov(), "exp"),
    "Suslov, cayley": lambda: run_of(da.zoo.Suslov(), "cayley"),
    "sleigh, mid": lambda: run_of(da.zoo.GroupSleigh(), "mid"),
    "turned": lambda: run(Turned()),
    "moving": lambda: run(Moving()),
    "free": lambda: run(Free()),
}


def run_of(system, tau):
    return da.simulate(system, da.EDLA(Retraction(tau)), *system.start(), h=H, steps=STEPS)


@pytest.mark.parametrize("name", LAWS)
def test_the_symplectic_law(name):
    """F* Omega = Omega + d(lam' omega) in space and time, and F* Omega = Omega without constraints."""
    laws = variable_step_laws(LAWS[name](), rows=STEPS - 1)
    # As in coordinates: the derivatives of a step lose the digits of S, which is some 1e-3 here, and 3e-13 is measured.
    assert laws.symplectic < 1e-12
    assert laws.form < 1e-13 if name == "free" else laws.form > 1e-2


class WrongEnergy(Retraction):
    """One per cent of the kinetic energy is missing in -dL_d/dh."""

    unchecked = True

    def increment_energy(self, m, u, h):
        return 0.99 * super().increment_energy(m, u, h)


class WithoutRate(Retraction):
    """The energies E^- and E^+ without the part that comes from dV/dt."""

    unchecked = True

    def spacetime_derivatives(self, m, t, q0, q1, u, h):
        first, last = super().spacetime_derivatives(m, t, q0, q1, u, h)
        energy = self.increment_energy(m.at(t), u, h) + 0.5 * (
            m.at(t).potential(q0) + m.at(t + h).potential(q1)
        )
        return first.at[0].set(energy), last.at[0].set(-energy)


@pytest.mark.parametrize(
    ("rule", "system"), [(WrongEnergy, Free()), (WithoutRate, Moving())], ids=["kinetic", "rate"]
)
def test_the_law_needs_the_energy(rule, system):
    """With another energy, Theta^+ and Theta^- do not belong to one function, and the law fails."""
    sol = da.simulate(system, da.EDLA(rule("cayley")), *start_of(system), h=H, steps=10, throw=False)
    assert len(sol.t) > 4
    assert variable_step_laws(sol).symplectic > 1e-6
    x = jnp.asarray(np.concatenate([[sol.t[2]], sol.q[2], [sol.t[3]], sol.q[3]]))
    minus, plus = (np.asarray(spacetime_form(sol.method.rule, system, x, which)) for which in (False, True))
    assert np.max(np.abs(minus - plus)) > 1e-4


def test_the_law_needs_the_reaction():
    """Twice the reaction does not explain how the form changes."""
    sol = run_of(da.zoo.Suslov(), "cayley")
    sol = da.Trajectory(**{**vars(sol), "lam": 2 * sol.multipliers})
    assert variable_step_laws(sol).symplectic > 1e-4


def test_the_two_boundary_forms_have_one_differential():
    """d Theta^+ = d Theta^-, against the mixed second derivatives of L_d by differences."""
    sol, system, tau = run(Moving()), Moving(), "exp"
    ld = Retraction(tau)
    z = np.concatenate([sol.t[:, None], sol.q], axis=1)
    x = jnp.asarray(np.concatenate([z[3], z[4]]))
    minus, plus = (np.asarray(spacetime_form(ld, system, x, which)) for which in (False, True))
    size = np.max(np.abs(minus))
    assert np.max(np.abs(minus - plus)) < 1e-14 * size
    assert np.max(np.abs(minus + minus.T)) == 0

    # Derivatives by (t1, g1) of the derivatives by (t0, g0), by differences of the momenta of the transcription.
    def departing(d):
        g = GROUP.mul(z[4, 1:].reshape(3, 3), GROUP.tau("exp", d[1:]))
        first, before, *_ = slots(tau, z[3, 0], z[3, 1:].reshape(3, 3), z[4, 0] + d[0], g)
        return np.concatenate([[first], before])

    # Every slot has an error of 1e-11, and second differences of 1e-3 have errors of order ten beside it.
    step = 1e-3
    mixed = np.stack(
        [
            sum(w * departing(k * step * e) for k, w in zip(plain.OFFSETS, plain.WEIGHTS, strict=True)) / step
            for e in np.eye(4)
        ],
        axis=1,
    )
    np.testing.assert_allclose(minus[:4, 4:], -mixed, rtol=0, atol=1e-7 * size)
    assert np.max(np.abs(minus[:4, :4])) < 1e-13 * size
