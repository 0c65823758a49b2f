"""Symmetries that move more than the coordinates they are named by."""

import jax.numpy as jnp
import numpy as np
import pytest
from hurry import compiled
from scipy.integrate import solve_ivp

import dalembert as da
from dalembert.groups import SE2, Torus
from dalembert.model import acceleration

V = da.VariationalDLA()


class Carousel(da.System):
    """A point (a, b) held to a disk with angle theta by a spring; beside it c' = sin(c) y'."""

    coordinates = ("a", "b", "theta", "c", "y")

    def metric(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 0.7, 1.0, 1.0]))

    def potential(self, q):
        held = q[0] * jnp.cos(q[2]) + q[1] * jnp.sin(q[2])
        return 0.5 * (q[0] ** 2 + q[1] ** 2 + q[4] ** 2) + 0.3 * held

    def constraints(self, q):
        return jnp.array([[0.0, 0.0, 0.0, 1.0, 0.0]]) - jnp.sin(q[3]) * jnp.eye(5)[4:]

    def starts(self):
        return {"default": ([0.5, 0.2, 0.3, 0.4, 0.6], [0.1, 0.3, 0.9, 0.5 * np.sin(0.4), 0.5])}


def turned(g, q):
    c, s = jnp.cos(g[0]), jnp.sin(g[0])
    return jnp.stack([c * q[0] - s * q[1], s * q[0] + c * q[1], q[2] + g[0], q[3], q[4]])


class Observed(da.zoo.TwoWheeledRobot):
    """The robot with a camera, whose angle is measured from a fixed direction."""

    coordinates = (*da.zoo.TwoWheeledRobot.coordinates, "camera")
    units = ()

    def metric(self, q):
        mass = super().metric(q)
        return jnp.block([[mass, jnp.zeros((5, 1))], [jnp.zeros((1, 5)), jnp.full((1, 1), 0.3)]])

    def potential(self, q):
        return super().potential(q) + 0.2 * (1 - jnp.cos(q[5] - q[2]))

    def constraints(self, q):
        return jnp.concatenate([super().constraints(q), jnp.zeros((3, 1))], axis=1)

    def frame(self, q):
        return jnp.concatenate([-self.constraints(q)[:, 3:], jnp.eye(3)])

    def generators(self, q):
        return jnp.zeros((6, 0))

    def starts(self):
        q = jnp.array([0.1, -0.2, 0.3, 0.0, 0.0, 0.7])
        return {"default": (q, self.frame(q) @ jnp.array([1.0, 0.4, 0.2]))}


def moved(g, q):
    return jnp.concatenate([SE2().multiply(g, q[:3]), q[3:5], q[5:] + g[2]])


CAROUSEL = (Carousel(), da.Symmetry(Torus(1), on=("theta",), action=turned))
CASES = {
    "horizontal": (*CAROUSEL, "horizontal"),
    "abelian": (*CAROUSEL, "abelian"),
    "SE(2)": (Observed(), da.Symmetry(SE2(), on=("x", "y", "theta"), action=moved), "chaplygin"),
}


def motion(system, q0, v0):
    """Positions and velocities at ten times until t = 1, by SciPy from the system's acceleration."""
    q0, v0 = jnp.asarray(q0, float), jnp.asarray(v0, float)
    field = compiled(lambda q, v: jnp.concatenate([v, acceleration(system, q, v)[0]]), q0, v0)
    start, times, n = np.concatenate([q0, v0]), np.linspace(0.1, 1, 10), len(q0)
    found = solve_ivp(
        lambda t, y: field(y[:n], y[n:]), (0, 1), start, "DOP853", times, rtol=1e-13, atol=1e-13
    )
    return found.y[:n].T, found.y[n:].T


@pytest.mark.parametrize("name", CASES)
def test_reduction_with_an_action_of_ones_own(name):
    system, symmetry, kind = CASES[name]
    q0, v0 = system.start()
    level = symmetry.momentum(system, q0, v0) if kind == "horizontal" else None
    reduced = da.reduce(system, V, symmetry, kind=kind, level=level)
    full = da.simulate(system, V, q0, v0, h=0.1, steps=60)
    run = da.simulate(reduced, reduced.method, *reduced.project(q0, v0), h=0.1, steps=60)
    again = reduced.reconstruct(run, symmetry.element(system, q0))
    # The bound of the specification; 1e-14 is measured.
    assert np.max(np.abs(again.q - full.q)) < 1e-11
    assert np.max(np.abs(again.v - full.v)) < 1e-11
    if kind != "horizontal":  # the continuous equations once; their compilation is long
        return
    exact, left = motion(system, q0, v0), motion(reduced, *reduced.project(q0, v0))
    # Two runs of an adaptive method at tolerances of 1e-13.
    assert np.max(np.abs(reduced.project(*exact)[0] - left[0])) < 1e-12


def test_without_the_action_it_is_none():
    """The same group on the named coordinates alone changes the potential."""
    for system, on, group in ((Carousel(), ("theta",), Torus(1)), (Observed(), ("x", "y", "theta"), SE2())):
        found = da.classify(system, da.Symmetry(group, on=on))
        assert found.kind == "neither"
        assert not found.invariance["L"].holds
