"""The time loop: chunks, saving, failure, interruption, recompilation, memory."""

import itertools
import os
import subprocess
import sys
import textwrap
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interrupting import interrupted

import dalembert as da
from dalembert.methods import State
from dalembert.model import sample
from dalembert.simulation import engines, loop, run

CVT = da.zoo.PendulumCVT(eps=0.5)
START = CVT.start("rotating")


def test_rows_and_times():
    sol = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=10, save_every=3, t0=2.0)
    np.testing.assert_allclose(sol.t, [2.0, 2.3, 2.6, 2.9, 3.0])  # the last state is always there
    assert sol.q.shape == sol.v.shape == sol.v_full.shape == (5, 3)
    assert sol.multipliers.shape == (5, 1)
    np.testing.assert_array_equal(sol.q[0], START[0])
    np.testing.assert_array_equal(sol.v[0], START[1])
    every = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=10)
    np.testing.assert_array_equal(sol.q, every.q[[0, 3, 6, 9, 10]])
    assert sol.status is da.Status.OK
    assert "Trajectory of PendulumCVT by leapfrog" in repr(sol)


@pytest.mark.parametrize("steps", [0, 1])
def test_shortest_runs(steps):
    sol = da.simulate(CVT, da.DLA01(), *START, h=0.1, steps=steps)
    assert len(sol.t) == steps + 1
    assert sol.status is da.Status.OK


@pytest.mark.parametrize("method", [da.LeapFrog(), da.FrameGradient(), da.DiscreteGradient()])
@pytest.mark.parametrize("save_every", [1, 7, 1000])
def test_chunks_are_bit_identical_to_one_loop(method, save_every, monkeypatch):
    steps = 5003
    whole = da.simulate(CVT, method, *START, h=0.1, steps=steps, save_every=save_every)
    monkeypatch.setattr(run, "CHUNK_SECONDS", 1e-9)  # chunks of 64 steps, then of one
    pieces = da.simulate(CVT, method, *START, h=0.1, steps=steps, save_every=save_every)
    # One call of the kernel for everything.
    system, method = (run.as_arrays(x) for x in (CVT, method))
    native = engines.Native(system, method, 0.1)
    native.begin(State(*map(np.asarray, START), np.zeros(())))
    once = native.run(save_every, steps)
    assert (once.done, once.code) == (steps, da.Status.OK.code)
    kept = len(once.rows.q)
    assert kept == steps // save_every
    for name in ("q", "v", "v_full", "lam"):
        if getattr(once.rows, name) is not None:
            np.testing.assert_array_equal(getattr(whole, name)[1 : kept + 1], getattr(once.rows, name))
            np.testing.assert_array_equal(getattr(whole, name)[-1:], getattr(once.last, name))
    for name in ("q", "v", "v_full", "multipliers"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))


def test_more_rows_than_a_chunk_holds():
    steps = 2 * loop.CAPACITY + 17
    sol = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=steps)
    assert len(sol.t) == steps + 1
    assert np.all(np.diff(sol.t) > 0)
    some = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=steps, save_every=steps)
    np.testing.assert_array_equal(sol.q[-1], some.q[-1])


def falling(limit):
    """Free fall into a region where the potential is undefined."""
    return da.system(
        coordinates=("x", "y"),
        metric=lambda q: jnp.eye(2),
        potential=lambda q: jnp.where(q[1] > limit, q[1], jnp.nan),
        constraints=lambda q: jnp.array([[1.0, 0.0]]),
    )


@pytest.mark.parametrize(
    "method", [da.LeapFrog(), da.DLA(0.5), da.DiscreteGradient(), da.FrameGradient(), da.DLA01()]
)
def test_nan_in_the_middle_of_a_run(method):
    arguments = (falling(-1.0), method, [0.0, 0.0], [0.0, 0.0])
    with pytest.raises(da.SimulationError) as caught:
        da.simulate(*arguments, h=0.01, steps=10_000, save_every=10)
    error = caught.value
    # Free fall reaches -1 at t = sqrt(2); the last good state is within two steps of that.
    assert error.status in (da.Status.NOT_FINITE, da.Status.NOT_SOLVED)
    assert error.time == pytest.approx(np.sqrt(2), abs=0.025)
    assert error.step == pytest.approx(141, abs=2)
    text = str(error)
    assert f"step {error.step:,} from t = " in text
    assert "residual" in text
    assert "Remedy" in text
    kept = error.trajectory
    assert np.all(np.isfinite(kept.q))
    assert kept.t[-1] == pytest.approx((error.step - 1) * 0.01)
    np.testing.assert_allclose(kept.q[:, 1], -(kept.t**2) / 2, atol=1e-2)

    quiet = da.simulate(*arguments, h=0.01, steps=10_000, save_every=10, throw=False)
    assert quiet.status is error.status
    np.testing.assert_array_equal(quiet.q, kept.q)
    assert quiet.message == text


