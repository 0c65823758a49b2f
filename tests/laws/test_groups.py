"""Laws of the Lie groups: every group x random elements, beside matrices that this file writes down itself.

The second road is linear algebra: an element is a matrix, its algebra is spanned by matrices E_i (built here from the
definition of the group), exp is scipy's expm, the bracket a commutator. The third is jaxlie, where it has the group.
"""

import functools
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb, factorial

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from hurry import compiled
from scipy.linalg import block_diag, expm

import dalembert as da
from dalembert.groups import H3, S3, SE2, SE3, SO3, Product, Rn, Torus
from dalembert.model import acceleration

EPS = np.finfo(float).eps
GROUPS = {
    "SO3": SO3(),
    "S3": S3(),
    "SE2": SE2(),
    "SE3": SE3(),
    "H3": H3(),
    "Rn": Rn(3),
    "Torus": Torus(2),
    "SE2xTorus": Product(SE2(), Torus(2)),
    "SO3xRn": Product(SO3(), Rn(2)),
    "S3xH3": Product(S3(), H3()),
}
MAPS = [(name, tau) for name, group in GROUPS.items() for tau in group.retractions]
COUNT = 12  # random elements a law
# Numbers up to about 10 (translations) go through a few dozen sums and products; 100 roundings of the largest entry.
ROUNDING = 100 * EPS

every_group = pytest.mark.parametrize("name", GROUPS)
every_map = pytest.mark.parametrize(("name", "tau"), MAPS, ids=["-".join(x) for x in MAPS])


def _basis(group) -> np.ndarray:
    """Matrices E_i that span the algebra: x stands for sum x_i E_i. From the definitions, not from the library."""

    def units(size, *entries):
        made = np.zeros((len(entries), size, size))
        for i, entry in enumerate(entries):
            for row, column, value in entry:
                made[i, row, column] = value
        return made

    if isinstance(group, Product):
        parts = [_basis(f) for f in group.factors]
        zeros = [np.zeros(p.shape[1:]) for p in parts]
        return np.array(
            [block_diag(*zeros[:i], e, *zeros[i + 1 :]) for i, part in enumerate(parts) for e in part]
        )
    turns = ((2, 1, 1), (1, 2, -1)), ((0, 2, 1), (2, 0, -1)), ((1, 0, 1), (0, 1, -1))
    if isinstance(group, SO3):
        return units(3, *turns)
    if isinstance(group, S3):  # multiplication by i/2, j/2, k/2 from the left, on (1, i, j, k)
        i = ((1, 0, 1), (0, 1, -1), (3, 2, 1), (2, 3, -1))
        j = ((2, 0, 1), (0, 2, -1), (1, 3, 1), (3, 1, -1))
        k = ((3, 0, 1), (0, 3, -1), (2, 1, 1), (1, 2, -1))
        return units(4, i, j, k) / 2
    if isinstance(group, SE2):
        return units(3, ((0, 2, 1),), ((1, 2, 1),), turns[2])
    if isinstance(group, SE3):
        return units(4, ((0, 3, 1),), ((1, 3, 1),), ((2, 3, 1),), *turns)
    if isinstance(group, H3):  # (a, b, c) is [[1, a, c], [0, 1, b], [0, 0, 1]]
        return units(3, ((0, 1, 1),), ((1, 2, 1),), ((0, 2, 1),))
    n = group.n
    if isinstance(group, Torus):
        return units(2 * n, *(((n + i, i, 1), (i, n + i, -1)) for i in range(n)))
    return units(n + 1, *(((i, n, 1),) for i in range(n)))


def _vectors(group, seed) -> jnp.ndarray:
    """Random elements of the algebra; rotations stay within a turn, where dexp has an inverse."""
    return jnp.asarray(np.random.default_rng(seed).uniform(-1.7, 1.7, (COUNT, group.dimension)))


def _hats(group, x):
    """The matrix of a vector, or of each row."""
    return np.tensordot(np.asarray(x), _basis(group), 1)


def _each(function, *arguments):
    """The function of every row, compiled in a hurry: compilation is most of the time of these tests."""
    return jax.tree.map(np.asarray, compiled(jax.vmap(function), *arguments)(*arguments))


