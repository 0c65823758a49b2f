"""Kernels for NVIDIA's GPUs: what their text computes, run on a CPU, and that LLVM makes PTX from it."""

import ctypes
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.kernels import ArrayLoop, Loop, cuda, native
from dalembert.kernels.graph import Unsupported
from dalembert.methods import State, method_from_text
from dalembert.model import as_arrays
from dalembert.simulation.engines import loop_of
from dalembert.simulation.ensembles import _entries, _packed, ensemble

# The device estimates 1/b with an error of about 1e-7.
ESTIMATE = """
define internal double @estimate(double %b) {
entry:
  %x = fdiv double 1.0, %b
  %y = fmul double %x, 0x3FF0000010000000
  ret double %y
}
"""


class Wound(da.System):
    """A mass on a plane in a potential of angles that may be large."""

    coordinates = ("x", "y")
    turns: float = 1.0

    def lagrangian(self, q, v):
        return 0.5 * jnp.sum(v**2) - jnp.cos(self.turns * q[0] + q[1]) / self.turns

    def constraints(self, q):
        return jnp.array([[jnp.sin(q[1]), 1.0]])


def loop_and_arguments(system, spelling, form, monkeypatch, members=5):
    monkeypatch.setenv("DALEMBERT_KERNELS", form)
    made = as_arrays(system), as_arrays(method_from_text(spelling))
    loop = loop_of(*made).whole
    assert isinstance(loop, ArrayLoop if form == "arrays" else Loop)
    q0, v0 = (
        (np.asarray(x, float) for x in system.start())
        if system.starts()
        else (np.zeros(2), np.array([1.0, 0.0]))
    )
    v = v0 * np.linspace(0.8, 1.2, members)[:, None]
    start = State.of(np.broadcast_to(q0, (members, len(q0))), v, np.zeros(members))
    leaves = jax.tree.leaves((*made, np.float64(0.05)))
    shared, own, flags = _packed(leaves, [False] * len(leaves), members, members)
    return loop, tuple(flags), shared, own, np.ascontiguousarray(np.stack(_entries(start)))


def here(text):
    """The text for a GPU, with a function of its own in place of the device's estimate."""
    text = re.sub(r"\ndeclare double @llvm\.nvvm\.rcp.*", "", text)
    text = text.replace("@llvm.nvvm.rcp.approx.ftz.d(", "@estimate(")
    assert "llvm.nvvm" not in text
    return text + ESTIMATE


def many_of(text):
    """The function `many` of the text for a GPU, on this processor."""
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 5 + [ctypes.c_void_p] * 2
    return native.Machine({"many": native.optimise_and_emit(here(text), native.LOOP_PASSES)}).function(
        "many", kinds
    )


def on_cpu(loop, text, shared, own, starts, steps, every):
    """Runs the text of a loop for a GPU on this processor, one member after the other."""
    run = many_of(text)
    count, wide = steps // every + 1, starts.shape[1]
    rows, report = np.empty((count, len(loop.distinct), wide)), np.empty((3, wide))
    for m in range(wide):
        given = (x.ctypes.data for x in (shared, own, starts))
        run(*given, wide, m, m + 1, steps, every, rows.ctypes.data, report.ctypes.data)
    return rows, report


CASES = [
    (da.zoo.Snakeboard(), "frame", "scalars"),
    (da.zoo.HarmonicCVT(), "leapfrog", "scalars"),
    (da.zoo.ChaplyginSleigh(), "edla", "scalars"),
    (da.zoo.Car(trailers=4), "frame", "arrays"),
    (da.zoo.Car(trailers=8), "gni", "arrays"),
    (da.zoo.Snake(links=3), "frame", "arrays"),
    (da.zoo.ChainOfPendula(3), "dla-variational", "arrays"),
]


@pytest.mark.parametrize(("system", "spelling", "form"), CASES)
def test_the_text_for_gpus_computes_what_kernels_of_the_cpu_compute(system, spelling, form, monkeypatch):
    loop, flags, shared, own, starts = loop_and_arguments(system, spelling, form, monkeypatch)
    text = cuda.without_library(loop.text_of_many(flags))
    for name in (
        "@malloc",
        "@free",
        "@llvm.sin.",
        "@llvm.cos.",
        "@llvm.maximum.f64",
        "@llvm.minimum.f64",
        "fdiv double",
    ):
        assert name not in text
    rows, report = on_cpu(loop, text, shared, own, starts, 20, 5)
    q0, v0 = starts[: system.dimension].T, starts[system.dimension : -1].T
    expected = ensemble(
        system, method_from_text(spelling), q0, v0, h=0.05, steps=20, save_every=5, devices="cpu"
    )
    assert np.all(report[0] == da.Status.OK.code)
    places = loop.copies[: system.dimension]
    # Quotients differ by a unit in the last place, and twenty steps amplify that a little.
    np.testing.assert_allclose(rows[:, places].transpose(2, 0, 1), expected.q, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("system", "spelling", "form"), CASES)
