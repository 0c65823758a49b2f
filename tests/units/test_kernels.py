"""Machine code against XLA: the same states, the same failures; what falls back, what is compiled anew."""

import os
import subprocess
import sys
import textwrap
import threading
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.kernels import Unsupported, choice, native
from dalembert.kernels.array_loop import ArrayLoop
from dalembert.methods import State, method_from_text
from dalembert.model import as_arrays
from dalembert.simulation import engines, run
from dalembert.simulation.loop import saved_steps

CVT = da.zoo.PendulumCVT(eps=0.5)
START = tuple(map(np.asarray, CVT.start("rotating")))

# Every system of the zoo with two methods, every method with one system.
PAIRS = [
    (CVT, "dd:average"),
    (CVT, "frame@4"),
    (da.zoo.HarmonicCVT(), "leapfrog:momentum"),
    (da.zoo.HarmonicCVT(), "dd:itoh-abe"),
    (da.zoo.SpringParticle(), "dla:0.5"),
    (da.zoo.SpringParticle(), "dd"),
    (da.zoo.KnifeEdge(eps=0.1), "dla01"),
    (da.zoo.KnifeEdge(eps=0.1), "frame:gonzalez"),
    (da.zoo.RollingDisk(), "leapfrog"),
    (da.zoo.RollingDisk(), "leapfrog:momentum"),
    (da.zoo.MobileRobot(), "leapfrog"),
    (da.zoo.MobileRobot(), "leapfrog:momentum"),
    (da.zoo.NonholonomicParticle(), "leapfrog"),
    (da.zoo.NonholonomicParticle(), "dla01@4"),
    (da.zoo.Snakeboard(), "dla01"),
    (da.zoo.Snakeboard(), "leapfrog"),
    (da.zoo.ChaplyginSleigh(), "frame"),
    (da.zoo.ChaplyginSleigh(coordinates="mass-centre"), "leapfrog"),
    (da.zoo.ChaplyginSleigh(), "gni"),
    (da.zoo.ChaplyginSleigh(), "gni:restart=7"),
    (da.zoo.ChaplyginSleigh(), "dla-variational"),
    (CVT, "gni:gauss=2"),
    (CVT, "gni:trapezoidal"),
    (da.zoo.Suslov(), "lie-gni"),
    (da.zoo.RoundBody("S^3"), "lie-gni:cayley"),
    (da.zoo.GroupSleigh(), "lie-gni:mid,exact,restart=9"),
]


FORMS = ("scalars", "arrays")


def runs_of(monkeypatch, system, method, q0, v0, h, steps, save_every=1):
    """The run by machine code in both forms and by XLA: for each the first row and the rest."""
    system, method = as_arrays(system), as_arrays(method)

    def run(kind):
        loop = kind(system, method, jnp.asarray(h))
        first = loop.begin(State(np.asarray(q0, float), np.asarray(v0, float), np.zeros(())))
        return first, loop.run(save_every, steps)

    found = []
    for form in FORMS:
        monkeypatch.setenv(choice.VARIABLE, form)
        found.append(run(engines.Native))
    assert isinstance(engines.loop_of(system, method), ArrayLoop)
    return *found, run(engines.Xla)


@pytest.mark.parametrize("width", [1, 3, 4])
@pytest.mark.parametrize(
    ("system", "spelling"), [(CVT, "dd"), (da.zoo.Snakeboard(), "frame")], ids=["cvt", "board"]
)
def test_as_many_sines_at_once_as_a_machine_likes(monkeypatch, system, spelling, width):
    """Other machines have other vectors; only rounding may differ."""
    system, method = as_arrays(system), as_arrays(method_from_text(spelling))
    q0, v0 = map(np.asarray, system.start())
    rows = []
    for k in (2, width):
        monkeypatch.setattr(native, "vector_width", lambda k=k: k)
        loop = engines._make(system, method)
        start, advance = loop.single()
        parameters, first = native.pack((system, method, np.float64(0.1))), native.pack((q0, v0))
        carry, out = np.zeros(len(loop.carry)), np.zeros((4, len(loop.row)))
        start(*(x.ctypes.data for x in (parameters, first, carry, out)))
        assert advance(parameters.ctypes.data, carry.ctypes.data, 20, 20, 40, out[1:].ctypes.data, 2) == 2
        rows.append(out[:3])
    close(*rows, 1e-13)
    assert np.max(np.abs(rows[0][2] - rows[0][0])) > 0.1


