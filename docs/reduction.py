"""Measures what docs/reduction.md says: `python docs/reduction.py NAME ...`, or `all`; fails where it is not so."""

import sys
import time

import jax.numpy as jnp
import numpy as np
from entries import show

import dalembert as da
from dalembert.diagnostics.stepmap import step_jacobian
from dalembert.diagnostics.variable_steps import variable_step_laws

ROBOT = da.zoo.MobileRobot()
PLANE = da.Symmetry(da.groups.Rn(2), on=("x1", "x2"))


def two_masses():
    """Two unit masses in the plane, held by springs of different strength and by a stiffening spring between them."""

    def potential(q):
        between = jnp.sum((q[:2] - q[2:]) ** 2)
        return 0.5 * jnp.sum(q[:2] ** 2) + jnp.sum(q[2:] ** 2) + 0.25 * between**2

    return da.system(coordinates=("x1", "y1", "x2", "y2"), metric=lambda q: jnp.eye(4), potential=potential)


def laws_kept(method, h=0.05, steps=400):
    """How far a method is from being symplectic, and the changes of momentum and energy, for the two masses.

    For EDLA, the form is that of space and time, and the energy the discrete one.
    """
    masses = two_masses()
    run = da.simulate(masses, method, [1.0, 0.2, -0.4, 0.7], [0.1, 0.8, -0.6, 0.2], h=h, steps=steps)
    (x1, y1, x2, y2), (u1, w1, u2, w2) = run.q.T, run.v.T
    turning = np.ptp(x1 * w1 - y1 * u1 + x2 * w2 - y2 * u2)
    if method.variable_step:
        return variable_step_laws(run).symplectic, turning, np.ptp(run.step_data["E_plus"][1:])
    omega = np.block([[np.zeros((4, 4)), np.eye(4)], [-np.eye(4), np.zeros((4, 4))]])
    places = run.q[:: steps // 10], run.v_full[:: steps // 10]
    slopes = step_jacobian(masses, method, h, *places, method.claims(masses).on_constraint)
    return max(np.max(np.abs(x.T @ omega @ x - omega)) for x in slopes), turning, np.ptp(run.energy())


def three_laws():
    """Theorem 1 of [cortes2003]: the symplectic form, the momentum and the energy, with fixed and variable steps."""
    methods = (da.GNI(), da.LeapFrog(), da.DiscreteGradient(), da.FrameGradient(), da.EDLA(), da.Reference())
    found = {method.cli_name: laws_kept(method) for method in methods}
    print("    method      symplectic  momentum  energy")
    for name, values in found.items():
        print(f"    {name:10}", "  ".join(f"{x:9.0e}" for x in values))
    # Rounding of 400 steps, and of the differences from which the derivative of a step is computed.
    kept = {name: tuple(x < 1e-12 for x in values) for name, values in found.items()}
    assert kept["gni"] == kept["leapfrog"] == (True, True, False)
    assert kept["dd"] == kept["frame"] == (False, False, True)
    assert kept["edla"] == kept["reference"] == (True, True, True)


def speed():
    """A million steps of the mobile robot, full and without R^2, side by side: the best of five runs each."""
    reduced = da.reduce(ROBOT, da.VariationalDLA(), PLANE)
    start = ROBOT.start()
    runs = {
        "full": (ROBOT, da.VariationalDLA(), *start),
        "reduced": (reduced, reduced.method, *reduced.project(*start)),
    }
    best = dict.fromkeys(runs, np.inf)
    for turn in range(6):
        for name, given in runs.items():
            began = time.perf_counter()
            da.simulate(*given, h=0.1, steps=1_000_000, save_every=1000)
            if turn:  # the first one compiles
                best[name] = min(best[name], time.perf_counter() - began)
    ratio = best["full"] / best["reduced"]
    print(f"    full {best['full']:.2f} s, reduced {best['reduced']:.2f} s")
    print(f"    the reduced run is {ratio:.2f} times as fast")
    assert ratio > 1


def exactness():
    """The same runs over 1000 steps: reduced against projected, reconstructed against full."""
    reduced = da.reduce(ROBOT, da.VariationalDLA(), PLANE)
    q0, v0 = ROBOT.start()
    full = da.simulate(ROBOT, da.VariationalDLA(), q0, v0, h=0.1, steps=1000)
    run = da.simulate(reduced, reduced.method, *reduced.project(q0, v0), h=0.1, steps=1000)
    shapes = np.max(np.abs(run.q - reduced.project(full).q))
    again = np.max(np.abs(reduced.reconstruct(run, q0[:2]).q - full.q))
    print(f"    shapes {shapes:.0e}, all coordinates after reconstruction {again:.0e}")
    assert max(shapes, again) < 1e-11


ENTRIES = {"speed": speed, "exactness": exactness, "three-laws": three_laws}

if __name__ == "__main__":
    show(ENTRIES, sys.argv[1:])