def test_llvm_makes_ptx_from_it(system, spelling, form, monkeypatch):
    loop, flags, *_ = loop_and_arguments(system, spelling, form, monkeypatch)
    code = cuda.ptx(cuda.without_library(loop.text_of_many(flags)), "sm_90").decode()
    assert ".target sm_90" in code
    assert ".visible .entry entry(" in code
    # Everything that is called is there, because nothing else is linked to it.
    assert set(re.findall(r"\.extern \.func .*?(\w+)\s*\(?", code)) <= {"entry"}


@pytest.mark.parametrize("form", ["scalars", "arrays"])
def test_angles(form, monkeypatch):
    """Up to 1e9 they are as good as rounding of the angle allows; beyond, a member ends and says so."""
    for turns, fine in ((3e8, True), (3e9, False)):
        loop, flags, shared, own, starts = loop_and_arguments(Wound(turns), "leapfrog", form, monkeypatch)
        starts[0] = 1.1
        text = cuda.without_library(loop.text_of_many(flags))
        rows, report = on_cpu(loop, text, shared, own, starts, 1, 1)
        assert np.all(report[0] == (da.Status.OK if fine else da.Status.NOT_FINITE).code)
        if fine:
            expected = ensemble(
                Wound(turns), da.LeapFrog(), starts[:2].T, starts[2:4].T, h=0.05, steps=1, devices="cpu"
            )
            # The angle 3e8 is known to 6e-8.
            np.testing.assert_allclose(rows[1, loop.copies[:2]].T, expected.q[:, 1], atol=1e-7)


def test_the_memory_of_a_thread():
    text = (
        "define internal void @step() {\nentry:\n  %a = alloca [10 x double], align 32\n  %b = alloca [3 x i1]\n}\n"
        "define internal void @begin() {\nentry:\n  %a = alloca [7 x i32]\n}\n"
        "define void @many() {\nentry:\n  %a = alloca [4 x i64]\n}\ndeclare void @other()"
    )
    assert cuda.memory_of(text) == 4 * 8 + 10 * 8 + 3


def test_the_memory_of_a_thread_grows_with_its_matrices(monkeypatch):
    sizes = []
    for trailers in (5, 10, 20):
        loop, flags, *_ = loop_and_arguments(da.zoo.Car(trailers=trailers), "frame", "arrays", monkeypatch)
        sizes.append(cuda.memory_of(cuda.without_library(loop.text_of_many(flags))))
    # CUDA's compiler needs 38,224 bytes for twenty trailers; ours is an estimate.
    assert sizes[2] == pytest.approx(38_224, rel=0.1)
    assert sizes[0] < sizes[1] < sizes[2] < 16 * sizes[0]


def test_what_ptx_does_not_have_is_refused_by_name(monkeypatch):
    class Warm(Wound):
        def lagrangian(self, q, v):
            return 0.5 * jnp.sum(v**2) - jnp.exp(q[0])

    loop, flags, *_ = loop_and_arguments(Warm(), "leapfrog", "scalars", monkeypatch)
    with pytest.raises(Unsupported, match="exp: which PTX does not have"):
        cuda.without_library(loop.text_of_many(flags))


def test_extremes_and_quotients():
    text = (
        "define double @quotient(double %a, double %b) {\nentry:\n"
        "  %x = fdiv contract double %a, %b\n  ret double %x\n}\n"
        "define double @most(double %a, double %b) {\nentry:\n"
        "  %x = call double @llvm.maximum.f64(double %a, double %b)\n  ret double %x\n}\n"
        "define double @least(double %a, double %b) {\nentry:\n"
        "  %x = call double @llvm.minimum.f64(double %a, double %b)\n  ret double %x\n}\n"
        "declare double @llvm.maximum.f64(double, double)\ndeclare double @llvm.minimum.f64(double, double)"
    )
    machine = native.Machine({"": native.optimise_and_emit(here(cuda.without_library(text)), native.PASSES)})
    quotient, most, least = (
        machine.function(name, [ctypes.c_double] * 2, ctypes.c_double)
        for name in ("quotient", "most", "least")
    )
    random = np.random.default_rng(3)
    a, b = random.normal(size=(2, 1000)) * 10.0 ** random.integers(-100, 100, (2, 1000))
    found = np.array([quotient(x, y) for x, y in zip(a, b, strict=True)])
    # One unit in the last place.
    assert np.max(np.abs(found / (a / b) - 1)) <= 2 * np.finfo(float).eps
    assert np.isnan(quotient(1.0, 0.0))
    for x, y in ((1.0, 2.0), (2.0, 1.0), (-1.0, -1.0), (np.inf, 3.0), (-np.inf, 3.0)):
        assert (most(x, y), least(x, y)) == (max(x, y), min(x, y))
    for x, y in ((np.nan, 1.0), (1.0, np.nan)):
        assert np.isnan(most(x, y))
        assert np.isnan(least(x, y))