def close(a, b, rtol):
    """Equal within rtol of the largest entry (or of 1e-3, where all are zero but for rounding)."""
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.max(np.abs(b), initial=1e-3))


@pytest.mark.parametrize(
    ("system", "spelling"), PAIRS, ids=lambda x: x if isinstance(x, str) else type(x).__name__
)
def test_same_states_as_xla(system, spelling, monkeypatch):
    method = method_from_text(spelling)
    *kernels, (plain_first, plain) = runs_of(monkeypatch, system, method, *system.start(), system.step, 50, 3)
    pairs = []
    for first, rest in kernels:
        assert (rest.done, rest.code) == (plain.done, plain.code) == (50, 0)
        pairs += [(first.rows, plain_first.rows), (rest.rows, plain.rows), (rest.last, plain.last)]
    for ours, theirs in pairs:
        assert (ours.lam is None) == (theirs.lam is None)
        # The two round sums and quotients in different orders, 1e-16 an operation; these motions do not amplify
        # that in 50 steps. Multipliers are differences of velocities over h, which costs another digit or two.
        for name in ("q", "v", "v_full"):
            close(getattr(ours, name), getattr(theirs, name), 1e-12)
        if ours.lam is not None:
            close(ours.lam, theirs.lam, 1e-11)


def sinking():
    """A fall along y to where the potential log(y) is undefined, which is reached after t = sqrt(pi/2)."""
    return da.system(
        coordinates=("x", "y"),
        metric=lambda q: jnp.eye(2),
        potential=lambda q: jnp.log(q[1]),
        constraints=lambda q: jnp.array([[1.0, 0.0]]),
    )


SINKING = sinking()


@pytest.mark.parametrize(
    ("spelling", "h", "status"),
    [("leapfrog", 0.05, da.Status.NOT_FINITE), ("dla:0.75", 0.1, da.Status.NOT_SOLVED)],
)
def test_failures_are_those_of_xla(spelling, h, status, monkeypatch):
    method, arguments = method_from_text(spelling), ([0.0, 1.0], [0.0, 0.0], h)
    *kernels, (_, theirs) = runs_of(monkeypatch, SINKING, method, *arguments, 100, save_every=7)
    for _, ours in kernels:
        assert ours.code == theirs.code == status.code
        assert ours.done == theirs.done
        assert 0 < ours.done < np.sqrt(np.pi / 2) / h + 1
        assert np.isfinite(ours.residual)
        assert len(ours.rows.q) == ours.done // 7
        # Fifty iterations that go astray are chaotic; both are far from settled, or (explicit) both are zero.
        assert (ours.residual > 1e-6) == (theirs.residual > 1e-6) == (status is da.Status.NOT_SOLVED)
    assert len(ours.rows.q) == len(theirs.rows.q) == ours.done // 7
    for name in ("q", "v", "v_full", "lam"):
        # Near the singularity forces grow like 1/y, y about 0.02: a hundred times the rounding of a smooth run.
        close(getattr(ours.rows, name), getattr(theirs.rows, name), 1e-10)
        close(getattr(ours.last, name), getattr(theirs.last, name), 1e-10)
    # The run that ends before the failure has the same rows and the same last state.
    whole = da.simulate(SINKING, method, *arguments[:2], h=h, steps=ours.done, save_every=7)
    np.testing.assert_array_equal(whole.q[1 : len(ours.rows.q) + 1], ours.rows.q)
    np.testing.assert_array_equal(whole.q[-1], ours.last.q[0])
    np.testing.assert_array_equal(whole.v[-1], ours.last.v[0])

    with pytest.raises(da.SimulationError) as caught:
        da.simulate(SINKING, method, *arguments[:2], h=h, steps=100, save_every=7, t0=2.0)
    error = caught.value
    assert error.status is status
    assert error.step == ours.done + 1
    assert error.time == pytest.approx(2.0 + error.step * h)
    assert error.residual == ours.residual
    np.testing.assert_array_equal(error.trajectory.q[-1], ours.last.q[0])


def test_newton_that_meets_nan_ends_the_run():
    """NaN inside the iteration itself, not only in the new state."""
    sol = da.simulate(SINKING, da.FrameGradient(), [0.0, 1.0], [0.0, 0.0], h=0.05, steps=100, throw=False)
    assert sol.status is da.Status.NOT_FINITE
    assert 0 < int(sol.steps) < 27
    assert np.all(np.isfinite(sol.q))
    assert np.all(np.isfinite(sol.v))
    assert len(sol.t) == int(sol.steps) + 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spelling", ["leapfrog", "dla:0.5", "dla01", "dd", "frame"])