def _agree(a, b, bound=ROUNDING, where=""):
    a, b = np.asarray(a, float), np.asarray(b, float)
    assert a.shape == b.shape, where
    assert np.all(np.isfinite(a)), where
    size = max(1.0, np.max(np.abs(b)))
    assert np.max(np.abs(a - b)) <= bound * size, (where, np.max(np.abs(a - b)) / size)


@functools.cache
def _elements(name):
    """Random elements that are no exponential of anything small, each a product of two: twice COUNT of them."""
    group = GROUPS[name]
    x = jnp.concatenate([_vectors(group, seed) for seed in (1, 2)])
    y = jnp.concatenate([_vectors(group, seed) for seed in (3, 4)])
    g = _each(lambda x, y: group.multiply(group.exp(x), group.exp(y)), x, y)
    return g[:COUNT], g[COUNT:]


@functools.cache
def _laws(name):
    """Both sides of the laws at random elements g, k, m and vectors x, y, by name."""
    group = GROUPS[name]
    (g, k), x, y = _elements(name), _vectors(group, 5), _vectors(group, 6)
    product, inverse, adjoint, matrix = group.multiply, group.inverse, group.adjoint, group.matrix

    def sides(g, k, x, y):
        e, m, gk, over = group.identity(), inverse(k), product(g, k), inverse(g)
        zero, one = jnp.zeros(()), jnp.ones(())
        ad_g, ad_k, ad_x, ad_y = adjoint(g), adjoint(k), group.bracket(x), group.bracket(y)
        return {
            "associative": (product(gk, k), product(g, product(k, k))),
            "neutral": (jnp.stack([product(g, e), product(e, g)]), jnp.stack([g, g])),
            "inverse": (jnp.stack([product(g, over), product(over, g), product(k, m)]), jnp.stack([e, e, e])),
            "matrices": (matrix(g), matrix(k), matrix(gk), matrix(over)),
            "adjoints": (ad_g, adjoint(gk), ad_g @ ad_k),
            "conjugated": (matrix(group.exp(ad_g @ x)), matrix(product(product(g, group.exp(x)), over))),
            "coadjoint": (da.groups.coadjoint(group, g, x) @ y, x @ (ad_g @ y)),
            "bracket": (ad_x, jax.jvp(lambda s: adjoint(group.exp(s * x)), (zero,), (one,))[1]),
            "antisymmetric": (ad_x @ y, -ad_y @ x),
            "jacobi": (group.bracket(ad_x @ y), ad_x @ ad_y - ad_y @ ad_x),
            "velocity": jax.jvp(matrix, (g,), (group.velocity(g, x),))[1],
        }

    return g, k, x, y, _each(sides, g, k, x, y)


@every_group
def test_it_is_a_group(name):
    group = GROUPS[name]
    g, k, *_, sides = _laws(name)
    for law in ("associative", "neutral", "inverse"):
        _agree(*sides[law], where=law)
    assert g.shape[1] == group.size == len(group.coordinates)
    assert len(group.velocities) == group.dimension
    assert set(group.angles) <= set(group.coordinates)
    assert np.min(np.max(np.abs(g - k), axis=1)) > 0.01  # the random elements differ


@every_group
def test_matrices_multiply_as_elements_do(name):
    a, b, product, inverse = _laws(name)[-1]["matrices"]
    _agree(product, a @ b)
    _agree(inverse, np.linalg.inv(a))
    one = GROUPS[name].matrix(GROUPS[name].identity())
    assert np.array_equal(one, np.eye(a.shape[-1]))


@every_group
def test_adjoint_is_conjugation(name):
    group = GROUPS[name]
    *_, x, _, sides = _laws(name)
    adjoint, product, apart = sides["adjoints"]
    a = sides["matrices"][0]
    _agree(product, apart)
    _agree(*sides["conjugated"])
    moved = np.einsum("kij,kj->ki", adjoint, np.asarray(x))
    _agree(_hats(group, moved), a @ _hats(group, x) @ np.linalg.inv(a))
    _agree(*sides["coadjoint"])


@every_group
def test_bracket_is_a_commutator_and_the_derivative_of_the_adjoint(name):
    group = GROUPS[name]
    *_, x, y, sides = _laws(name)
    bracket, derivative = sides["bracket"]
    _agree(bracket, derivative)
    a, b = _hats(group, x), _hats(group, y)
    _agree(_hats(group, np.einsum("kij,kj->ki", bracket, np.asarray(y))), a @ b - b @ a)
    _agree(*sides["antisymmetric"])
    _agree(*sides["jacobi"])


