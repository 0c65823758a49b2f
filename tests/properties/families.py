"""Families of random systems of every kind that the library takes.

A family has one structure and random coefficients: its members are parameters of one class, so they compile once.
Its functions are written once, as `function(xp, p, t, q)`, for JAX (one member, what the library is given) and for
NumPy (all members at once, what `plain` derives the equations from); how equations come from them is written twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import SimpleNamespace, new_class
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from properties import plain
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

import dalembert as da

MASS_ONLY = ("leapfrog", "leapfrog:momentum", "dla", "dla:0.3", "dla01", "dd", "dd:average", "dd:itoh-abe")
MASS_ONLY_COMPOSED = ("dla01@4", "dd@4")
ANY_METRIC = (
    "gni", "gni:trapezoidal", "gni:exact", "gni:restart=20", "dla-variational", "dla-variational:trapezoidal",
    "dla-variational:left", "dla-variational:gauss=2", "edla",
)  # fmt: skip
VELOCITIES_ALONE = ("leapfrog", "leapfrog:momentum", "dd", "dd:average", "dd:itoh-abe", "dd@4", "edla")
"""Those that refuse position constraints."""
FRAMES = ("frame", "frame:gonzalez", "frame:itoh-abe", "frame@4")
BODIES = (
    "lie-gni", "lie-gni:cayley", "dla-variational:exp", "dla-variational:cayley", "dla-variational:cayley@4"
)  # fmt: skip
EVERY = (
    *MASS_ONLY,
    *MASS_ONLY_COMPOSED,
    *ANY_METRIC,
    "dla-variational@4",
    *FRAMES,
    *BODIES,
    "chetaev",
    "reference",
)


def wave(xp: Any, w: dict[str, Any], t: Any, q: Any, rank: int = 0) -> Any:
    """The sum over j of c_j sin(k_j . q + nu_j t + phi_j), c_j with `rank` axes."""
    sines = xp.sin(xp.sum(w["k"] * q[..., None, :], axis=-1) + w["nu"] * t + w["phi"])
    return xp.sum(w["c"] * sines[(..., *(None,) * rank)], axis=-1 - rank)


def _times(matrix: Any, vector: Any) -> Any:
    return (matrix * vector[..., None, :]).sum(-1)


def _turned(x: Any) -> Any:
    return x.swapaxes(-1, -2)


@dataclass(frozen=True)
class Family:
    """One structure: `n` coordinates, `m` one-forms, and what is given how."""

    name: str
    kind: str
    n: int
    m: int
    methods: tuple[str, ...]
    """Those of the ordinary run, by their spelling."""
    metric: str = "constant"
    given: str = "metric"
    forms: str = "forms"
    affine: str = ""
    forced: bool = False
    timed: bool = False
    angles: int = 0
    """How many of the last coordinates are angles."""
    scaled: bool = False
    general: bool = False
    symmetric: int = 0
    """How many of the first coordinates nothing depends on."""
    via: str = "class"
    chart: bool = False
    """Of a body: whether it is run in coordinates near its start."""
    extra: int = 0
    """How many more one-forms there are, each a combination of the others."""
    surfaces: int = 0
    """How many position constraints there are, through the start."""
    nonlinear: bool = False
    """Whether there is a constraint that is not linear in v, on whose level the start is."""

    # What is drawn.

    def _wave(self, random: np.random.Generator, size: float, shape: tuple[int, ...] = (), terms: int = 2):
        k = random.uniform(-1.4, 1.4, (terms, self.n))
        if self.angles:
            k[:, -self.angles :] = random.integers(-2, 3, (terms, self.angles))
        k[:, : self.symmetric] = 0
        phi, nu = random.uniform(0, 2 * np.pi, terms), random.uniform(-1.5, 1.5, terms) * self.timed
        return {"k": k, "phi": phi, "nu": nu, "c": size * random.uniform(-1, 1, (terms, *shape))}

    def draw(self, random: np.random.Generator) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
        """Coefficients, a configuration, and a velocity that has still to be made one that is allowed."""
        n, m = self.n, self.m
        across = n - m if self.constrained else 0
        p: dict[str, Any] = {
            "root": random.uniform(-0.6, 0.6, (n, n)),
            "own": random.uniform(0.6, 1.6, n),
            "metric": self._wave(random, 0.3, (n, n)),
            "potential": self._wave(random, 0.6, (), 3),
            "stiff": random.uniform(0.3, 1.5, n),
            "bump": random.uniform(-1, 1, n),
            "height": random.uniform(-0.5, 0.5, 2),
        }
        if self.constrained:
            p["lift"] = random.uniform(-0.7, 0.7, (m, across))
            p["lifts"] = self._wave(random, 0.5, (m, across))
            turn = np.linalg.qr(random.normal(size=(n, n)))[0]
            p["turn"] = np.eye(n) if self.forms == "both" or self.symmetric else turn
            p["gauge"] = self._wave(random, 0.3, (m if self.forms == "forms" else across,))
        if self.affine:
            p["carried"] = self._wave(random, 0.5, (m if self.affine == "offsets" else n,))
        if self.extra:
            p["more"] = random.uniform(-1, 1, (self.extra, m))
        if self.surfaces:
            # Independent of the one-forms, which have the identity where these normals have zeros.
            p["normal"] = (p["turn"] if m else np.linalg.qr(random.normal(size=(n, n)))[0])[
                m : m + self.surfaces
            ]
            p["bend"] = self._wave(random, 0.25, (self.surfaces,))
            p["level"] = np.zeros(self.surfaces)
        if self.forced:
            p["drag"] = random.uniform(0, 0.6, n)
            skew = random.uniform(-1, 1, (n, n))
            p["skew"] = skew - skew.T
            p["gyro"] = self._wave(random, 0.7)
            p["push"] = self._wave(random, 0.7, (n,))
        if self.general:
            p["linear"] = self._wave(random, 0.5, (n,))
            p["quartic"] = random.uniform(0.02, 0.2, 1)
        if self.scaled:
            p["scale"] = 10.0 ** random.permutation(
                np.r_[0, random.uniform(3, 6), random.uniform(-6, 6, n - 2)]
            )
        q, v = random.uniform(-1, 1, n), random.uniform(-1, 1, n)
        if self.angles:
            q[-self.angles :] += 2 * np.pi * random.integers(-20, 21, self.angles)
            v[-self.angles :] += 6 * random.choice([-1, 1], self.angles)
        if self.surfaces:
            p["level"] = self.of_holonomic(np, p, 0.0, q)
        if self.nonlinear:
            p["squares"] = random.uniform(0.5, 2, n)
            p["slant"] = self._wave(random, 0.4, (n,))
            p["aim"] = np.zeros(1)
            if m:
                a = self.of_constraints(np, p, 0.0, q)
                v = v - np.linalg.pinv(a) @ a @ v
            p["aim"] = self.of_nonlinear(np, p, 0.0, q, v)
        return p, q, v

    # What the system is.

    @property
    def constrained(self) -> bool:
        return self.m > 0

    @property
    def coordinates(self) -> tuple[str, ...]:
        return tuple("abcdef"[: self.n])

    @property
    def plain_ones(self) -> np.ndarray:
        """1 for coordinates that functions may grow with, 0 for angles and what nothing depends on."""
        mask = np.ones(self.n)
        mask[self.n - self.angles :] = 0
        mask[: self.symmetric] = 0
        return mask

    def of_metric(self, xp, p, t, q):
        root = p["root"] if self.metric == "constant" else p["root"] + wave(xp, p["metric"], t, q, 2)
        return root @ _turned(root) + p["own"][..., None] * np.eye(self.n)

    def of_potential(self, xp, p, t, q):
        x = q * self.plain_ones
        off = (x - p["bump"]) * self.plain_ones
        ridge = 1 + xp.sum(x * p["bump"], axis=-1) ** 2
        return (
            0.5 * xp.sum(p["stiff"] * x**2, axis=-1)
            + wave(xp, p["potential"], t, q)
            + p["height"][..., 0] * xp.exp(-0.5 * xp.sum(off**2, axis=-1))
            + p["height"][..., 1] / ridge
        )

    def _lift(self, xp, p, t, q):
        return p["lift"] + wave(xp, p["lifts"], t, q, 2)

    def of_constraints(self, xp, p, t, q):
        x = self._lift(xp, p, t, q)
        one = xp.broadcast_to(xp.eye(self.m), (*x.shape[:-2], self.m, self.m))
        rows = xp.concatenate([one, x], axis=-1) @ p["turn"]
        rows = rows if self.forms == "both" else rows * xp.exp(wave(xp, p["gauge"], t, q, 1))[..., None]
        return xp.concatenate([rows, p["more"] @ rows], axis=-2) if self.extra else rows

    def of_nonlinear(self, xp, p, t, q, v):
        value = xp.sum((0.5 * p["squares"] * v + wave(xp, p["slant"], t, q, 1)) * v, axis=-1)
        return value[..., None] - p["aim"]

    def of_no_rows(self, xp, p, t, q):
        return np.zeros((*q.shape[:-1], 0, self.n))

    def of_holonomic(self, xp, p, t, q):
        return _times(p["normal"], q) + wave(xp, p["bend"], t, q, 1) - p["level"]

    def of_all_rows(self, xp, p, t, q):
        """The one-forms and the derivatives of the position constraints."""
        w = p["bend"]
        cosines = xp.cos(xp.sum(w["k"] * q[..., None, :], axis=-1) + w["phi"])
        bends = xp.sum(w["c"][..., :, :, None] * (cosines[..., None] * w["k"])[..., :, None, :], axis=-3)
        slopes = p["normal"] + bends
        return xp.concatenate([self.of_constraints(xp, p, t, q), slopes], axis=-2) if self.m else slopes

    def of_frame(self, xp, p, t, q):
        x, across = self._lift(xp, p, t, q), self.n - self.m
        one = xp.broadcast_to(xp.eye(across), (*x.shape[:-2], across, across))
        columns = _turned(p["turn"]) @ xp.concatenate([-x, one], axis=-2)
        return columns * xp.exp(wave(xp, p["gauge"], t, q, 1))[..., None, :]

    def of_drift(self, xp, p, t, q):
        return wave(xp, p["carried"], t, q, 1)

    def of_offsets(self, xp, p, t, q):
        if self.affine == "offsets":
            values = wave(xp, p["carried"], t, q, 1)
            return xp.concatenate([values, _times(p["more"], values)], axis=-1) if self.extra else values
        return _times(self.of_constraints(xp, p, t, q), self.of_drift(xp, p, t, q))

    def of_forces(self, xp, p, t, q, v):
        speed = xp.sqrt(1 + xp.sum(v * v, axis=-1))[..., None]
        turning = wave(xp, p["gyro"], t, q)[..., None] * _times(p["skew"], v)
        return wave(xp, p["push"], t, q, 1) + turning - p["drag"] * speed * v

    def of_linear(self, xp, p, t, q):
        return wave(xp, p["linear"], t, q, 1)

    def of_lagrangian(self, xp, p, t, q, v):
        kinetic = 0.5 * xp.sum(v * _times(self.of_metric(xp, p, t, q), v), axis=-1)
        value = kinetic - self.of_potential(xp, p, t, q)
        if self.general:
            value = value + xp.sum(self.of_linear(xp, p, t, q) * v, axis=-1)
            value = value + 0.25 * p["quartic"][..., 0] * xp.sum(v * v, axis=-1) ** 2
        return value

    @property
    def gives(self) -> tuple[str, ...]:
        names = ["lagrangian"] if self.given == "lagrangian" else ["metric", "potential"]
        if self.constrained:
            names += {"forms": ["constraints"], "frame": ["frame"], "both": ["constraints", "frame"]}[
                self.forms
            ]
        names += {"": [], "offsets": ["offsets"], "drift": ["drift"], "both": ["offsets", "drift"]}[
            self.affine
        ]
        names += ["holonomic"] if self.surfaces else []
        names += ["nonlinear"] if self.nonlinear else []
        return (*names, *(["forces"] if self.forced else []))

    def _given(self, name: str) -> Callable:
        """The function as the library is given it: of (p, t, q[, v]), in units that may differ widely."""
        function = partial(getattr(self, f"of_{name}"), jnp)
        if not self.scaled:
            return function

        def scaled(p, t, q, *v):
            s = p["scale"]
            value = function(p, t, s * q, *(s * x for x in v))
            if name == "metric":
                return s[:, None] * value * s
            if name in ("frame", "drift"):
                return value / (s[:, None] if name == "frame" else s)
            return value * s if name in ("constraints", "forces") else value

        return scaled

    @cached_property
    def _kind(self) -> type:
        def method(function):
            if self.timed:
                return lambda self, t, *x: function(self.p, t, *x)
            return lambda self, *x: function(self.p, 0.0, *x)

        body = {
            "coordinates": self.coordinates,
            "angles": self.coordinates[self.n - self.angles :],
            "__annotations__": {"p": dict},
            "__module__": __name__,
            **{name: method(self._given(name)) for name in self.gives},
        }
        base = da.RheonomicSystem if self.timed else da.System
        return new_class(self.label, (base,), exec_body=lambda space: space.update(body))

    @property
    def without(self) -> tuple[str, ...]:
        """What cannot be made of it: a chart has one base, and inside JAX it is not known which rows follow."""
        return ("ensemble",) if self.chart else ("gradient",) if self.extra else ()

    @property
    def label(self) -> str:
        return "".join(x.capitalize() for x in self.name.replace("-", " ").split())

    def system(self, p: dict[str, Any]) -> da.System:
        """The library's system with these coefficients."""
        if self.via == "class":
            return self._kind(p)
        return replace(self._made, parameters=p)

    @cached_property
    def _made(self) -> da.System:
        """One made of plain functions with parameters."""

        def last(function):
            if self.timed:
                return lambda t, *x: function(x[-1], t, *x[:-1])
            return lambda *x: function(x[-1], 0.0, *x[:-1])

        return da.system(
            coordinates=self.coordinates,
            angles=self.coordinates[self.n - self.angles :],
            name=self.label,
            rheonomic=self.timed,
            parameters=self.draw(np.random.default_rng(0))[0],
            **{name: last(self._given(name)) for name in self.gives},
        )

    # The same for the second road.

    def plainly(self, p: dict[str, Any]) -> SimpleNamespace:
        """The functions of all members in NumPy, for `plain`."""

        def bound(name):
            return partial(getattr(self, f"of_{name}"), np, p)

        names = ("constraints", "frame", "offsets", "drift", "forces")
        found = {name: bound(name) if name in self.gives else None for name in names}
        if self.surfaces:
            found["constraints"] = bound("all_rows")
        if self.nonlinear and not self.m:
            found["constraints"] = bound("no_rows")
        found["nonlinear"] = bound("nonlinear") if self.nonlinear else None
        return SimpleNamespace(
            rank=self.m + self.surfaces, positions=bound("holonomic") if self.surfaces else None,
            group=None, velocities=self.coordinates, metric=bound("metric"), potential=bound("potential"),
            linear=bound("linear") if self.general else None, quartic=p.get("quartic"), **found,
        )  # fmt: skip

    def case(self, p: dict[str, Any], q: np.ndarray, v: np.ndarray) -> "Case":
        """What is run; with the members first in all of them, what is run as an ensemble."""
        s = p.get("scale", np.ones(1))
        return Case(self.system(p), q / s, v / s, lambda sol: _rows(sol, s))

    @property
    def takes(self) -> tuple[str, ...]:
        """The methods that take the family; all others must refuse."""
        if self.general:
            return ("reference",)
        any_speed = () if self.timed or self.surfaces else ("chetaev",)
        if self.nonlinear:
            return ("chetaev", "reference")
        if self.forced:
            return (*FRAMES, *any_speed, "reference")
        found = (*ANY_METRIC, "dla-variational@4", *FRAMES, *any_speed, "reference")
        if self.metric == "constant" and not (self.timed or self.affine):
            found = (*MASS_ONLY, *MASS_ONLY_COMPOSED, *found)
        return tuple(x for x in found if x not in VELOCITIES_ALONE) if self.surfaces else found


