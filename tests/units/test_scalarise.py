"""The scalariser against plain JAX: user functions, random expressions, control flow, dtypes, accuracy."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import Primitive
from plain_jax import BRANCHES, EPS, collatz, compiled, complaint, latin_points, nearby
from user_functions import FORWARD_ONLY, FUNCTIONS, STIFFNESS, positive4

from dalembert.kernels import Unsupported, scalarise

# User functions


@pytest.mark.parametrize(("name", "function", "span"), FUNCTIONS, ids=[name for name, _, _ in FUNCTIONS])
def test_user_function(name, function, span):
    """Value, gradient and Hessian at 5 points, then value and gradient of these points as a batch."""
    gradient = (jax.jacfwd if name in FORWARD_ONLY else jax.grad)(function)

    def two(q):
        return function(q), gradient(q)

    def three(q):
        return function(q), gradient(q), jax.jacfwd(gradient)(q)

    q, rng = latin_points(name, *span)
    plain = compiled(three)
    want = [plain(x) for x in q]
    moved = [[plain(m) for m in nearby(x, rng)] for x in q]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(want))
    complaints = []

    def compare(mode, i, got):
        for order, result in enumerate(got):
            where = f"{mode}, point {i}, derivative {order}"
            complaints.append(complaint(where, result, want[i][order], [m[order] for m in moved[i]]))

    single = compiled(scalarise(three))
    for i, x in enumerate(q):
        compare("single", i, single(x))
    value, slope = compiled(scalarise(two, batch=True))(q)
    assert value.shape == (5,)
    for i in range(5):
        compare("batch", i, (value[i], slope[i]))
    complaints = [c for c in complaints if c]
    assert not complaints, "\n".join(complaints)


# Random expressions

UNARY = {
    "neg": lambda a: -a,
    "sin": jnp.sin,
    "cos": lambda a: jnp.cos(2 * a),
    "tanh": jnp.tanh,
    "arctan": jnp.arctan,
    "bell": lambda a: jnp.exp(-(a**2)),
    "root": lambda a: jnp.sqrt(1 + a * a),
    "log": lambda a: jnp.log1p(a**2),
    "power": lambda a: (1.5 + jnp.sin(a)) ** 0.3,
    "cube": lambda a: jnp.tanh(a) ** 3,
    "clip": lambda a: jnp.clip(a, -0.7391, 0.8713),
    "abs": lambda a: jnp.abs(a - 0.3717),
}
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (1 + b * b),
    "arctan2": lambda a, b: jnp.arctan2(a, 1 + b**2),
    "hypot": lambda a, b: jnp.sqrt(0.1 + a**2 + b**2),
    "max": lambda a, b: jnp.maximum(a, b + 0.4127),
}
REDUCE = {
    "sum": jnp.sum,
    "mean": jnp.mean,
    "norm": lambda v: jnp.linalg.norm(v + 0.5173),
    "last": lambda v: v[-1],
    "first": lambda v: v[0],
    "logsumexp": jax.nn.logsumexp,
    "prod": lambda v: jnp.prod(jnp.cos(v)),
}
VECTOR = {
    "roll": lambda v: jnp.roll(v, 1),
    "flip": lambda v: v[::-1],
    "cumsum": jnp.cumsum,
    "matvec": lambda v: jnp.asarray(STIFFNESS[:3, :3] / 3) @ v,
    "cross": lambda v: jnp.cross(v, jnp.array([0.0, 1.0, 0.5])),
    "set": lambda v: v.at[1].set(v[0] * v[2]),
    "outer": lambda v: jnp.outer(v, v) @ jnp.array([0.3, 0.0, 1.0]),
}


def scalars(depth):
    leaf = st.integers(0, 2).map(lambda i: ("x", i)) | st.sampled_from([0.0, 1.0, -0.5, 2.0]).map(
        lambda c: ("c", c)
    )
    if depth == 0:
        return leaf
    s, v = scalars(depth - 1), vectors(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(st.just("unary"), st.sampled_from(sorted(UNARY)), s),
        st.tuples(st.just("binary"), st.sampled_from(sorted(BINARY)), s, s),
        st.tuples(st.just("where"), st.integers(0, 2), s, s),
        st.tuples(st.just("reduce"), st.sampled_from(sorted(REDUCE)), v),
        st.tuples(st.just("dot"), v, v),
        st.just(("largest",)),
    )


def vectors(depth):
    if depth == 0:
        return st.just(("all",))
    s, v = scalars(depth - 1), vectors(depth - 1)
    return st.one_of(
        st.tuples(st.just("stack"), s, s, s),
        st.tuples(st.just("vector"), st.sampled_from(sorted(VECTOR)), v),
        st.tuples(st.just("unary"), st.sampled_from(sorted(UNARY)), v),
        st.tuples(st.just("binary"), st.sampled_from(sorted(BINARY)), s, v),
    )


def evaluate(tree, x, sizes=None):
    """The value of an expression; the largest entry of each node goes to the list `sizes`."""
    kind, *rest = tree
    if kind in ("unary", "binary", "reduce", "vector"):
        name, *rest = rest
        table = {"unary": UNARY, "binary": BINARY, "reduce": REDUCE, "vector": VECTOR}[kind]
        value = table[name](*(evaluate(t, x, sizes) for t in rest))
    elif kind == "x":
        value = x[rest[0]]
    elif kind == "c":
        value = jnp.asarray(rest[0])
    elif kind == "all":
        value = x
    elif kind == "largest":  # of the variables: their ties are exact, so the derivative is the same
        value = jnp.max(x)
    elif kind == "where":
        value = jnp.where(x[rest[0]] < 0.2, evaluate(rest[1], x, sizes), evaluate(rest[2], x, sizes))
    elif kind == "dot":
        value = evaluate(rest[0], x, sizes) @ evaluate(rest[1], x, sizes)
    else:
        value = jnp.stack([evaluate(t, x, sizes) for t in rest])
    if sizes is not None:
        sizes.append(jnp.max(jnp.abs(value)))
    return value


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(scalars(5) | vectors(5).map(lambda v: ("dot", v, ("all",))))
def test_random_expressions(tree):
    """Value and gradient at a generic point and at one with a zero and a tie."""

    def both(x):
        return jax.value_and_grad(lambda y: evaluate(tree, y))(x)

    def and_largest_term(x):  # a term may be larger than the result
        sizes = []
        evaluate(tree, x, sizes)
        return *both(x), jnp.max(jnp.stack(sizes))

    plain, scalar = compiled(and_largest_term), compiled(scalarise(both))
    rng = np.random.default_rng(0)
    for x in (np.array([0.31, -0.73, 1.17]), np.array([0.0, 0.5, 0.5])):
        *want, term = plain(x)
        got, moved = scalar(x), [plain(m) for m in nearby(x, rng)]
        for order in range(2):
            near = [m[order] for m in moved] + [want[order] + EPS * term]
            problem = complaint(f"{tree} at {x}, derivative {order}", got[order], want[order], near)
            assert problem is None, problem


# What is emitted

STRUCTURE = {
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "pad", "reshape", "slice", "split", "squeeze",
    "stack", "transpose", "unstack",
}  # fmt: skip


def equations(function, *args):
    """How often each primitive occurs in a function's jaxpr, bodies of calls and loops included."""
    count = collections.Counter()

    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            inner = [v for p in eqn.params.values() for v in (p if isinstance(p, tuple | list) else [p])]
            bodies = [getattr(v, "jaxpr", v) for v in inner if hasattr(v, "jaxpr") or hasattr(v, "eqns")]
            if not bodies:
                count[eqn.primitive.name] += 1
            for body in bodies:
                walk(body)

    walk(jax.make_jaxpr(function)(*args).jaxpr)
    return count


