"""Groups and retractions of the user's own: they are checked, and every method on groups takes them."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from own_groups import SL2, ClosedSL2, Roller
from scipy.linalg import expm, logm

import dalembert as da
from dalembert.discrete import Retraction
from dalembert.groups import H3, SE2, Product, Torus, check_group

EPS = np.finfo(float).eps
ROLLER = Roller()


def hat(x):
    return np.array([[x[0], x[1] + x[2]], [x[1] - x[2], -x[0]]])


@pytest.mark.parametrize("group", [SL2(), H3(), Product(SE2(), Torus(2))], ids=lambda g: g.name)
def test_groups_that_are_right_pass(group):
    found = check_group(group)
    assert max(found.defects.values()) < 1e3 * EPS
    for name in group.retractions:
        assert f"{name}: derivative" in found.defects
    assert {"associative", "conjugation", "Jacobi", "matrix"} <= set(found.defects)
    assert group.name in str(found)
    assert f"{found.defects['Jacobi']:.1e}" in str(found)


def test_what_is_derived_is_what_matrices_say():
    """Ad, the bracket and the inverse derivatives that a class does not give, beside scipy's functions of matrices."""
    group, random = SL2(), np.random.default_rng(3)
    x, y = random.uniform(-0.7, 0.7, (2, 3))
    basis = [hat(e) for e in np.eye(3)]
    vee = lambda m: np.array([m[0, 0] - m[1, 1], m[0, 1] + m[1, 0], m[0, 1] - m[1, 0]]) / 2
    g = expm(hat(x))
    # A few dozen products of numbers of order one.
    np.testing.assert_allclose(group.matrix(group.exp(jnp.asarray(x))), g, atol=1e-15)
    moved = np.stack([vee(g @ e @ np.linalg.inv(g)) for e in basis], axis=1)
    np.testing.assert_allclose(group.adjoint(jnp.asarray(g.reshape(4))), moved, atol=1e-14)
    commutators = np.stack([vee(hat(x) @ e - e @ hat(x)) for e in basis], axis=1)
    np.testing.assert_allclose(group.bracket(jnp.asarray(x)), commutators, atol=1e-14)
    np.testing.assert_allclose(ClosedSL2().bracket(jnp.asarray(x)), commutators, atol=1e-15)
    # dexp^-1 from its definition, by central differences of the logarithm: 1e-10.
    step = 1e-5
    ends = [vee(logm(expm(s * step * hat(y)) @ g).real) for s in (1, -1)]
    found = group.dexp_inverse(jnp.asarray(x)) @ y
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), atol=1e-9)


class Plain(ClosedSL2):
    """With one map, to have less to compile."""

    retractions = ("exp",)


class Wrong:
    """Groups with one mistake each."""

    class Bracket(H3):
        """The other sign."""

        def bracket(self, x):
            return -super().bracket(x)

    class Adjoint(H3):
        """Transposed."""

        def adjoint(self, g):
            return super().adjoint(g).T

    class Inverse(H3):
        """Without the product."""

        def inverse(self, g):
            return -g

    class Product(H3):
        """Not associative."""

        def multiply(self, g, k):
            return super().multiply(g, k).at[2].add(0.1 * g[2] * k[2])

    class Exp(H3):
        """Right to first order only."""

        def exp(self, x):
            return x

    class Slope(H3):
        """A retraction at twice the speed."""

        retractions = ("exp", "fast")

        def fast(self, x):
            return self.exp(2 * x)

    class Lopsided(H3):
        """A retraction whose inverse is another one."""

        retractions = ("exp", "first")

        def first(self, x):
            return self.multiply(self.exp(x.at[1:].set(0.0)), self.exp(x.at[0].set(0.0)))

    class Inverted(H3):
        """The derivative trivialised on the wrong side."""

        def dexp_inverse(self, x):
            return super().dexp_inverse(-x)

    class Local(H3):
        """Coordinates at half the speed."""

        def local(self, g):
            return 0.5 * g

    class Root(H3):
        """A formula with |x|, whose derivative at zero is not a number."""

        def exp(self, x):
            size = jnp.sqrt(jnp.sum(x * x))
            return super().exp(size * jnp.where(size > 0, x / size, 0.0))

    class Blind(Plain):
        """Takes all numbers for elements."""

        def defect(self, g):
            return 0 * g[0]

    class Lazy(Plain):
        """Restores nothing."""

        def restore(self, g):
            return g

    class Shape(H3):
        """A matrix in place of a row."""

        def exp(self, x):
            return super().exp(x)[None]

    class Names(H3):
        """Two coordinates of one name."""

        coordinates = ("a", "a", "c")


