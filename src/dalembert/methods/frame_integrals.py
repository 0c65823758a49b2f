"""The frame discrete gradient with further integrals of the motion, which it keeps exactly."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.discrete import GRADIENTS
from dalembert.methods.base import Claims, Method, State, Status, solve_velocity
from dalembert.methods.discrete_gradient import check_gradient
from dalembert.methods.frame_gradient import carried_force, effective_potential, turning
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    acceleration,
    as_arrays,
    lower,
    nearest_frame,
    nearest_velocity,
    orthonormal_frame,
    wrong,
)
from dalembert.numerics import compiled, is_traced, matvec

Integral = Callable[[Array, Array], Array]

_FEW = 3
"""The number of coordinates up to which the equations of a step are solved with exact Jacobians."""
_FADES = (1e-9, 1e-3)
"""The relative length of what a gradient adds to those before it at which the correction for it fades, and the one at
which the return of rounding errors fades."""
_STATES = 24
"""The random states at which a function must be an integral."""
_RATE = 1e-9
"""The rate of an integral, relative to that of its terms, that rounding explains."""
_NEARLY = 1e-3
"""Below this, a step that was not solved is put down to dependent gradients."""
_RANK = 1e-7
"""Gradients count as dependent if they span less than this, relative to their sizes."""


class IntegralMemory(NamedTuple):
    """An orthonormal basis of D at q, the components of the velocity in it, and the energy and the integrals at the
    start of the run."""

    b: Array
    w: Array
    kept: Array


class FrameIntegrals(Method):
    """The frame discrete gradient that keeps given integrals of the motion beside the energy: in D, symmetric, order 2.

    `integrals` are functions of (q, v), each of them constant along every exact motion, or names of the system's own,
    `system.integrals()`; by default they are all that the system names. Functions that are no integrals are refused.
    Equations: v = B w with a frame B of D that is orthonormal for the kinetic metric, qb = (q0+q1)/2,
    wb = (w0+w1)/2, DV a symmetric discrete gradient, S as in FrameGradient:
        (q1 - q0, w1 - w0) = h (B(qb) f_q, f_w),   f = F - sum_j e_j (e_j . F),   F = (wb, S wb - B(qb)^T DV).
    DI_j is the discrete gradient of the integral I_j(q, B(q) w) along D and in w, by Gonzalez' formula
    [gonzalez1996], so that its product with the step is the change of I_j. The e_j come from the DI_j by making them
    orthonormal, one after the other, to each other and to the discrete gradient (B^T DV, wb) of the energy, which F
    is orthogonal to. The step is therefore orthogonal to all of them, so that nothing changes. Without integrals it
    is the step of FrameGradient, which changes an I_j by O(h^3); the correction is of that size. Displacements are
    divided by the time tau before they are compared with velocities. Everything is symmetric in the two ends, and the
    displacement stays in D. What rounding has changed since the start goes back in the next steps.
    For affine constraints v = B w + Z and q1 - q0 = h (B f_q + Z), as in FrameGradient, and the moving energy
    |w|^2/2 + V - |Z|^2/2 takes the place of the energy. With drift or forces, f has the same component along its
    discrete gradient as F, and those along the DI_j that return what Z has changed. The corrections are orthogonal to
    the discrete gradient of the moving energy, which therefore changes by exactly the work that it is due:
        h ((B wb) . (forces + what Z adds) + DW . Z)   with the forces at qb and B wb + Z, and W = V - |Z|^2/2.
    On groups, with position constraints and with time, Gonzalez' formula and the check of the integrals would have to
    be others; such systems are refused.
    Where the gradients of the energy and the integrals along D are dependent to nine digits, the integrals are not
    kept. The driver of a coupled system feels its passenger.
    Memory: the basis, w, and the energy and the integrals at the start.
    """

    integrals: tuple[Integral | str, ...] | None = eqx.field(
        default=None,
        static=True,
        converter=lambda x: x if x is None else (x,) if isinstance(x, str) else tuple(x),
    )
    gradient: Literal["gonzalez", "average", "itoh-abe"] = eqx.field(default="average", static=True)
    time: float = 1.0
    """tau, a time that is typical of the motion; displacements are compared with velocities times tau."""
    supports = Method.supports | {Trait.VARYING_MASS, Trait.AFFINE, Trait.FORCED}

    def __check_init__(self):
        check_gradient("FrameIntegrals", self.gradient)
        given = self.integrals
        if given is not None and not (given and all(callable(x) or isinstance(x, str) for x in given)):
            raise ValueError(
                "FrameIntegrals needs one or more functions of (q, v), as in FrameIntegrals((lambda q, v: v[1],)), or "
                f"names of the system's own integrals; got {given!r}. FrameIntegrals() keeps all that the system "
                "names, and FrameGradient() keeps the energy alone"
            )
        if given is not None and len(set(given)) < len(given):
            raise ValueError(f"FrameIntegrals needs each integral once, got {given!r}")
        if isinstance(self.time, float | int) and not 0 < self.time < np.inf:
            raise ValueError(
                f"FrameIntegrals needs a positive time, one that is typical of the motion; got {self.time!r}"
            )

    def named(self, m: Mechanics) -> dict[str, Integral]:
        """The integrals by name; the names that the method was given are looked up in the system here alone."""
        own = m.system.integrals()
        if self.integrals is None and not own:
            raise ValueError(
                f"{m.label} names no integrals, so FrameIntegrals() has none to keep: define integrals(), give "
                "functions of (q, v), as in FrameIntegrals((f,)), or take FrameGradient()"
            )
        found: dict[str, Integral] = {}
        for i, x in enumerate(own if self.integrals is None else self.integrals):
            if isinstance(x, str) and x not in own:
                raise wrong(f"integral of {m.label}", x, own)
            name = repr(x) if isinstance(x, str) else _name(x)
            found[name if name not in found else f"{name} (number {i + 1})"] = (
                own[x] if isinstance(x, str) else x
            )
        return found

    def check(self, system: System | Mechanics) -> None:
        super().check(system)
        self.named(lower(system))

    def init(self, m: Mechanics, state: State, h: Array) -> IntegralMemory:
        basis = orthonormal_frame(m, state.q)
        w = matvec(basis.T, matvec(m.metric(state.q), m.relative(state.q, state.v)))
        values = self._values(m, state.q, m.carried(state.q, matvec(basis, w)))
        return IntegralMemory(basis, w, self._kept(m, state.q, w, values))

    def _kept(self, m: Mechanics, q: Array, w: Array, values: Array) -> Array:
        """The moving energy and the integrals."""
        return jnp.concatenate([(0.5 * jnp.sum(w * w) + effective_potential(m, q))[None], values])

    def _values(self, m: Mechanics, q: Array, v: Array) -> Array:
        return jnp.stack([jnp.asarray(f(q, v), q.dtype) for f in self.named(m).values()])

    def _slopes(self, m: Mechanics, q: Array, w: Array, b: Array) -> Array:
        """The derivatives of the integrals along D and in w at (q, b w + Z), one row for each."""

        def values(x: Array, w: Array) -> Array:
            return self._moved(m, q, w, b, matvec(b, x))

        by_q, by_w = jax.jacrev(values, (0, 1))(jnp.zeros_like(w), w)
        return jnp.concatenate([by_q, by_w], axis=1)

    def _moved(self, m: Mechanics, q: Array, w: Array, b: Array, shift: Array) -> Array:
        """The integrals at q + shift and w."""
        at = q + shift
        return self._values(m, at, m.carried(at, matvec(nearest_frame(m, at, b), w)))

    def _carried(self, m: Mechanics, q: Array, w: Array, b: Array) -> Array:
        """The rates of the integrals along the drift Z."""
        nothing = jnp.zeros_like(q)
        return jax.jvp(lambda x: self._moved(m, q, w, b, x), (nothing,), (m.drift(q),))[1]

    def step(self, m: Mechanics, state: State, memory: IntegralMemory, h: Array):
        q0, b0 = state.q, memory.b
        n, r = b0.shape
        y0 = matvec(b0, memory.w)
        v0 = m.carried(q0, y0)
        mass0 = m.metric(q0)
        momentum0 = matvec(mass0, y0)
        constant = m.has_constant_metric(q0)
        values0 = self._values(m, q0, v0)
        # What rounding has changed since the start, per unit of time.
        drifts = (self._kept(m, q0, memory.w, values0) - memory.kept) / h
        if not m.conservative:  # the moving energy changes by work
            drifts = drifts.at[0].set(0.0)
        tau = jnp.asarray(self.time, q0.dtype)

        def ends(x: Array):
            """The velocities at the middle that the equations ask for, and the state at the end."""
            u, y = x[:n], x[n:]
            qb, q1 = q0 + 0.5 * h * u, q0 + h * u
            b, mass = nearest_frame(m, qb, b0), m.metric(qb)
            w0 = memory.w
            if not constant:  # as in FrameGradient, written as a change
                w0 = w0 + matvec((nearest_frame(m, q0, b) - b0).T, momentum0)
            moved, wb = matvec(b.T, matvec(mass, m.relative(qb, u))), matvec(b.T, matvec(mass, y))
            w1 = w0 + 2 * (wb - w0)
            b1 = nearest_frame(m, q1, b)
            slope = matvec(b.T, GRADIENTS[self.gradient](lambda x: effective_potential(m, x), q0, q1, mass))
            rate = -slope
            if not m.conservative:
                inside = matvec(b, wb)
                push = m.forces(qb, m.carried(qb, inside)) + carried_force(m, qb, inside)
                rate = rate + matvec(b.T, push)
            if not m.has_constant_metric(qb):
                rate = rate + turning(m, qb, b, matvec(b, wb))
            field = jnp.concatenate([wb / tau, rate])
            # The gradients in the units in which displacements count as velocities times tau.
            scale = jnp.concatenate([jnp.full(r, tau), jnp.ones(r, q0.dtype)])
            step = jnp.concatenate([h * moved, 2 * (wb - w0)]) / scale
            values1 = self._values(m, q1, m.carried(q1, matvec(b1, w1)))
            carried = self._carried(m, qb, wb, b) if Trait.AFFINE in m.traits else jnp.zeros_like(values0)
            rows = [jnp.concatenate([slope, wb]) * scale]
            changes = values1 - values0 - h * carried
            for row, change in zip(scale * self._slopes(m, qb, wb, b), changes, strict=True):
                rows.append(row + step * _ratio(change - jnp.sum(row * step), jnp.sum(step * step)))
            made: list[Array] = []
            # The products of the field with the e_j, and those of the rows, which must return what Z changes.
            along: list[Array] = []
            wanted = jnp.concatenate([jnp.zeros(1, q0.dtype), -carried])
            for row, drift, due in zip(rows, drifts, wanted, strict=True):
                rest = row
                for other, share in zip(made, along, strict=True):
                    part = jnp.sum(rest * other)
                    rest = rest - part * other
                    if not m.conservative:
                        due = due - part * share
                unit, length = _unit(rest)
                # Where the gradients become dependent, corrections fade.
                square = jnp.sum(row * row)
                kept, back = (length**2 / (length**2 + x**2 * square + number.tiny) for x in _FADES)
                # The energy needs no correction: F does the work that it is due.
                now = jnp.sum(unit * field)
                off = kept * (now - _ratio(due, length)) if made else 0.0
                field = field - unit * (off + 0.5 * back * _ratio(drift, length))
                along.append(now - off)
                made.append(unit)
            place = m.carried(qb, matvec(b, tau * field[:r]))
            return jnp.concatenate([place, matvec(b, w0 + 0.5 * h * field[r:])]), q1, b1, w1

        def equations(x: Array) -> Array:
            return x - ends(x)[0]

        number = jnp.finfo(q0.dtype)
        kick = 0.5 * h * matvec(b0, matvec(b0.T, m.potential_gradient(q0)))
        guess = jnp.concatenate([v0 - kick, y0 - kick])
        x, report = solve_velocity(equations, guess, State(q0, v0), h, kick, mass0, near_identity=n > _FEW)
        _, q1, b1, w1 = ends(x)
        return state.moved(q1, m.carried(q1, matvec(b1, w1)), h), IntegralMemory(b1, w1, memory.kept), report

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        """Refuses functions that are not integrals of the exact motion around the start, or that depend on others."""
        m = lower(as_arrays(system))
        q0, v0 = np.asarray(q0, float), np.asarray(v0, float)
        rates, rows = (np.asarray(x) for x in self._measured(m, q0, v0))
        good = np.isfinite(rates).all(axis=1)
        names = self.named(m)
        for j, name in enumerate(names):
            if good.sum() < _STATES // 2:
                raise ValueError(
                    f"the integral {name} is not finite at {_STATES - good.sum()} of {_STATES} random states around "
                    f"the start of {m.label}, so it cannot be kept"
                )
            worst = float(np.max(rates[good, j]))
            if worst > _RATE:
                raise ValueError(
                    f"{name} is not an integral of {m.label}: along the exact motion it changes at up to {worst:.2g} "
                    "of the rate of its terms, at random states around the start. FrameIntegrals keeps functions of "
                    "(q, v) that every exact motion keeps"
                )
        if max(map(_share, rows[good])) < _RANK:
            raise ValueError(
                f"the energy of {m.label} and the integrals {', '.join(names)} depend on each other: their gradients "
                "along the constraint are dependent everywhere. Leave out those that follow from the others, by naming "
                'those to keep: FrameIntegrals(("name",)), or frame:integrals=NAME on the command line'
            )

    def _measured(self, m: Mechanics, q0: np.ndarray, v0: np.ndarray) -> tuple[Array, Array]:
        """At random states, the rates of the integrals relative to their terms, and the unit gradients."""
        random = np.random.default_rng(11)
        shifts = random.uniform(-1, 1, (_STATES, len(q0)))
        shifts[0] = 0.0
        pushes = random.normal(size=(_STATES, len(q0)))
        size = max(float(np.linalg.norm(v0)), 0.1)
        return _at_states(self, m, q0 + shifts, v0 + size * pushes)

    def hint(self, trajectory: Any) -> str | None:
        if trajectory.status is not Status.NOT_SOLVED:
            return None
        m = lower(as_arrays(trajectory.system))
        q, v = (np.asarray(x)[-1:] for x in (trajectory.q, trajectory.v))
        share = _share(np.asarray(_at_states(self, m, q, v)[1])[0])
        if not share < _NEARLY:
            return None
        return (
            f"the gradients of the energy and of the integrals along the constraint are nearly dependent there (least "
            f"singular value {share:.1g}), so the integrals do not determine a step. Leave one of them out, or start "
            "elsewhere"
        )

    def claims(self, system: System) -> Claims:
        conservative = lower(system).conservative
        return Claims(2, conservative, conservative and self._even(system), on_constraint=True)

    def _even(self, system: System) -> bool:
        """Whether every integral is even or odd in v, so that reversing v maps what is kept to what is kept."""
        m = lower(as_arrays(system))
        random = np.random.default_rng(12)
        n = m.dimension
        states = [(random.uniform(-1, 1, n), random.normal(size=n)) for _ in range(12)]
        there, back = (
            np.array([self._values(m, jnp.asarray(q), jnp.asarray(sign * v)) for q, v in states])
            for sign in (1, -1)
        )
        fine = np.isfinite(there + back).all(axis=1)
        there, back = there[fine], back[fine]
        size = 1e-9 * np.max(np.abs(there) + np.abs(back), axis=0, initial=0.0)
        even, odd = (np.max(np.abs(there - sign * back), axis=0, initial=0.0) for sign in (1, -1))
        return bool(fine.any() and np.all(np.minimum(even, odd) <= size))

    def composable(self) -> str | None:
        return None

    @property
    def cli_name(self) -> str:
        """Functions and other options have no spelling; with them, the name is not that of a method."""
        given, usual = (
            self.integrals,
            self.gradient == "average" and not is_traced(self.time) and self.time == 1,
        )
        if not usual or not (given is None or all(isinstance(x, str) for x in given)):
            return "frame-integrals"
        return "frame:integrals" + ("" if given is None else f"={spelled(given)}")


# The characters that separate what a user types after frame:integrals=, and the one with which names may contain them.
_MARKS = r"([\\+@])"


def spelled(names: Sequence[Any]) -> str:
    """The names, separated by +; a backslash stands before +, @ and backslashes within a name."""
    return "+".join(re.sub(_MARKS, r"\\\1", name) for name in names)


def parts(text: str, mark: str) -> list[str]:
    """The text cut at each `mark` that has no backslash before it; backslashes stay."""
    found, letters = [""], iter(text)
    for letter in letters:
        if letter == mark:
            found.append("")
        else:
            found[-1] += letter + (next(letters, "") if letter == "\\" else "")
    return found


def read_names(text: str) -> tuple[str, ...]:
    """The names that `spelled` made the text from."""
    return tuple(re.sub(r"\\(.)", r"\1", x) for x in parts(text, "+"))


def _unit(row: Array) -> tuple[Array, Array]:
    """The row with length one, or zero, and its length."""
    square = jnp.sum(row * row)
    length = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    return row / length, jnp.where(square > 0, length, 0.0)


def _ratio(x: Array, length: Array) -> Array:
    """x / length; zero if the length is zero."""
    moving = length != 0
    return jnp.where(moving, x, 0.0) / jnp.where(moving, length, 1.0)


def _share(rows: np.ndarray) -> float:
    """How much unit gradients span: their least singular value, zero if they are more than there are dimensions."""
    if len(rows) > rows.shape[1] or not np.all(np.isfinite(rows)):
        return 0.0
    return float(np.linalg.svd(rows, compute_uv=False)[-1])


def _name(function: Integral) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "a lambda" if name == "<lambda>" else repr(name)


@compiled
def _at_states(method: FrameIntegrals, m: Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    """The rates, relative to their terms, and the unit gradients of the energy and of the integrals along D."""

    def at(q: Array, v: Array) -> tuple[Array, Array]:
        v = nearest_velocity(m, q, v)
        push, _ = acceleration(m, q, v)
        by_q, by_v = jax.jacrev(method._values, (1, 2))(m, q, v)
        terms = jnp.concatenate([by_q * v, by_v * push], axis=1)
        sizes = jnp.sum(jnp.abs(terms), axis=1)
        rates = jnp.abs(jnp.sum(terms, axis=1)) / jnp.where(sizes > 0, sizes, 1.0)
        rates = rates + 0 * method._values(m, q, v)  # not finite where they are not
        basis = orthonormal_frame(m, q)
        w = matvec(basis.T, matvec(m.metric(q), m.relative(q, v)))
        energy = jnp.concatenate([matvec(basis.T, jax.grad(lambda x: effective_potential(m, x))(q)), w])
        rows = jnp.concatenate([energy[None], method._slopes(m, q, w, basis)])
        rows = rows / jnp.sqrt(jnp.sum(rows * rows, axis=1, keepdims=True) + jnp.finfo(q.dtype).tiny)
        return rates, rows

    return jax.vmap(at)(q, v)