@every_group
def test_velocity_is_the_derivative_of_the_numbers(name):
    """The matrix of g moves by g x^."""
    *_, x, _, sides = _laws(name)
    _agree(sides["velocity"], sides["matrices"][0] @ _hats(GROUPS[name], x))


def _map(group, tau):
    """The retraction by the independent road: a function from a vector to a matrix."""
    if isinstance(group, Product):
        ends = np.cumsum([0, *(f.dimension for f in group.factors)])
        parts = [_map(f, tau) for f in group.factors]
        return lambda x: block_diag(
            *(part(x[a:b]) for part, a, b in zip(parts, ends, ends[1:], strict=False))
        )
    if tau == "mid" and isinstance(group, SE2):  # half the turn, the way, the other half
        turn, slide = np.array([0, 0, 0.5]), np.array([1, 1, 0])
        return lambda x: (
            expm(_hats(group, turn * x)) @ expm(_hats(group, slide * x)) @ expm(_hats(group, turn * x))
        )
    if tau == "cayley" and isinstance(
        group, S3
    ):  # (1, x/2) made a unit quaternion; it covers that of SO(3), below
        return lambda x: (np.eye(4) + _hats(group, x)) / np.sqrt(1 + x @ x / 4)
    if tau == "cayley" and not isinstance(group, Torus):  # an abelian group, whose angles stay as they are

        def cayley(x):
            half, one = _hats(group, x) / 2, np.eye(len(_basis(group)[0]))
            return np.linalg.solve(one - half, one + half)

        return cayley
    return lambda x: expm(_hats(group, x))


@functools.cache
def _map_laws(name, tau):
    """What the tests of a map tau compare, at random vectors x and y."""
    group = GROUPS[name]
    (map_, inverse), x, y = group.retraction(tau), _vectors(group, 7), _vectors(group, 8)

    def sides(x, y):
        ahead, behind = inverse(x), inverse(-x)
        value, moved = jax.jvp(lambda x: group.matrix(map_(x)), (x,), (ahead @ y,))
        return {
            "matrix": value,
            "moved": moved,
            "minus": (map_(-x), group.inverse(map_(x))),
            "ends": (group.adjoint(map_(x)).T @ ahead.T, behind.T, ahead.T),
        }

    return x, y, _each(sides, x, y)


@every_map
def test_maps_are_those_of_matrices(name, tau):
    x, _, sides = _map_laws(name, tau)
    _agree(sides["matrix"], np.array([_map(GROUPS[name], tau)(y) for y in np.asarray(x)]))


@every_map
def test_maps_turn_minus_into_inverse(name, tau):
    _agree(*_map_laws(name, tau)[-1]["minus"])


@every_map
def test_derivatives_are_trivialised_on_the_right(name, tau):
    """d/ds tau(x + s z) = y^ tau(x) for z = dtau^-1_x y."""
    _, y, sides = _map_laws(name, tau)
    # dexp^-1 grows towards its pole at 2 pi: up to 3 here, on each side of the product.
    _agree(sides["moved"], _hats(GROUPS[name], y) @ sides["matrix"], bound=10 * ROUNDING)


@every_map
def test_adjoint_carries_one_side_to_the_other(name, tau):
    """Ad_tau(x)^T (dtau^-1_x)^T = (dtau^-1_{-x})^T: both ends of a flight give its momentum."""
    left, right, other = _map_laws(name, tau)[-1]["ends"]
    _agree(left, right, bound=10 * ROUNDING)  # as above
    if not isinstance(GROUPS[name], Rn):
        assert np.max(np.abs(other - right)) > 0.1  # the side matters


@every_map
def test_maps_begin_at_the_identity_along_the_vector(name, tau):
    group = GROUPS[name]
    map_, inverse = group.retraction(tau)

    def start(x):
        return (
            map_(x),
            inverse(x),
            group.local(group.identity()),
            jax.jacfwd(lambda x: (group.matrix(map_(x)), group.local(map_(x))))(x),
        )

    value, one, origin, (matrix, local) = (
        jax.tree.map(lambda a: a[0], part) for part in _each(start, jnp.zeros((1, group.dimension)))
    )
    assert np.array_equal(value, group.identity())
    assert np.array_equal(one, np.eye(group.dimension))
    assert np.array_equal(origin, np.zeros(group.dimension))
    # Derivatives at zero are products of zeros, ones and halves.
    _agree(np.moveaxis(matrix, -1, 0), _basis(group), bound=EPS)
    _agree(local, np.eye(group.dimension), bound=EPS)


