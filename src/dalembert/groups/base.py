"""The interface of a Lie group: elements as rows of numbers, its algebra, and maps from the algebra to the group."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.numerics import matvec, solve


class Group(eqx.Module):
    """A Lie group. Elements g are arrays of `size` numbers, and elements x of the algebra are arrays of `dimension`.

    Subclasses define the names, `identity`, `multiply`, `inverse`, `exp` and `local`. Everything else follows from
    these: `adjoint` (the matrix of Ad_g), `bracket` (the matrix of ad_x) and the inverse derivatives of the maps are
    computed by differentiation, and closed forms that a subclass gives in their place make runs faster. A group whose
    numbers satisfy equations, as those of a rotation do, also needs `restore` and `defect`.
    A further map tau is a method of its own name, listed in `retractions`. Its derivative is trivialised on the right:
    d/ds tau(x + s y) = (dtau_x y) tau(x). A method d<name>_inverse may give the inverse of dtau_x, as `dexp_inverse`
    does for exp. `check_group` measures whether all of this fits together.
    """

    retractions = ("exp", "cayley")
    """The names of the maps tau from the algebra to the group, with tau(0) = e, tau(x) = exp(x + O(x^2)) and
    tau(-x) = tau(x)^-1."""

    @property
    def name(self) -> str:
        """The usual name, such as SO(3)."""
        raise NotImplementedError(f"{type(self).__name__} has no name")

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the numbers that make up an element."""
        raise NotImplementedError(f"{self.name} does not name its coordinates")

    @property
    def velocities(self) -> tuple[str, ...]:
        """The names of the components of a body velocity."""
        raise NotImplementedError(f"{self.name} does not name its velocities")

    @property
    def angles(self) -> tuple[str, ...]:
        """Coordinates of period 2 pi."""
        return ()

    @property
    def size(self) -> int:
        """The number of numbers that make up an element."""
        return len(self.coordinates)

    @property
    def dimension(self) -> int:
        """The dimension of the group."""
        return len(self.velocities)

    def identity(self) -> Array:
        """The neutral element."""
        raise NotImplementedError(f"{type(self).__name__} does not define identity")

    def multiply(self, g: Array, k: Array) -> Array:
        """The product g k."""
        raise NotImplementedError(f"{type(self).__name__} does not define multiply")

    def inverse(self, g: Array) -> Array:
        """The inverse of g."""
        raise NotImplementedError(f"{type(self).__name__} does not define inverse")

    def adjoint(self, g: Array) -> Array:
        """The matrix of Ad_g, with g exp(x) g^-1 = exp(Ad_g x)."""
        back = self.inverse(g)
        return self._slope(lambda x: self.multiply(self.multiply(g, self.exp(x)), back), g)

    def bracket(self, x: Array) -> Array:
        """The matrix of ad_x, with ad_x y = [x, y]."""
        zero = jnp.zeros((), x.dtype)
        return jax.jvp(lambda s: self.adjoint(self.exp(s * x)), (zero,), (jnp.ones_like(zero),))[1]

    def exp(self, x: Array) -> Array:
        """The exponential map."""
        raise NotImplementedError(f"{type(self).__name__} does not define exp")

    def dexp_inverse(self, x: Array) -> Array:
        """The inverse of the right-trivialised derivative of exp."""
        return self._inverse_derivative(self.exp, x)

    def cayley(self, x: Array) -> Array:
        """The Cayley map (1 - x/2)^-1 (1 + x/2) of the matrix group.

        On S^3 it is the Cayley map of the rotation. It is exp on tori, and on groups where the two are the same.
        """
        return self.exp(x)

    def dcayley_inverse(self, x: Array) -> Array:
        """The inverse of the right-trivialised derivative of the Cayley map."""
        if type(self).cayley is Group.cayley:
            return self.dexp_inverse(x)
        return self._inverse_derivative(self.cayley, x)

    def retraction(self, name: str) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """The map tau of this name, and the inverse of its right-trivialised derivative."""
        if name not in self.retractions:
            raise ValueError(
                f"{self.name} has no retraction {name!r}; choose one of: {', '.join(self.retractions)}"
            )
        tau: Callable[[Array], Array] | None = getattr(self, name, None)
        if tau is None:
            raise ValueError(f"{self.name} lists the retraction {name!r}, but has no method {name}(x)")
        inverse: Callable[[Array], Array] | None = getattr(self, f"d{name}_inverse", None)
        return tau, inverse or (lambda x: self._inverse_derivative(tau, x))

    def _slope(self, curve: Callable[[Array], Array], like: Array) -> Array:
        """The derivative at zero of a map from the algebra that takes zero to the identity."""
        return jax.jacfwd(lambda x: self.local(curve(x)))(jnp.zeros(self.dimension, like.dtype))

    def _inverse_derivative(self, tau: Callable[[Array], Array], x: Array) -> Array:
        """The inverse of the right-trivialised derivative of tau, by differentiation."""
        back = self.inverse(tau(x))
        derivative = self._slope(lambda y: self.multiply(tau(x + y), back), x)
        return solve(derivative, jnp.eye(self.dimension, dtype=x.dtype))

    def local(self, g: Array) -> Array:
        """Coordinates in the algebra of an element near the identity: zero there, with local(exp(x)) = x + O(x^2)."""
        raise NotImplementedError(f"{type(self).__name__} does not define local")

    def matrix(self, g: Array) -> Array:
        """The element as a matrix; products of elements are products of matrices."""
        raise NotImplementedError(f"{type(self).__name__} does not define matrix")

    def restore(self, g: Array) -> Array:
        """The nearest element to numbers that rounding has moved off the group."""
        return g

    def defect(self, g: Array) -> Array:
        """How far the numbers are from being an element; always zero if any numbers are one."""
        return jnp.zeros((), g.dtype)

    def velocity(self, g: Array, x: Array) -> Array:
        """The derivative of the numbers of g when it moves with body velocity x: g' = g x."""
        zero = jnp.zeros((), g.dtype)
        return jax.jvp(lambda s: self.multiply(g, self.exp(s * x)), (zero,), (jnp.ones_like(zero),))[1]

    def displaced(self, g: Array, x: Array) -> Array:
        """The element g exp(x)."""
        return self.multiply(g, self.exp(x))

    def difference(self, g: Array, k: Array) -> Array:
        """Coordinates in the algebra of g^-1 k, which lies near the identity."""
        return self.local(self.multiply(self.inverse(g), k))

    def gradient(self, function: Callable[[Array], Array], g: Array) -> Array:
        """The derivative of a function of g: a covector on body velocities, or one row per value of the function."""
        zero = jnp.zeros(self.dimension, g.dtype)
        return jax.jacrev(lambda x: function(self.displaced(g, x)))(zero)


def coadjoint(group: Group, g: Array, p: Array) -> Array:
    """Ad_g^T p."""
    return matvec(group.adjoint(g).T, p)
