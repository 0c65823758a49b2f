"""Machine code with arrays in memory, for large systems: against plain JAX, and against the form of scalars."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from array_kernels import array_kernel
from jax import lax
from plain_jax import BRANCHES, EPS, collatz, compiled, complaint, latin_points, nearby
from user_functions import FORWARD_ONLY, FUNCTIONS

import dalembert as da
from dalembert.kernels import Unsupported, choice, outlined, over_rows, rows
from dalembert.kernels.array_code import Program
from dalembert.kernels.array_loop import ArrayLoop
from dalembert.kernels.arrays import Arrays, all_ops
from dalembert.kernels.traced import Traced
from dalembert.model import as_arrays
from dalembert.numerics import matmul, solve, solve_spd
from dalembert.simulation import engines


def struct(*shape, dtype=float):
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(("name", "function", "span"), FUNCTIONS, ids=[name for name, _, _ in FUNCTIONS])
def test_user_function(name, function, span):
    """Value and gradient at 5 points; the tolerance is that of the form of scalars, for the same reason."""
    gradient = (jax.jacfwd if name in FORWARD_ONLY else jax.grad)(function)

    def two(q):
        return function(q), gradient(q)

    q, rng = latin_points(name, *span)
    plain, ours = compiled(two), array_kernel(two, struct(4))
    complaints = []
    for i, x in enumerate(q):
        want, moved = plain(x), [plain(m) for m in nearby(x, rng)]
        for order, got in enumerate(ours(x)):
            where = f"point {i}, derivative {order}"
            complaints.append(complaint(where, got, want[order], [m[order] for m in moved]))
    complaints = [c for c in complaints if c]
    assert not complaints, "\n".join(complaints)


def same(function, *arguments):
    """The results of the machine code, after they were found to be those of plain JAX, with shapes and types.

    Numbers may differ by 32 roundings of the largest one: the programs here add at most some dozen terms.
    """
    arguments = [np.asarray(x) for x in arguments]
    got = array_kernel(function, *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arguments))(*arguments)
    want = jax.tree.map(np.asarray, compiled(function)(*arguments))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = np.max(np.abs(b[np.isfinite(b)]), initial=1.0) if b.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(a, b, rtol=0, atol=32 * EPS * scale)
    return got


RNG = np.random.default_rng(7)
VECTOR, MATRIX, CUBE = RNG.uniform(-1, 1, 9), RNG.uniform(-1, 1, (7, 5)), RNG.uniform(-1, 1, (3, 6, 4))
SQUARE = RNG.uniform(-1, 1, (2, 6, 6)) + 3 * np.eye(6)
PLACES = np.array([2, 0, 5, 2, -1, 6, 100, -100])


@pytest.mark.parametrize("mode", ["fill", "clip", "drop", "promise_in_bounds"])
def test_indexing_by_computed_numbers(mode):
    """Inside and outside of the array, above and below, the same place twice."""
    places = PLACES[:4] if mode == "promise_in_bounds" else PLACES
    reading = "fill" if mode == "drop" else mode

    def function(x, i):
        row = jnp.arange(float(5 * len(places))).reshape(len(places), 5)
        read = x.at[i].get(mode=reading), x.at[:, i % 5].get(mode=reading), x.at[i, i % 3].get(mode=reading)
        if mode == "fill":
            return (*read, x.at[i].get(mode="fill", fill_value=2.5))
        written = x.at[i].add(row, mode=mode), x.at[i, 1].multiply(row[:, 0], mode=mode)
        return *read, *written, x.at[i].min(row - 7, mode=mode), x.at[i].max(row - 7, mode=mode)

    same(function, MATRIX, places)
    # Two writes to one place may come in any order, so the places differ.
    same(lambda x, i: x.at[i].set(jnp.ones((3, 5)), mode=mode), MATRIX, places[1:4])


def test_indexing_of_members():
    """The batches of gathers and scatters that jax.vmap makes."""
    same(jax.vmap(lambda x, i: x[i]), CUBE, np.array([1, 5, 0]))
    same(jax.vmap(lambda x, i: x.at[i].add(1.0)), CUBE, np.array([1, 5, 0]))
    same(jax.vmap(lambda x, i: x.at[i, i].set(3.0)), CUBE, np.array([1, 3, 0]))
    same(jax.vmap(jax.grad(lambda x, i: jnp.sum(x[i] ** 2))), CUBE, np.array([1, 5, 0]))


def test_slices_by_computed_numbers():
    def function(x, i):
        cut = lax.dynamic_slice(x, (i, i + 1), (3, 2))
        return cut, lax.dynamic_update_slice(x, 2 * cut, (i - 1, i)), lax.dynamic_index_in_dim(x, i, 1)

    for i in (-4, 0, 2, 5, 50):
        same(function, MATRIX, i)


def test_sums_and_other_folds():
    def function(x, b):
        folds = (jnp.sum, jnp.prod, jnp.max, jnp.min, jnp.argmax, jnp.argmin)
        found = [f(x, axis=axis) for f in folds for axis in (0, 1, 2)]
        found += [
            jnp.sum(x, axis=(0, 2)),
            jnp.sum(x),
            jnp.all(b, 1),
            jnp.any(b, 0),
            jnp.sum(b.astype(int), 1),
        ]
        runs = (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin)
        return found, [f(x, axis=a, reverse=r) for f in runs for a in (0, 1, 2) for r in (False, True)]

    same(function, CUBE, CUBE[0] > 0)
    missing = VECTOR.copy()
    missing[[3, 6]] = np.nan
    assert same(lambda x: (jnp.argmax(x), jnp.argmin(x), jnp.max(x)), missing)[0] == 3


def test_products():
    def function(x, y, n):
        return (
            x @ y,
            y.T @ x.T,
            jnp.einsum("ijk,jl->ikl", CUBE, jnp.outer(x[:6, 0], y[0, :3])),
            jnp.einsum("ijk,ijl->ikl", CUBE, CUBE),
            jnp.einsum("ijk,ijk->", CUBE, CUBE),
            n @ n.T,
            n @ n[0],
        )

    same(function, MATRIX, MATRIX.T @ RNG.uniform(-1, 1, (7, 4)), np.arange(12).reshape(3, 4))


@pytest.mark.parametrize("width", [5, 8, 31, 32, 33, 71])
def test_products_with_long_rows(width):
    """Rows in vector registers, 32 entries at a time: either factor may have them, slices and transposes included."""

    def function(x, y, many):
        return (
            x @ y,
            (x @ y).T @ x,
            y.T @ x.T,
            x[::2] @ y[:, ::-1],
            x[:, 1:] @ y[1:, 2:],
            y.T[:, :3] @ x[:3],
            jnp.sin(x) @ y,
            x @ jnp.cos(y),
            matmul(x, y) + matmul(y.T, x.T).T,
            jnp.einsum("bik,kj->bij", many, y),
            jnp.einsum("bik,bkj->bij", many, many.transpose(0, 2, 1)),
            jnp.einsum("bik,bkj->bji", many, many.transpose(0, 2, 1)),
            jnp.einsum("bik,bik->bk", many, many),
            jnp.einsum("bik,bi->kb", many[:1], many[:1, :, 0]),
        )

    x, y = RNG.uniform(-1, 1, (9, 6)), RNG.uniform(-1, 1, (6, width))
    same(function, x, y, RNG.uniform(-1, 1, (2, 7, 6)))
    same(jax.jacfwd(lambda x: matmul(x, y)), x)
    same(jax.grad(lambda y: jnp.sum(jnp.sin(matmul(x, y)))), y)


@pytest.mark.parametrize("number", [3, 4, 7, 8, 13])
def test_sines_of_many_angles(number):
    """Whole vectors of angles and the ones left over, with some beyond the range of the polynomials."""
    x = RNG.uniform(-9, 9, (number, 3))
    for far in (1.0, 1e8, np.inf, np.nan):
        x[number // 2, 1] = far
        same(lambda x: (jnp.sin(x[:, 1]), jnp.cos(x[1:, :2]), jnp.cos(2 * x).T, jnp.sin(x[::-1])), x)


def test_sums_along_any_axis_in_memory():
    """The innermost loop goes over the terms or along an axis of the result, whichever is closer in memory."""

    def function(x, y, c):
        few = jnp.stack([jnp.sin(x[:, 0]), x[:, 1], x[:, 2]], axis=1)  # three columns, each in one piece
        return (
            x.T @ y,
            (x * y[:, :1]).T @ x[:, 0],
            few @ few.T,
            (few @ few.T) @ x,
            few.T @ x,
            jnp.sum(few * x[:, :3], axis=1),
            jnp.sum(c.transpose(2, 1, 0), axis=0),
            jnp.sum(c.transpose(1, 2, 0) * jnp.sin(c.transpose(1, 2, 0)), axis=1),
            jnp.einsum("ijk,ljk->il", c, c),
            jnp.einsum("ijk,ilk->ijl", c, 2 * c[:, :5]),
            jnp.einsum("ij,jk,kl->il", x, x.T, x),
            jnp.sum(few.reshape(3, 7), axis=1),
            jnp.sum(c, axis=()),
        )

    same(function, MATRIX, RNG.uniform(-1, 1, (7, 6)), CUBE)


def test_moves():
    def function(x, c):
        return (
            jnp.flip(c, (0, 2)),
            jnp.tile(x, (2, 3)),
            lax.pad(x, 1.5, [(-1, 2, 0), (1, -2, 2)]),
            lax.pad(x, -0.5, [(-3, 0, 1), (0, 0, 0)]),
            jnp.transpose(c, (2, 0, 1)).reshape(4, -1)[:, ::2],
            jnp.concatenate([x, 2 * x[:, ::-1], jnp.ones((1, 5))]),
            jnp.stack([x, -x], axis=1),
            jnp.split(jnp.sin(x), [1, 3], axis=1),
            jnp.broadcast_to(x[:, None, :], (7, 2, 5)),
            [*jnp.moveaxis(c, 1, 0)],
        )

    same(function, MATRIX, CUBE)


def test_linear_algebra():
    def function(a, b):
        spd = a @ jnp.swapaxes(a, -1, -2)
        low = jnp.linalg.cholesky(spd)
        solve = jax.scipy.linalg.solve_triangular
        return (
            low,
            jnp.linalg.solve(a[0], b),
            jnp.linalg.solve(a[1][::-1], b[:, 0]),
            jnp.linalg.inv(a[1]),
            jnp.linalg.det(a[0]),
            jax.vmap(lambda m: jnp.linalg.solve(m.T, b))(a),
            solve(low[0], b, lower=True),
            solve(low[0], b, lower=True, trans=1),
            solve(low[1].T, b, unit_diagonal=True),
        )

    same(function, SQUARE, RNG.uniform(-1, 1, (6, 3)))


@pytest.mark.parametrize("columns", [(), (1,), (4,), (7,), (35,)])
def test_equations_with_few_and_with_many_right_sides(columns):
    """Rows are exchanged, and blocks of sixteen columns are solved at a time; a singular matrix gives no numbers."""
    random = np.random.default_rng(11)
    # Well conditioned, but the largest entry of a column is seldom in its place.
    a = random.permutation(random.normal(size=(11, 11)) + 6 * np.eye(11))
    b, spd = random.normal(size=(11, *columns)), a @ a.T / 20
    same(lambda a, b: (solve(a, b), solve(a.T, 2 * b), solve(jnp.eye(11), b)), a, b)
    same(lambda a, b: solve_spd(a, b), spd, b)
    # Parts of arrays, which begin somewhere in their memory.
    wide, many = np.concatenate([spd, a, spd]), np.concatenate([b, 2 * b, -b])
    same(
        lambda x, y: (solve(x[11:22], y[11:22]), solve_spd(x[22:], y[22:]), solve(x[11:22], y[22:])),
        wide,
        many,
    )
    kernel = array_kernel(lambda a, b: (solve(a, b), solve_spd(a, b)), struct(11, 11), struct(11, *columns))
    assert not any(np.any(np.isfinite(x)) for x in kernel(np.ones((11, 11)), b)[1:])
    assert not np.all(np.isfinite(kernel(np.zeros((11, 11)), b)[0]))


def mixed(x, a):
    """Loops within loops, branches, and numbers that one part makes and a later one needs."""

    def smaller(carry):
        y, k = carry
        y = lax.cond(k % 2 == 0, lambda: jnp.sin(a @ y), lambda: y - 0.1 * jnp.sum(y) * x)
        return y / jnp.sqrt(1 + jnp.sum(y * y)), k + 1

    y, count = lax.while_loop(lambda c: (jnp.sum(c[0] ** 2) > 0.01) & (c[1] < 9), smaller, (x, 0))
    size, most, product = jnp.sum(x * x), jnp.max(x), jnp.prod(x)
    total, rows = lax.scan(lambda s, row: (s + jnp.sum(row * y), jnp.cos(row) * s), jnp.sum(x), a)
    solved = jnp.where(total > size, solve(a + 9 * jnp.eye(5), y), most * rows[0])
    return y, count, total * rows @ x, solved, product * rows.T


@pytest.mark.parametrize("part", [1, 12, 60])
def test_long_functions_are_made_of_parts(monkeypatch, part):
    """However short the parts are, the results are those of one function; numbers and places cross between them."""
    random, several = np.random.default_rng(4), False
    x, a = (
        random.normal(size=5),
        random.normal(size=(5, 5)) / 4,
    )  # so that the loop does not amplify roundings
    for function in (mixed, lambda x, a: jax.jvp(lambda x: mixed(x, a)[2:], (x,), (x,))):
        monkeypatch.setattr(outlined, "LONG", 2 * part)
        monkeypatch.setattr(outlined, "PART", part)
        traced = Traced(function, struct(5), struct(5, 5))
        text = Program.of(traced).text("whole")[0]
        assert text.count("define internal") > 3
        several |= " = call {" in text
        same(function, x, a)
        monkeypatch.undo()
    assert several or part == 1  # some parts make several numbers that later ones need


def test_types_that_cross_between_parts():
    """The type of a value is read from the instruction that makes it."""
    for text, kind in {
        "fadd contract double %a, %b": "double",
        "fcmp olt double %a, %b": "i1",
        "icmp slt <4 x i64> %a, %b": "<4 x i1>",
        "select i1 %c, i64 0, i64 %k": "i64",
        "sitofp i32 %k to double": "double",
        "fptosi <4 x double> %x to <4 x i32>": "<4 x i32>",
        "extractelement <4 x double> %x, i32 2": "double",
        "getelementptr inbounds double, ptr %m, i64 3": "ptr",
        "call i32 @llvm.fptosi.sat.i32.f64(double %x)": "i32",
        "phi i64 [0, %entry], [%k, %loop]": "i64",
        "load i8, ptr %m": "i8",
    }.items():
        assert outlined.type_of(text) == kind


def test_linear_algebra_in_reverse():
    same(jax.grad(lambda a: jnp.sum(jnp.linalg.solve(a, jnp.arange(6.0)) ** 2)), SQUARE[0])


@pytest.mark.parametrize("function", BRANCHES, ids=["cond", "switch", "double where", "division"])
def test_branches(function):
    for x in (-2.0, 0.5, 4.0, 9.0):
        same(function, x)
        same(jax.grad(function), x)
    same(jax.vmap(function), np.array([-2.0, 0.5, 4.0, 9.0]))


def test_a_choice_among_many():
    def function(i, x):
        return lax.switch(i, [jnp.sin, jnp.cos, lambda x: x[::-1], lambda x: 0 * x], x)

    for i in (-3, 0, 1, 2, 3, 9):
        same(function, i, VECTOR)
    same(jax.vmap(function, (0, None)), np.array([2, 0, 3, 1, 1]), VECTOR)


def test_loops_of_members_end_each_in_its_time():
    n = np.array([1, 2, 7, 27, 97])
    assert same(jax.vmap(collatz), n).tolist() == [0, 1, 16, 111, 118]
    assert same(jax.vmap(jax.vmap(collatz)), np.array([[1, 27, 3], [97, 2, 1]]))[1, 0] == 118
    assert same(collatz, 27) == 111


@pytest.mark.parametrize("reverse", [False, True])
def test_scans(reverse):
    def function(x, m):
        def step(s, row):
            return (jnp.cos(s[0] + row @ m), s[1] + 1, s[0]), (s[0], row.sum(), s[1])

        return lax.scan(step, (jnp.zeros(5), 0, jnp.ones(5)), x, reverse=reverse)

    same(function, MATRIX, SQUARE[0, :5, :5])
    same(jax.grad(lambda x, m: jnp.sum(function(x, m)[0][0])), MATRIX, SQUARE[0, :5, :5])


def test_loops_that_exchange_their_variables():
    """A value must not be overwritten before another has read it."""

    def function(a, b):
        return lax.fori_loop(0, 5, lambda i, s: (s[1], s[0][::-1] + i, s[0]), (a, b, a))

    same(function, VECTOR, VECTOR**2)


def test_arrays_of_no_entries():
    def function(x, m):
        return jnp.sum(x), m.T @ jnp.ones(0), jnp.concatenate([x, jnp.ones(2)]), x * 2, m @ jnp.ones(3)

    same(function, np.zeros(0), np.zeros((0, 3)))


def test_truth_and_whole_numbers():
    def function(x, n, b):
        return n // 3, n % 3, jnp.where(b, n, -n), b & (x > 0), b.astype(float) + x, (x * 10).astype(int)

    same(function, VECTOR, np.arange(-4, 5), VECTOR > 0.2)


def test_the_graph_does_not_grow_with_the_arrays():
    def operations(n):
        jaxpr = Traced(jax.hessian(lambda x: jnp.sum(jnp.cumsum(jnp.sin(x)) ** 2)), struct(n)).jaxpr
        return len(list(all_ops(Arrays(jaxpr).root)))

    assert operations(8) == operations(80)


def test_equal_operations_are_made_once_and_zeros_vanish():
    def function(x):
        return jnp.sin(x) @ jnp.sin(x) + 0 * jnp.cos(x).sum() + jnp.zeros(9) @ x

    names = [op.name for op in all_ops(Arrays(Traced(function, struct(9)).jaxpr).root)]
    assert names.count("sin") == 1
    assert "cos" not in names
    assert names.count("dot_general") == 1


def test_scans_that_do_not_change_in_a_loop_are_made_once_before_it():
    def function(x, m):
        def run(turn, row):
            return lax.scan(lambda s, r: (turn * s + r @ row, s), jnp.zeros(7), jnp.stack([m, m @ m]))[1]

        def body(_, s):
            return s + run(2.0, x).sum(0), s * run(2.0, x)[1] + run(3.0, x)[1] + run(2.0, x + s)[1]

        def both(i, pair):
            return body(i, pair[0])

        return lax.fori_loop(0, 3, both, (x, x)), run(2.0, x)

    m = np.eye(7) + 0.1 * MATRIX @ MATRIX.T
    same(function, MATRIX[:, 0], m)
    root = Arrays(Traced(function, struct(7), struct(7, 7)).jaxpr).root
    # The loop of three turns is a scan, too. The only scan in it is the one that depends on s.
    assert [op.name for op in root.ops].count("scan") == 3
    assert [op.name for op in all_ops(root)].count("scan") == 4


def test_what_cannot_be_kept_is_named():
    with pytest.raises(Unsupported, match="sort"):
        array_kernel(jnp.sort, struct(5))
    with pytest.raises(Unsupported, match="eigh"):
        array_kernel(jnp.linalg.eigvalsh, struct(5, 5))
    with pytest.raises(Unsupported, match="float32"):
        array_kernel(lambda x: x.astype(np.float32), struct(5))


# Whole runs.

CVT = da.zoo.PendulumCVT(eps=0.5)
START = tuple(map(np.asarray, CVT.start("rotating")))


@pytest.fixture
def arrays(monkeypatch):
    monkeypatch.setenv(choice.VARIABLE, "arrays")


def test_ensembles(arrays):
    """Every member is its own run, bit by bit: with parameters of its own, and rows that do not divide the steps."""
    q0, v0 = (np.tile(x, (7, 1)) for x in START)
    v0 = v0 * np.linspace(0.5, 1.5, 7)[:, None]
    eps = np.linspace(0.1, 0.7, 7)
    many = da.ensemble(
        da.zoo.PendulumCVT(eps=eps), da.FrameGradient(), q0, v0, h=0.1, steps=50, save_every=20, threads=2
    )
    assert isinstance(engines.loop_of(as_arrays(CVT), as_arrays(da.FrameGradient())), ArrayLoop)
    for k in (0, 3, 6):
        system = da.zoo.PendulumCVT(eps=eps[k])
        one = da.simulate(system, da.FrameGradient(), q0[k], v0[k], h=0.1, steps=50, save_every=20)
        for name in ("q", "v"):
            np.testing.assert_array_equal(getattr(many, name)[k], getattr(one, name))
        assert many.steps[k] == 50


def test_members_that_fail_end_alone(arrays):
    """log(y) is undefined from t = sqrt(pi/2) on for the one that falls, and never reached by the one that rises."""
    system = da.system(
        coordinates=("x", "y"),
        metric=lambda q: jnp.eye(2),
        potential=lambda q: jnp.log(q[1]),
        constraints=lambda q: jnp.array([[1.0, 0.0]]),
    )
    q0, v0 = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 0.0], [0.0, 9.0]])
    many = da.ensemble(system, da.LeapFrog(), q0, v0, h=0.05, steps=100, save_every=10)
    one = da.simulate(system, da.LeapFrog(), q0[0], v0[0], h=0.05, steps=100, save_every=10, throw=False)
    assert many.code.tolist() == [da.Status.NOT_FINITE.code, da.Status.OK.code]
    assert many.steps.tolist() == [one.steps, 100]
    # The rows after the failure hold the last state that was found.
    np.testing.assert_array_equal(many.q[0, -1], one.q[-1])


@pytest.mark.parametrize("spelling", ["frame", "dla01@4"])
def test_gradients(monkeypatch, spelling):
    """Forward and reverse, in the start, a parameter and h, as by the form of scalars, to rounding."""
    method = da.methods.method_from_text(spelling)

    def end(v, eps, h):
        sol = da.simulate(da.zoo.PendulumCVT(eps=eps), method, START[0], v, h=h, steps=20, save_every=7)
        return jnp.sum(sol.q * jnp.cos(jnp.arange(3.0)) + sol.v**2)

    arguments = jnp.asarray(START[1]), jnp.asarray(0.5), jnp.asarray(0.1)
    found = []
    for form in choice.FORMS:
        monkeypatch.setenv(choice.VARIABLE, form)
        forward = jax.jvp(end, arguments, (jnp.array([0.3, 0.0, 0.2]), jnp.asarray(1.0), jnp.asarray(-2.0)))
        found.append((jax.grad(end, (0, 1, 2))(*arguments), forward))
    # Twenty steps amplify roundings little; sums of sixty terms are taken in another order.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), *found)


def test_rows(monkeypatch):
    def function(shared, x, y):
        return {"sum": x @ y * shared, "pair": (jnp.sin(y), y), "whole": (10 * x).astype(int), "true": x > 0}

    x, y = RNG.normal(size=(2, 37, 5))
    monkeypatch.setenv(choice.VARIABLE, "arrays")
    assert isinstance(rows._kernel(function, np.float64(0.3), (x, y))[0], ArrayLoop)
    got, want = over_rows(function)(np.float64(0.3), x, y), rows._by_xla(function, np.float64(0.3), (x, y))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=32 * EPS)


def test_the_choice_can_be_made_by_hand(monkeypatch):
    monkeypatch.setenv(choice.VARIABLE, "vectors")
    with pytest.raises(ValueError, match=r"DALEMBERT_KERNELS must be one of scalars, arrays, got 'vectors'"):
        da.simulate(CVT, da.LeapFrog(), *START, h=0.1, steps=2)


def test_the_choice_is_made_by_the_number_of_operations(monkeypatch):
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    small = Traced(lambda x: jnp.outer(x, x), struct(10))
    assert small.operations == 100
    assert not choice.with_arrays(small)
    product = Traced(lambda x: x @ x, struct(70, 70))
    assert product.operations == 70**3 > choice.SCALARS
    assert choice.with_arrays(product)