@pytest.mark.parametrize("tau", ["exp", "cayley"])
def test_quaternions_cover_rotations(tau):
    x, g = _vectors(S3(), 17), _elements("S3")[0]
    over, under, one, other = _each(
        lambda x, g: (
            S3().adjoint(getattr(S3(), tau)(x)),
            SO3().matrix(getattr(SO3(), tau)(x)),
            S3().adjoint(g),
            S3().adjoint(-g),
        ),
        x,
        g,
    )
    _agree(over, under)
    assert np.array_equal(one, other)
    # A whole turn is the other quaternion over the identity; 2 pi is rounded.
    turn = _each(S3().exp, jnp.array([[0.0, 0.0, 2 * np.pi]]))
    _agree(turn, np.array([[-1.0, 0.0, 0.0, 0.0]]))


# Groups whose numbers satisfy equations.
CURVED = ("SO3", "S3", "SE3", "SO3xRn", "S3xH3")


@every_group
def test_restore_brings_back(name):
    group, g = GROUPS[name], _elements(name)[0]
    off = g + np.random.default_rng(9).uniform(-1e-9, 1e-9, g.shape)

    def sides(g, off):
        back = group.restore(off)
        return group.defect(off), group.defect(back), back, group.restore(g), group.defect(g)

    before, after, back, same, own = _each(sides, g, off)
    if name in CURVED:
        assert np.min(before) > 1e-11  # the perturbation shows
    else:
        assert np.max(before) == 0  # any numbers make an element
        assert np.array_equal(back, off)
    # One Newton step squares 1e-9; what is left is the rounding of a sum of three products.
    assert np.max(after) < 8 * EPS
    assert np.max(np.abs(back - g)) < 4e-9  # and it is the element near by
    _agree(same, g, bound=8 * EPS)
    assert np.max(own) < 16 * EPS  # a product of two exponentials, as above


def test_defects_of_what_is_no_element_are_large():
    one = np.eye(3)
    wrong = {
        "stretched": (SO3(), 2 * one),
        "sheared": (SO3(), one + 0.3 * np.eye(3, k=1)),
        "zero": (SO3(), 0 * one),
        "reflected": (SO3(), np.diag([1.0, 1.0, -1.0])),
        "reflected everywhere": (SO3(), -one),
        "a long quaternion": (S3(), np.array([1.0, 1.0, 0.0, 0.0])),
        "no quaternion": (S3(), np.zeros(4)),
        "a motion with a reflection": (SE3(), np.append(np.ones(3), np.diag([-1.0, 1.0, 1.0]))),
        "one factor of two": (Product(SE2(), S3()), np.array([1.0, 2.0, 3.0, 1.1, 0.0, 0.0, 0.0])),
        "not a number": (SO3(), np.full(9, np.nan)),
    }
    for name, (group, numbers) in wrong.items():
        assert not float(group.defect(jnp.asarray(numbers).reshape(-1))) < 0.2, name


@pytest.mark.parametrize("name", ["SO(3)", "S^3"])
@pytest.mark.parametrize("tau", ["exp", "cayley"])
def test_a_million_products_stay_on_the_group(name, tau):
    """Newton's step after every product leaves the rounding of one product, however many there were."""
    body = da.zoo.RoundBody(group=name)
    sol = da.simulate(body, da.LieGNI(tau), *body.start(), h=0.1, steps=1_000_000, save_every=250_000)
    defects = _each(body.group.defect, jnp.asarray(sol.q))
    assert sol.steps == 1_000_000
    assert np.max(defects) < 1e-13
    assert np.max(np.abs(sol.q[-1] - sol.q[0])) > 0.1
    # Theorem 1 of [ferraro2008]: exact; roundings of a random walk of 1e6 steps, ten times.
    energy = sol.energy(full=True)
    assert np.max(np.abs(energy / energy[0] - 1)) < 10 * 1e3 * EPS


def test_products_without_restoring_leave_the_group():
    """What the test above would say if nothing were restored."""
    group = SO3()
    w = group.exp(jnp.array([0.03, -0.05, 0.07]))
    g = jax.jit(
        lambda: jax.lax.fori_loop(0, 1_000_000, lambda _, g: group.multiply(g, w), group.identity())
    )()
    assert float(group.defect(g)) > 1e-13


