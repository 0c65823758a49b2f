"""Lagrangians that are not kinetic minus potential energy: charges in magnetic fields, relativistic particles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.methods.legendre import is_general
from dalembert.model import lower


class Charged(da.System):
    """A charge in a magnetic field that varies, with the vector potential (0, B x (1 + 0.3 y), 0), and a spring."""

    coordinates = ("x", "y", "z")
    field: float = 2.0

    def lagrangian(self, q, v):
        return 0.5 * jnp.sum(v**2) + self.field * (1 + 0.3 * q[1]) * q[0] * v[1] - 0.5 * jnp.sum(q**2)

    def constraints(self, q):
        return jnp.array([[-q[1], 0.0, 1.0]])


class Natural(Charged):
    """The same without the field, as a plain mechanical system."""

    def lagrangian(self, q, v):
        return 0.5 * jnp.sum(v**2) - 0.5 * jnp.sum(q**2)


class Fast(Charged):
    """A relativistic particle on a spring: -c^2 sqrt(1 - v^2/c^2) - q^2/2."""

    light: float = 2.0

    def lagrangian(self, q, v):
        return -(self.light**2) * jnp.sqrt(1 - jnp.sum(v**2) / self.light**2) - 0.5 * jnp.sum(q**2)


class FastInBowl(Fast):
    """The same with a field, in a bowl, and with a blade."""

    def lagrangian(self, q, v):
        return super().lagrangian(q, v) + 0.3 * q[0] * v[1]

    def holonomic(self, q):
        return jnp.stack([q[2] - 0.3 * (q[0] ** 2 + q[1] ** 2)])

    def constraints(self, q):
        return jnp.array([[q[1], -1.0 - q[0], 0.0]])


START = np.array([1.0, 0.3, 0.2]), np.array([0.5, 0.8, 0.15])
SYSTEMS = {"charged": Charged(), "fast": Fast()}
METHODS = {
    "dla-variational": da.VariationalDLA(),
    "dla-variational:trapezoidal": da.VariationalDLA(da.discrete.Trapezoidal()),
    "gni": da.GNI(),
    "gni:trapezoidal": da.GNI(da.discrete.Trapezoidal()),
}


def start_of(system):
    if system.defines("holonomic"):
        return da.start(system, START[0] + [0, 0, 0.1], START[1])
    return START


def test_formulas_show_which_lagrangians_are_natural():
    for system in (Charged(), Charged(field=0.0), Fast(), FastInBowl()):
        assert is_general(lower(system))
    for name in da.zoo.__all__:
        assert not is_general(lower(getattr(da.zoo, name)()))
    assert not is_general(lower(Natural()))


@pytest.mark.parametrize("name", METHODS)
def test_a_field_of_zero_changes_nothing(name):
    """The road for any Lagrangian against that for natural ones: rounding of 100 steps."""
    runs = [da.simulate(x, METHODS[name], *START, h=0.02, steps=100) for x in (Charged(field=0.0), Natural())]
    for part in ("q", "v", "multipliers"):
        np.testing.assert_allclose(getattr(runs[0], part), getattr(runs[1], part), rtol=0, atol=1e-12)


@pytest.mark.parametrize("system", [Charged(), Fast(), FastInBowl()], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("name", METHODS)
def test_the_order_is_two(name, system):
    q, v = start_of(system)
    exact = da.simulate(system, da.Reference(), q, v, h=0.1, steps=10)
    errors = []
    for steps in (60, 120):  # the middle rows are even: the parasitic part of GNI has the same sign there
        sol = da.simulate(system, METHODS[name], q, v, h=1 / steps, steps=steps)
        assert sol.status is da.Status.OK
        assert np.max(sol.constraint_residual()) < 1e-14  # rounding
        assert np.max(np.abs(sol.position_residual()), initial=0.0) < 1e-14
        row = steps // 2
        shift = METHODS[name].multiplier_shift / steps  # the multipliers of a row are those a little before
        there = da.simulate(system, da.Reference(), q, v, h=0.5 - shift, steps=1)
        lam = da.acceleration(system, there.q[-1], there.v[-1])[1]
        forms = 1  # the multipliers of positions are those of the exact motion at the row in GNI
        errors.append(
            [
                np.max(np.abs(sol.q[-1] - exact.q[-1])),
                np.max(np.abs(sol.v[-1] - exact.v[-1])),
                np.max(np.abs(sol.multipliers[row, :forms] - np.asarray(lam)[:forms])),
            ]
        )
    order = np.log2(np.array(errors[0]) / np.array(errors[1]))
    # Up to the next term of the error, of relative size h.
    np.testing.assert_allclose(order, 2.0, atol=0.1)


@pytest.mark.parametrize("name", SYSTEMS)
def test_edla_keeps_the_energy(name):
    system, errors = SYSTEMS[name], []
    for h in (0.02, 0.01):
        sol = da.simulate(system, da.EDLA(), *START, h=h, steps=round(1 / h))
        assert np.ptp(sol.energy(full=True)) < 1e-14  # what it aims for, to rounding
        exact = da.simulate(system, da.Reference(), *START, h=float(sol.t[-1]) / 10, steps=10)
        errors.append(np.max(np.abs(sol.q[-1] - exact.q[-1])))
        assert np.max(sol.constraint_residual()) < 1e-14
    assert 3.5 < errors[0] / errors[1] < 4.5  # order 2


# ---- by hand ---------------------------------------------------------------------------------------------------


def slopes_by_hand(system, q, v):
    """dL/dq and dL/dv."""
    if isinstance(system, Fast):
        gamma = 1 / np.sqrt(1 - v @ v / system.light**2)
        return -q, gamma * v
    b = system.field
    along = np.array([b * (1 + 0.3 * q[1]) * v[1], 0.3 * b * q[0] * v[1], 0.0])
    return along - q, v + np.array([0.0, b * (1 + 0.3 * q[1]) * q[0], 0.0])


def root(function, x):
    """Newton's method with differences, until nothing changes."""
    for _ in range(30):
        value = function(x)
        matrix = np.stack([(function(x + 1e-7 * e) - value) / 1e-7 for e in np.eye(len(x))], axis=1)
        x = x - np.linalg.solve(matrix, value)
    return x


