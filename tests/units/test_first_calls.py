"""What makes first calls short: functions are traced once, and tracing and compilers go on side by side."""

import ctypes
import gc
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.kernels import native, waiting
from dalembert.numerics import is_being_traced, jit_fast_compile, repeated, tracing_once


def skate(called, slope=0.3):
    """An ice skate on a slope; `called` gets the name of each function of it that Python runs."""

    def lagrangian(q, v):
        called.append("lagrangian")
        return 0.5 * jnp.sum(v**2) - slope * q[1]

    def constraints(q):
        called.append("constraints")
        return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])

    return da.system(coordinates=("x", "y", "theta"), lagrangian=lagrangian, constraints=constraints)


START = np.zeros(3), np.array([1.0, 0.0, 0.5])


@pytest.mark.parametrize("method", [da.FrameGradient(), da.EDLA(), da.Composition(da.FrameGradient(), 4)])
def test_functions_of_a_system_are_traced_a_few_times(method, monkeypatch):
    """EDLA needs the one-forms more than thirty times in a step and a start, and a composition has three steps."""
    monkeypatch.setenv("DALEMBERT_CACHE", "0")
    called = []
    da.simulate(skate(called), method, *START, h=0.1, steps=3)
    # The description, the sample of values and the loop trace each function on their own. The loop does so again for
    # other kinds of arguments (with and without weak types) and where it asks whether a formula contains q.
    assert 2 <= called.count("constraints") <= 12
    without = []
    monkeypatch.setattr("dalembert.model.systems.repeated", lambda name, function, *x: function(*x))
    da.simulate(skate(without, 0.31), method, *START, h=0.1, steps=3)
    assert len(called) < 0.7 * len(without)


def test_repeated_functions_have_the_same_values_and_derivatives():
    def function(tree, x):
        count.append(1)
        return {"value": jnp.sin(x) * tree["a"], "same": jnp.where(x > 0.5, x, tree["a"])}

    def whole(ask):
        def used(a, x):
            first = ask(function, {"a": a}, x)
            slope = jax.jacfwd(lambda x: ask(function, {"a": a}, x)["value"])(x)
            each = jax.vmap(lambda y: ask(function, {"a": a}, y)["same"])(x)
            return first, slope, each, jax.grad(lambda a: jnp.sum(ask(function, {"a": a}, x)["value"]))(a)

        return used

    arguments = jnp.float64(0.7), jnp.array([0.2, 0.9])
    count = []
    plain = whole(lambda function, *x: function(*x))(*arguments)
    assert len(count) == 4
    count.clear()
    with tracing_once():
        traced = jax.make_jaxpr(whole(lambda function, *x: repeated("f", function, *x)))(*arguments)
    assert len(count) == 2  # for an array and, in vmap, for a number
    got = jax.tree.leaves(jax.jit(whole(lambda function, *x: repeated("f", function, *x)))(*arguments))
    assert len(count) == 2 + 4  # outside of the context, nothing is remembered
    again = jax.core.eval_jaxpr(traced.jaxpr, traced.consts, *arguments)
    for a, b, c in zip(jax.tree.leaves(plain), got, again, strict=True):
        # The same operations; the compiler may round a product and a sum once instead of twice.
        np.testing.assert_allclose(b, a, rtol=1e-15, atol=1e-16)
        np.testing.assert_allclose(c, a, rtol=1e-15, atol=1e-16)


def test_what_a_function_captures_from_other_code_is_not_mixed_up():
    """The inner function captures x, which is another value in each iteration of the loop and outside of it."""

    def total(x):
        def inside(k, sum_):
            there = x + k
            return sum_ + repeated("g", lambda y: y * there, jnp.float64(2.0))

        first = repeated("g", lambda y: y * x, jnp.float64(2.0))
        return first, jax.lax.fori_loop(0, 3, inside, jnp.float64(0.0))

    with tracing_once():
        first, sum_ = jax.jit(total)(jnp.float64(5.0))
    assert (float(first), float(sum_)) == (10.0, 36.0)


