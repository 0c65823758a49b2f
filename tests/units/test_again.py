"""Runs that differ from an earlier one in their numbers alone: the same result as the usual way, and as safe."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.simulation import again, ensembles, run

CVT = da.zoo.PendulumCVT(eps=0.5)
Q, V = map(np.asarray, CVT.start("rotating"))
FORM = np.asarray(CVT.constraints(jnp.asarray(Q)))[0]
FIELDS = ("t", "q", "v", "v_full", "lam", "near", "code", "steps", "residual", "h", "save_every")


SECONDS = again.SECONDS


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """No run before, and every new start is checked by machine code as soon as there has been a run."""
    for name in ("_known", "_kinds"):
        monkeypatch.setattr(again, name, type(again._known)(64))
    monkeypatch.setattr(again, "HESITATION", -1.0)
    monkeypatch.setattr(again, "SECONDS", SECONDS)


def without(monkeypatch, simulate, module, usual):
    """`simulate`, which must not go the usual way."""

    def make(*arguments, **options):
        with monkeypatch.context() as m:
            m.setattr(module, usual, lambda *_: pytest.fail("the usual way"))
            return simulate(*arguments, **options)

    return make


@pytest.fixture
def quick(monkeypatch):
    """Makes a run, which must not go the usual way."""
    return without(monkeypatch, da.simulate, run, "_known_run")


def usual(*arguments, **options):
    """The same run the usual way, because somebody wants to see its progress."""
    return da.simulate(*arguments, **options, progress=lambda *_: None)


def same(a, b):
    for name in FIELDS:
        x, y = getattr(a, name), getattr(b, name)
        assert type(x) is type(y), name
        if x is not None:
            np.testing.assert_array_equal(x, y, strict=isinstance(x, np.ndarray), err_msg=name)
    for name, x in a.step_data.items():
        np.testing.assert_array_equal(x, b.step_data[name], strict=True)
    assert a.step_data.keys() == b.step_data.keys()
    assert (a.fingerprint, a.varied) == (b.fingerprint, b.varied)
    assert np.all(a.status == b.status)
    assert jax.tree.structure(a) == jax.tree.structure(b)


def other(system, q, v, k):
    """Another start: the same configuration, with another velocity on the constraint."""
    return q, v * (1 + 0.01 * k)


@pytest.mark.parametrize(
    "method",
    [
        da.LeapFrog(),
        da.FrameGradient(),
        da.FrameCollocation(2),
        da.Composition(da.DLA01(), 4),
        da.GNI(),
        da.VariationalDLA(),
    ],
    ids=lambda m: m.cli_name,
)
def test_a_quick_run_is_the_usual_run(method, quick):
    da.simulate(CVT, method, Q, V, h=0.1, steps=10)
    for k, (steps, every, h, t0) in enumerate(
        [(10, 1, 0.1, 0.0), (10, 3, 0.05, 2.0), (0, 1, 0.1, 0.0), (1, 4, 0.1, -1), (100, 100, 0.02, 0.5)]
    ):
        for q, v in ((Q, V), other(CVT, Q, V, k + 1)):
            options = {"h": h, "steps": steps, "save_every": every, "t0": t0}
            mine = quick(CVT, method, q, v, **options)
            same(mine, usual(CVT, method, q, v, **options))
    np.testing.assert_array_equal(mine.energy(), usual(CVT, method, q, v, **options).energy())
    assert np.shape(mine.multipliers) == (2, 1)


def test_a_quick_run_with_steps_of_its_own_size(quick):
    system = da.zoo.NonholonomicParticle()
    q, v = system.start(next(iter(system.starts())))
    da.simulate(system, da.EDLA(), q, v, h=0.01, steps=20)
    same(
        quick(system, da.EDLA(), q, v, h=0.01, steps=30, save_every=7),
        usual(system, da.EDLA(), q, v, h=0.01, steps=30, save_every=7),
    )


@pytest.mark.parametrize("name", ["Snakeboard", "FallingDisk", "ChaplyginSphere", "MobileRobot"])
def test_systems(name, quick):
    system = getattr(da.zoo, name)()
    q, v = map(np.asarray, system.start(next(iter(system.starts()))))
    da.simulate(system, da.FrameGradient(), q, v, h=0.01, steps=5)
    for k in (1, 2):
        q, v = other(system, q, v, k)
        same(
            quick(system, da.FrameGradient(), q, v, h=0.01, steps=5),
            usual(system, da.FrameGradient(), q, v, h=0.01, steps=5),
        )


def test_starts_of_any_kind_of_array(quick):
    expected = da.simulate(CVT, da.LeapFrog(), Q, V, h=0.1, steps=5)
    whole = np.array([1, 0, 0])
    da.simulate(CVT, da.LeapFrog(), whole, 0 * whole, h=0.1, steps=5)
    for kind in (list, tuple, jnp.asarray, lambda x: np.array(x, order="F")[::1]):
        same(quick(CVT, da.LeapFrog(), kind(Q), kind(V), h=0.1, steps=5), expected)
    same(
        quick(CVT, da.LeapFrog(), whole, 0 * whole, h=0.1, steps=5),
        usual(CVT, da.LeapFrog(), whole.astype(float), 0.0 * whole, h=0.1, steps=5),
    )
    assert quick(CVT, da.LeapFrog(), Q, V, h=1, steps=1).h.dtype == float


REFUSED = [
    ((Q, V + 1e-3 * FORM), "violates the constraint"),
    ((Q, V[:2]), "v0 must have shape"),
    ((Q[None], V), "q0 must have shape"),
    ((Q, V * np.nan), "v0 must be finite"),
    ((np.where(Q > 0, np.inf, Q), V), "q0 must be finite"),
    ((Q.astype(complex), V), "real numbers"),
    ((np.ma.masked_equal(Q, Q[0]), V), "masked"),
    ((["a", "b", "c"], V), "real numbers"),
    (("abc", V), "real numbers"),
]


@pytest.mark.parametrize(("start", "message"), REFUSED, ids=[m for _, m in REFUSED])
@pytest.mark.parametrize("steps", [0, 5])
def test_what_is_refused_the_usual_way_is_refused_again(start, message, steps):
    with pytest.raises(ValueError, match=message) as first:
        da.simulate(CVT, da.LeapFrog(), *start, h=0.1, steps=steps)
    for k in range(3):
        da.simulate(CVT, da.LeapFrog(), *other(CVT, Q, V, k), h=0.1, steps=5)
    with pytest.raises(ValueError, match=message) as second:
        da.simulate(CVT, da.LeapFrog(), *start, h=0.1, steps=steps)
    assert str(first.value) == str(second.value)


@pytest.mark.parametrize(
    "options",
    [
        {"h": -0.1, "steps": 5}, {"h": np.nan, "steps": 5}, {"h": 0.1, "steps": -1}, {"h": 0.1, "steps": 2.5},
        {"h": 0.1, "steps": True}, {"h": 0.1, "steps": 5, "save_every": 0}, {"h": 0.1, "steps": 5, "t0": np.inf},
        {"h": "0.1", "steps": 5}, {"h": 0.1}, {"h": 0.1, "steps": 5, "t1": 0.5},
        {"h": 0.1, "steps": 5, "on_failure": "no"}, {"h": 0.1, "steps": 5, "project": 1},
        {"h": 0.1, "steps": 5, "save_every": 10**20},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused_again(options):
    da.simulate(CVT, da.LeapFrog(), Q, V, h=0.1, steps=5)
    with pytest.raises(ValueError, match=r"must|give"):
        da.simulate(CVT, da.LeapFrog(), Q, V, **options)


def test_too_many_turns_and_starts_off_the_surface_are_refused_again():
    robot = da.zoo.MobileRobot()
    q, v = map(np.asarray, robot.start(next(iter(robot.starts()))))
    da.simulate(robot, da.FrameGradient(), q, v, h=0.01, steps=2)
    angle = [name in robot.angles for name in robot.coordinates].index(True)
    with pytest.raises(ValueError, match="turns"):
        da.simulate(robot, da.FrameGradient(), q + 1e10 * np.eye(len(q))[angle], v, h=0.01, steps=2)
    snake = da.zoo.Snake(links=2, coordinates="maximal")
    q, v = map(np.asarray, snake.start(next(iter(snake.starts()))))
    da.simulate(snake, da.FrameGradient(), q, v, h=0.01, steps=2)
    with pytest.raises(ValueError, match="position constraints"):
        da.simulate(snake, da.FrameGradient(), q + 0.1 * np.eye(len(q))[0], v, h=0.01, steps=2)


def test_a_run_that_fails_says_what_it_says_the_usual_way(quick):
    disk = da.zoo.FallingDisk()
    q, v = map(np.asarray, disk.start(next(iter(disk.starts()))))
    da.simulate(disk, da.FrameGradient(), q, v, h=0.01, steps=2)
    quick(disk, da.FrameGradient(), q, v, h=0.01, steps=2)
    with pytest.raises(da.SimulationError) as one:
        da.simulate(disk, da.FrameGradient(), q, 50 * v, h=5.0, steps=20)
    with pytest.raises(da.SimulationError) as two:
        usual(disk, da.FrameGradient(), q, 50 * v, h=5.0, steps=20)
    assert str(one.value) == str(two.value)
    stopped = da.simulate(disk, da.FrameGradient(), q, 50 * v, h=5.0, steps=20, throw=False)
    same(stopped, two.value.trajectory)


RATE = 1.0


def test_what_functions_read_may_change_between_runs(monkeypatch, quick):
    box = [1.0]
    array = np.array([1.0])

    def of_a_global(q, v):
        return 0.5 * v @ v - RATE * q[0] ** 2

    def of_a_list(q, v):
        return 0.5 * v @ v - box[0] * q[0] ** 2

    def of_an_array(q, v):
        return 0.5 * v @ v - array[0] * q[0] ** 2

    for function in (of_a_global, of_a_list, of_an_array):
        system = da.system(lagrangian=function, coordinates=("x", "y"))
        start = [1.0, 0.0], [0.0, 1.0]
        first = da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=10)
        same(quick(system, da.LeapFrog(), *start, h=0.1, steps=10), first)
        with monkeypatch.context() as m:
            m.setitem(of_a_global.__globals__, "RATE", 2.0)
            box[0] = array[0] = 2.0
            changed = da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=10)
            assert abs(changed.q - first.q).max() > 0.1
            again_changed = da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=10)
            np.testing.assert_array_equal(again_changed.q, changed.q)
        box[0] = array[0] = 1.0
        back = da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=10)
        np.testing.assert_array_equal(back.q, first.q)


def test_numbers_of_a_system_may_change_between_runs(quick):
    class Well(da.System):
        coordinates = ("x", "y")
        rate: np.ndarray
        depth: dict = eqx.field(default_factory=lambda: {"a": 1.0})

        def lagrangian(self, q, v):
            return 0.5 * v @ v - self.depth["a"] * self.rate @ q**2

    system, start = Well(np.array([1.0, 2.0])), ([1.0, 0.5], [0.0, 1.0])
    first = da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=10)
    same(quick(system, da.LeapFrog(), *start, h=0.1, steps=10), first)
    same(quick(Well(np.array([1.0, 2.0])), da.LeapFrog(), *start, h=0.1, steps=10), first)
    for change in (lambda: system.rate.__setitem__(0, 3.0), lambda: system.depth.update(a=2.0)):
        change()
        mine = da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=10)
        assert abs(mine.q - first.q).max() > 0.01
        same(mine, usual(system, da.LeapFrog(), *start, h=0.1, steps=10))
        first = mine
    assert abs(da.simulate(system, da.LeapFrog(), *start, h=0.2, steps=5).q[-1] - first.q[-1]).max() > 1e-6


def test_a_method_replaced_on_a_class_is_noticed(monkeypatch):
    class Falling(da.System):
        coordinates = ("x", "y")

        def lagrangian(self, q, v):
            return 0.5 * v @ v - q[1]

    start = [0.0, 0.0], [1.0, 0.0]
    first = da.simulate(Falling(), da.LeapFrog(), *start, h=0.1, steps=10)
    Falling.lagrangian = lambda self, q, v: 0.5 * v @ v + q[1]
    np.testing.assert_allclose(
        da.simulate(Falling(), da.LeapFrog(), *start, h=0.1, steps=10).q[:, 1], -first.q[:, 1]
    )


def test_other_numbers_are_another_run(quick):
    first = da.simulate(CVT, da.LeapFrog(), Q, V, h=0.1, steps=10)
    softer = da.simulate(da.zoo.PendulumCVT(eps=0.1), da.LeapFrog(), Q, V, h=0.1, steps=10)
    assert abs(softer.q - first.q).max() > 1e-3
    same(quick(CVT, da.LeapFrog(), Q, V, h=0.1, steps=10), first)
    same(quick(da.zoo.PendulumCVT(eps=0.1), da.LeapFrog(), Q, V, h=0.1, steps=10), softer)
    signs = [da.simulate(CVT, da.DLA(x), Q, V, h=0.1, steps=10) for x in (0.0, 1.0)]
    assert abs(signs[0].q - signs[1].q).max() > 1e-6


def test_starts_are_checked_as_others_are_before_there_is_machine_code(monkeypatch):
    monkeypatch.setattr(again, "HESITATION", 1e9)
    looked = []
    plain = run.check_fit
    monkeypatch.setattr(run, "check_fit", lambda *a: looked.append(a) or plain(*a))
    for k in (20, 21, 22, 20, 21, 22):
        da.simulate(CVT, da.LeapFrog(), *other(CVT, Q, V, k), h=0.1, steps=5)
    assert len(looked) == 3  # once for every start
    monkeypatch.setattr(again, "HESITATION", 0.0)
    da.simulate(CVT, da.LeapFrog(), *other(CVT, Q, V, 23), h=0.1, steps=5)
    assert len(looked) == 3


def test_own_discrete_rules_are_checked_at_every_start(monkeypatch):
    seen = []
    plain = da.VariationalDLA.check_start
    monkeypatch.setattr(da.VariationalDLA, "check_start", lambda *a: seen.append(a) or plain(*a))
    for k in range(30, 34):
        da.simulate(CVT, da.VariationalDLA(), *other(CVT, Q, V, k), h=0.1, steps=5)
    assert len(seen) == 4


def test_long_runs_and_runs_with_progress_go_in_parts(monkeypatch):
    da.simulate(CVT, da.LeapFrog(), Q, V, h=0.1, steps=1000)
    told = []
    da.simulate(CVT, da.LeapFrog(), Q, V, h=0.1, steps=100, progress=lambda *x: told.append(x))
    assert told[-1] == (100, 100)
    monkeypatch.setattr(again, "SECONDS", 1e-12)
    seen = []
    plain = run._run
    monkeypatch.setattr(run, "_run", lambda *a: seen.append(a) or plain(*a))
    da.simulate(CVT, da.LeapFrog(), Q, V, h=0.1, steps=1000)
    assert len(seen) == 1


def test_warnings_come_again():
    particle = da.zoo.NonholonomicParticle()
    q, v = map(np.asarray, particle.start(next(iter(particle.starts()))))
    found = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            da.simulate(particle, _Remarking(), q, v, h=0.1, steps=5)
        found.append([(str(x.message), x.filename) for x in caught])
    assert found[0] == found[1] == [("look at this", __file__)]


class _Remarking(da.LeapFrog):
    def remarks(self, trajectory):
        return ["look at this"]


def test_inside_traced_code_and_in_threads():
    first = da.simulate(CVT, da.LeapFrog(), Q, V, h=0.1, steps=10)

    @jax.jit
    def traced(x):
        assert np.array_equal(da.simulate(CVT, da.LeapFrog(), Q, V, h=0.1, steps=10).q, first.q)
        return x + da.simulate(CVT, da.LeapFrog(), Q, V * (x / x), h=0.1, steps=10).q[-1, 0]

    np.testing.assert_allclose(traced(1.0), 1.0 + first.q[-1, 0], rtol=1e-14)
    starts = [other(CVT, Q, V, k) for k in range(64)]
    expected = [usual(CVT, da.LeapFrog(), *x, h=0.1, steps=50).q for x in starts]
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda x: da.simulate(CVT, da.LeapFrog(), *x, h=0.1, steps=50).q, starts)]
    np.testing.assert_array_equal(found, expected)


@pytest.fixture
def quick_ensemble(monkeypatch):
    """Makes an ensemble, which must not go the usual way."""
    return without(monkeypatch, da.ensemble, ensembles, "check_members")


MEMBERS = V * (1 + 0.01 * np.arange(7))[:, None]


@pytest.mark.parametrize("method", [da.LeapFrog(), da.FrameGradient(), da.EDLA()], ids=lambda m: m.cli_name)
def test_a_small_ensemble_is_the_usual_one(method, quick_ensemble):
    system, q, v = CVT, Q, MEMBERS
    if isinstance(method, da.EDLA):
        system = da.zoo.NonholonomicParticle()
        q, v = map(np.asarray, system.start(next(iter(system.starts()))))
        v = v * (1 + 0.01 * np.arange(7))[:, None]
    for k, options in enumerate(
        [
            {"h": 0.01, "steps": 10},
            {"h": 0.02, "steps": 11, "save_every": 4, "t0": 1.0},
            {"h": 0.1, "steps": 0},
        ]
    ):
        for _ in range(2 * (k == 0)):  # the first one compiles, which says nothing about the time of a step
            da.ensemble(system, method, q, v, **options)
        for starts in ((q, v), (np.stack([q] * 7), v), (q, v[:1]), (q, v[3:])):
            mine = quick_ensemble(system, method, *starts, **options)
            theirs = da.ensemble(system, method, *starts, **options, progress=lambda *_: None)
            same(mine, theirs)
            np.testing.assert_array_equal(mine.energy(), theirs.energy())
            same(mine.member(0), theirs.member(0))


def test_single_runs_and_ensembles_know_the_same_systems(quick, quick_ensemble):
    da.ensemble(CVT, da.LeapFrog(), Q, MEMBERS, h=0.1, steps=10)
    many = da.ensemble(CVT, da.LeapFrog(), Q, MEMBERS, h=0.1, steps=10)
    one = da.simulate(CVT, da.LeapFrog(), Q, MEMBERS[2], h=0.1, steps=10)
    same(quick(CVT, da.LeapFrog(), Q, MEMBERS[2], h=0.1, steps=10), one)
    same(quick_ensemble(CVT, da.LeapFrog(), Q, MEMBERS, h=0.1, steps=10), many)
    np.testing.assert_allclose(many.q[2], one.q, atol=1e-13)  # other instructions, so rounding differs


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ((Q, MEMBERS + 1e-3 * (np.arange(7) == 3)[:, None] * FORM), "violates .* 1 member"),
        ((Q, np.where(MEMBERS > 2.9, np.nan, MEMBERS)), "v0 is NaN or infinite for"),
        ((Q, V), "batch size"),
        ((Q, MEMBERS[:, :2]), "v0 must have shape"),
        ((np.stack([Q] * 3), MEMBERS), "batch size"),
        ((Q, MEMBERS[None]), "v0 must have shape"),
        ((Q, MEMBERS[:0]), "at least one member"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_ensembles_refuse_is_refused_again(starts, message):
    found = []
    for _ in range(2):
        with pytest.raises(ValueError, match=message) as error:
            da.ensemble(CVT, da.LeapFrog(), *starts, h=0.1, steps=5)
        found.append(str(error.value))
        da.ensemble(CVT, da.LeapFrog(), Q, MEMBERS, h=0.1, steps=5)
    assert found[0] == found[1]


def test_parameters_that_may_differ_between_members_are_not_taken_for_shared():
    eps: Any = np.linspace(0.1, 0.7, 7)
    soft = da.zoo.PendulumCVT(eps=eps)
    da.ensemble(CVT, da.LeapFrog(), Q, MEMBERS, h=0.1, steps=10)
    da.ensemble(soft, da.LeapFrog(), Q, MEMBERS, h=0.1, steps=10)
    many = da.ensemble(soft, da.LeapFrog(), Q, MEMBERS, h=0.1, steps=10)
    for i in (0, 6):
        own = da.simulate(da.zoo.PendulumCVT(eps=eps[i]), da.LeapFrog(), Q, MEMBERS[i], h=0.1, steps=10)
        np.testing.assert_allclose(many.q[i], own.q, atol=1e-13)


def test_members_that_fail_again_have_their_status():
    disk = da.zoo.FallingDisk()
    q, v = map(np.asarray, disk.start(next(iter(disk.starts()))))
    v = v * np.array([1.0, 50.0])[:, None]
    da.ensemble(disk, da.FrameGradient(), q, v[:1], h=0.01, steps=20)
    da.ensemble(disk, da.FrameGradient(), q, v[:1] * 1.01, h=0.01, steps=20)
    mine = da.ensemble(disk, da.FrameGradient(), q, v, h=5.0, steps=20)
    theirs = da.ensemble(disk, da.FrameGradient(), q, v, h=5.0, steps=20, progress=lambda *_: None)
    assert np.any(mine.code)
    same(mine, theirs)


def test_dependent_constraints_are_told_every_time():
    def constraints(q):
        return jnp.array([[-jnp.sin(q[2]), jnp.cos(q[2]), 0.0], [-2 * jnp.sin(q[2]), 2 * jnp.cos(q[2]), 0.0]])

    system = da.system(
        lagrangian=lambda q, v: 0.5 * v @ v, constraints=constraints, coordinates=("x", "y", "phi")
    )
    for _ in range(3):
        with pytest.warns(da.ConstraintWarning, match="follow"):
            da.simulate(system, da.FrameGradient(), [0.0, 0, 0], [1.0, 0, 1], h=0.1, steps=5)


def test_functions_that_contradict_each_other_at_another_start_are_refused():
    def frame(q):  # right up to x = 5000
        wrong = jnp.where(q[0] > 5000, 0.3, 0.0)
        return jnp.array([[jnp.cos(q[2]), 0.0], [jnp.sin(q[2]) + wrong, 0.0], [0.0, 1.0]])

    system = da.system(
        lagrangian=lambda q, v: 0.5 * v @ v,
        constraints=lambda q: jnp.array([[-jnp.sin(q[2]), jnp.cos(q[2]), 0.0]]),
        frame=frame,
        coordinates=("x", "y", "phi"),
    )
    # So slow that the samples around this start do not come so far.
    slow = [1e-3, 0.0, 1e-3]
    da.simulate(system, da.DLA01(), [0.0, 0.0, 0.0], slow, h=0.1, steps=5)
    da.simulate(system, da.DLA01(), [1.0, 0.0, 0.0], slow, h=0.1, steps=5)
    with pytest.raises(ValueError, match="contradict"):
        da.simulate(system, da.DLA01(), [6000.0, 0.0, 0.0], slow, h=0.1, steps=5)
    with pytest.raises(ValueError, match="contradict"):
        da.ensemble(system, da.DLA01(), [[0.0, 0, 0], [6000.0, 0, 0]], slow, h=0.1, steps=5)