def arithmetic(function, *args):
    """Number of equations that compute."""
    return sum(n for name, n in equations(function, *args).items() if name not in STRUCTURE)


X = np.array([0.3, -0.7, 1.1, 0.9])


def unused_input(q):
    table = jnp.cumsum(jnp.sin(jnp.arange(4.0))) @ jnp.ones((4, 2))
    return {
        "v": jnp.linalg.norm(table),
        "m": jnp.eye(2) * 3 + jnp.outer(table, table),
        "n": jnp.argmax(table),
    }


@pytest.mark.parametrize(
    "function",
    [
        unused_input,
        jax.jacfwd(lambda q: STIFFNESS @ q + 1.0),
        jax.jacrev(lambda q: jnp.cross(q[:3], jnp.array([1.0, 2.0, 3.0]))),
        jax.hessian(lambda q: 0.5 * q @ STIFFNESS @ q + jnp.sum(q)),
        jax.grad(lambda q: jnp.mean(q.reshape(2, 2).T[0] * 2.0)),
        lambda q: lax.fori_loop(0, 3, lambda i, s: s * 2.0 + i, 1.0),
    ],
)
def test_constants_fold(function):
    """A result that does not depend on the input is a constant: no arithmetic is left, only shaping."""
    assert arithmetic(scalarise(function), X) == 0
    same(function, X)