def test_the_context_ends_with_its_outermost_use():
    def ask():
        return repeated("h", lambda x: count.append(1) or 2 * x, jnp.float64(1.0))

    count = []
    with tracing_once():
        with tracing_once():
            ask()
        ask()
        assert len(count) == 1
    with tracing_once():
        ask()
    assert len(count) == 2
    with pytest.raises(ZeroDivisionError), tracing_once():
        repeated("h", lambda x: x / (0 // 0), jnp.float64(1.0))
    ask()
    assert len(count) == 3


def test_work_goes_on_while_xla_compiles():
    function = jit_fast_compile(lambda x: jnp.cosh(x) + 3)
    done = []
    x = np.array([0.3, 0.4])
    first = function.during(lambda: done.append(1), x)
    np.testing.assert_allclose(first, np.cosh(x) + 3, rtol=1e-15)
    assert done == [1]
    # Known arguments compile nothing, and other shapes and types are not taken for known ones.
    again = function.during(lambda: done.append(1), 2 * x)
    np.testing.assert_allclose(again, np.cosh(2 * x) + 3, rtol=1e-15)
    np.testing.assert_allclose(function(np.arange(3.0)), np.cosh(np.arange(3.0)) + 3, rtol=1e-15)
    np.testing.assert_allclose(function(np.arange(2)), np.cosh(np.arange(2)) + 3, rtol=1e-15)
    assert done == [1]
    function.forget()
    function.during(lambda: done.append(1), x)
    assert done == [1, 1]
    wrong = jit_fast_compile(lambda x: x + undefined)  # noqa: F821
    with pytest.raises(NameError, match="undefined"):
        wrong.during(lambda: done.append(1), x)


def test_errors_and_refusals_are_those_of_the_checks():
    """The loop is traced before the checks are done, but what it raises is not what the user sees."""
    with pytest.raises(ValueError, match=r"violates the constraint.*nearest allowed"):
        da.simulate(skate([]), da.FrameGradient(), START[0], [1.0, 1.0, 0.5], h=0.1, steps=3)

    def constraints(q):
        return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), jnp.sqrt(q[0] - 1.0)]])

    wrong = da.system(
        coordinates=("x", "y", "theta"), lagrangian=lambda q, v: 0.5 * v @ v, constraints=constraints
    )
    with pytest.raises(ValueError, match="NaN or infinite at the start"):
        da.simulate(wrong, da.EDLA(), *START, h=0.1, steps=3)


def test_several_threads_compile_at_once():
    """Each text gives its own code: as many threads as texts, several times over."""

    def text(k):
        lines = [
            "  %v0 = load double, ptr %x",
            *(f"  %v{i + 1} = fmul double %v{i}, {float(k)!r}" for i in range(300)),
        ]
        return "\n".join(
            [
                "define void @power(ptr %x) {",
                "entry:",
                *lines,
                "  store double %v300, ptr %x",
                "  ret void",
                "}",
            ]
        )

    codes, failed = {}, []

    def work(k):
        try:
            codes[k] = native.optimise_and_emit(text(1 + k * 1e-3), native.PASSES)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for k, code in codes.items():
        assert code == native.optimise_and_emit(text(1 + k * 1e-3), native.PASSES)
        x = np.array([1.0])
        native.Machine({"power": code}).function("power", [ctypes.c_void_p])(x.ctypes.data)
        # Three hundred products, each rounded once.
        np.testing.assert_allclose(x[0], (1 + k * 1e-3) ** 300, rtol=300 * np.finfo(float).eps)


def test_modules_with_functions_of_the_same_name_stay_apart():
    """Both modules of a loop have the function that writes a row."""
    codes = {}
    for name, number in (("start", 5.0), ("run", 6.0)):
        text = (
            f"define internal double @row() noinline {{\nentry:\n  ret double {number!r}\n}}\n"
            f"define double @{name}() {{\nentry:\n  %x = call double @row()\n  ret double %x\n}}"
        )
        codes[name] = native.optimise_and_emit(text, native.ONCE)
    machine = native.Machine(codes)
    assert [machine.function(name, [], ctypes.c_double)() for name in ("run", "start")] == [6.0, 5.0]


def test_the_collector_of_cycles_is_as_before_afterwards():
    before = gc.get_threshold()
    with waiting.making():
        assert gc.get_threshold() == (waiting.ALLOCATIONS, *before[1:])
        with waiting.making():
            pass
        assert gc.get_threshold()[0] == waiting.ALLOCATIONS
    assert gc.get_threshold() == before

    # Threads whose kernels take times that overlap.
    def make(seconds):
        with waiting.making():
            time.sleep(seconds)

    threads = [threading.Thread(target=make, args=(x,)) for x in (0.05, 0.15, 0.1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.get_threshold() == before
    try:
        gc.set_threshold(0)  # never
        with waiting.making():
            assert gc.get_threshold()[0] == 0
        gc.set_threshold(1_000_000)
        with waiting.making():
            assert gc.get_threshold()[0] == 1_000_000
    finally:
        gc.set_threshold(*before)


def test_whether_code_is_being_traced():
    found = []

    def look(x):
        found.append(is_being_traced())
        return x

    look(1.0)
    jax.jit(look)(1.0)
    jax.jit(jax.vmap(look))(jnp.ones(2))
    assert found == [False, True, True]
    assert not is_being_traced()
