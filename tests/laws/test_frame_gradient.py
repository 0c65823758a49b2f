"""The frame discrete gradient: exact energy, exact constraint, independence of the one-forms, exact work."""

import jax.numpy as jnp
import numpy as np
import pytest
from systems import SleighInPotential, make

import dalembert as da

LONG = [
    "cvt-osc-0.5",
    "cvt-rot-0.5",
    "knife-0",
    "knife-0.1",
    "harmonic",
    "particle",
    "disk",
    "robot",
    "sleigh-contact",
    "sleigh-cm",
    "sleigh-potential",
    "snakeboard-relative",
    "snakeboard-absolute",
]


def energy_scale(sol):
    """The size of the energies that cancel in the total: kinetic plus |potential|, at its largest.

    It is the total energy except on the perturbed knife edge, which gains speed forever down the slope.
    """
    energy = sol.energy()
    potential = np.array([float(sol.system.potential(q)) for q in sol.q[:: len(sol.q) // 50]])
    kinetic = energy[:: len(sol.q) // 50] - potential
    return np.max(np.abs(potential) + kinetic)


@pytest.mark.parametrize("name", LONG)
def test_energy_and_constraint_over_1e5_steps(name):
    system, q0, v0, h = make(name)
    sol = da.simulate(system, da.FrameGradient(), q0, v0, h=h, steps=100_000, save_every=100)
    energy = sol.energy()
    assert np.max(np.abs(energy - energy[0])) < 1e-11 * energy_scale(sol)
    if name != "knife-0.1":
        assert np.max(np.abs(energy / energy[0] - 1)) < 1e-11
    speed = np.maximum(1, np.max(np.abs(sol.v), axis=1))
    assert np.max(sol.constraint_residual() / speed) < 1e-12
    if name.startswith("snakeboard"):
        assert np.max(np.abs(sol.q[:, 4])) > np.pi / 2, "the run must pass phi = pi/2"


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("cvt-rot-0.5", 1000),
        ("robot", 1000),
        ("sleigh-contact", 1000),
        ("sleigh-cm", 1000),
        ("snakeboard-relative", 1000),
        ("sleigh-potential", 300),  # chaotic: a perturbation grows by 1e5 in 1000 steps
    ],
)
def test_result_does_not_depend_on_the_one_forms(name, steps):
    """A and R(q) A have the same kernel; the trajectory must be the same."""
    system, q0, v0, h = make(name)

    def mixed(q):
        a = system.constraints(q)
        if a.shape[0] == 1:
            return (2 + jnp.sin(q[0] + q[-1])) * a
        s, c = jnp.sin(q[0] - 2 * q[-1]), jnp.cos(q[1] + q[2])
        return jnp.array([[2 + s, 0.5 * c], [0.7 * c, -3.0]]) @ a  # determinant below -3

    other = da.system(
        coordinates=system.coordinates, metric=system.metric, potential=system.potential, constraints=mixed
    )
    one, two = (da.simulate(s, da.FrameGradient(), q0, v0, h=h, steps=steps) for s in (system, other))
    # Rounding of a thousand steps; the angles reach a few hundred.
    assert np.max(np.abs(one.q - two.q)) < 1e-10
    assert np.max(np.abs(one.v - two.v)) < 1e-10


def test_frame_and_one_forms_give_the_same_trajectory():
    """Spanning vectors of the snakeboard, as they are printed, stay regular at phi = pi/2."""
    system, q0, v0, h = make("snakeboard-relative")

    def frame(q):
        theta, phi = q[2], q[4]
        x = jnp.array([jnp.cos(theta) * jnp.cos(phi), jnp.sin(theta) * jnp.cos(phi), -jnp.sin(phi), 0, 0])
        return jnp.stack([x, jnp.eye(5)[3] + 0.3 * x, jnp.eye(5)[4]], axis=1)

    by_frame = da.system(coordinates=system.coordinates, metric=system.metric, frame=frame)
    one, two = (da.simulate(s, da.FrameGradient(), q0, v0, h=h, steps=300) for s in (system, by_frame))
    assert np.max(np.abs(one.q - two.q)) < 1e-11
    assert np.max(np.abs(one.v - two.v)) < 1e-11


@pytest.mark.parametrize("gradient", ["average", "gonzalez", "itoh-abe"])
@pytest.mark.parametrize("kind", [da.DiscreteGradient, da.FrameGradient])
def test_energy_to_rounding_at_h_03_in_a_rough_potential(kind, gradient):
    """Exponentials, fractions and roots at h = 0.3: five Gauss points alone miss the energy visibly."""

    def potential(q):
        x, y, z = q
        return jnp.exp(2 * jnp.sin(3 * x)) + 1 / (1 + 4 * y**2) + jnp.sqrt(1 + 5 * (z - x) ** 2)

    system = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.diag(jnp.array([1.0, 2.0, 0.5])),
        potential=potential,
        constraints=lambda q: jnp.array([[-q[1], 0.0, 1.0]]),
    )
    sol = da.simulate(system, kind(gradient), [0.2, 0.6, 0.5], [1.0, 0.5, 0.6], h=0.3, steps=2000)
    energy = sol.energy(full=True)
    # Rounding of 2000 steps; without the correction the average gradient is off by more than 1e-4.
    assert np.max(np.abs(energy - energy[0])) < 1e-11


def test_forces_do_exactly_their_work():
    """Damping: the energy changes by the work of the force at the midpoint, step by step, to rounding."""
    damping = jnp.array([0.1, 0.2, 0.05])

    class Damped(SleighInPotential):
        def forces(self, q, v):
            return -damping * v + jnp.array([0.0, 0.1, 0.02])

    system = Damped()
    sol = da.simulate(system, da.FrameGradient(), *system.start(), h=0.1, steps=200)
    u = np.diff(sol.q, axis=0) / 0.1
    force = -np.asarray(damping) * u + np.array([0.0, 0.1, 0.02])
    work = 0.1 * np.sum(force * u, axis=1)
    np.testing.assert_allclose(np.diff(sol.energy()), work, atol=1e-14)
    assert abs(sol.energy()[-1] - sol.energy()[0]) > 0.1


def test_forced_run_converges_to_the_reference():
    class Damped(SleighInPotential):
        def forces(self, q, v):
            return -0.3 * v + jnp.array([0.0, 0.2, 0.1])

    system = Damped()
    end = da.simulate(system, da.Reference(), *system.start(), h=0.25, steps=8)
    errors = []
    for n in (40, 80):
        sol = da.simulate(system, da.FrameGradient(), *system.start(), h=2 / n, steps=n)
        errors.append(np.max(np.abs(sol.q[-1] - end.q[-1])))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.1)