def test_subexpressions_are_shared():
    once = arithmetic(scalarise(lambda x: jnp.sin(x)), 0.7)
    square = scalarise(lambda x: jnp.sin(x) * jnp.sin(x))
    assert arithmetic(square, 0.7) <= once + 1
    assert equations(square, 0.7)["sin"] <= 1

    def energy(q):
        return jnp.sum(jnp.exp(jnp.sin(q[0] * q[1]) + jnp.sqrt(q[2] ** 2 + q[3] ** 2)) ** 2)

    def all_of_it(q):
        return energy(q), jax.grad(energy)(q), jax.jacfwd(jax.grad(energy))(q)

    parts = sum(arithmetic(scalarise(lambda q, i=i: all_of_it(q)[i]), X) for i in range(3))
    assert arithmetic(scalarise(all_of_it), X) < 0.8 * parts


def test_zeros_fold():
    """The Hessian of a separable function costs as much as its diagonal."""

    def separable(q):
        return jnp.sum(jnp.cos(q) * jnp.array([1.0, 2.0, 3.0, 4.0]))

    assert arithmetic(scalarise(jax.hessian(separable)), X) <= 2 * arithmetic(scalarise(separable), X) + 8


def test_a_long_scan_is_not_unrolled():
    def long(x):
        return lax.scan(lambda c, _: (jnp.cos(c + 0.1 * x), None), x, None, length=1000)[0]

    assert sum(equations(scalarise(long), 0.7).values()) < 500


# Unknown primitives

unknown = Primitive("unheard_of")
unknown.def_abstract_eval(lambda x: x)

UNKNOWN = {
    "sort": jnp.sort,
    "eigh": lambda q: jnp.linalg.eigh(positive4(q))[0],
    "svd": lambda q: jnp.linalg.svd(positive4(q), compute_uv=False),
    "fft": lambda q: jnp.fft.rfft(q).real,
    "pure_callback": lambda q: jax.pure_callback(
        np.cos, jax.ShapeDtypeStruct((4,), float), q, vmap_method="sequential"
    ),
    "unheard_of": unknown.bind,
}


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_primitives_are_named(name, batch):
    arg = np.stack([X, 2 * X]) if batch else X
    with pytest.raises(Unsupported, match=name) as raised:
        scalarise(lambda q: UNKNOWN[name](q * 2) + 1, batch=batch)(arg)
    assert raised.value.primitive == name


@pytest.mark.parametrize(
    "function",
    [
        jax.jit(unknown.bind),
        lambda q: lax.cond(q[0] > 0, unknown.bind, lambda x: x, q),
        lambda q: lax.scan(lambda c, _: (unknown.bind(c), None), q, None, length=1000)[0],
        lambda q: lax.while_loop(lambda c: c[0] < 0, unknown.bind, q),
        lambda q: lax.while_loop(lambda c: unknown.bind(c)[0] < 0, lambda c: c, q),
    ],
    ids=["jit", "cond", "scan", "while body", "while condition"],
)
def test_unknown_primitives_are_named_inside_control_flow(function):
    with pytest.raises(Unsupported, match="unheard_of") as raised:
        jax.jit(scalarise(function))(X)
    assert raised.value.primitive == "unheard_of"


# Trees, dtypes, control flow


