"""The result of a run."""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int, Shaped

from dalembert.methods import Method, State, Status, parasitic_amplitude
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    acceleration,
    least_norm,
    left_out,
    lower,
    moving_energy,
    power_and_change,
    total_energy,
)
from dalembert.numerics import Numbers, Renamed, compiled, current, fingerprint, is_traced

if TYPE_CHECKING:
    import xarray


# Files and pictures are added here by the modules that make them, so that this one needs to know nothing about them.
views: dict[str, Callable[..., Any]] = {}


def residual_at(m: Mechanics, q, v):
    """The largest entry of A(q) v, or of A(q) v - b(q) if the constraints are affine, and of nonlinear constraints."""
    return jnp.max(jnp.abs(m.with_all_rows().violation(q, v)), initial=0.0)


def _off_surface(m: Mechanics, q, v):
    return jnp.max(jnp.abs(m.with_all_rows().holonomic(q)), initial=0.0)


def _multiplier(m: Mechanics, q, v):
    return least_norm(m, q, acceleration(m, q, v)[1])


@cache
def _over_rows(function: Callable) -> Callable:
    """The function at every row of one trajectory."""
    return compiled(
        lambda system, t, q, v: jax.vmap(lambda t, q, v: function(lower(system).at(t), q, v))(t, q, v)
    )


@lru_cache(maxsize=256)
def _over_members(function: Callable, varied: tuple[bool, ...], tree: Any) -> Callable:
    """The function at every row of every member."""
    axes = jax.tree.unflatten(tree, [0 if v else None for v in varied])
    rows = jax.vmap(lambda system, t, q, v: function(lower(system).at(t), q, v), (None, 0, 0, 0))
    return compiled(lambda system, t, q, v: jax.vmap(rows, (axes, 0, 0, 0))(system, t, q, v))


@compiled
def _inside(system, method, t, q, v, steps, fraction, h):
    """The states some steps after each of these and a fraction of the next one."""
    m = lower(system)

    def one(t, q, v, steps, fraction):
        state = State(q, v, t)

        def onwards(_, carry):
            return method.within(m, *carry[1:], h, fraction)

        start = (state, state, method.init(m, state, h))
        found, *_ = lax.fori_loop(0, steps + 1, onwards, start)
        return found.q, found.v

    return jax.vmap(one)(t, q, v, steps, fraction)