def test_no_constraints_at_all(spelling, form, monkeypatch):
    """Arrays with no rows go through machine code too."""
    monkeypatch.setenv(choice.VARIABLE, form)
    spring = da.system(
        coordinates=("x",), metric=lambda q: jnp.eye(1), potential=lambda q: 0.5 * jnp.sum(q**2)
    )
    method = method_from_text(spelling)
    sol = da.simulate(spring, method, [1.0], [0.0], h=0.01, steps=100)
    assert sol.multipliers.shape == (101, 0)
    assert sol.q[-1, 0] == pytest.approx(np.cos(1.0), abs=1e-4)  # order two: h^2/24 t of phase, 4e-6
    assert isinstance(engines.engine(*map(as_arrays, (spring, method)), 0.01), engines.Native)


def sorting():
    """V = min(x, y) + 2 max(x, y), with x held: y falls with acceleration 2 while it is the larger."""
    return da.system(
        coordinates=("x", "y"),
        metric=lambda q: jnp.eye(2),
        potential=lambda q: jnp.sort(q) @ jnp.array([1.0, 2.0]),
        constraints=lambda q: jnp.array([[1.0, 0.0]]),
    )


def test_unknown_primitive_runs_through_xla_with_one_warning(monkeypatch):
    monkeypatch.setattr(engines, "_warned", engines.Recent(16))
    system = sorting()

    def simulate(**change):
        return da.simulate(
            system, da.LeapFrog(), [0.0, 5.0], [0.0, 0.5], **({"h": 0.1, "steps": 20} | change)
        )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sol = simulate()
    told = [w for w in caught if "machine code" in str(w.message)]
    assert len(told) == 1
    assert "uses sort" in str(told[0].message)
    assert "leapfrog" in str(told[0].message)
    assert told[0].filename == __file__  # it points at the user's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate()
        simulate(h=0.05, steps=3)
    # Leap-frog is exact under a constant force, up to the rounding of twenty steps.
    np.testing.assert_allclose(sol.q[:, 1], 5 + 0.5 * sol.t - sol.t**2, atol=1e-13)
    np.testing.assert_allclose(sol.v[:, 1], 0.5 - 2 * sol.t, atol=1e-13)
    np.testing.assert_array_equal(sol.q[:, 0], 0.0)


def depth(error):
    trace, count = error.__traceback__, 0
    while trace is not None:
        trace, count = trace.tb_next, count + 1
    return count


def test_remembering_a_failure_does_not_remember_its_runs():
    """An exception that is kept and raised again would gather the frames, and so the arrays, of every run."""
    system, method = as_arrays(sorting()), as_arrays(da.DLA01())
    depths = []
    for _ in range(4):
        with pytest.raises(Unsupported, match="sort") as caught:
            engines.loop_of(system, method)
        depths.append(depth(caught.value))
    assert depths[3] == depths[1]


class Weighted(da.System):
    """A spring with a vector of stiffnesses, of any length."""

    coordinates = ("x", "y")
    stiffness: np.ndarray
    scale: float = 1.0

    def metric(self, q):
        return jnp.eye(2)

    def potential(self, q):
        return 0.5 * self.scale * jnp.sum(self.stiffness) * jnp.sum(q**2)

    def constraints(self, q):
        return jnp.array([[1.0, 0.5]])


