"""Ensembles: members are single runs, in every way a batch can be given; failure, bad input, fallback, memory."""

import functools
import os
import subprocess
import sys
import textwrap
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interrupting import interrupted

import dalembert as da
from dalembert.methods import method_from_text
from dalembert.simulation import engines

ensemble = functools.partial(da.ensemble, devices="cpu")
many = sys.modules["dalembert.simulation.ensembles"]  # the function hides its module

CVT = da.zoo.PendulumCVT(eps=0.5)
Q, V = map(np.asarray, CVT.start("rotating"))
FIELDS = ("t", "q", "v", "v_full", "multipliers")


def starts(size, system=CVT):
    """Start states around that of the system, in D: the velocity is scaled, never turned."""
    random = np.random.default_rng(size)
    q, v = map(np.asarray, system.start(next(reversed(system.starts()))))
    q0, v0 = np.tile(q, (size, 1)), v * random.uniform(0.5, 1.5, (size, 1))
    q0[:, :2] += random.uniform(
        -0.2, 0.2, (size, 2)
    )  # no constraint of these systems depends on the first two
    return q0, v0


def same(member, single):
    """Equal to rounding, not bit by bit: vectors and scalars go through the same operations, but a compiler may
    fuse or reorder within the promise of the docstring. 1e-13 of the largest entry is a few hundred roundings in
    50 steps of motions that are not chaotic."""
    for name in FIELDS:
        a, b = np.asarray(getattr(member, name)), np.asarray(getattr(single, name))
        assert a.shape == b.shape
        # Multipliers are differences of velocities over h, which costs another digit.
        scale = 1e-12 if name == "multipliers" else 1e-13
        np.testing.assert_allclose(a, b, rtol=0, atol=scale * np.max(np.abs(b), initial=1e-3), err_msg=name)
    assert member.status is single.status
    assert int(member.steps) == int(single.steps)