class Trajectory(eqx.Module):
    """The times, states and multipliers of a run, with its energy, its constraint residual and other measurements.

    Row 0 is the start. `v` satisfies the constraint, except by methods with `any_complement=True`; `v_full` is the
    method's own velocity, which differs from `v` for methods that live on all of TQ. In an ensemble the first axis of
    every array is the member, as in q (N, K, n).
    The multipliers satisfy d/dt dL/dv - dL/dq = A(q)^T lam and belong to the times `t_multipliers`, which are not
    always `t`. If only a frame describes the system, they refer to one-forms computed from it, which may change from
    row to row.
    """

    t: Float[Numbers, "*_ rows"]
    """The times, shape (K,)."""
    q: Float[Numbers, "*members rows n"]
    """The configurations, shape (K, n)."""
    v: Float[Numbers, "*members rows k"]
    """The velocities, shape (K, n), which satisfy the constraint."""
    v_full: Float[Numbers, "*members rows k"]
    """The method's own velocities, shape (K, n)."""
    lam: Float[Numbers, "*members rows m"] | None
    """The method's multipliers, shape (K, m); None stands for those of the exact motion."""
    code: Int[Numbers, "*members"]
    steps: Int[Numbers, "*members"]
    """The number of steps that succeeded."""
    residual: Float[Numbers, "*members"]
    """The size of the last correction in the Newton solve of the last step, relative to the velocity."""
    system: System | None
    method: Method | None
    h: Any
    save_every: int = eqx.field(static=True)
    varied: tuple[bool, ...] | None = eqx.field(static=True, default=None)
    """For an ensemble, which leaves of (system, method) hold one value per member."""
    stored: dict[str, Any] | None = None
    """What a file says about a run whose system is not at hand."""
    near: Float[Numbers, "*members rows n"] | None = None
    """The configurations without the full turns of their angles, shape (K, n), as the method knows them: an angle of
    many turns has lost digits. None if there are no angles."""
    fingerprint: int | None = eqx.field(static=True, default=None)
    """A fingerprint of what the system's functions read when the run was made; only functions that still read the same
    may measure the run."""
    step_data: dict[str, Shaped[Numbers, " rows *_"] | Shaped[Numbers, "_ rows *_"]] = eqx.field(
        default_factory=dict
    )
    """The method's numbers about the step that ends at a row, by name, shape (K,); EDLA's docstring lists its own."""

    told = Renamed("step_data")

    @property
    def traits(self) -> frozenset[Trait]:
        """The traits of the system; if the run was loaded without its system, those that the file says."""
        if self.system is not None:
            return lower(self.system).traits
        return frozenset(Trait[name] for name in (self.stored or {}).get("traits", ()))

    @property
    def multipliers(self) -> Float[Numbers, "*members rows m"]:
        """The multipliers of the one-forms, shape (K, m), followed by those of position constraints, if there are any.

        `velocity_multipliers` and `position_multipliers` are the two parts. If some constraints follow from others, the
        multipliers are not determined; these are the ones with the least sum of squares.
        """
        if self.lam is not None:
            return self.lam
        return self._measured("multipliers", _multiplier, self.v)

    @property
    def velocity_multipliers(self) -> Float[Numbers, "*members rows m"]:
        """The multipliers of the one-forms that the system gives, shape (K, m)."""
        found = self.multipliers
        return found[..., : found.shape[-1] - self._positions]

    @property
    def position_multipliers(self) -> Float[Numbers, "*members rows k"]:
        """The multipliers of the position constraints, shape (K, k): their force is dc^T times these."""
        found = self.multipliers
        return found[..., found.shape[-1] - self._positions :]

    @property
    def _positions(self) -> int:
        """The number of position constraints."""
        if self.system is None:
            return int((self.stored or {}).get("positions", 0))
        m = lower(self.system).at(0.0).with_all_rows()
        return jax.eval_shape(m.holonomic, jax.ShapeDtypeStruct((m.dimension,), float)).shape[0]

    @property
    def t_multipliers(self) -> Float[Numbers, "*_ rows"]:
        """The times of the rows of `multipliers`, shape (K,): `t`, or the middle or beginning of the last step.

        The multipliers of DLA, DLA01 and DiscreteGradient are means over the step that ends at the row, and so belong
        to its middle. Those of VariationalDLA and EDLA act at its beginning. Row 0 has the multipliers at the start.
        """
        if self.method is None:
            return self._stored("t_multipliers")
        shift = self.method.multiplier_shift
        if self.lam is None or not shift:
            return self.t
        h = self.step_data["h"] if self.method.variable_step else jnp.asarray(self.h)[..., None]
        after = np.arange(np.shape(self.t)[-1]) > 0
        return self._plain(self.t - shift * h * after)

    @property
    def status(self) -> Any:
        """How the run, or each member of an ensemble, ended; inside other JAX code its number, zero for success."""
        if is_traced(self.code):
            return self.code
        if np.ndim(self.code):
            return np.array(list(Status), object)[np.asarray(self.code)]
        return Status.from_code(int(self.code))

    @property
    def message(self) -> str:
        """How the run ended, in words, with the step, the time, the residual and what to try."""
        if np.ndim(self.code):
            failed = np.flatnonzero(np.asarray(self.code))
            if not failed.size:
                return f"all {len(self.code)} members reached their end"
            first = int(failed[0])
            return (
                f"{failed.size} of {len(self.code)} members did not reach their end; the first is member {first}: "
                f"{self.member(first).message}"
            )
        if self.status is Status.OK:
            return self.status.value
        reached = self.reached
        last = f"{int(self.steps):,} steps, t = {reached:.6g}"
        if self.status is Status.INTERRUPTED:
            return f"{self.status.value} after {last}; what was computed is kept"
        where = ", ".join(f"{x:.6g}" for x in np.asarray(self.q[-1]))
        own = None if self.method is None or self.system is None else self.method.hint(self)
        remedy = own or self.status.remedy
        if self.status is Status.RANK and self.system is not None and self.system.kept is not None:
            remedy += f". Left out at the start, because they followed: {left_out(self.system)}"
        return (
            f"step {int(self.steps) + 1:,} from t = {reached:.6g} failed: {self.status.value} "
            f"(residual {float(self.residual):.2g}, h = {float(self.h):g}). Last good state after {last}: "
            f"q = ({where}); it is the last row. Remedy: {remedy}"
        )

    @property
    def reached(self) -> float:
        """The time of the last good state."""
        if self.method is not None and self.method.variable_step:
            return float(self.t[-1])
        return float(self.t[0]) + int(self.steps) * float(self.h)

    def energy(self, full: bool = False) -> Float[Numbers, "*members rows"]:
        """The total energy of v, shape (K,), or with `full=True` that of the method's own velocity (for EDLA, E^+)."""
        if full and "E_plus" in self.step_data:
            return self.step_data["E_plus"]
        name, v = ("energy_full", self.v_full) if full else ("energy", self.v)
        return self._measured(name, total_energy, v, self.near)

    def moving_energy(self) -> Float[Numbers, "*members rows"]:
        """The energy minus p . Z, shape (K,), for affine constraints with drift Z.

        It is conserved if Z moves along a symmetry.
        """
        return self._measured("moving_energy", moving_energy, self.v, self.near)

    def work(self) -> Float[Numbers, "*members rows"]:
        """The work done on the system since the start by forces, affine constraints and time dependence, shape (K,).

        The energy changes by this amount. Between two rows the work is integrated from the power and its derivative at
        both, to fourth order in the time between them. It is zero if the motion conserves its energy.
        """
        if self.system is not None and lower(self.system).conservative:
            return self._plain(jnp.zeros(np.shape(self.q)[:-1]))
        found = self._measured("work", power_and_change, self.v)
        step = jnp.diff(jnp.broadcast_to(self.t, np.shape(self.q)[:-1]))
        here, change = found[..., 0], found[..., 1]
        parts = 0.5 * step * (here[..., 1:] + here[..., :-1]) + step**2 / 12 * (
            change[..., :-1] - change[..., 1:]
        )
        return self._plain(
            jnp.concatenate([jnp.zeros_like(here[..., :1]), jnp.cumsum(parts, axis=-1)], axis=-1)
        )

    def at(self, times: Any) -> tuple[Float[Numbers, "*times n"], Float[Numbers, "*times k"]]:
        """The configurations and velocities at any times of the run, shape (..., n): dense output.

        For methods whose steps are polynomials, FrameCollocation and Taylor. The step in which a time lies is taken
        once more, from the row before it. With Taylor these states are as accurate as the rows. Inside a step of s
        stages of FrameCollocation the error is of order s + 1 in h; at its ends, of order 2 s. The velocities satisfy
        the constraint everywhere.
        """
        if self.system is None or self.method is None or np.ndim(self.q) != 2 or is_traced(self.code):
            raise ValueError(
                "at(times) needs a single run with its system and method, outside other JAX code: "
                "load(..., system=, method=) for a file, member(i).at(times) for an ensemble"
            )
        if type(self.method).within is Method.within:
            raise ValueError(
                f"at(times) needs a method that has states inside its steps; {type(self.method).__name__} has none. "
                "Use FrameCollocation() or Taylor(), or save more rows"
            )
        wanted = np.asarray(times, float)
        ends = np.array([float(self.t[0]), self.reached])
        slack = 1e-9 * abs(float(self.h))
        if not wanted.size:
            return tuple(self._plain(np.zeros((*wanted.shape, np.shape(x)[-1]))) for x in (self.q, self.v))
        if not np.all((wanted >= ends.min() - slack) & (wanted <= ends.max() + slack)):
            raise ValueError(
                f"the run goes from t = {ends[0]:.12g} to {ends[1]:.12g}; at(times) got times from "
                f"{np.min(wanted):.12g} to {np.max(wanted):.12g}"
            )
        self._check_unchanged("states inside its steps")
        # Counted in steps from the start, so that the same instant always lies in the same step.
        place = np.clip((wanted.ravel() - ends[0]) / float(self.h), 0.0, int(self.steps))
        step = np.minimum(place.astype(int), max(int(self.steps) - 1, 0))
        row = step // self.save_every
        system, method = current((self.system, self.method))
        each = (
            *(np.asarray(x)[row] for x in (self.t, self.q, self.v_full)),
            step % self.save_every,
            place - step,
        )
        # Filled up with the last time, so that a few sizes serve for any number of times.
        size = 4 ** int(np.ceil(np.log2(max(wanted.size, 16)) / 2))
        filled = (np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)]) for x in each)
        found = _inside(system, method, *filled, float(self.h))
        q, v = (x[: wanted.size].reshape(*wanted.shape, -1) for x in found)
        return self._plain(q), self._plain(v)

    def constraint_residual(self) -> Float[Numbers, "*members rows"]:
        """The largest entry of A(q) v, or of A(q) v - b(q) if the constraints are affine, shape (K,)."""
        return self._measured("constraint_residual", residual_at, self.v)

    def position_residual(self) -> Float[Numbers, "*members rows"]:
        """The largest entry of c(q), the position constraints, shape (K,); zero if there are none."""
        return self._measured("position_residual", _off_surface, self.v, self.near)

    def parasitic_amplitude(self) -> Float[Numbers, "*members rows"]:
        """For a GNI or leap-frog, the size of the part of its velocity that changes sign every step, shape (K,).

        It is |u - v - (h/2) M^-1 A^T lam| in the kinetic metric, with the multipliers of the exact motion.
        """
        return parasitic_amplitude(self)

    @property
    def elements(self) -> Float[Numbers, "*members rows side side"]:
        """For a system on a Lie group, the configurations as matrices, shape (K, ...)."""
        if self.system is None or Trait.GROUP not in self.traits:
            raise ValueError(
                "elements needs a system on a Lie group; this run is in coordinates, or was loaded without its system"
            )
        matrix = jax.vmap(lower(self.system).space.matrix)
        return self._plain((jax.vmap(matrix) if np.ndim(self.q) == 3 else matrix)(jnp.asarray(self.q)))

    def member(self, i: int) -> "Trajectory":
        """Member i of an ensemble, as a trajectory of its own."""
        if np.ndim(self.q) != 3:
            raise ValueError("this is a single trajectory; only an ensemble has members")
        size = len(self.q)
        if not -size <= i < size:
            raise ValueError(f"there is no member {i}: the ensemble has {size}")
        parts = {
            name: getattr(self, name)[i, ...] for name in ("q", "v", "v_full", "code", "steps", "residual")
        }
        leaves, tree = jax.tree.flatten((self.system, self.method))
        varied = (True,) * len(leaves) if self.varied is None else self.varied
        own = jax.tree.unflatten(tree, [x[i] if v else x for x, v in zip(leaves, varied, strict=True)])
        h = self.h[i] if np.ndim(self.h) else self.h
        lam = None if self.lam is None else self.lam[i]
        t = self.t[i] if np.ndim(self.t) == 2 else self.t
        parts["step_data"] = {name: x[i] for name, x in self.step_data.items()}
        parts |= {"fingerprint": self.fingerprint, "near": None if self.near is None else self.near[i]}
        return Trajectory(t, lam=lam, **parts, system=own[0], method=own[1], h=h, save_every=self.save_every)

    def _stored(self, name: str) -> Any:
        if not self.stored or name not in self.stored:
            raise ValueError(
                f"{name} needs the system, which this trajectory was loaded without; load(..., system=)"
            )
        return self.stored[name]

    def _measured(self, name: str, function: Callable, v: Any, q: Any = None) -> Any:
        """The value of function(system, q, v) at every row (and member), or the stored value."""
        if self.system is None:
            return self._stored(name)
        self._check_unchanged(name.replace("_", " "))
        system, q = current(self.system), self.q if q is None else q
        if np.ndim(self.q) == 2:
            return self._plain(_over_rows(function)(system, self.t, q, v))
        leaves, tree = jax.tree.flatten(system)
        varied = ((True,) * len(leaves) if self.varied is None else self.varied)[
            : len(leaves)
        ]  # None: by jax.vmap
        t = jnp.broadcast_to(self.t, np.shape(self.q)[:2])
        return self._plain(_over_members(function, varied, tree)(system, t, q, v))

    def _check_unchanged(self, wanted: str) -> None:
        """Refuses to compute what is wanted if the system's functions read something else by now."""
        if self.system is not None and self.changed:
            raise ValueError(
                f"the functions of {self.system.label} have changed since this run (a global, something in a closure, "
                f"or a method that they use), so they cannot compute its {wanted}. Run it again; "
                "values that change between runs should be fields of the system, or in parameters="
            )

    @property
    def changed(self) -> bool:
        """Whether what the system's functions read has changed since the run was made."""
        return (
            self.system is not None
            and self.fingerprint is not None
            and fingerprint(self.system) != self.fingerprint
        )

    def _plain(self, x: Any) -> Any:
        return np.asarray(x) if isinstance(self.q, np.ndarray) else x

    def to_xarray(self) -> "xarray.Dataset":
        """The trajectory as an xarray dataset with named coordinates, units and provenance."""
        return views["to_xarray"](self)

    def save(self, path: Any, overwrite: bool = False) -> None:
        """Writes the trajectory to a .zarr folder or a .nc (NetCDF) file, by the suffix of `path`.

        The file is written completely or not at all. An existing trajectory is replaced only with `overwrite=True`, and
        only when the new one is complete. Anything else is never overwritten.
        """
        views["save"](self, path, overwrite)

    @property
    def plot(self) -> Any:
        """Pictures: `scene()`, `energy()`, `integrals()`, `phase()`, `path()`, `coordinates()`, `constraint()`."""
        return views["plot"](self)

    def animate(
        self,
        path: Any = None,
        *,
        frames: int = 600,
        t: tuple[float, float] | None = None,
        fps: float = 30.0,
        panels: bool = True,
    ) -> Any:
        """The run in motion, with curves of what it conserves; for a notebook, or for a .html, .gif or .mp4 file.

        A long run is shown from its start, with frames close enough together to see things turn. `t=(a, b)` shows that
        interval instead, in at most `frames` frames.
        """
        return views["animate"](self, path, frames=frames, t=t, fps=fps, panels=panels)

    def __repr__(self) -> str:
        name = self.system.label if self.system is not None else "a stored system"
        by = self.method.cli_name if self.method is not None else "a stored method"
        if np.ndim(self.q) == 3:
            n, k = np.shape(self.q)[:2]
            told = (
                ""
                if is_traced(self.code)
                else f", {int(np.sum(np.asarray(self.code) == 0))} of them to the end"
            )
            return f"<Trajectory of {n} x {name} by {by}: {k} rows each{told}>"
        return f"<Trajectory of {name} by {by}: {len(self.t)} rows, h = {self.h}, {self.status}>"


class SimulationError(RuntimeError):
    """The run could not reach its end. `trajectory` holds everything up to the last good state."""

    def __init__(self, message: str, trajectory: Any):
        super().__init__(message)
        self.trajectory = trajectory
        self.status: Status = trajectory.status
        self.step = int(trajectory.steps) + 1
        self.time = trajectory.reached + float(trajectory.h)
        self.residual = float(trajectory.residual)


class ConstraintWarning(UserWarning):
    """Some constraints follow from others. The motion is right, but the multipliers are not determined."""


class MotionWarning(UserWarning):
    """The run reached its end, but its method says that the motion is not to be trusted."""