def by_hand(system, kind, q, v, h, steps):
    """The midpoint rule's momenta -D1 = L_v - h L_q/2, D2 = L_v + h L_q/2 at ((q0 + q1)/2, u)."""

    def rows(q):
        return np.array([[-q[1], 0.0, 1.0]])

    def ends(q, u):
        force, p = slopes_by_hand(system, q + 0.5 * h * u, u)
        return p - 0.5 * h * force, p + 0.5 * h * force

    def allowed(q, p, guess):
        """v and lam with dL/dv(q, v) = p + A^T lam and A v = 0."""
        x = root(
            lambda x: np.concatenate(
                [slopes_by_hand(system, q, x[:3])[1] - p - rows(q).T @ x[3:], rows(q) @ x[:3]]
            ),
            np.append(guess, 0.0),
        )
        return x[:3]

    def velocity(q, v, p):
        """u with -D1 = p, or with -D1 = p + A^T lam and A u = 0 at the middle."""
        if kind == "gni":
            return root(lambda u: ends(q, u)[0] - p, v)

        def equations(x):
            u, lam = x[:3], x[3:]
            return np.concatenate([ends(q, u)[0] - p - rows(q).T @ lam, rows(q + 0.5 * h * u) @ u])

        return root(equations, np.append(v, 0.0))[:3]

    p = slopes_by_hand(system, q, v)[1]
    if kind == "gni":
        p = p + 0.5 * h * rows(q).T @ np.asarray(da.acceleration(system, q, v)[1])
    path = [q]
    for _ in range(steps):
        u = velocity(q, v, p)
        arriving = ends(q, u)[1]
        q = q + h * u
        v = allowed(q, arriving, u)
        p = slopes_by_hand(system, q, v)[1]
        if kind == "gni":
            p = 2 * p - arriving
        path.append(q)
    return np.array(path)