@dataclass
class Case:
    """A member as it is run: the system, the start, and what turns rows back into those of the second road."""

    system: Any
    q: Any
    v: Any
    states: Callable[[da.Trajectory], tuple[np.ndarray, np.ndarray, np.ndarray]]
    """Rows q, v and the method's own v."""
    own: da.Method | None = None
    unknown: int = 0
    """How many of the first coordinates other methods than its own leave open."""


def _rows(sol: da.Trajectory, scale: Any = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.asarray(sol.q) * scale, np.asarray(sol.v) * scale, np.asarray(sol.v_full) * scale


GROUPS = {
    "SO3": da.groups.SO3(),
    "S3": da.groups.S3(),
    "SE2": da.groups.SE2(),
    "SE3": da.groups.SE3(),
    "H3": da.groups.H3(),
}


@dataclass(frozen=True)
class Body(Family):
    """A body on a Lie group; `n` and `m` are of velocities."""

    group: str = "SO3"
    free: bool = False

    def draw(self, random):
        numbers, n, m = GROUPS[self.group].size, self.n, self.m
        p: dict[str, Any] = {
            "root": random.uniform(-0.6, 0.6, (n, n)),
            "own": random.uniform(0.6, 1.6, n),
            "potential": self._waved(random, numbers, 0.6 * (not self.free), ()),
            "stiff": random.uniform(0.3, 1.0, numbers) * (not self.free),
        }
        if m:
            p["lift"] = random.uniform(-0.7, 0.7, (m, n - m))
            p["lifts"] = self._waved(random, numbers, 0.4, (m, n - m))
            p["turn"] = np.linalg.qr(random.normal(size=(n, n)))[0]
        if self.forced:
            p["drag"] = random.uniform(0, 0.6, n)
            p["push"] = self._waved(random, numbers, 0.7, (n,))
        if self.affine:
            p["carried"] = self._waved(random, numbers, 0.5, (m,))
        if self.extra:
            p["more"] = random.uniform(-1, 1, (self.extra, m))
        turn = Rotation.random(random_state=int(random.integers(2**31)))
        place = random.uniform(-1, 1, 3)
        rotation = turn.as_matrix().reshape(9)
        g = {
            "SO3": rotation,
            "S3": turn.as_quat()[[3, 0, 1, 2]],
            "SE2": place * [1, 1, 3],
            "SE3": np.concatenate([place, rotation]),
            "H3": place,
        }[self.group]
        return p, g, random.uniform(-1, 1, n)

    def _waved(self, random, numbers, size, shape):
        k = random.uniform(-1.4, 1.4, (2, numbers))
        if self.group == "SE2":
            k[:, 2] = random.integers(-2, 3, 2)
        phi = random.uniform(0, 2 * np.pi, 2)
        return {"k": k, "phi": phi, "nu": np.zeros(2), "c": size * random.uniform(-1, 1, (2, *shape))}

    def of_inertia(self, xp, p):
        return p["root"] @ _turned(p["root"]) + p["own"][..., None] * np.eye(self.n)

    def of_potential(self, xp, p, t, q):
        mask = np.ones(q.shape[-1])
        if self.group == "SE2":
            mask[2] = 0
        return wave(xp, p["potential"], t, q) + 0.5 * xp.sum(p["stiff"] * (mask * q) ** 2, axis=-1)

    def of_constraints(self, xp, p, t, q):
        x = p["lift"] + wave(xp, p["lifts"], t, q, 2)
        one = xp.broadcast_to(xp.eye(self.m), (*x.shape[:-2], self.m, self.m))
        rows = xp.concatenate([one, x], axis=-1) @ p["turn"]
        return xp.concatenate([rows, p["more"] @ rows], axis=-2) if self.extra else rows

    def of_forces(self, xp, p, t, q, v):
        return wave(xp, p["push"], t, q, 1) - p["drag"] * v

    @property
    def gives(self):
        names = [] if self.free else ["potential"]
        names += ["constraints"] if self.m else []
        names += ["offsets"] if self.affine else []
        return (*names, *(["forces"] if self.forced else []))

    @cached_property
    def _kind(self):
        def method(function):
            return lambda self, *x: function(jnp, self.p, 0.0, *x)

        body = {
            "group": GROUPS[self.group],
            "__annotations__": {"p": dict},
            "__module__": __name__,
            "inertia": lambda made: self.of_inertia(jnp, made.p),
            **{name: method(getattr(self, f"of_{name}")) for name in self.gives},
        }
        return new_class(self.label, (da.GroupSystem,), exec_body=lambda space: space.update(body))

    def plainly(self, p):
        def bound(name):
            return partial(getattr(self, f"of_{name}"), np, p) if name in self.gives else None

        return SimpleNamespace(
            rank=self.m, positions=None, nonlinear=None, group=self.group, velocities=range(self.n),
            inertia=self.of_inertia(np, p), potential=bound("potential"), constraints=bound("constraints"), frame=None,
            offsets=bound("offsets"), drift=None, forces=bound("forces"),
        )  # fmt: skip

    def case(self, p, q, v):
        if self.chart:
            return Case(da.Chart(self.system(p), q), np.zeros_like(v), v, partial(self._from_chart, q))
        return Case(self.system(p), q, v, _rows)

    def _from_chart(self, base, sol):
        """g = base exp(x) and xi = (1 - exp(-ad_x))/ad_x x'."""
        _, basis, bracket = plain.LIFTS[self.group]
        rows = []
        for x, *speeds in zip(*_rows(sol), strict=True):
            ad = np.einsum("i,ijk->kj", x, bracket)
            # Its entries are below 3, so that thirty terms of the series leave rounding.
            series, term = np.zeros_like(ad), np.eye(len(x))
            for j in range(30):
                series, term = series + term, -term @ ad / (j + 2)
            turn = expm(np.einsum("i,ijk->jk", x, basis))
            if self.group == "SO3":
                element = (base.reshape(3, 3) @ turn).reshape(9)
            else:  # H3, upper triangular matrices
                a, b, c = base
                product = np.array([[1, a, c], [0, 1, b], [0, 0, 1]]) @ turn
                element = product[[0, 1, 0], [1, 2, 2]]
            rows.append((element, *(series @ s for s in speeds)))
        return tuple(np.array(x) for x in zip(*rows, strict=True))

    @property
    def takes(self):
        if self.chart:
            return (*ANY_METRIC, "dla-variational@4", *FRAMES, "chetaev", "reference")
        if self.forced:
            return (*FRAMES, "reference")
        return () if self.affine else (*BODIES, *FRAMES, "reference")


@dataclass(frozen=True)
class Reduced(Family):
    """A Chaplygin system over R^m, run reduced and reconstructed; the first m coordinates are the group's."""

    def case(self, p, q, v):
        symmetry = da.Symmetry(da.groups.Rn(self.m), on=self.coordinates[: self.m])
        reduced = da.reduce(self.system(p), da.VariationalDLA(), symmetry, at=[q])

        def states(sol):
            if isinstance(sol.method, da.VariationalDLA):
                return _rows(reduced.reconstruct(sol, q[: self.m]))
            # Other methods do not say how the group moved, but its velocity follows from the constraint.
            r, *speeds = _rows(sol)
            whole = np.concatenate([np.zeros((len(r), self.m)), r], axis=1)
            lift = self._lift(np, stacked([p]), 0.0, whole)
            return whole, *(np.concatenate([-_times(lift, x), x], axis=1) for x in speeds)

        return Case(reduced, *reduced.project(q, v), states, own=reduced.method, unknown=self.m)

    without = ("ensemble", "gradient")

    @property
    def takes(self):
        return ("own", *FRAMES, "reference")


def stacked(trees: list[Any]) -> Any:
    """Trees of arrays with the members first."""
    return jax.tree.map(lambda *x: np.stack(x), *trees)


def _family(kind: type[Family], of: str, name: str, n: int, m: int, methods: str, **options: Any) -> Family:
    return kind(name, of, n, m, tuple(methods.split()), **options)


coordinates, body = partial(_family, Family), partial(_family, Body)

# The methods are those of the ordinary run, chosen so that every method meets every kind that it takes.
FAMILIES = (
    coordinates("constant metric", "one-form", 3, 1, "leapfrog dla01 frame chetaev reference"),
    coordinates("constant metric", "lagrangian", 4, 2, "dla dd:average gni", given="lagrangian", via="functions"),
    coordinates("constant metric", "three forms", 5, 3, "leapfrog:momentum dla:0.3 dla-variational"),
    coordinates("constant metric", "frame", 3, 1, "leapfrog dd frame:gonzalez", forms="frame"),
    coordinates("constant metric", "no constraint", 3, 0, "gni:exact dd:itoh-abe dla-variational"),
    coordinates("constant metric", "redundant rows", 4, 2, "leapfrog gni frame", extra=2),
    coordinates("constant metric", "plane", 2, 1, "dla01@4 frame:itoh-abe frame@4 edla"),
    coordinates("angles", "angle", 3, 1, "leapfrog dla01 dla dd", angles=1),
    coordinates("angles", "angles", 3, 1, "gni dla-variational frame", angles=2, metric="full", via="functions"),
    coordinates("scales", "scaled", 3, 1, "leapfrog dla01 dla dd", scaled=True),
    coordinates("scales", "scaled metric", 3, 1, "gni dla-variational frame", scaled=True, metric="full"),
    coordinates("nonlinear", "nonlinear", 3, 0, "chetaev reference", nonlinear=True, metric="full"),
    coordinates("nonlinear", "nonlinear and one-form", 4, 1, "chetaev", nonlinear=True, forced=True, via="functions"),
    coordinates("metric of q", "metric", 3, 1, "frame gni dla-variational chetaev reference", metric="full"),
    coordinates("metric of q", "metric and frame", 4, 2, "frame@4 gni:trapezoidal dla-variational:trapezoidal",
                metric="full", forms="frame", via="functions"),
    coordinates("metric of q", "metric and both", 2, 1, "frame:gonzalez dla-variational@4 edla", metric="full",
                forms="both"),
    coordinates("positions", "surface", 4, 1, "frame gni dla-variational dla dla01 reference", surfaces=1),
    coordinates("positions", "surfaces with forces", 4, 1, "frame:gonzalez frame@4", surfaces=2, forced=True,
                metric="full", via="functions"),
    coordinates("forces", "forced", 3, 1, "frame frame:gonzalez chetaev reference", forced=True),
    coordinates("forces", "forced metric", 4, 2, "frame frame:itoh-abe frame@4", forced=True, metric="full",
                forms="frame", via="functions"),
    coordinates("affine", "offsets", 4, 2, "frame gni dla-variational chetaev reference", affine="offsets"),
    coordinates("affine", "drift", 3, 1, "frame:gonzalez gni:exact dla-variational:left", affine="drift",
                forms="frame", metric="full", via="functions"),
    coordinates("affine", "offsets and drift", 3, 1, "frame@4 gni:restart=20 edla", affine="both", forms="both"),
    coordinates("time", "time", 3, 1, "frame gni reference", timed=True, metric="full", angles=1, affine="offsets"),
    coordinates("time", "time with forces", 4, 2, "frame frame:gonzalez frame@4", timed=True, forced=True,
                forms="frame", affine="drift", metric="full"),
    coordinates("time", "time alone", 2, 0, "dla-variational@4 gni:exact edla", timed=True, metric="full",
                via="functions"),
    coordinates("general Lagrangian", "general", 3, 1, "reference", general=True, given="lagrangian", metric="full"),
    body("groups", "rotation", 3, 1, "lie-gni dla-variational:cayley frame reference", group="SO3"),
    body("groups", "quaternion", 3, 1, "lie-gni:cayley dla-variational:exp lie-gni", group="S3"),
    body("groups", "plane motion", 3, 1, "lie-gni lie-gni:cayley dla-variational:cayley@4", group="SE2"),
    body("groups", "space motion", 6, 2, "lie-gni:cayley dla-variational:cayley", group="SE3", free=True),
    body("groups", "affine rotation", 3, 1, "", group="SO3", affine="offsets"),
    body("groups", "heisenberg", 3, 1, "lie-gni dla-variational:exp lie-gni:cayley", group="H3"),
    body("charts", "chart", 3, 1, "gni dla-variational frame", group="H3", chart=True),
    _family(Reduced, "reduced", "chaplygin", 4, 2, "own frame", symmetric=2, metric="full"),
)  # fmt: skip
LONG_ONES = (
    coordinates("constant metric", "both", 4, 2, "dla01 gni frame", forms="both"),
    coordinates("scales", "scaled frame", 3, 2, "dla dd frame", scaled=True, forms="frame"),
    coordinates("metric of q", "metric of a lagrangian", 3, 1, "frame gni dla-variational", metric="full",
                given="lagrangian"),
    coordinates("metric of q", "metric alone", 3, 0, "frame gni dla-variational:gauss=2", metric="full"),
    coordinates("time", "time with offsets", 3, 1, "frame gni dla-variational", timed=True, affine="offsets",
                via="functions"),
    coordinates("affine", "redundant offsets", 4, 2, "frame gni dla-variational", affine="offsets", metric="full",
                extra=1),
    coordinates("positions", "surface alone", 3, 0, "frame frame:itoh-abe gni dla-variational", surfaces=1,
                given="lagrangian", metric="full"),
    body("groups", "redundant rotation", 3, 1, "lie-gni frame", group="SO3", extra=1),
    body("groups", "forced rotation", 3, 1, "frame reference", group="SO3", forced=True),
    body("charts", "chart of rotations", 3, 1, "gni dla-variational frame", group="SO3", chart=True),
)  # fmt: skip
"""What the ordinary run leaves to the long one, for the time that it takes to compile."""
ALL = (*FAMILIES, *LONG_ONES)


def of_kinds(*kinds: str) -> list[Family]:
    """The families of these kinds."""
    return [family for family in FAMILIES if family.kind in kinds]