@pytest.mark.parametrize(
    ("system", "spelling"),
    [(CVT, "leapfrog"), (CVT, "dla:0.5"), (CVT, "frame"), (CVT, "frame@4"), (da.zoo.Snakeboard(), "dla01")],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_members_are_single_runs(system, spelling):
    method = method_from_text(spelling)
    # Sizes around the width of a vector, and one of several blocks.
    for size in (1, 3, 5, 130):
        q0, v0 = starts(size, system)
        all = ensemble(system, method, q0, v0, h=0.1, steps=50, save_every=7)
        for i in {0, size // 2, size - 1}:
            single = da.simulate(system, method, q0[i], v0[i], h=0.1, steps=50, save_every=7)
            same(all.member(i), single)


def test_shapes():
    q0, v0 = starts(5)
    sol = ensemble(CVT, da.DLA(0.5), q0, v0, h=0.1, steps=10, save_every=4, t0=2.0)
    np.testing.assert_allclose(sol.t, [2.0, 2.4, 2.8, 3.0])
    assert sol.q.shape == sol.v.shape == sol.v_full.shape == (5, 4, 3)
    assert sol.multipliers.shape == (5, 4, 1)
    assert sol.code.shape == sol.steps.shape == sol.residual.shape == (5,)
    assert sol.energy().shape == sol.energy(full=True).shape == sol.constraint_residual().shape == (5, 4)
    assert sol.status.shape == (5,)
    assert all(x is da.Status.OK for x in sol.status)
    np.testing.assert_array_equal(sol.steps, 10)
    np.testing.assert_array_equal(sol.q[:, 0], q0)
    np.testing.assert_array_equal(sol.v[:, 0], v0)
    assert sol.message == "all 5 members reached their end"
    assert repr(sol) == "<Trajectory of 5 x PendulumCVT by dla:0.5: 4 rows each, 5 of them to the end>"


@pytest.mark.parametrize(
    "spelling", ["leapfrog", "frame"]
)  # multipliers kept in rows, and computed when asked
def test_member(spelling):
    method = method_from_text(spelling)
    q0, v0 = starts(3)
    sol = ensemble(CVT, method, q0, v0, h=0.1, steps=10)
    single = da.simulate(CVT, method, q0[1], v0[1], h=0.1, steps=10)
    for member in (sol.member(1), sol.member(-2), sol.member(np.int64(1))):
        same(member, single)
    for full in (False, True):
        # Rounding of an energy of 5.
        np.testing.assert_allclose(sol.member(1).energy(full), single.energy(full), rtol=1e-13)
        np.testing.assert_allclose(sol.energy(full)[1], single.energy(full), rtol=1e-13)
    np.testing.assert_allclose(sol.constraint_residual()[1], single.constraint_residual(), atol=1e-15)
    assert repr(sol.member(1)).startswith(f"<Trajectory of PendulumCVT by {spelling}: 11 rows, h = 0.1")
    with pytest.raises(ValueError, match="no member 3: the ensemble has 3"):
        sol.member(3)
    with pytest.raises(ValueError, match="single trajectory"):
        single.member(0)


@pytest.mark.parametrize(("steps", "save_every", "rows"), [(0, 1, 1), (3, 10, 2), (10, 10, 2), (10, 3, 5)])
def test_rows(steps, save_every, rows):
    q0, v0 = starts(3)
    sol = ensemble(CVT, da.LeapFrog(), q0, v0, h=0.1, steps=steps, save_every=save_every)
    assert sol.q.shape == (3, rows, 3)
    same(
        sol.member(2),
        da.simulate(CVT, da.LeapFrog(), q0[2], v0[2], h=0.1, steps=steps, save_every=save_every),
    )


def test_parameters_of_each_member():
    q0, v0 = starts(6)
    eps = np.linspace(-0.5, 0.5, 6)
    sol = ensemble(da.zoo.PendulumCVT(eps=eps), da.DLA(0.5), q0, v0, h=0.1, steps=50)
    for i in (0, 2, 5):
        single = da.simulate(da.zoo.PendulumCVT(eps=eps[i]), da.DLA(0.5), q0[i], v0[i], h=0.1, steps=50)
        same(sol.member(i), single)
        np.testing.assert_allclose(sol.energy()[i], single.energy(), rtol=1e-13)
        assert sol.member(i).system.eps == eps[i]
    # A batch that only the parameter gives.
    sol = ensemble(da.zoo.PendulumCVT(eps=eps), da.DLA(0.5), Q, V, h=0.1, steps=50)
    same(sol.member(4), da.simulate(da.zoo.PendulumCVT(eps=eps[4]), da.DLA(0.5), Q, V, h=0.1, steps=50))


def test_step_size_of_each_member():
    q0, v0 = starts(5)
    h = np.linspace(0.02, 0.1, 5)
    sol = ensemble(CVT, da.DLA(0.5), q0, v0, h=h, steps=20, save_every=3, t0=1.0)
    assert sol.t.shape == (5, 8)
    for i in (0, 3):
        member = sol.member(i)
        same(member, da.simulate(CVT, da.DLA(0.5), q0[i], v0[i], h=h[i], steps=20, save_every=3, t0=1.0))
        assert float(member.h) == h[i]
    assert ensemble(CVT, da.DLA(0.5), Q, V, h=h, steps=20).q.shape == (5, 21, 3)  # nothing else is batched


def test_shared_starts():
    q0, v0 = starts(5)
    for q, v in ((Q, v0), (q0, V)):
        sol = ensemble(CVT, da.LeapFrog(), q, v, h=0.1, steps=20)
        assert sol.q.shape == (5, 21, 3)
        one = np.broadcast_to(q, (5, 3))[3], np.broadcast_to(v, (5, 3))[3]
        same(sol.member(3), da.simulate(CVT, da.LeapFrog(), *one, h=0.1, steps=20))


def test_parameter_of_the_method_of_each_member():
    q0, v0 = starts(5)
    alpha = np.linspace(0.3, 0.7, 5)
    sol = ensemble(CVT, da.DLA(alpha), q0, v0, h=0.1, steps=20)
    for i in (0, 4):
        same(sol.member(i), da.simulate(CVT, da.DLA(alpha[i]), q0[i], v0[i], h=0.1, steps=20))
    assert "dla" in repr(sol)
    with pytest.raises(ValueError, match="alpha between 0 and 1"):
        da.DLA(np.array([0.5, 1.5]))


class Springs(da.System):
    """A vector of stiffnesses that all members share."""

    coordinates = ("x", "y", "z")
    stiffness: np.ndarray

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        return 0.5 * jnp.sum(self.stiffness * q**2)

    def constraints(self, q):
        return jnp.array([[1.0, 0.0, 0.0]])


def test_vector_parameters():
    """One vector for all members; and one for each."""
    k = np.array([1.0, 2.0, 5.0])
    q0, v0 = np.random.default_rng(0).uniform(-1, 1, (2, 4, 3))
    v0[:, 0] = 0
    sol = ensemble(Springs(k), da.LeapFrog(), q0, v0, h=0.1, steps=20)
    single = [
        da.simulate(Springs(k), da.LeapFrog(), q, v, h=0.1, steps=20) for q, v in zip(q0, v0, strict=True)
    ]
    same(sol.member(1), single[1])
    own = ensemble(Springs(np.outer([1.0, 2.0, 3.0, 4.0], k)), da.LeapFrog(), q0, v0, h=0.1, steps=20)
    same(own.member(0), single[0])
    same(own.member(2), da.simulate(Springs(3 * k), da.LeapFrog(), q0[2], v0[2], h=0.1, steps=20))


def test_vector_parameter_as_long_as_the_batch():
    """Three stiffnesses and three members: the vector must not be dealt out in silence, one entry per member."""
    k = np.array([1.0, 2.0, 5.0])
    q0, v0 = np.random.default_rng(0).uniform(-1, 1, (2, 3, 3))
    v0[:, 0] = 0
    try:
        sol = ensemble(Springs(k), da.LeapFrog(), q0, v0, h=0.1, steps=20)
    except ValueError as error:
        assert "stiffness" in str(error)  # noqa: PT017 - to refuse the doubtful case is as good
        return
    same(sol.member(1), da.simulate(Springs(k), da.LeapFrog(), q0[1], v0[1], h=0.1, steps=20))


SINKING = da.system(
    coordinates=("x", "y"),
    metric=lambda q: jnp.eye(2),
    potential=lambda q: jnp.log(q[1]),
    constraints=lambda q: jnp.array([[1.0, 0.0]]),
)


@pytest.mark.parametrize(
    ("spelling", "h", "status"),
    [("leapfrog", 0.05, da.Status.NOT_FINITE), ("dla:0.75", 0.1, da.Status.NOT_SOLVED)],
)
def test_one_member_fails(spelling, h, status):
    """Member 1 falls into the singularity of log(y) at t = 1.25; its neighbours start higher."""
    method = method_from_text(spelling)
    q0, v0 = np.array([[0.0, 5.0], [0.0, 1.0], [0.0, 6.0]]), np.zeros((3, 2))
    options = {"h": h, "steps": 40, "save_every": 6, "t0": 1.0}
    sol = ensemble(SINKING, method, q0, v0, **options)
    assert list(sol.status) == [da.Status.OK, status, da.Status.OK]
    for i in (0, 2):
        same(sol.member(i), da.simulate(SINKING, method, q0[i], v0[i], **options))
    alone = da.simulate(SINKING, method, q0[1], v0[1], **options, throw=False)
    assert int(sol.steps[1]) == int(alone.steps)
    kept = int(alone.steps) // 6 + 1
    for name in ("q", "v", "v_full", "multipliers"):
        # Close to the singularity: a hundred times the usual rounding.
        np.testing.assert_allclose(getattr(sol, name)[1, :kept], getattr(alone, name)[:kept], rtol=1e-11)
        after = getattr(sol, name)[1, kept:]
        np.testing.assert_array_equal(after, np.tile(after[:1], (8 - kept, 1)))
        np.testing.assert_allclose(after[0], getattr(alone, name)[-1], rtol=1e-11)
    assert np.all(np.isfinite(sol.q))
    assert sol.residual[1] == pytest.approx(float(alone.residual), rel=1e-3)
    assert "1 of 3 members did not reach their end; the first is member 1" in sol.message
    assert repr(sol).endswith("8 rows each, 2 of them to the end>")


def test_message_of_a_failed_member_tells_its_own_time():
    options = {"h": 0.05, "steps": 40, "save_every": 6, "t0": 1.0}
    q0 = np.array([[0.0, 5.0], [0.0, 1.0]])
    sol = ensemble(SINKING, da.LeapFrog(), q0, np.zeros(2), **options)
    alone = da.simulate(SINKING, da.LeapFrog(), q0[1], np.zeros(2), **options, throw=False)
    assert alone.message in sol.message  # step, time of the last good state, remedy
    assert sol.member(1).message == alone.message


def changed(array, i, value):
    array = array.copy()
    array[i] = value
    return array


Q5, V5 = starts(5)
OFF = changed(changed(V5, (1, 0), 1.0), (4, 0), 2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q0": Q5[:, :2]}, r"q0 must have shape \(N, 3\), or \(3,\).*got \(5, 2\)"),
        ({"v0": V5[None]}, r"v0 must have shape \(N, 3\).*got \(1, 5, 3\)"),
        ({"q0": Q5 * 1j}, "q0 must.*real"),
        ({"q0": [["a", "b", "c"]] * 5}, "q0 must.*real"),
        ({"q0": Q5[:3]}, r"one batch size.*q0 \(3, 3\), v0 \(5, 3\)"),
        ({"h": [0.1, 0.2]}, r"one batch size.*h \(2,\)"),
        ({"q0": Q, "v0": V}, "one batch size"),
        ({"q0": Q5[:0], "v0": V}, "at least one member"),
        ({"q0": changed(Q5, (2, 1), np.nan)}, r"q0 is NaN or infinite for 1 member \(2\)"),
        ({"v0": changed(V5, (3, 2), np.inf)}, r"v0 is NaN or infinite for 1 member \(3\)"),
        ({"v0": changed(V5, (0, 2), np.nan)}, r"v0 is NaN or infinite for 1 member \(0\)"),
        ({"v0": OFF}, r"violates the constraint.*for 2 members \(1, 4\)"),
        ({"v0": changed(V5, (0, 0), 1.0)}, r"violates the constraint.*member"),
        ({"h": [0.1, 0.1, 0.0, 0.1, 0.1]}, "h must be.*positive"),
        ({"h": [0.1, np.nan, 0.1, 0.1, 0.1]}, "h must be"),
        ({"h": np.full((5, 1), 0.1)}, "h must be"),
        ({"h": -0.1}, "h must be positive"),
        ({"steps": -1}, "steps must be a whole number of at least 0"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"save_every": 0}, "save_every must be a whole number of at least 1"),
        ({"t0": np.nan}, "t0 must be one finite number"),
        ({"devices": "tpu"}, 'devices must be "cpu", "gpu" or None.*got \'tpu\''),
        ({"method": "frame"}, "expected a method such as FrameGradient"),
        ({"method": da.LeapFrog}, "expected a method such as FrameGradient"),
        ({"system": "cvt"}, "expected a dalembert.System, got str"),
        ({"system": da.zoo.PendulumCVT}, "got the class PendulumCVT; make one"),
        (
            {"system": da.zoo.PendulumCVT(eps=np.array([0.0, 0.1, 0.2]))},
            "eps|batch size|potential must return",
        ),
        ({"system": da.zoo.PendulumCVT(eps=np.nan)}, "parameter is NaN"),
        (
            {"system": da.zoo.PendulumCVT(eps=changed(np.zeros(5), 3, np.nan))},
            "parameter is NaN or infinite for 1 member",
        ),
        (
            {"system": da.zoo.ChaplyginSleigh(), "q0": np.zeros((5, 3)), "v0": np.zeros(3)},
            "constant mass matrix",
        ),
    ],
)
def test_bad_input(change, message, monkeypatch):
    monkeypatch.setattr(many, "loop_of", lambda *_: pytest.fail("something ran"))
    arguments = {"system": CVT, "method": da.LeapFrog(), "q0": Q5, "v0": V5, "h": 0.1, "steps": 5} | change
    with pytest.raises(ValueError, match=message):
        da.ensemble(**arguments)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is a GPU")
