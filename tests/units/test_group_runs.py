"""Runs on Lie groups: saved, loaded, drawn, batched and differentiated as such; and audited."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import dalembert as da
from dalembert.model import as_arrays
from dalembert.simulation import engines

Z = da.zoo
pytestmark = pytest.mark.filterwarnings("ignore::dalembert.MotionWarning")
BALL = Z.RoundBody("S^3")


def run(system, method=None, steps=40, **options):
    return da.simulate(system, method or da.LieGNI(), *system.start(), h=system.step, steps=steps, **options)


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_saved_and_loaded_as_elements(tmp_path, suffix):
    sol = run(Z.Suslov())
    data = sol.to_xarray()
    assert data.q.dims == ("time", "coordinate")
    assert data.v.dims == data.v_full.dims == ("time", "velocity")
    assert data.coordinate.values.tolist()[:2] == ["R11", "R12"]
    assert data.velocity.values.tolist() == ["w1", "w2", "w3"]
    assert data.attrs["group"] == "SO(3)"
    path = tmp_path / f"run.{suffix}"
    sol.save(path)
    for system in (None, Z.Suslov()):
        found = da.load(path, system=system)
        np.testing.assert_array_equal(found.q, sol.q)
        np.testing.assert_array_equal(found.v_full, sol.v_full)
        np.testing.assert_allclose(found.energy(), sol.energy(), rtol=1e-14)  # the same formula
        assert found.method == sol.method
        assert found.to_xarray().attrs["group"] == "SO(3)"
        plt.close(found.plot.path().figure)
    with pytest.raises(ValueError, match="has the coordinates"):
        da.load(path, system=BALL)


def test_plain_runs_are_saved_as_before():
    data = run(Z.KnifeEdge(), da.DLA01()).to_xarray()
    assert data.v.dims == ("time", "coordinate")
    assert "group" not in data.attrs


def test_elements_are_matrices():
    sol = run(Z.Suslov())
    assert sol.elements.shape == (41, 3, 3)
    # Products of rotations: one Newton step after each keeps them to a few units of the last place.
    assert np.max(np.abs(np.swapaxes(sol.elements, 1, 2) @ sol.elements - np.eye(3))) < 1e-14
    sleigh = run(Z.GroupSleigh())
    np.testing.assert_allclose(sleigh.elements[:, :2, 2], sleigh.q[:, :2])
    with pytest.raises(ValueError, match="Lie group; this run is in coordinates"):
        _ = run(Z.KnifeEdge(), da.DLA01()).elements


def test_pictures_of_rotations():
    one = run(Z.RoundBody("SO(3)")).plot.axis(3)
    two = run(BALL).plot.path()  # on S^3 a path is that of the third axis too
    for ax in (one, two):
        assert "axis 3" in ax.get_title(loc="left")
        for line in ax.lines:
            x, y = (np.asarray(c, float) for c in line.get_data())
            assert np.nanmax(np.hypot(x, y)) < 1 + 1e-9  # on or before the sphere
    # The same rotation, however it is written: S^3 covers SO(3).
    for a, b in zip(one.lines[:2], two.lines[:2], strict=True):
        np.testing.assert_allclose(
            np.asarray(a.get_data(), float), np.asarray(b.get_data(), float), atol=1e-12
        )
    ends = run(Z.RoundBody("SO(3)")).elements[:, :, 2]
    seen = np.asarray(one.lines[0].get_xdata(), float), np.asarray(one.lines[1].get_xdata(), float)
    assert np.all(np.isfinite(seen[0]) ^ np.isfinite(seen[1]))  # before or behind, never both
    assert np.array_equal(np.isfinite(seen[0]), ends @ [2, 1, 1] >= 0)  # seen from (2, 1, 1)
    sleigh = run(Z.GroupSleigh())
    assert sleigh.plot.path().get_xlabel() == "x"
    for call, message in (
        (lambda: sleigh.plot.axis(), "axis draws rotations"),
        (lambda: run(BALL).plot.axis(4), "axes 1, 2 and 3, got 4"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    plt.close("all")


@pytest.mark.parametrize(
    ("system", "method"),
    [(Z.Suslov(), da.LieGNI()), (BALL, da.LieGNI("cayley")), (Z.ChaplyginSleigh(), da.GNI(restart_every=7))],
    ids=["SO(3)", "S^3", "gni"],
)
def test_ensembles_are_their_members(system, method):
    q0, v0 = (np.asarray(x) for x in system.start())
    speeds = np.linspace(0.7, 1.3, 9)
    many = da.ensemble(system, method, q0, speeds[:, None] * v0, h=0.1, steps=60, save_every=20)
    made = (as_arrays(system), as_arrays(method), np.asarray(0.1))
    assert isinstance(engines.engine(*made), engines.Native)  # no fallback
    assert many.q.shape == (9, 4, len(q0))
    assert many.v.shape == (9, 4, len(v0))
    for i in (0, 4, 8):
        alone = da.simulate(system, method, q0, speeds[i] * v0, h=0.1, steps=60, save_every=20)
        # The same operations in another order: rounding of sixty steps.
        np.testing.assert_allclose(many.q[i], alone.q, atol=1e-13)
        np.testing.assert_allclose(many.v_full[i], alone.v_full, atol=1e-13)
        np.testing.assert_allclose(many.member(i).energy(), alone.energy(), rtol=1e-13)
    if system.group is not None:
        assert many.elements.shape[:2] == (9, 4)
        assert many.to_xarray().v.dims == ("member", "time", "velocity")


def test_parameters_with_one_value_a_member():
    i13 = np.linspace(0.1, 0.5, 5)
    q0, v0 = Z.Suslov().start()
    many = da.ensemble(Z.Suslov(i13=i13), da.LieGNI(), q0, np.tile(v0, (5, 1)), h=0.1, steps=30)
    alone = da.simulate(Z.Suslov(i13=0.4), da.LieGNI(), q0, v0, h=0.1, steps=30)
    np.testing.assert_allclose(many.q[3], alone.q, atol=1e-13)


@pytest.mark.parametrize("method", [da.LieGNI(), da.LieGNI("cayley", restart_every=4)])
def test_derivatives_through_a_run(method):
    q0, v0 = Z.Suslov().start()

    def end(i13, scale):
        sol = da.simulate(Z.Suslov(i13=i13), method, q0, scale * v0, h=0.1, steps=12)
        return sol.v[-1, 0] + sol.q[-1, 4]

    back = jax.grad(end, (0, 1))(0.3, 1.0)
    ahead = jax.jacfwd(end, (0, 1))(0.3, 1.0)
    e = 1e-5
    numeric = (
        (end(0.3 + e, 1.0) - end(0.3 - e, 1.0)) / (2 * e),
        (end(0.3, 1 + e) - end(0.3, 1 - e)) / (2 * e),
    )
    np.testing.assert_allclose(back, ahead, rtol=1e-10)  # both exact to rounding
    np.testing.assert_allclose(back, numeric, rtol=1e-7)  # central differences: e^2 and rounding over e


def test_gni_derivatives_on_a_metric_that_depends_on_q():
    q0, v0 = Z.ChaplyginSleigh().start()

    def end(offset, method):
        return da.simulate(Z.ChaplyginSleigh(offset=offset), method, q0, v0, h=0.2, steps=10).q[-1, 1]

    for method in (da.GNI(), da.VariationalDLA()):
        found = jax.grad(end)(0.2, method)
        numeric = (end(0.2 + 1e-5, method) - end(0.2 - 1e-5, method)) / 2e-5
        assert float(found) == pytest.approx(float(numeric), rel=1e-6)  # central differences


def test_derivatives_where_the_start_has_a_loop():
    """They go through XLA then, whose loops may be run back."""
    system = Z.NonholonomicParticle()
    q0, v0 = system.start()

    def end(scale):
        return da.simulate(system, da.GNI(start="exact"), q0, scale * v0, h=0.1, steps=3).q[-1, 2]

    numeric = (end(1 + 1e-5) - end(1 - 1e-5)) / 2e-5
    assert float(jax.grad(end)(1.0)) == pytest.approx(float(numeric), rel=1e-6)  # central differences


def test_audits_on_groups():
    """Every row is there, claims hold, and the laws are said to hold or not as they should."""
    right = da.audit(Z.RoundBody("SO(3)", "right-invariant"), da.LieGNI(), steps=10_000)
    suslov = da.audit(Z.Suslov(), da.LieGNI("cayley"), steps=10_000)
    for found in (right, suslov):
        assert found.broken_claims == []
        rows = dict(found.rows())
        for name in ("flight keeps energy", "det (-1)^m in (q, p)", "symplectic form", "average momentum"):
            assert name in rows
        assert rows["det (-1)^m in (q, p)"].startswith("kept")
        assert rows["symplectic form"].startswith("kept")
        assert all(rows[x].startswith("kept") for x in rows if x.startswith("momentum: "))
        assert "nonholonomic: growth vector (2, 3)" in found.structure
        assert found.to_dict()["laws"]["flight"] == found.laws.flight
    assert [suslov.order.q, suslov.order.v] == pytest.approx([2, 2], abs=0.1)
    broken = replace(suslov, laws=suslov.laws._replace(momentum={"axis 1": 1e-3, "axis 2": 1e-15}))
    assert broken.broken_claims == ["the momentum equation fails for axis 1: is the system invariant?"]
    assert right.laws.space_momentum < 1e-13 < 1e-4 < suslov.laws.space_momentum
    assert right.problems == []
    for name in ("momentum of space axis 1", "momentum of space axis 2"):  # horizontal symmetries
        assert right.integrals[name].verdict is da.diagnostics.Verdict.EXACT
    assert not any(name.startswith("momentum of") for name in suslov.integrals)
    assert right.energy.verdict is da.diagnostics.Verdict.EXACT
    assert suslov.laws.flight > 1e-7
    assert suslov.parasitic.grows
    assert any("parasitic mode grows" in x for x in suslov.problems)


def test_reference_on_groups_is_the_closed_form():
    system = Z.Suslov()
    q0, v0 = system.start()
    sol = da.simulate(system, da.Reference(), q0, v0, h=0.5, steps=40)
    q, v = system.solution(sol.t, q0, v0)
    assert np.max(np.abs(sol.v - v)) < 1e-13  # tolerances 1e-14
    assert np.max(np.abs(sol.q - q)) < 1e-11  # the closed form's own integral: 1e-12
    system = Z.Heisenberg()
    sol = da.simulate(system, da.Reference(), *system.start(), h=0.5, steps=40)
    assert np.max(np.abs(sol.v - system.velocity_solution(sol.t, system.start()[1]))) < 1e-13


def test_the_parasitic_amplitude_of_a_run():
    sol = run(Z.GroupSleigh(), steps=200)
    size = sol.parasitic_amplitude()
    assert size.shape == (201,)
    assert size[0] < 1e-15  # the half kick starts without it, but for rounding
    # It is what the definition says: the own velocity beyond v and half the kick of the multipliers.
    mass = np.asarray(Z.GroupSleigh().inertia())
    lam = jax.vmap(lambda q, v: da.model.acceleration(Z.GroupSleigh(), q, v)[1])(sol.q, sol.v)
    kick = 0.5 * 0.2 * np.asarray(lam) @ np.array([[0.0, 1.0, 0.0]]) @ np.linalg.inv(mass)
    extra = sol.v_full - sol.v - kick
    np.testing.assert_allclose(size, np.sqrt(np.einsum("ki,ij,kj->k", extra, mass, extra)), atol=1e-15)
    frame = da.simulate(Z.KnifeEdge(), da.FrameGradient(), *Z.KnifeEdge().start(), h=0.1, steps=3)
    with pytest.raises(
        ValueError, match=r"frame has no parasitic mode of this kind; GNI\(\) and LeapFrog\(\) have"
    ):
        frame.parasitic_amplitude()
    starts = np.tile(Z.Suslov().start()[1], (2, 1))
    many = da.ensemble(Z.Suslov(), da.LieGNI(), Z.Suslov().start()[0], starts, h=0.1, steps=3)
    with pytest.raises(ValueError, match=r"take sol.member\(i\)"):
        many.parasitic_amplitude()
    assert many.member(1).parasitic_amplitude().shape == (4,)


def test_a_body_at_rest_stays():
    for tau in ("exp", "cayley"):
        sol = da.simulate(BALL, da.LieGNI(tau), BALL.start()[0], jnp.zeros(3), h=0.1, steps=20)
        assert np.array_equal(sol.v, np.zeros((21, 3)))
        # One Newton step towards unit length a step, on numbers that are a unit quaternion to rounding.
        assert np.max(np.abs(sol.q - sol.q[0])) < 1e-15
