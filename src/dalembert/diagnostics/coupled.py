"""Nonholonomically coupled systems: a driver moves by itself and turns the constraint of a passenger."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model import (
    TOLERANCE,
    Mechanics,
    System,
    Trait,
    as_arrays,
    check_system,
    independent_rows,
    is_linear_momentum,
    lower,
    system,
)
from dalembert.numerics import compiled, current


class Part(NamedTuple):
    """The driver or the passenger of a coupled system."""

    coordinates: tuple[str, ...]
    mass: Array
    potential: Callable[[Array], Array]
    """V(xi) or U(x)."""
    energy: Callable[[Array, Array], Array]
    """The energy of this part in a state (q, v) of the whole system."""


class CoupledSystem(eqx.Module):
    """A driver xi with potential V(xi) and a passenger x with potential U(x) and constraint A(xi) x' = 0 of corank one.

    Equations: [modin2020] Definition 2.1 and (5)-(10); with k(xi) spanning the kernel of A, k . M k = 1,
        x' = k(xi) v,   v' = -k(xi) . grad U(x),   m xi'' = -V'(xi).
    Where U = x.K x/2 - f.x with K = kappa^T kappa, y = kappa x follows the reduced system
        y' = kappa k v,   v' = -(kappa k).y + k.f.
    `CoupledSystem.of(system)` makes one from any system, after measuring whether it has this structure.
    `CoupledSystem.build` makes one from its parts. M is the identity in the paper; here it may be any constant matrix.
    """

    system: System
    index: int = eqx.field(static=True)
    """The index of the driver among the coordinates."""
    mass: Array
    """(d, d) the mass matrix of the passenger."""
    inertia: Array
    """The mass of the driver."""
    origin: Array
    """(n,) the configuration where U is zero."""
    direction: Array
    """The sign that makes the last nonzero entry of k(origin) positive."""
    kappa: Array | None
    """(m, d), of full rank; None if U is not quadratic with a semidefinite K."""
    f: Array | None
    """(d,) the constant force."""

    @classmethod
    def of(cls, system: "System | CoupledSystem", q: Any = None) -> "CoupledSystem":
        """The coupled structure of `system` around q, by default its own start.

        Raises ValueError with the reason if the system is not coupled.
        """
        if isinstance(system, CoupledSystem):
            return system
        check_system(system)
        name = system.label
        m = lower(as_arrays(system))
        if Trait.GROUP in m.traits:
            raise ValueError(
                f"{name} is not a coupled system in coordinates: it lives on {m.space.name}; "
                f"look at Chart({name}(), g)"
            )
        if Trait.TIMED in m.traits:
            raise ValueError(f"{name} is not a coupled system: it depends on time")
        if Trait.HOLONOMIC in m.traits:
            raise ValueError(f"{name} is not a coupled system: it has position constraints")
        if Trait.NONLINEAR in m.traits:
            raise ValueError(
                f"{name} is not a coupled system: its constraints are not linear in the velocity"
            )
        if Trait.INDEFINITE in m.traits:
            raise ValueError(f"{name} is not a coupled system: it declares an indefinite metric")
        q = np.asarray(system.start()[0] if q is None else q, float)
        system = as_arrays(independent_rows(system, q))
        m = lower(system)
        around = q + np.random.default_rng(4).normal(size=(8, len(q)))
        facts = jax.tree.map(np.asarray, _facts(m, np.concatenate([q[None], around])))
        if Trait.FORCED in m.traits:
            raise ValueError(f"{name} is not a coupled system: it has non-conservative forces")
        if Trait.AFFINE in m.traits:
            raise ValueError(f"{name} is not a coupled system: its constraints are affine")
        if facts["frame"][0] != 2:
            raise ValueError(
                f"{name} is not a coupled system: its velocities have {int(facts['frame'][0])} degrees of freedom, "
                "but it needs two: the driver's and one of the passenger's"
            )
        reasons = {}
        for i in reversed(range(len(q))):
            reason = _why_not(facts, i)
            if reason is None:
                return _structure(system, q, facts, i)
            reasons[system.coordinates[i]] = reason
        said = "; ".join(f"not driven by {c}: {r}" for c, r in reasons.items())
        raise ValueError(f"{name} is not a coupled system: {said}")

    @classmethod
    def build(
        cls,
        *,
        potential: Callable[[Array], Array],
        constraint: Callable[[Array], Array],
        kappa: Any = None,
        f: Any = None,
        is_angle: bool = False,
        name: str = "CoupledSystem",
    ) -> "CoupledSystem":
        """The system with V = `potential`(xi), A = `constraint`(xi) of shape (d-1, d), K = kappa^T kappa, and f."""
        shape = jax.eval_shape(constraint, jax.ShapeDtypeStruct((), float)).shape
        if len(shape) != 2 or shape[1] != shape[0] + 1:
            raise ValueError(
                f"constraint(xi) must have shape (d-1, d), so that one direction is left; got {shape}"
            )
        d = shape[1]
        kappa = np.zeros((0, d)) if kappa is None else np.atleast_2d(np.asarray(kappa, float))
        f = np.zeros(d) if f is None else np.asarray(f, float)
        for label, value, wanted in (("kappa", kappa.shape[1:], (d,)), ("f", f.shape, (d,))):
            if value != wanted:
                raise ValueError(f"{label} must act on x of length {d}, got shape {value}")
        made = system(
            coordinates=(*(f"x{i + 1}" for i in range(d)), "xi"),
            metric=lambda q: jnp.eye(d + 1),
            potential=lambda q: 0.5 * jnp.sum((kappa @ q[:d]) ** 2) - f @ q[:d] + potential(q[d]),
            constraints=lambda q: jnp.pad(constraint(q[d]), ((0, 0), (0, 1))),
            angles=("xi",) if is_angle else (),
            name=name,
        )
        return cls.of(made, np.zeros(d + 1))

    @property
    def driver(self) -> Part:
        """The part that moves by itself."""
        name = (self.system.coordinates[self.index],)
        return Part(name, self.inertia, self.driver_potential, self.driver_energy)

    @property
    def passenger(self) -> Part:
        """The part that the constraint holds."""
        names = tuple(self.system.coordinates[i] for i in self.others)
        return Part(names, self.mass, self.passenger_potential, self.passenger_energy)

    @property
    def others(self) -> np.ndarray:
        """The indices of the passenger's coordinates."""
        return np.delete(np.arange(self.system.dimension), self.index)

    @property
    def is_angle(self) -> bool:
        """Whether xi has period 2 pi."""
        return self.system.coordinates[self.index] in self.system.angles

    def place(self, x: Array, xi: Array) -> Array:
        """q (or a velocity) from its passenger and driver parts."""
        return jnp.concatenate([x[: self.index], jnp.reshape(xi, (1,)), x[self.index :]])

    def rest(self, q: Array) -> Array:
        """The passenger's part of a configuration or velocity."""
        return jnp.concatenate([q[: self.index], q[self.index + 1 :]])

    def k(self, xi: Array) -> Array:
        """(d,) the direction that the constraint leaves to the passenger, smooth in xi, with k . M k = 1."""
        k = self.direction * _kernel(self.system, self.index, self.place(self.rest(self.origin), xi))
        return k / jnp.sqrt(k @ self.mass @ k)

    def driver_potential(self, xi: Array) -> Array:
        """V(xi)."""
        return self.system.potential(self.place(self.rest(self.origin), xi))

    def passenger_potential(self, x: Array) -> Array:
        """U(x), zero at the origin."""
        xi = self.origin[self.index]
        return self.system.potential(self.place(x, xi)) - self.system.potential(self.origin)

    def driver_field(self, z: Array) -> Array:
        """The derivative of z = (xi, eta)."""
        return jnp.stack([z[1], -jax.grad(self.driver_potential)(z[0]) / self.inertia])

    def split(self, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
        """x, v = k . M x', xi, eta of a state."""
        xi = q[self.index]
        return self.rest(q), self.k(xi) @ self.mass @ self.rest(v), xi, v[self.index]

    def driver_energy(self, q: Array, v: Array) -> Array:
        """h = m eta^2/2 + V(xi)."""
        return 0.5 * self.inertia * v[self.index] ** 2 + self.driver_potential(q[self.index])

    def passenger_energy(self, q: Array, v: Array) -> Array:
        """E = x'.M x'/2 + U(x)."""
        x, u = self.rest(q), self.rest(v)
        return 0.5 * u @ self.mass @ u + self.passenger_potential(x)

    def matrix(self, xi: Array) -> Array:
        """The evolution matrix of (kappa x, v, 1), in se(m+1) [modin2020] (10)."""
        kappa, f = self.linear()
        k = self.k(xi)
        turned, m = kappa @ k, len(kappa)
        top = jnp.concatenate([jnp.zeros((m, m)), turned[:, None], jnp.zeros((m, 1))], axis=1)
        row = jnp.concatenate([-turned, jnp.zeros(1), (k @ f)[None]])
        return jnp.concatenate([top, row[None], jnp.zeros((1, m + 2))])

    def reduced_field(self, y: Array, v: Array, xi: Array, eta: Array) -> tuple[Array, Array, Array, Array]:
        """The derivatives of y = kappa x, v, xi, eta [modin2020] (9)."""
        u = self.matrix(xi) @ jnp.concatenate([y, v[None], jnp.ones(1)])
        eta, force = self.driver_field(jnp.stack([xi, eta]))
        return u[:-2], u[-2], eta, force

    def linear(self) -> tuple[Array, Array]:
        """kappa and f; raises ValueError if the passenger's potential is not quadratic."""
        if self.kappa is None or self.f is None:
            raise ValueError(
                f"the passenger potential of {self.system.label} is not x.K x/2 - f.x with a semidefinite "
                "K, so there is no linear reduced system"
            )
        return self.kappa, self.f


_AROUND = 0.1
"""The velocity, along each coordinate, for which momenta are compared with those of a kinetic energy."""


@compiled
def _facts(m: Mechanics, configurations: Array) -> dict[str, Array]:
    """The quantities that `CoupledSystem.of` needs, at each configuration."""

    def at(q):
        a = m.rows(q)
        return {
            "metric": m.metric(q),
            "forms": a,
            "turning": jax.jacfwd(m.rows)(q),
            "stiffness": jax.hessian(m.potential)(q),
            "pull": jax.grad(m.potential)(q),
            "at zero": jax.grad(m.potential)(0 * q),
            "frame": jnp.asarray(q.shape[0] - a.shape[0]),
            "momentum": jax.vmap(lambda v: m.momentum(q, v))(_AROUND * jnp.eye(q.shape[0])),
        }

    return jax.vmap(at)(configurations)


def _why_not(facts: dict[str, np.ndarray], i: int) -> str | None:
    """The reason why coordinate i does not drive the others; None if it does."""
    other = np.delete(np.arange(facts["metric"].shape[-1]), i)

    def small(x, scale):
        return np.all(np.abs(x) <= TOLERANCE * max(1.0, float(np.max(np.abs(scale)))))

    metric, stiffness = facts["metric"], facts["stiffness"]
    velocities = _AROUND * np.eye(metric.shape[-1])
    if not is_linear_momentum(metric[:, None], velocities, facts["momentum"]).all():
        return "the Lagrangian is not kinetic minus potential energy"
    if not small(metric - metric[0], metric):
        return "the mass matrix is not constant"
    if not small(metric[:, i, other], metric):
        return "the mass matrix couples it to the others"
    if not small(facts["forms"][:, :, i], facts["forms"]):
        return "the constraint holds its velocity"
    if not small(facts["turning"][..., other], facts["turning"]):
        return "the constraint depends on other coordinates"
    if not small(stiffness[:, i, other], stiffness):
        return "the potential couples it to the others"
    return None


def _structure(system: System, q: np.ndarray, facts: dict[str, np.ndarray], i: int) -> CoupledSystem:
    other = np.delete(np.arange(len(q)), i)
    metric = facts["metric"][0]
    origin = np.zeros(len(q)) if np.all(np.isfinite(facts["at zero"])) else q
    k = np.asarray(jax.jit(_kernel, static_argnums=1)(current(system), i, jnp.asarray(origin)))
    large = k[np.abs(k) > 1e-8 * np.max(np.abs(k))]
    stiffness = facts["stiffness"][:, other][:, :, other]
    bound = TOLERANCE * max(1.0, float(np.max(np.abs(stiffness))))
    kappa = f = None
    values, vectors = np.linalg.eigh(stiffness[0])
    if np.all(np.abs(stiffness - stiffness[0]) <= bound) and values[0] >= -bound:
        f = stiffness[0] @ q[other] - facts["pull"][0][other]
        kept = values > bound
        if kept.all():  # the symmetric root, so that kappa is the identity if K is
            kappa = (vectors * np.sqrt(values)) @ vectors.T
        else:
            rows = (vectors[:, kept] * np.sqrt(values[kept])).T
            largest = np.argmax(np.abs(rows), axis=1)
            kappa = rows * np.sign(rows[np.arange(len(rows)), largest])[:, None]
        f, kappa = jnp.asarray(f), jnp.asarray(kappa)
    mass, inertia = jnp.asarray(metric[np.ix_(other, other)]), jnp.asarray(metric[i, i])
    direction = jnp.asarray(np.sign(large[-1]))
    return CoupledSystem(system, i, mass, inertia, jnp.asarray(origin), direction, kappa, f)


def _kernel(system: System, i: int, q: Array) -> Array:
    """A vector in the kernel of A without column i, smooth in q: minors, or a combination of spanning vectors."""
    m = lower(system)
    if "constraints" not in m.given:
        b = m.frame(q)
        k = b[i, 1] * b[:, 0] - b[i, 0] * b[:, 1]
        return jnp.concatenate([k[:i], k[i + 1 :]])
    other = [j for j in range(system.dimension) if j != i]
    a = m.rows(q)
    rows = [[a[r, j] for j in other] for r in range(len(other) - 1)]
    minors = [_determinant([row[:j] + row[j + 1 :] for row in rows]) for j in range(len(other))]
    return jnp.stack([(-1) ** j * x for j, x in enumerate(minors)])


def _determinant(rows: list[list[Array]]) -> Array:
    """The determinant by expansion along the first row; one for no rows."""
    if not rows:
        return jnp.ones(())
    first, below = rows[0], rows[1:]
    parts = [(-1) ** j * x * _determinant([r[:j] + r[j + 1 :] for r in below]) for j, x in enumerate(first)]
    return jnp.sum(jnp.stack(parts))