def test_no_gpu():
    with pytest.raises(ValueError, match='devices="gpu", but JAX runs on cpu'):
        da.ensemble(CVT, da.LeapFrog(), Q5, V5, h=0.1, steps=5, devices="gpu")
    assert da.ensemble(CVT, da.LeapFrog(), Q5, V5, h=0.1, steps=5).q.shape == (5, 6, 3)


def test_reference_goes_through_xla_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sol = ensemble(CVT, da.Reference(), Q5[:2], V5[:2], h=0.5, steps=2)
    single = da.simulate(CVT, da.Reference(), Q5[1], V5[1], h=0.5, steps=2)
    # The adaptive solver keeps 1e-14 a step and sees the same errors.
    np.testing.assert_allclose(sol.q[1], single.q, atol=1e-12)
    assert sol.status.tolist() == [da.Status.OK] * 2


def test_unknown_primitive_warns_once(monkeypatch):
    """V is the larger eigenvalue of diag(y, -5), which is y: a fall with acceleration one."""
    monkeypatch.setattr(engines, "_warned", engines.Recent(16))
    system = da.system(
        coordinates=("x", "y"),
        metric=lambda q: jnp.eye(2),
        potential=lambda q: jnp.linalg.eigvalsh(jnp.diag(jnp.array([0.0, -5.0])).at[0, 0].set(q[1]))[-1],
        constraints=lambda q: jnp.array([[1.0, 0.0]]),
    )
    y = np.array([5.0, 6.0, 7.0])
    q0 = np.stack([np.zeros(3), y], axis=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sol = ensemble(system, da.LeapFrog(), q0, [0.0, 0.5], h=0.1, steps=10)
        ensemble(system, da.LeapFrog(), q0, [0.0, 0.4], h=0.1, steps=10)
    told = [w for w in caught if "machine code" in str(w.message)]
    assert len(told) == 1
    assert "eigh" in str(told[0].message)
    assert told[0].filename == __file__  # it points at the user's line
    # Leap-frog is exact under a constant force.
    np.testing.assert_allclose(sol.q[:, :, 1], y[:, None] + 0.5 * sol.t - sol.t**2 / 2, atol=1e-13)


def test_progress(capsys):
    q0, v0 = starts(130)
    seen = []
    ensemble(CVT, da.LeapFrog(), q0, v0, h=0.1, steps=5, progress=lambda done, all: seen.append((done, all)))
    assert seen[-1] == (130, 130)
    assert all(total == 130 for _, total in seen)
    counts = [done for done, _ in seen]
    assert len(counts) > 1
    assert counts == sorted(set(counts))
    ensemble(CVT, da.LeapFrog(), q0, v0, h=0.1, steps=5, progress=True)
    assert "130 of 130 members" in capsys.readouterr().err


def test_interrupt_in_progress(monkeypatch):
    """Members that were done are kept; the others say that they were interrupted."""
    monkeypatch.setattr(many, "WORK", 400)  # blocks of a few members
    q0, v0 = starts(400)

    def stop(done, total):
        raise KeyboardInterrupt

    sol = ensemble(CVT, da.LeapFrog(), q0, v0, h=0.1, steps=100, save_every=100, progress=stop)
    done = sol.code == da.Status.OK.code
    assert 0 < done.sum() < 400
    assert set(sol.status[~done]) == {da.Status.INTERRUPTED}
    np.testing.assert_array_equal(sol.steps, np.where(done, 100, 0))
    assert np.all(np.isfinite(sol.q[done]))
    same(sol.member(0), da.simulate(CVT, da.LeapFrog(), q0[0], v0[0], h=0.1, steps=100, save_every=100))
    # What did not run has no end, but its start is known.
    assert np.all(np.isnan(sol.q[~done, -1]))
    np.testing.assert_array_equal(sol.q[:, 0], q0)
    assert "interrupted" in sol.message


def test_error_in_progress_ends_the_run(monkeypatch):
    """The error of the user's function comes out at once, not after all members have run."""
    monkeypatch.setattr(
        many, "WORK", 200_000
    )  # a hundred blocks of four members, some hundredths of a second each
    q0, v0 = starts(400)
    calls = []
    original = many._kernel

    def counted(*key):
        kernel = original(*key)

        def call(*arguments):
            calls.append(1)
            return kernel(*arguments)

        return call

    monkeypatch.setattr(many, "_kernel", counted)

    def fail(done, total):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        ensemble(CVT, da.LeapFrog(), q0, v0, h=0.1, steps=50_000, save_every=50_000, progress=fail)
    assert len(calls) < 50


SCRIPT = """
    import signal
    import numpy as np
    import dalembert as da
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell starts children deaf to it
    s = da.zoo.PendulumCVT(eps=0.5)
    q, v = s.start()
    def tell(done, total):
        print("running", flush=True)
    v0 = np.outer(np.linspace(0.5, 1.5, 200_000), v)
    sol = da.ensemble(s, da.LeapFrog(), q, v0, h=0.1, steps=20_000, save_every=20_000, devices="cpu", progress=tell)
    print(*sorted({x.name for x in sol.status}), np.isfinite(sol.q[sol.code == 0]).all(), flush=True)
"""


def test_ctrl_c_returns_what_was_computed():
    last, _, took = interrupted(SCRIPT)
    assert last == "INTERRUPTED OK True"
    # Not a timing: a bound far above the promised fraction of a second, on a machine that does other things too.
    assert took < 20


def test_memory():
    """Members are many, rows few: the peak is the result and a few copies, never one row per step."""
    code = """
        import resource
        import numpy as np
        import dalembert as da
        s = da.zoo.PendulumCVT(eps=0.5)
        q, v = s.start()
        def go(size):
            v0 = np.outer(np.linspace(0.5, 1.5, size), v)
            return da.ensemble(s, da.LeapFrog(), q, v0, h=0.1, steps=50, save_every=50, devices="cpu")
        go(8)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sol = go(200_000)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(1024 * (after - before), sum(np.asarray(x).nbytes for x in (sol.q, sol.v, sol.v_full, sol.lam)))
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    grown, result = map(int, out.stdout.split())
    assert result == 200_000 * 2 * 10 * 8
    # The result and two copies of it; 150 MB for what XLA takes to check the starts, 65536 members at a time.
    assert grown < 3 * result + 150e6


def test_single_precision():
    code = """
        import warnings
        warnings.simplefilter("error")
        import numpy as np
        import dalembert as da
        s = da.zoo.PendulumCVT(eps=0.5)
        q, v = map(np.asarray, s.start("rotating"))
        sol = da.ensemble(s, da.LeapFrog(), q, np.outer([1.0, 0.9], v), h=0.1, steps=50, devices="cpu")
        print(sol.q.dtype, *sol.q[1, -1])
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_ENABLE_X64": "0"},
    )
    assert out.returncode == 0, out.stderr
    double = da.simulate(CVT, da.LeapFrog(), Q, 0.9 * V, h=0.1, steps=50)
    # Fifty steps at 6e-8 each, amplified a little by the rotation.
    np.testing.assert_allclose(np.array(out.stdout.split()[1:], float), double.q[-1], rtol=1e-4)


def test_to_xarray_and_back(tmp_path):
    q0, v0 = starts(5)
    sol = ensemble(CVT, da.LeapFrog(), q0, v0, h=0.1, steps=10, save_every=4)
    data = sol.to_xarray()
    assert data.q.dims == data.v.dims == data.v_full.dims == ("member", "time", "coordinate")
    assert data.multipliers.dims == ("member", "time", "constraint")
    assert data.energy.dims == data.constraint_residual.dims == ("member", "time")
    assert data.sizes["member"] == 5
    np.testing.assert_array_equal(data.q.values, sol.q)
    sol.save(tmp_path / "run.zarr")
    back = da.load(tmp_path / "run.zarr")
    for name in (*FIELDS, "code", "steps", "residual"):
        np.testing.assert_array_equal(getattr(back, name), getattr(sol, name))
    same(back.member(2), sol.member(2))
