"""What a Lie group is here: elements as rows of numbers, its algebra, and maps from the algebra to the group."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.numerics import matvec


class Group(eqx.Module):
    """A Lie group. Elements g are arrays of `size` numbers, elements of the algebra x of `dimension` numbers.

    Subclasses give the names, `identity`, `multiply`, `inverse`, `adjoint` (the matrix of Ad_g), `bracket` (the
    matrix of ad_x), `exp`, `dexp_inverse`, and where it differs from exp `cayley` with its `dcayley_inverse`.
    The derivative of a map tau is trivialised on the right: d/ds tau(x + s y) = (dtau_x y) tau(x); its inverse is
    what integrators need.
    """

    retractions = ("exp", "cayley")
    """Maps from the algebra to the group, with tau(-x) = tau(x)^-1."""

    @property
    def name(self) -> str:
        """The usual name, such as SO(3)."""
        raise NotImplementedError(f"{type(self).__name__} has no name")

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the numbers that make an element."""
        raise NotImplementedError(f"{self.name} does not name its coordinates")

    @property
    def velocities(self) -> tuple[str, ...]:
        """Names of the components of a body velocity."""
        raise NotImplementedError(f"{self.name} does not name its velocities")

    @property
    def angles(self) -> tuple[str, ...]:
        """Coordinates of period 2 pi."""
        return ()

    @property
    def size(self) -> int:
        """How many numbers make an element."""
        return len(self.coordinates)

    @property
    def dimension(self) -> int:
        """The dimension of the group."""
        return len(self.velocities)

    def identity(self) -> Array:
        """The neutral element."""
        raise NotImplementedError

    def multiply(self, g: Array, k: Array) -> Array:
        """The product g k."""
        raise NotImplementedError

    def inverse(self, g: Array) -> Array:
        """The inverse of g."""
        raise NotImplementedError

    def adjoint(self, g: Array) -> Array:
        """Ad_g, a square matrix: g exp(x) g^-1 = exp(Ad_g x)."""
        raise NotImplementedError

    def bracket(self, x: Array) -> Array:
        """ad_x, a square matrix: ad_x y = [x, y]."""
        raise NotImplementedError

    def exp(self, x: Array) -> Array:
        """The exponential."""
        raise NotImplementedError

    def dexp_inverse(self, x: Array) -> Array:
        """The inverse of the right-trivialised derivative of exp."""
        raise NotImplementedError

    def cayley(self, x: Array) -> Array:
        """The Cayley map (1 - x/2)^-1 (1 + x/2) of the matrix group, on S^3 that of the rotation; exp on groups where
        it is the same, and on tori."""
        return self.exp(x)

    def dcayley_inverse(self, x: Array) -> Array:
        """The inverse of the right-trivialised derivative of the Cayley map."""
        return self.dexp_inverse(x)

    def retraction(self, name: str) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """The map tau of this name, and the inverse of its right-trivialised derivative."""
        if name not in self.retractions:
            raise ValueError(
                f"{self.name} has no retraction {name!r}; choose one of: {', '.join(self.retractions)}"
            )
        return getattr(self, name), getattr(self, f"d{name}_inverse")

    def local(self, g: Array) -> Array:
        """Coordinates in the algebra of an element near the identity; their derivative there is the identity."""
        raise NotImplementedError

    def matrix(self, g: Array) -> Array:
        """The element as a matrix: products of elements are products of matrices."""
        raise NotImplementedError

    def restore(self, g: Array) -> Array:
        """The element next to numbers that rounding has moved off the group."""
        return g

    def defect(self, g: Array) -> Array:
        """How far the numbers are from making an element; zero where any numbers do."""
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
        """The derivative of a function of g, a covector for body velocities."""
        zero = jnp.zeros(self.dimension, g.dtype)
        return jax.grad(lambda x: function(self.displaced(g, x)))(zero)


def coadjoint(group: Group, g: Array, p: Array) -> Array:
    """Ad_g^T p."""
    return matvec(group.adjoint(g).T, p)