def test_new_numbers_make_no_new_code(monkeypatch):
    made = []

    def counted(name, original):
        def call(*arguments):
            made.append(name)
            return original(*arguments)

        return call

    monkeypatch.setattr(native, "Machine", counted("machine", native.Machine))
    monkeypatch.setattr(engines, "_make", counted("loop", engines._make))

    class Own(Weighted):  # a class that no other test has compiled
        pass

    usual = {"method": da.DLA(0.5), "q0": [1.0, 0.0], "v0": [-0.5, 1.0], "h": 0.1, "steps": 20}

    def fresh(stiffness=(1.0, 2.0), scale=1.0, **change):
        made.clear()
        system = Own(np.asarray(stiffness), scale)
        da.simulate(system, **(usual | change))
        return sorted(made)

    assert fresh() == ["loop", "machine"]
    for change in (
        {"stiffness": (3.0, 0.1)},
        {"scale": 2},  # a whole number is a number like any other
        {"scale": np.float64(0.3)},
        {"scale": jnp.asarray(0.3)},
        {"method": da.DLA(0.4)},
        {"h": 0.07},
        {"steps": 9000},
        {"save_every": 7},
        {"t0": 1.0},
        {"q0": np.array([0.3, 2.0])},
        {"v0": [0, 0]},
    ):
        assert fresh(**change) == [], change
    assert fresh(stiffness=(1.0, 2.0, 3.0)) == ["loop", "machine"]
    assert fresh(method=da.DLA01()) == ["loop", "machine"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("capacity", [None, 1, 5])
@pytest.mark.parametrize(
    ("steps", "save_every"), [(100, 7), (100, 1), (99, 33), (0, 1), (0, 5), (3, 10), (10, 10)]
)
def test_rows_are_those_of_every_step(steps, save_every, capacity, form, monkeypatch):
    monkeypatch.setenv(choice.VARIABLE, form)
    every = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=steps)
    if capacity:
        monkeypatch.setattr(engines, "CAPACITY", capacity)
        monkeypatch.setattr(run, "CAPACITY", capacity)
    sol = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=steps, save_every=save_every)
    kept = saved_steps(steps, save_every)
    for name in ("t", "q", "v", "v_full", "lam"):
        np.testing.assert_array_equal(getattr(sol, name), getattr(every, name)[kept])


def test_kernel_that_runs_out_of_room_goes_on(monkeypatch):
    """A call may return before its count is done; the next goes on from there."""
    every = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=64)
    monkeypatch.setattr(engines, "CAPACITY", 3)  # but `run` asks for 64 steps at once
    sol = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=64, save_every=2)
    np.testing.assert_array_equal(sol.q, every.q[::2])


def test_two_threads_at_once():
    """Different systems, each compiled for the first time while the other is; then the same one in both."""

    class First(da.zoo.HarmonicCVT):
        pass

    class Second(da.zoo.SpringParticle):
        pass

    class Third(da.zoo.HarmonicCVT):
        pass

    def go(kind):
        system = kind()
        return da.simulate(system, da.DLA(0.5), *system.start(), h=0.1, steps=2000, save_every=100)

    for kinds in ((First, Second), (Third, Third)):
        found, barrier = {}, threading.Barrier(2)

        def work(place, kind, found=found, barrier=barrier):
            barrier.wait()
            found[place] = go(kind)

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(kinds)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for place, kind in enumerate(kinds):
            np.testing.assert_array_equal(found[place].q, go(kind).q)
    harmonic = da.zoo.HarmonicCVT()
    plain = da.simulate(harmonic, da.DLA(0.5), *harmonic.start(), h=0.1, steps=2000, save_every=100)
    np.testing.assert_array_equal(found[0].q, plain.q)


def test_single_precision_goes_through_xla():
    code = """
        import warnings
        warnings.simplefilter("error")
        import numpy as np
        import dalembert as da
        s = da.zoo.PendulumCVT(eps=0.5)
        sol = da.simulate(s, da.LeapFrog(), *s.start("rotating"), h=0.1, steps=50)
        print(sol.q.dtype, *sol.q[-1])
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"JAX_ENABLE_X64": "0"},
    )
    kind, *end = out.stdout.split()
    assert kind == "float32"
    double = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=50)
    # Fifty steps at 6e-8 each, amplified a little by the rotation.
    np.testing.assert_allclose(np.array(end, float), double.q[-1], rtol=1e-4)


@pytest.mark.parametrize("kept", [False, True])
def test_without_llvmlite(kept, tmp_path):
    """Where LLVM cannot be loaded everything runs through XLA, and one warning says why."""
    code = """
        import sys, warnings
        sys.modules["llvmlite"] = None
        import dalembert as da
        system = da.zoo.PendulumCVT()
        q0, v0 = system.start()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            one = da.simulate(system, da.LeapFrog(), q0, v0, h=0.1, steps=20)
            many = da.ensemble(system, da.LeapFrog(), [q0] * 3, v0, h=0.1, steps=20)
        assert abs(one.q[-1] - many.q[1, -1]).max() < 1e-14
        print(*{str(w.message) for w in told})
    """
    run = [sys.executable, "-c", textwrap.dedent(code)]
    variables = os.environ | {"DALEMBERT_CACHE": str(tmp_path) if kept else "0"}
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=variables)
    assert "llvmlite" in done.stdout
    assert "not installed" in done.stdout