class Fake:
    """CUDA's driver, with this processor in place of the GPU: a launch runs the same text here."""

    def __init__(self, loop, flags):
        self.many = many_of(cuda.without_library(loop.text_of_many(flags)))
        self.launched, self.fails = [], 0

    def __getattr__(self, name):
        return lambda *arguments: 0

    def cuDeviceGetAttribute(self, number, attribute, device):
        number._obj.value = {16: 132, 75: 9, 76: 0}[attribute]
        return 0

    def cuModuleGetFunction(self, function, module, name):
        function._obj.value = 1 if name == b"entry" else 0
        return 0

    def cuGetErrorName(self, code, text):
        text._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"
        return 0

    def cuLaunchKernel(self, function, bx, by, bz, tx, ty, tz, shared_memory, stream, places, extra):
        shared, own, starts, stride, to, steps, every, rows, report = (
            ctypes.c_int64.from_address(places[k]).value for k in range(9)
        )
        self.launched.append((bx * tx, to))
        for m in range(min(bx * tx, to)) if not self.fails else ():
            self.many(shared, own, starts, stride, m, m + 1, steps, every, rows, report)
        return self.fails


@pytest.fixture
def fake(monkeypatch):
    """Puts the fake in place of the driver, for a loop."""
    caches = cuda._kernel, cuda.fewest

    def forget():
        for each in caches:
            each.cache_clear()

    def install(loop, flags):
        made = Fake(loop, flags)
        monkeypatch.setattr(cuda, "_driver", lambda: driver)
        with monkeypatch.context() as here:
            here.setattr(cuda.ctypes, "CDLL", lambda name: made)
            driver = cuda._Driver()
        monkeypatch.setattr("dalembert.simulation.ensembles._platform", lambda devices: devices or "cpu")
        forget()
        return made

    yield install
    forget()


def test_an_ensemble_by_the_driver(fake, monkeypatch):
    system, method = da.zoo.Car(trailers=4), da.FrameGradient()
    loop, flags, *_ = loop_and_arguments(system, "frame", "arrays", monkeypatch)
    driver = fake(loop, flags)
    q0, v0 = (np.asarray(x, float) for x in system.start())
    v = v0 * np.linspace(0.8, 1.2, 300)[:, None]
    arguments = {"h": 0.05, "steps": 7, "save_every": 3}
    few = ensemble(system, method, q0, v, **arguments, devices="gpu")
    assert not driver.launched  # XLA is quicker for 300 members
    monkeypatch.setattr(cuda, "fewest", lambda *_: 300)
    gpu = ensemble(system, method, q0, v, **arguments, devices="gpu")
    assert driver.launched == [(384, 384)]  # padded to whole blocks
    cpu = ensemble(system, method, q0, v, **arguments, devices="cpu")
    for found in (few, gpu):
        np.testing.assert_array_equal(found.code, cpu.code)
        np.testing.assert_array_equal(found.t, cpu.t)
        # Quotients differ by a unit in the last place.
        np.testing.assert_allclose(found.q, cpu.q, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(found.v, cpu.v, rtol=1e-11, atol=1e-11)


def test_a_gpu_without_room_says_so_and_xla_runs(fake, monkeypatch):
    system, method = da.zoo.Car(trailers=4), da.FrameGradient()
    loop, flags, *_ = loop_and_arguments(system, "frame", "arrays", monkeypatch)
    driver = fake(loop, flags)
    driver.fails = 2
    monkeypatch.setattr(cuda, "fewest", lambda *_: 0)
    q0, v0 = (np.asarray(x, float) for x in system.start())
    v = v0 * np.linspace(0.8, 1.2, 7)[:, None]
    with pytest.warns(
        UserWarning, match="more memory per thread than the GPU has free: .*CUDA_ERROR_OUT_OF_MEMORY"
    ):
        gpu = ensemble(system, method, q0, v, h=0.05, steps=7, devices="gpu")
    cpu = ensemble(system, method, q0, v, h=0.05, steps=7, devices="cpu")
    np.testing.assert_allclose(gpu.q, cpu.q, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="there is no GPU")
@pytest.mark.parametrize(("system", "spelling", "form"), CASES)
def test_ensembles_on_a_gpu(system, spelling, form, monkeypatch):
    monkeypatch.setenv("DALEMBERT_KERNELS", form)
    monkeypatch.setattr(cuda, "fewest", lambda *_: 0)  # XLA would be quicker for so few
    q0, v0 = (np.asarray(x, float) for x in system.start())
    v = v0 * np.linspace(0.8, 1.2, 300)[:, None]
    arguments = {"h": 0.05, "steps": 20, "save_every": 5}
    gpu, cpu = (
        ensemble(system, method_from_text(spelling), q0, v, **arguments, devices=x) for x in ("gpu", "cpu")
    )
    np.testing.assert_array_equal(gpu.code, cpu.code)
    np.testing.assert_allclose(gpu.q, cpu.q, rtol=1e-11, atol=1e-11)