WRONG = {
    Wrong.Bracket: "law 'bracket' fails, ad_x = d/ds",
    Wrong.Adjoint: "law '(conjugation|adjoint)' fails",
    Wrong.Inverse: "law 'inverse' fails, g g.-1",
    Wrong.Product: "law 'associative' fails",
    Wrong.Exp: "law 'one parameter' fails",
    Wrong.Slope: "law 'fast: slope at zero' fails, d/ds tau.s x. = x at s = 0",
    Wrong.Lopsided: "law 'first: symmetric' fails",
    Wrong.Inverted: "law 'exp: derivative' fails.*give a smaller reach if a map is singular",
    Wrong.Local: "law 'local' fails, local.e. = 0",
    Wrong.Root: "law '[a-z :]*' fails.*inf",
    Wrong.Blind: "defect.g. must show which numbers are no element",
    Wrong.Lazy: "restore.g. leaves a defect",
    Wrong.Shape: r"exp\(x\) must have shape \(3,\), got \(1, 3\)",
    Wrong.Names: "coordinates must differ from each other",
}


@pytest.mark.parametrize("kind", WRONG, ids=lambda x: x.__name__)
def test_groups_that_are_wrong_are_refused(kind):
    with pytest.raises(ValueError, match=f"(?s){WRONG[kind]}"):
        check_group(kind())


def test_arguments():
    for call, message in (
        (lambda: check_group(H3), "check_group needs a group, such as"),
        (lambda: check_group(H3(), elements=0), "elements must be a whole number"),
        (lambda: check_group(H3(), reach=-1.0), "reach must be a positive number"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()

    class Empty(da.groups.Group):
        """Nothing but names."""

        name, coordinates, velocities = "nothing", ("a",), ("v",)

    with pytest.raises(NotImplementedError, match="Empty does not define identity"):
        check_group(Empty())

    class Listed(H3):
        """Names a retraction that it does not have."""

        retractions = ("exp", "qr")

    with pytest.raises(ValueError, match=r"H3 lists the retraction 'qr', but has no method qr\(x\)"):
        check_group(Listed())


@pytest.fixture(scope="module")
def exact():
    """The motion at t = 1, by a method that shares nothing with the others but the group and the body."""
    q0, v0 = da.start(ROLLER, *ROLLER.start())[:2]
    sol = da.simulate(ROLLER, da.Reference(), q0, v0, h=1.0, steps=1)
    return q0, v0, sol.q[-1], sol.v[-1]


METHODS = {
    "LieGNI exp": da.LieGNI(),
    "LieGNI turns": da.LieGNI("turns"),
    "LieGNI cayley": da.LieGNI("cayley"),
    "VariationalDLA turns": da.VariationalDLA(Retraction("turns")),
    "FrameGradient": da.FrameGradient(),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_on_groups(name, exact):
    q0, v0, q, _ = exact
    method, errors = METHODS[name], []
    for steps in (20, 40):
        sol = da.simulate(ROLLER, method, q0, v0, h=1 / steps, steps=steps)
        errors.append(np.max(np.abs(sol.q[-1] - q)))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)  # order 2; the next order at h = 1/20
    assert np.max(np.abs(np.linalg.det(sol.elements) - 1)) < 1e-14  # restored after every product
    if method.claims(ROLLER).energy:
        assert np.ptp(sol.energy()) < 1e-13


def test_the_motion_to_machine_precision(exact):
    """Taylor's series of the user's own functions, beside the Runge-Kutta method."""
    q0, v0, q, v = exact
    sol = da.simulate(ROLLER, da.Taylor(), q0, v0, h=0.1, steps=10)
    assert np.max(np.abs(sol.q[-1] - q)) < 1e-12  # the tolerance of Reference is 1e-14 a step
    assert np.max(np.abs(sol.v[-1] - v)) < 1e-12
    assert np.ptp(sol.energy()) < 1e-13


def test_saved_and_loaded(tmp_path, exact):
    q0, v0, _, _ = exact
    sol = da.simulate(ROLLER, da.LieGNI("turns"), q0, v0, h=0.05, steps=20)
    path = tmp_path / "run.zarr"
    sol.save(path)
    for system in (None, ROLLER):
        found = da.load(path, system=system)
        np.testing.assert_array_equal(found.q, sol.q)
        assert found.method == da.LieGNI("turns")
        assert found.to_xarray().attrs["group"] == "SL(2, R)"
    assert da.load(path, system=ROLLER).elements.shape == (21, 2, 2)
    with pytest.raises(ValueError, match="has the coordinates"):
        da.load(path, system=da.zoo.Suslov())
    with pytest.raises(
        ValueError, match=r"SL\(2, R\) has no retraction 'mid'; choose one of: exp, cayley, turns"
    ):
        da.simulate(ROLLER, da.VariationalDLA(Retraction("mid")), q0, v0, h=0.1, steps=2)
    with pytest.raises(ValueError, match="q0 is not an element of SL"):
        da.simulate(ROLLER, da.LieGNI(), 1.1 * np.asarray(q0), v0, h=0.1, steps=2)