def same(function, *args, batch=False, ulps=8, run=compiled):
    """Structure, shapes, dtypes and values of scalarise are those of plain JAX."""
    args = jax.tree.map(jnp.asarray, args)
    want = run(jax.vmap(function) if batch else function)(*args)
    got = run(scalarise(function, batch=batch))(*args)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        eps = np.finfo(b.dtype).eps if jnp.issubdtype(b.dtype, jnp.floating) else 0
        np.testing.assert_allclose(a, b, rtol=ulps * eps, atol=ulps * eps)
    return got


POINT = collections.namedtuple("POINT", "position label")


@pytest.mark.parametrize("batch", [False, True])
def test_trees_of_arguments_and_results(batch):
    def function(point, options, scale):
        moved = POINT(point.position * scale, None)
        return {
            "moved": moved,
            "list": [options["a"] + 1, (options["b"], ())],
            "constant": jnp.arange(3),
            "none": None,
        }

    lead = (2,) if batch else ()
    scale = np.full(lead, 2.5) if batch else 2.5
    point = POINT(np.ones((*lead, 2, 3)), None)
    args = point, {"a": np.zeros(lead, int), "b": np.ones((*lead, 2), bool)}, scale
    same(function, *args, batch=batch)
    same(function, *args, batch=batch, run=lambda f: f)
    same(lambda x: x, np.ones((*lead, 2)), batch=batch)  # an input handed through


def test_composes_with_jit_and_closures():
    def outer(a, x):
        b = jnp.sin(a)
        inner = scalarise(lambda y: jnp.sum(y * a) * b)
        many = scalarise(lambda y: y * a + b, batch=True)
        return inner(x), many(x)

    one, many = jax.jit(outer)(2.0, X)
    np.testing.assert_allclose(one, X.sum() * 2 * np.sin(2.0), rtol=1e-15)
    np.testing.assert_allclose(many, X * 2 + np.sin(2.0), rtol=1e-15)
    same(jax.jit(lambda x: jnp.sum(x) ** 2), X)