def _decimals(x):
    return np.vectorize(Decimal, otypes=[object])(np.asarray(x, float))


@functools.cache
def _bernoulli(k):
    return Fraction(k == 0) - sum((comb(k, j) * _bernoulli(j) / (k - j + 1) for j in range(k)), Fraction(0))


FEW = 9  # at an angle of 1e-3 the first term left out is below 1e-27
EXP = [Fraction(1, factorial(k)) for k in range(FEW)]
DEXP_INVERSE = [_bernoulli(k) / factorial(k) for k in range(FEW)]


def _exactly(coefficients, x, *along):
    """A power series of a matrix with 50 digits, its derivative along y, its second along y and z.

    f([[X, Y], [0, X]]) is [[f(X), f'(X) Y], [0, f(X)]]; the same again gives second derivatives.
    """
    n = len(x)
    with localcontext() as context:
        context.prec = 50
        for y in along:
            same = np.kron(_decimals(np.eye(len(x) // n)), y)
            x = np.block([[x, same], [0 * x, x]])
        total, one = 0 * x, _decimals(np.eye(len(x)))
        for c in reversed(coefficients):
            total = total @ x + one * (Decimal(c.numerator) / Decimal(c.denominator))
    total = total.astype(float)
    return [total[:n, k * n : (k + 1) * n] for k in ((0, 1, 3) if len(along) == 2 else (0, 1))]


SMALL = (0.0, 1e-9, 1e-7, 1e-5, 1e-4, 1e-3)


@functools.cache
def _jets(name):
    """exp with two derivatives and dexp^-1 with one, at vectors of all small angles; those vectors."""
    group = GROUPS[name]
    x, y, z = np.random.default_rng(28).uniform(-1, 1, (3, group.dimension))
    turning = np.arange(group.dimension) >= {"SO3": 0, "S3": 0, "SE2": 2, "SE3": 3}[name]

    def jets(x, turn):
        first = lambda x: jax.jvp(lambda x: group.matrix(group.exp(x)), (x,), (y,))
        second = jax.jvp(lambda x: first(x)[1], (x,), (z,))[1]
        return (*first(x), second), jax.jvp(group.dexp_inverse, (x,), (y,)), group.local(group.exp(turn))

    x = np.where(turning, np.multiply.outer(SMALL, x), x)  # translations stay of size one
    turn = np.where(turning, x, 0)
    return x, y, z, turn, _each(jets, x, turn)


@pytest.mark.parametrize("name", ["SO3", "S3", "SE2", "SE3"])
@pytest.mark.parametrize("angle", SMALL)
def test_small_angles(name, angle):
    """exp with two derivatives and dexp^-1 with one, beside power series with 50 digits."""
    group, k = GROUPS[name], SMALL.index(angle)
    x, y, z, turn, (exp, inverse, local) = _jets(name)
    brackets = np.array([group.bracket(e) for e in jnp.eye(group.dimension)])
    hats, ads = (
        [_decimals(np.tensordot(v, basis, 1)) for v in (x[k], y, z)] for basis in (_basis(group), brackets)
    )
    # Values up to about one, sums of a few terms of that size.
    for found, expected in zip(exp, _exactly(EXP, *hats), strict=True):
        _agree(found[k], expected, bound=8 * EPS)
    for found, expected in zip(inverse, _exactly(DEXP_INVERSE, *ads[:2]), strict=True):
        _agree(found[k], expected, bound=8 * EPS)
    # The vector of a small rotation has relative accuracy, however small: sin(t)/t and four roundings.
    np.testing.assert_allclose(local[k], turn[k], rtol=3 * angle**2 / 6 + 4 * EPS, atol=0)


LIE = {"SO3": (SO3(), jaxlie.SO3), "SE2": (SE2(), jaxlie.SE2), "SE3": (SE3(), jaxlie.SE3)}


@pytest.mark.parametrize(("group", "other"), LIE.values(), ids=LIE)
def test_jaxlie_agrees(group, other):
    """At angles from 0.6 to 2.9, where jaxlie is good to rounding (docs/groups.py measures where it is not)."""
    random = np.random.default_rng(29)
    turning = 1 if isinstance(group, SE2) else 3
    w = random.normal(size=(COUNT, turning))
    w *= (random.uniform(0.6, 2.9, COUNT) / np.linalg.norm(w, axis=1))[:, None]
    x = jnp.asarray(np.concatenate([random.normal(size=(COUNT, group.dimension - turning)), w], axis=1))

    def both(x):
        g, k = group.exp(x), other.exp(x)
        ours = group.matrix(g), group.adjoint(g), group.matrix(group.inverse(g)), group.dexp_inverse(x)
        # jlog is the inverse derivative on the left; the one on the right is that of the inverse.
        return ours, (k.as_matrix(), k.adjoint(), k.inverse().as_matrix(), k.inverse().jlog())

    for found, expected in zip(*_each(both, x), strict=True):
        _agree(found, expected)
    if isinstance(group, SO3):
        quaternions = _each(lambda x: (S3().exp(x), other.exp(x).wxyz), x)
        _agree(*quaternions)


@pytest.mark.parametrize("names", [("R1", "T1"), ("SE2", "SE2"), ("nested", "nested")])
def test_names_in_products_differ(names):
    kinds = {"R1": Rn(1), "T1": Torus(1), "SE2": SE2(), "nested": Product(Rn(1), Rn(1))}
    group = Product(*(kinds[name] for name in names))
    assert len(set(group.coordinates)) == group.size
    assert len(set(group.velocities)) == group.dimension
    if names == ("SE2", "SE2"):
        assert group.angles == ("theta_1", "theta_2")


def test_products_of_products_are_products():
    """The same maps, however the factors are put into brackets."""
    x = jnp.linspace(-0.9, 1.1, 7)
    flat = Product(SE2(), SE2(), Torus(1))
    nested = Product(Product(SE2(), SE2()), Torus(1))
    assert nested.retractions == flat.retractions == ("exp", "cayley", "mid")
    for tau in flat.retractions:
        for a, b in zip(flat.retraction(tau), nested.retraction(tau), strict=True):
            assert np.array_equal(a(x), b(x)), tau
        assert np.array_equal(getattr(flat, tau)(x), flat.retraction(tau)[0](x)), tau


def test_wrong_groups_are_refused():
    with pytest.raises(ValueError, match=r"SO\(3\) has no retraction 'mid'; choose one of: exp, cayley"):
        SO3().retraction("mid")
    with pytest.raises(ValueError, match=r"SE\(2\) has no retraction 'log'; choose one of: exp, cayley, mid"):
        SE2().retraction("log")
    with pytest.raises(
        ValueError, match=r"SO\(3\) x R\^2 has no retraction 'mid'; choose one of: exp, cayley"
    ):
        GROUPS["SO3xRn"].retraction("mid")
    for factors in ((), (SO3(),), (SO3(), 3), (SO3, Rn(2))):
        with pytest.raises(ValueError, match=r"two groups or more, such as Product\(SE2\(\), Torus\(2\)\)"):
            Product(*factors)
    for kind in (Rn, Torus):
        for n in (0, -1, 1.5, "2"):
            with pytest.raises(
                ValueError, match=f"{kind.__name__} needs a dimension of at least 1, got {n!r}"
            ):
                kind(n)


def test_starts_off_the_group_are_refused():
    suslov, method = da.zoo.Suslov(), da.LieGNI()
    q0, v0 = suslov.start()
    for wrong in (1.01 * q0, -q0, q0.at[0].set(0.0)):
        with pytest.raises(
            ValueError, match=r"q0 is not an element of SO\(3\): it is off by .* as in \[1\.0, 0\.0"
        ):
            da.simulate(suslov, method, wrong, v0, h=0.1, steps=2)
    with pytest.raises(ValueError, match=r"q0 must have shape \(9,\), one value for each of \(R11"):
        da.simulate(suslov, method, q0.reshape(3, 3), v0, h=0.1, steps=2)
    with pytest.raises(ValueError, match=r"v0 must have shape \(3,\), one value for each of \(w1, w2, w3\)"):
        da.simulate(suslov, method, q0, q0, h=0.1, steps=2)
    almost = q0 + 1e-13  # what another program may have rounded
    assert da.simulate(suslov, method, almost, v0, h=0.1, steps=2).steps == 2


def test_ensembles_name_the_member_off_the_group():
    suslov, method = da.zoo.Suslov(), da.LieGNI()
    q0, v0 = suslov.start()
    with pytest.raises(ValueError, match=r"q0 is not an element of SO\(3\) for 2 members \(1, 3\)"):
        da.ensemble(suslov, method, jnp.stack([q0, 1.1 * q0, q0, -q0]), v0, h=0.1, steps=2)
    with pytest.raises(ValueError, match=r"violates the constraint A\(q0\) v0 = 0 for 1 member \(1\)"):
        da.ensemble(suslov, method, q0, jnp.stack([v0, v0 + 0.1]), h=0.1, steps=2)


COORDINATE_METHODS = (
    da.GNI(), da.LeapFrog(), da.DLA(0.5), da.DLA01(), da.DiscreteGradient(), da.VariationalDLA(),
    da.Composition(da.DLA01(), 4),
)  # fmt: skip


@pytest.mark.parametrize("method", COORDINATE_METHODS, ids=lambda m: m.cli_name)
def test_methods_in_coordinates_refuse_groups(method):
    suslov = da.zoo.Suslov()
    names = ["FrameGradient()", "LieGNI()", 'VariationalDLA(Retraction("exp"))']
    # The nearest relative first.
    relatives = {da.GNI: 1, da.VariationalDLA: 2}
    names.insert(0, names.pop(relatives.get(type(method), 0)))
    message = (
        f"Suslov lives on the group SO(3). Use {', '.join(names)} or Reference(), or coordinates near one "
        "configuration: Chart(Suslov(), q0)"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        da.simulate(suslov, method, *suslov.start(), h=0.1, steps=2)


def test_the_remedies_work():
    """Two that the message above recommends, beside the exact motion."""
    suslov = da.zoo.Suslov()
    q0, v0 = suslov.start()
    exact = suslov.solution([1.0], q0, v0)[0][0]
    chart = da.Chart(suslov, q0)
    charted = da.simulate(chart, da.FrameGradient(), jnp.zeros(3), v0, h=0.01, steps=100)
    for method in (da.LieGNI(), da.FrameGradient()):
        plain = da.simulate(suslov, method, q0, v0, h=0.01, steps=100)
        assert np.max(np.abs(plain.q[-1] - exact)) < 1e-4
    # Order 2: h^2 = 1e-4 times constants below 1.
    assert np.max(np.abs(chart.element(jnp.asarray(charted.q[-1])) - exact)) < 1e-4


class Heavy(da.zoo.Suslov):
    """Suslov's body in a potential."""

    def potential(self, g):
        return 0.4 * g[0] - 0.3 * g[5]


class Driven(Heavy):
    """The same with a torque."""

    def forces(self, g, xi):
        return 0.7 * jnp.array([1.0, -0.5, 0.2])


@pytest.mark.parametrize(
    ("body", "base", "message"),
    [
        (Driven(), SO3().identity(), r"Chart carries no forces, but Driven gives some.*Reference\(\)"),
        (Heavy(), 2 * SO3().identity(), r"the base is not an element of SO\(3\)"),
        (Heavy(), jnp.zeros(3), r"the base is not an element of SO\(3\)"),
        (da.zoo.KnifeEdge(), jnp.zeros(3), "Chart needs a GroupSystem"),
    ],
)
def test_charts_that_cannot_be(body, base, message):
    with pytest.raises(ValueError, match=message):
        da.Chart(body, base)


def test_charts_accelerate_as_the_body_does():
    """At its base, where x' is the body velocity and x'' its derivative."""
    body = Heavy()

    def both(x, v):
        g = SO3().exp(x)
        chart = da.Chart(body, g)
        return acceleration(chart, jnp.zeros(3), v)[0], acceleration(body, g, v)[0]

    _agree(*_each(both, jnp.array([[0.3, -0.5, 0.8]]), jnp.array([[1.0, 0.5, 0.0]])))


def test_lie_gni_refuses_coordinates_and_unknown_maps():
    knife = da.zoo.KnifeEdge()
    message = (
        "KnifeEdge is given in coordinates. Use GNI(), FrameGradient(), VariationalDLA(), EDLA() or Reference(), "
        "or write the system as a GroupSystem"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        da.simulate(knife, da.LieGNI(), *knife.start(), h=0.1, steps=2)
    suslov = da.zoo.Suslov()
    with pytest.raises(ValueError, match=r"SO\(3\) has no retraction 'mid'; choose one of: exp, cayley"):
        da.simulate(suslov, da.LieGNI("mid"), *suslov.start(), h=0.1, steps=2)
