"""One step as a map: which involution reverses it, and whether it respects driver and passenger."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import make

import dalembert as da
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.stepmap import fibration_defects, reversibility_defect
from dalembert.model import project

H = 0.1
ON_D = {"dla:0.5": da.DLA(0.5), "dla01": da.DLA01(), "frame": da.FrameGradient()}
ON_TQ = {"leapfrog": da.LeapFrog(), "dd": da.DiscreteGradient(), "dd:average": da.DiscreteGradient("average")}
NOT = {"dla:0.4": (6e-3, 2e-2), "dla:0": (3e-2, 1e-1), "dla:1": (3e-2, 1e-1)}


def states(name, on_constraint, count=60, normal=1.0):
    """Random states of size one: on D, or with this part of the normal velocity too."""
    system = make(name)[0]
    draw = np.random.default_rng(7)
    q, u = draw.normal(size=(2, count, system.dimension))
    allowed = np.asarray(
        jax.jit(jax.vmap(lambda q, u: project(system, q, u)))(jnp.asarray(q), jnp.asarray(u))
    )
    return system, q, allowed if on_constraint else allowed + normal * (u - allowed)


@pytest.mark.parametrize("spelling", [*ON_D, *ON_TQ])
def test_reversible_by_its_own_involution(spelling):
    # Gonzalez' equations are solved to 1e-12 only far from D, where no run goes: normal parts are of size h.
    system, q, u = states("cvt-rot-0.5", spelling in ON_D, normal=H if spelling == "dd" else 1.0)
    method = (ON_D | ON_TQ)[spelling]
    # A few roundings; relative to the size of the state.
    assert np.max(reversibility_defect(system, method, H, q, u)) < 1e-13
    plain = np.max(reversibility_defect(system, method, H, q, u, plain=True))
    # For leap-frog u -> -u is not the way back: p^- and -p^+ change places.
    assert plain > 0.1 if spelling == "leapfrog" else plain < 1e-13


@pytest.mark.parametrize("spelling", NOT)
def test_not_reversible(spelling):
    """DLA^a with another a than a half: 6e-3 to 2e-2 for 0.4, 3e-2 to 1e-1 for 0 and 1, to half a decade."""
    system, q, u = states("cvt-rot-0.5", True)
    low, high = NOT[spelling]
    defect = np.max(reversibility_defect(system, da.DLA(float(spelling.removeprefix("dla:"))), H, q, u))
    assert low / 3 < defect < 3 * high


def fibration(name, method, on_constraint):
    system, q, u = states(name, on_constraint)
    return fibration_defects(CoupledSystem.of(system, q[0]), method, H, q, u, on_constraint)


@pytest.mark.parametrize("spelling", [*ON_D, *ON_TQ])
def test_the_driver_moves_by_itself(spelling):
    """For every method but Gonzalez' where V is not quadratic: some 1e-4 of the driver's speed."""
    method = (ON_D | ON_TQ)[spelling]
    found = fibration("cvt-rot-0.5", method, spelling in ON_D)
    if spelling == "dd":
        assert 1e-5 < found.driver < 1e-3
        assert not method.claims(make("cvt-rot-0.5")[0]).fibred
    else:
        assert found.driver < 1e-13
        assert method.claims(make("cvt-rot-0.5")[0]).fibred


@pytest.mark.parametrize("name", ["knife-0.1", "disk", "particle", "harmonic", "robot"])
def test_gonzalez_on_the_other_systems(name):
    """DD respects the driver where its potential is quadratic or none, contrary to print; not on the robot.
    And it never sees the kernel of kappa."""
    found = fibration(name, da.DiscreteGradient(), False)
    if name == "robot":
        assert 3e-6 < found.driver < 3e-4
    else:
        assert found.driver < 1e-13
    assert found.fibre < 1e-13