@pytest.mark.parametrize("kind", ["gni", "dla-variational"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_steps_agree_with_a_transcription(name, kind):
    system = SYSTEMS[name]
    sol = da.simulate(system, METHODS[kind], *START, h=0.05, steps=20)
    # Rounding of 20 steps, of which Newton's method with differences leaves some.
    np.testing.assert_allclose(sol.q, by_hand(system, kind, *START, 0.05, 20), rtol=0, atol=1e-12)


def test_a_charge_moves_on_a_circle():
    """Without constraints, in the field B with the vector potential (0, B x, 0): the rate is B, the radius v/B."""
    rate, speed = 1.7, 0.9
    free = da.system(coordinates=("x", "y"), lagrangian=lambda q, v: 0.5 * jnp.sum(v**2) + rate * q[0] * v[1])
    errors = []
    for steps in (100, 200):
        sol = da.simulate(free, da.VariationalDLA(), [0.0, 0.0], [0.0, speed], h=2 / steps, steps=steps)
        angle = rate * sol.t
        circle = speed / rate * np.stack([1 - np.cos(angle), np.sin(angle)], axis=1)
        errors.append(np.max(np.abs(sol.q - circle)))
        # The rule is linear here, so that the length of v is kept to rounding.
        np.testing.assert_allclose(np.linalg.norm(sol.v, axis=1), speed, rtol=1e-12)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.01)


# ---- structure -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_gni_is_volume_preserving_and_satisfies_its_symplectic_law(name):
    system = SYSTEMS[name]
    sol = da.simulate(system, da.GNI(), *START, h=0.05, steps=5)
    given = (system, da.GNI(), 0.05, sol.q, sol.v_full)
    np.testing.assert_allclose(da.diagnostics.phase_determinant(*given), -1.0, atol=1e-13)  # one constraint
    assert np.max(da.diagnostics.symplectic_defect(*given)) < 1e-13


def test_energies_do_not_drift():
    for system in SYSTEMS.values():
        sol = da.simulate(system, da.VariationalDLA(), *START, h=0.05, steps=20_000, save_every=20)
        e = sol.energy()
        half = len(e) // 2
        assert np.ptp(e) < 5e-3  # order 2
        assert np.max(np.abs(e[half:] - e[0])) < 1.2 * np.max(np.abs(e[:half] - e[0]))


def test_claims_of_reversibility_are_those_of_natural_systems():
    for method in (da.VariationalDLA(), da.GNI()):
        assert method.claims(Natural()).reversible
        assert not method.claims(Charged()).reversible


# ---- refusals and the rest ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [da.FrameGradient(), da.DLA01(), da.DLA(), da.LeapFrog(), da.DiscreteGradient()]
)
def test_other_methods_refuse(method):
    with pytest.raises(ValueError, match="VariationalDLA"):
        da.simulate(Charged(), method, *START, h=0.02, steps=10)


def test_a_start_faster_than_light_is_refused():
    with pytest.raises(da.SimulationError, match="NaN or infinite"):
        da.simulate(Fast(), da.VariationalDLA(), START[0], [2.0, 0.8, 0.6], h=0.02, steps=10)


def test_a_charge_is_no_coupled_system():
    with pytest.raises(ValueError, match="not kinetic minus potential"):
        da.CoupledSystem.of(Charged(), START[0])


def test_ensembles_and_derivatives():
    fields = 2.0

    def end(field):
        return da.simulate(Charged(field), da.GNI(), *START, h=0.02, steps=50).q[-1, 0]

    step = 1e-4
    by_hand = (end(fields + step) - end(fields - step)) / (2 * step)
    assert float(jax.grad(end)(fields)) == pytest.approx(by_hand, abs=1e-7)  # differences of order 2
    v = np.stack([START[1], 1.1 * START[1]])
    both = da.ensemble(Fast(), da.VariationalDLA(), np.stack([START[0]] * 2), v, h=0.02, steps=50)
    for i in range(2):
        alone = da.simulate(Fast(), da.VariationalDLA(), START[0], v[i], h=0.02, steps=50)
        np.testing.assert_allclose(both.member(i).q, alone.q, rtol=0, atol=1e-13)