def test_newton_failing_is_reported():
    stiff = da.system(
        coordinates=("x",), metric=lambda q: jnp.eye(1), potential=lambda q: -1e3 * jnp.cosh(3 * q[0])
    )
    sol = da.simulate(stiff, da.DiscreteGradient(), [1.0], [0.0], h=1.0, steps=5, throw=False)
    assert sol.status in (da.Status.NOT_SOLVED, da.Status.NOT_FINITE)
    assert int(sol.steps) < 5
    assert len(sol.t) == int(sol.steps) + 1


def counting(counter):
    class Counted(da.System):
        coordinates = ("x1", "x2", "xi")
        mass: float = 1.0
        eps: float = 0.0

        def metric(self, q):
            return self.mass * jnp.eye(3)

        def potential(self, q):
            counter.append(1)
            return 0.5 * jnp.sum(q**2) + self.eps * jnp.cos(q[2])

        def constraints(self, q):
            return jnp.array([[1.0, jnp.sin(q[2]), 0.0]])

    return Counted


@pytest.mark.parametrize(
    "method", [da.LeapFrog(), da.DLA(0.5), da.FrameGradient(), da.Composition(da.DLA01(), 4)]
)
@pytest.mark.filterwarnings("ignore:.*deque whose changes")
def test_new_numbers_do_not_recompile(method):
    counter = deque()  # a list is read by content, and a change of it would compile anew
    kind = counting(counter)
    sample.forget()  # so that it does not release what other tests compiled in the middle of this one
    q0, v0 = [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]
    da.simulate(kind(), method, q0, v0, h=0.1, steps=20).energy()
    da.simulate(kind(), method, q0, v0, h=0.1, steps=9000).energy()  # a second chunk
    traces = len(counter)
    assert traces > 0

    def untraced(**change):
        arguments = {"q0": q0, "v0": v0, "h": 0.1, "steps": 20} | change
        da.simulate(arguments.pop("system", kind()), arguments.pop("method", method), **arguments)
        return len(counter) - traces

    assert untraced(h=0.05) <= 6  # one evaluation of shapes, which compiles nothing
    shapes = len(counter) - traces
    for change in (
        {"h": np.float64(0.07)},
        {"steps": 333},
        {"save_every": 5},
        {"t0": 3.0},
        {"q0": np.array([0.3, 0.2, 0.0])},
        {"system": kind(mass=2, eps=0.3)},
        {"system": kind(mass=np.array(1.5))},
    ):
        before = len(counter)
        untraced(**change)
        assert len(counter) - before <= shapes, change


@pytest.mark.filterwarnings("ignore:.*deque whose changes")
def test_alpha_is_a_number_like_any_other():
    counter = deque()  # a list is read by content, and a change of it would compile anew
    kind = counting(counter)
    for alpha in (0.5, 0.4):
        before = len(counter)
        da.simulate(kind(), da.DLA(alpha), [1.0, 1.0, 0.0], [0.0, 0.0, 1.0], h=0.1, steps=20)
        spent = len(counter) - before
    assert spent <= 2


def test_progress_function_and_lines(capsys):
    seen = []
    da.simulate(
        CVT, da.LeapFrog(), *START, h=0.1, steps=5000, progress=lambda done, all: seen.append((done, all))
    )
    assert seen[-1] == (5000, 5000)
    assert all(a < b for (a, _), (b, _) in itertools.pairwise(seen))
    da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=50, progress=True)
    assert "50 of 50 steps" in capsys.readouterr().err


SCRIPT = """
    import signal
    import dalembert as da
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell starts children deaf to it
    s = da.zoo.PendulumCVT(eps=0.5)
    def tell(done, total):
        if done > 20_000:
            print("running", flush=True)
    sol = da.simulate(s, da.LeapFrog(), *s.start(), h=0.1, steps=10**12, save_every=1000, progress=tell)
    print(sol.status.name, int(sol.steps), len(sol.t), sol.t[-1], flush=True)
"""