def mixed_dtypes(i, j, b, f, d):
    return {
        "int32": (
            i + 1,
            i * i,
            -i,
            i // 3,
            i % 3,
            lax.div(i, jnp.int32(3)),
            lax.rem(i, jnp.int32(3)),
            abs(i),
        ),
        "bits": (i & 5, i | 5, i ^ 5, ~i, i << 2, i >> 1, jnp.sign(i), jnp.minimum(i, 2), i**3),
        "int64": (j + 1, i + j, j // -4, j % -4, jnp.sum(i), jnp.argmax(d), jnp.cumsum(j), jnp.prod(i)),
        "bool": (b & (i > 0), ~b, b | (f > d), b ^ True, jnp.any(b), jnp.all(b), i == j, jnp.isfinite(d)),
        "float32": (
            f * 2,
            jnp.sin(f),
            f / 3,
            f**2,
            jnp.sum(f),
            jnp.exp(f) + jnp.float32(0.1) * jnp.float32(3),
        ),
        "float64": (
            f * d,
            jnp.dot(f, d),
            jnp.dot(d, i),
            jnp.where(b, f, d),
            i / 3,
            b * d,
            jnp.mean(i),
            f.astype(float),
        ),
        "cast": (
            d.astype(int),
            d.astype(jnp.int32),
            (3 * f).astype(jnp.int8),
            i.astype(jnp.float32),
            b.astype(int),
        ),
        "uint8": jnp.uint8(200) + i.astype(jnp.uint8),
        "wrap": i + jnp.int32(2**31 - 1) * jnp.int32(2) + jnp.int32(7),
    }


@pytest.mark.parametrize("batch", [False, True])
def test_dtypes_are_kept(batch):
    i, j = np.array([-7, 2, 5], np.int32), np.array([9, -2, 5], np.int64)
    f, d = np.array([0.5, -1.25, 3.0], np.float32), np.array([0.4, -2.7, 3.0])
    same(mixed_dtypes, i, j, np.array([True, False, True]), f, d, batch=batch)


EDGES = {
    "rounding": lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x), jnp.trunc(x), jnp.sign(x), lax.round(x)),
    "limits": lambda x: (jnp.maximum(x, 0.5), jnp.minimum(x, 0.5), jnp.clip(x, -1.0, 1.0), jnp.abs(x)),
    "compare": lambda x: (x > 0, x >= 0.5, x < 0, x <= -0.5, x == x, x != 0.5, jnp.isnan(x), jnp.isfinite(x)),
    "growth": lambda x: (
        jnp.exp(x),
        jnp.expm1(x),
        jnp.tanh(x),
        jnp.arctan(x),
        jnp.cosh(x),
        jax.nn.sigmoid(x),
    ),
    "roots": lambda x: (jnp.sqrt(x), jnp.log(x), jnp.cbrt(x), lax.rsqrt(x), jnp.log1p(x), 1 / x),
    "powers": lambda x: (x**2, x**-1, x**-3, x**0, x**0.5, jnp.power(x, jnp.sign(x) + 2), 2.0**x),
    "remainders": lambda x: (x % 0.75, x % -0.75, jnp.fmod(x, 0.75), lax.rem(x, -0.75), x // 0.75),
    "reductions": lambda x: (jnp.max(jnp.stack([x, 1 + x, x])), jnp.argmax(jnp.stack([x, -x, x]))),
    "angles": lambda x: (
        jnp.arctan2(x, -1.0),
        jnp.arctan2(x, x),
        jnp.arctan2(0.0, x),
        jnp.arcsin(x),
        jnp.sin(x),
    ),
    "special": lambda x: (
        jnp.nan_to_num(x),
        jnp.where(x > 0, x, jnp.nan),
        jax.nn.relu(x),
        jnp.logaddexp(x, 1.0),
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_plain_jax(name):
    """Halves, signed zeros, tiny and huge numbers, infinities, NaN, one by one and as a batch."""
    halves = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 0.75, -0.75, 1e-300, 700.0, -800.0]
    x = np.array([*halves, np.inf, -np.inf, np.nan])
    same(EDGES[name], x, batch=True)
    plain, scalar = compiled(EDGES[name]), compiled(scalarise(EDGES[name]))
    for value in x:
        for a, b in zip(scalar(value), plain(value), strict=True):
            np.testing.assert_allclose(a, b, rtol=8 * EPS, atol=8 * EPS, err_msg=str(value))


@pytest.mark.parametrize("batch", [False, True])
def test_arrays_of_no_entries(batch):
    def function(x, m):
        carry, out = lax.scan(lambda c, r: (c + jnp.sum(r), 2 * r), 1.0, m)
        joined = jnp.concatenate([x, jnp.ones(2), x])
        return (
            jnp.sum(x),
            jnp.prod(x),
            jnp.sin(x),
            m.T @ jnp.ones(0),
            joined,
            carry,
            out,
            x @ x,
            jnp.zeros((0, 2)) * 3,
        )

    lead = (3,) if batch else ()
    same(function, np.zeros((*lead, 0)), np.zeros((*lead, 0, 3)), batch=batch)


def test_while_loops_of_a_batch_end_each_in_its_time():
    n = np.array([1, 2, 7, 27, 97])
    assert same(collatz, n, batch=True).tolist() == [0, 1, 16, 111, 118]
    assert [int(compiled(scalarise(collatz))(k)) for k in n] == [0, 1, 16, 111, 118]


def test_members_that_are_done_stay_as_they_are():
    """The body would turn the finished members into NaN."""

    def function(x):
        return lax.while_loop(
            lambda s: s[0] > 1.0, lambda s: (jnp.sqrt(s[0] - 1.0), s[1] + jnp.log(s[0])), (x, 0.0)
        )

    got = same(function, np.array([0.5, 2.0, 3.7, 50.0, 1e4]), batch=True)
    assert np.isfinite(np.stack(got)).all()


def test_while_in_while_in_a_batch():
    def function(n, m):
        def outer(state):
            i, total = state
            inner = lax.while_loop(
                lambda s: s[0] < m + i, lambda s: (s[0] + 1, s[1] * 2 % 1001 + i), (0, total)
            )
            return i + 1, inner[1]

        return lax.while_loop(lambda s: s[0] < n, outer, (0, 1))

    n, m = np.array([0, 3, 1, 5, 2]), np.array([4, 0, 2, 3, 7])
    same(function, n, m, batch=True)
    same(function, 5, 3)


def test_loops_of_members_inside_a_function_end_each_in_its_time():
    """The members are those of the user's own jax.vmap. The first once decided when all of them end."""
    n = np.array([1, 2, 7, 27, 97])
    for order in (n, n[::-1]):
        assert same(jax.vmap(collatz), order).tolist() == [compiled(collatz)(k) for k in order]
    table = np.array([[1, 27, 3], [97, 2, 1]])
    assert same(jax.vmap(jax.vmap(collatz)), table)[1, 0] == 118
    assert same(jax.vmap(collatz), table, batch=True)[1, 0] == 118

    def counted(x, n):
        """A carry of which one part is the same for all members, one is a number and one a matrix."""
        shared = jnp.arange(3.0)

        def step(s):
            return s[0] + 1, s[1], jnp.cos(s[2] + x[:, None] * s[1])

        return lax.while_loop(lambda s: s[0] < n, step, (0, shared, jnp.outer(x, shared)))

    x = np.random.default_rng(1).uniform(-1, 1, (4, 2))
    same(jax.vmap(counted), x, np.array([0, 3, 7, 2]))
    same(jax.vmap(counted, (0, None)), x, 5)
    same(jax.vmap(counted, (None, 0)), x[0], np.array([4, 0, 1]))


@pytest.mark.parametrize("function", BRANCHES, ids=["cond", "switch", "double where", "division"])
def test_the_branch_not_taken_leaves_no_nan(function):
    def both(x):
        return function(x), jax.grad(function)(x)

    got = same(both, np.array([-1.0, 4.0, -0.5, 9.0, 0.25]), batch=True)
    assert np.isfinite(np.stack(got)).all()


@pytest.mark.parametrize("batch", [False, True])
def test_a_scan_of_a_thousand_steps(batch):
    def function(x):
        def step(carry, _):
            angle, rate, n = carry
            return (
                0.5 * jnp.cos(angle + 0.1 * x) + 0.3 * rate,
                jnp.tanh(angle - rate) * x / (1 + n),
                n + 1,
            ), None

        return lax.scan(step, (x, 1.0, 0), None, length=1000)[0]

    same(function, np.array([0.3, -2.0, 1.5]) if batch else 0.3, batch=batch)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("gradient", [False, True])
def test_a_long_scan_that_reads_and_keeps_is_right_or_refused(gradient, batch):
    """A thousand inputs and outputs need not fit into scalars, but then the scan must be named."""

    def path(x):
        def step(angle, noise):
            angle = 0.5 * jnp.cos(angle + noise[0]) + 0.1 * x * noise[1]
            return angle, angle

        noise = jnp.stack([jnp.sin(jnp.arange(1000.0)), jnp.cos(jnp.arange(1000.0))], axis=1)
        return lax.scan(step, x, noise, reverse=True)[1]

    function = jax.grad(lambda x: jnp.sum(path(x))) if gradient else path
    refused = None
    try:
        same(function, np.array([0.3, -2.0, 5.0]) if batch else 0.3, batch=batch, ulps=100)  # long sums
    except Unsupported as error:
        refused = error.primitive
    assert refused in (None, "scan")


@pytest.mark.parametrize("batch", [False, True])
def test_a_long_loop_over_an_array(batch):
    def function(x):
        return lax.fori_loop(
            0, 300, lambda i, s: s.at[i % 4].set(0.5 * jnp.cos(s[(i + 1) % 4]) + 0.1 * s[i % 3]), x
        )

    same(function, np.stack([X, 2 * X]) if batch else X, batch=batch)


# Sine and cosine


@pytest.mark.parametrize("batch", [False, True])
def test_large_arguments(batch):
    sizes = np.array([0.0, 1e-300, 1e-8, 1e5, 1e7, 12345678.9, 1e12, 1e15, 1e22, 1e300, np.inf, np.nan])
    x = np.concatenate([sizes, -sizes])

    def function(x):
        return jnp.sin(x), jnp.cos(x)

    run = compiled(scalarise(function, batch=batch))
    got = run(x) if batch else np.array([run(v) for v in x]).T
    for a, b in zip(got, function(x), strict=True):
        np.testing.assert_array_equal(np.isnan(a), ~np.isfinite(x))
        np.testing.assert_allclose(a, b, rtol=4 * EPS)