def test_ctrl_c_returns_what_was_computed():
    last, err, took = interrupted(SCRIPT)
    name, steps, rows, t = last.split()
    assert name == "INTERRUPTED"
    assert int(steps) > 20_000
    assert int(rows) >= int(steps) // 1000 + 1
    assert float(t) == pytest.approx(0.1 * int(steps))
    assert "what was computed is kept" in err
    # Not a timing: a bound far above the promised second, for a machine that does other things too.
    assert took < 20


def test_memory_does_not_grow_with_steps():
    """The largest memory after ten times as many steps is the same, when few rows are saved."""
    code = textwrap.dedent(
        """
        import resource
        import dalembert as da
        s = da.zoo.PendulumCVT(eps=0.5)
        peaks = []
        for steps in (200_000, 200_000, 2_000_000):
            da.simulate(s, da.LeapFrog(), *s.start(), h=0.1, steps=steps, save_every=steps // 10)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        print(peaks[2] - peaks[1])
        """
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert int(out.stdout) < 4096  # kilobytes; every state of the last run would be 290,000


def test_long_rotations_stay_accurate():
    """Angles are kept near zero inside: the driver's energy of a fast rotation does not decay with its angle."""
    system = da.zoo.PendulumCVT()
    q0, v0 = np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 60.0])
    sol = da.simulate(system, da.FrameGradient(), q0, v0, h=0.05, steps=100_000, save_every=1000)
    assert sol.q[-1, 2] > 2e5
    energy = sol.energy()
    # The rows themselves hold angles of 3e5, known to 3e-11; without wrapping the error would accumulate.
    assert np.max(np.abs(energy / energy[0] - 1)) < 1e-12
    assert np.max(sol.constraint_residual()) < 1e-14


def test_works_inside_other_jax_code():
    run_once = jax.jit(
        lambda eps: da.simulate(da.zoo.PendulumCVT(eps), da.LeapFrog(), *START, h=0.1, steps=50)
    )
    sol = run_once(0.5)
    plain = da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=50)
    np.testing.assert_allclose(sol.q, plain.q, atol=1e-12)
    np.testing.assert_allclose(sol.energy(), plain.energy(), atol=1e-12)
    assert sol.status is da.Status.OK
    many = jax.vmap(
        lambda x: da.simulate(CVT, da.LeapFrog(), START[0] * x, START[1] * x, h=0.1, steps=5).q[-1]
    )
    assert many(jnp.array([1.0, 0.9])).shape == (2, 3)


def test_one_start_is_checked_once(monkeypatch):
    """Runs that differ in h or in length are checked once; any other number is checked anew, and refused."""
    asked = []
    plain = run.check_fit
    monkeypatch.setattr(run, "check_fit", lambda *a: asked.append(a) or plain(*a))
    q0, v0 = (np.array(x) for x in da.zoo.KnifeEdge(eps=0.017).start())
    for system, method, start, h, count in (
        (da.zoo.KnifeEdge(eps=0.017), da.DLA01(), (q0, v0), 0.1, 1),
        (da.zoo.KnifeEdge(eps=0.017), da.DLA01(), (q0, v0), 0.05, 1),
        (da.zoo.KnifeEdge(eps=0.018), da.DLA01(), (q0, v0), 0.1, 2),
        (da.zoo.KnifeEdge(eps=0.017), da.LeapFrog(), (q0, v0), 0.1, 3),
        (da.zoo.KnifeEdge(eps=0.017), da.DLA01(), (q0, 2 * v0), 0.1, 4),
        (da.zoo.KnifeEdge(eps=0.017), da.DLA01(), (q0.tolist(), v0.tolist()), 0.1, 5),
    ):
        da.simulate(system, method, *start, h=h, steps=2)
        assert len(asked) == count
    across = v0 + np.array([np.sin(q0[2]), -np.cos(q0[2]), 0.0])
    for _ in range(2):  # a refusal is not remembered as anything else
        with pytest.raises(ValueError, match="violates the constraint"):
            da.simulate(da.zoo.KnifeEdge(eps=0.017), da.DLA01(), q0, across, h=0.1, steps=2)
        with pytest.raises(ValueError, match="NaN"):
            da.simulate(da.zoo.KnifeEdge(eps=np.nan), da.DLA01(), q0, v0, h=0.1, steps=2)
        with pytest.raises(ValueError, match="h must be positive"):
            da.simulate(da.zoo.KnifeEdge(eps=0.017), da.DLA01(), q0, v0, h=-0.1, steps=2)
