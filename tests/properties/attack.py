"""The attack: every member of a family by every method, beside SciPy; what is not right must have been said.

    PYTHONPATH=tests python -m properties.attack [SEED [MEMBERS [FAMILY ...]]]

prints the table of the ordinary run, or of another one. The tests take their seed from ATTACK_SEED.
"""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from properties import plain
from properties.families import ALL, EVERY, FAMILIES, Case, Family, of_kinds, stacked

import dalembert as da
from dalembert.methods.cli_names import method_from_text

SEED = int(os.environ.get("ATTACK_SEED", "20"))
MEMBERS = 11
"""Of each family in the ordinary run."""
END = 1.0
STEPS = 20
FINEST = 5
"""Runs of a member at most, each with half the step of the one before."""
# SciPy's own error at rtol = 1e-12 is 1e-12 to 1e-11 here. A wrong term in an equation is seen at 1e-3.
FLOOR = 1e-9
# Rounding of terms of size one to ten, over eighty steps.
ROUNDING = 1e-11
KINDS = tuple(dict.fromkeys(family.kind for family in FAMILIES))
ORDINARY = {kind: ("ensemble", "gradient")[k % 2] for k, kind in enumerate(KINDS)}
LONG = ("reference", "edla", "chetaev")
"""Methods whose gradients and ensembles take ten seconds and more to compile; they have tests of their own."""


@dataclass
class Count:
    """What became of the members of a family, or of many."""

    systems: int = 0
    comparisons: int = 0
    refused: int = 0
    told: int = 0
    """Runs that failed or were doubtful and said so: a SimulationError or a MotionWarning."""
    wrong: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    def __iadd__(self, other: "Count") -> "Count":
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


class Wrong(Exception):
    """A silent wrong answer."""


class Members:
    """The members of a family, with their motions by SciPy."""

    def __init__(self, family: Family, members: int, seed: int):
        random = np.random.default_rng([seed, *family.name.encode()])
        drawn = [family.draw(random) for _ in range(members)]
        self.family, self.parameters = family, [p for p, _, _ in drawn]
        self.all = stacked(self.parameters)
        self.functions = family.plainly(self.all)
        self.t0 = float(random.uniform(-2, 2)) if family.timed else 0.0
        self.q = np.stack([q for _, q, _ in drawn])
        drift, basis = plain.allowed(self.functions, self.t0, self.q)
        raw = np.stack([v for _, _, v in drawn]) - drift
        self.v = drift + (basis @ (np.linalg.pinv(basis) @ raw[..., None]))[..., 0]
        # Steps that keep the energy end when they like: up to twice the time, if the first one was short.
        ends = (self.t0, self.t0 + END), (self.t0, self.t0 + 2 * END)
        *self.end, _ = plain.solve(self.functions, self.q, self.v, ends[0])
        self.at = None
        self._later = ends[1]
        self.cases: dict[int, Case] = {}
        self._claims: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.q)

    def case(self, i: int) -> Case:
        if i not in self.cases:
            self.cases[i] = self.family.case(self.parameters[i], self.q[i], self.v[i])
        return self.cases[i]

    def claims(self, text: str, sol: da.Trajectory) -> Any:
        """What the method claims, which the numbers of a member do not change."""
        if text not in self._claims:
            self._claims[text] = sol.method.claims(sol.system)
        return self._claims[text]

    def exact(self, i: int, t: float) -> np.ndarray:
        """The state of member i at time t by SciPy."""
        if t == self.t0 + END:
            return np.concatenate([x[i] for x in self.end])
        if self.at is None:
            self.at = plain.solve(self.functions, self.q, self.v, self._later, dense=True)[2]
        return np.concatenate([x[i] for x in self.at(t)])


@cache
def method_of(text: str) -> da.Method:
    return method_from_text(text)


def simulate(members: Members, i: int, text: str, steps: int) -> da.Trajectory:
    case = members.case(i)
    method = case.own if text == "own" else method_of(text)
    return da.simulate(case.system, method, case.q, case.v, h=END / steps, steps=steps, t0=members.t0)


def error(members: Members, i: int, sol: da.Trajectory) -> tuple[float, np.ndarray]:
    """How far the last row is from the exact state, and the difference."""
    # The sum of the steps is not quite the end; the difference is rounding.
    end = members.t0 + END if not sol.method.variable_step else float(sol.t[-1])
    if end > members._later[1]:
        raise da.SimulationError("went too far to compare", sol)
    case = members.case(i)
    rows = case.states(sol)
    exact = members.exact(i, end)
    off = np.concatenate([rows[0][-1], rows[1][-1]]) - exact
    if not isinstance(sol.method, da.VariationalDLA):
        off[: case.unknown] = 0
    return float(np.max(np.abs(off))) / (1 + float(np.max(np.abs(exact[-len(members.v[i]) :])))), off


def compare(members: Members, i: int, text: str) -> str | None:
    """None where the answer is right, else what is wrong with it."""
    runs: list[da.Trajectory] = []
    for _ in range(3):
        _finer(members, i, text, runs)
    order = members.claims(text, runs[0]).order
    for more in range(1 + FINEST - len(runs)):  # finer where the steps are still too long to show the order
        if more:
            _finer(members, i, text, runs)
        found = [error(members, i, sol) for sol in runs[-3:]]
        (_, _), (before, x), (last, y) = found
        if not np.isfinite(last):
            return f"error {last}"
        if last < FLOOR or np.log2(before / last) >= order - 0.5:
            break
        # Of one sign in every component the errors cancel when extrapolated; a wrong limit would stay.
        if not runs[0].method.variable_step and np.max(np.abs(y + (y - x) / (2**order - 1))) < 0.2 * np.max(
            np.abs(y)
        ):
            break
    else:
        return f"order {order} is claimed, but errors are {', '.join(f'{e:.2e}' for e, _ in found)}"
    return _identities(members, i, text, runs)


def _identities(members: Members, i: int, text: str, runs: list[da.Trajectory]) -> str | None:
    """What must hold in every row: the constraint, the energy where it is claimed, multipliers that converge."""
    functions = members.family.plainly(stacked([members.parameters[i]]))
    claims = members.claims(text, runs[0])
    worst: list[float] = []
    for sol in runs:  # shorter steps are added at the end while the multipliers do not show their order
        if sol.status is not da.Status.OK:
            return f"status {sol.status}"
        q, v, own = members.case(i).states(sol)
        t = np.asarray(sol.t)[:, None] if members.family.timed else 0.0
        off = np.max(plain.violation(functions, t, q, v), initial=0.0)
        if not off < ROUNDING:
            return f"the constraint is violated by {off:.2e}"
        if functions.positions is not None:
            away = np.max(np.abs(functions.positions(t, q)))
            if not away < ROUNDING:
                return f"the position constraints are violated by {away:.2e}"
        if claims.energy:
            energy = (
                sol.step_data["E_plus"] if "E_plus" in sol.step_data else plain.energy(functions, t, q, own)
            )
            if not np.ptp(energy) < ROUNDING * (1 + np.max(np.abs(energy))) * 10:
                return f"energy is claimed, but it changes by {np.ptp(energy):.2e}"
        if functions.constraints is None or text == "own" or members.family.symmetric:
            continue
        lam, exact = np.asarray(sol.multipliers), plain.acceleration(functions, t, q, v)[1]
        if lam.shape != exact.shape or not np.all(np.isfinite(lam)):
            return f"multipliers of shape {lam.shape}, expected {exact.shape}, or not finite"
        worst.append(np.max(np.abs(lam - exact)) / (1 + np.max(np.abs(exact))))
        # Means over a step differ by O(h). A start without the multiplier ("momentum") leaves an alternating part.
        if len(worst) < len(runs) or "momentum" in text or worst[-1] < max(0.6 * worst[-3], 1e-6):
            continue
        if len(runs) == FINEST:
            return f"multipliers do not converge: off by {', '.join(f'{x:.2e}' for x in worst)}"
        _finer(members, i, text, runs)
    return None


def _finer(members: Members, i: int, text: str, runs: list[da.Trajectory]) -> None:
    """Adds the run with half the step of the last one."""
    runs.append(simulate(members, i, text, STEPS * 2 ** len(runs)))


def _refuses(count: Count, error: ValueError, expected: bool, label: str) -> None:
    words = str(error)
    if not (len(words) > 40 and " " in words and words.strip() == words):
        count.tracebacks.append(f"{label}: not a sentence: {words!r}")
    elif expected:
        count.refused += 1
    else:
        count.wrong.append(f"{label}: refused what it takes: {words}")


def _guarded(count: Count, label: str, expected: bool, check) -> None:
    """Runs one check; what it found, raised or said goes into the count."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = check()
        except da.SimulationError:
            count.told += 1
            return
        except ValueError as error:
            inside = traceback.extract_tb(error.__traceback__)[-1].filename
            if f"{os.sep}dalembert{os.sep}" in inside:
                _refuses(count, error, not expected, label)
            else:
                count.tracebacks.append(f"{label}: {traceback.format_exc(limit=-4)}")
            return
        except Exception:
            count.tracebacks.append(f"{label}: {traceback.format_exc(limit=-4)}")
            return
    count.comparisons += 1
    if found is None:
        return
    if any(issubclass(x.category, da.MotionWarning) for x in said):
        count.told += 1
    else:
        count.wrong.append(f"{label}: {found}")


def compare_ensemble(members: Members, text: str) -> str | None:
    """Members of one ensemble beside single runs."""
    case = members.family.case(members.all, members.q, members.v)
    sol = da.ensemble(
        case.system,
        method_of(text),
        case.q,
        case.v,
        h=END / STEPS,
        steps=STEPS,
        save_every=STEPS,
        t0=members.t0,
    )
    for i in range(len(members)):
        try:
            one = simulate(members, i, text, STEPS)
        except da.SimulationError as error:
            one = error.trajectory
        if sol.status[i] is not one.status:
            return f"member {i} of the ensemble ends with {sol.status[i]}, a single run with {one.status}"
        if one.status is not da.Status.OK:
            continue
        scale = members.parameters[i].get("scale", 1.0)
        for name in ("q", "v"):
            x, y = (scale * rows[-1] for rows in (getattr(sol, name)[i], getattr(one, name)))
            off = np.max(np.abs(x - y)) / (1 + np.max(np.abs(y)))
            # Both solve the equations of a step to rounding, and twenty steps add it up.
            if not off < 1e-10:
                return f"member {i} of the ensemble differs from a single run by {off:.2e} in {name}"
    return None


def compare_gradient(members: Members, text: str) -> str | None:
    """jit(grad) of a number of the end, by a change of the metric and the potential, beside differences."""
    family, p = members.family, members.parameters[0]
    case, random = members.case(0), np.random.default_rng(7)
    method = case.own if text == "own" else method_of(text)
    weights = [random.uniform(-1, 1, x.shape) / np.where(x == 0, 1.0, np.abs(x)) for x in (case.q, case.v)]

    def value(e):
        changed = {**p, "root": p["root"] * (1 + e), "stiff": p["stiff"] * (1 - 0.5 * e)}
        system = family.case(changed, members.q[0], members.v[0]).system
        sol = da.simulate(system, method, case.q, case.v, h=END / STEPS, steps=STEPS, t0=members.t0)
        return jnp.sum(weights[0] * sol.q[-1]) + jnp.sum(weights[1] * sol.v[-1])

    found = float(jax.jit(jax.grad(value))(0.0))
    # Central differences of two sizes, extrapolated: errors of 1e-12/1e-4, rounding against the difference.
    wide, narrow = ((float(value(e)) - float(value(-e))) / (2 * e) for e in (4e-4, 2e-4))
    expected = (4 * narrow - wide) / 3
    if not abs(found - expected) < 1e-6 * (1 + abs(expected)):
        return f"jit(grad) is {found!r}, differences give {expected!r}"
    return None


@contextlib.contextmanager
def _unoptimised() -> Iterator[None]:
    """Nearly all the time goes into compiling, where XLA's optimisations take longer than what they gain."""
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(name, True)
    try:
        yield
    finally:
        jax.config.update(name, before)


@_unoptimised()
def attack(family: Family, members: int = MEMBERS, seed: int = SEED, every: bool = False) -> Count:
    """All members by the methods of the ordinary run, or by all that take the family."""
    count = Count(systems=members if family.takes else 0)
    drawn = Members(family, members, seed)
    takes = family.takes
    methods = takes if every else family.methods
    for text in methods:
        for i in range(members):
            label = f"{family.name}, seed {seed}, member {i}, {text}"
            _guarded(count, label, text in takes, lambda i=i, text=text: compare(drawn, i, text))
    for text in EVERY:
        if text not in takes:
            for i in range(min(3, members) if every else 1):  # what is refused does not depend on numbers
                label = f"{family.name}, seed {seed}, member {i}, {text}"
                _guarded(count, label, False, lambda i=i, text=text: compare(drawn, i, text))
    for what, check in (("ensemble", compare_ensemble), ("gradient", compare_gradient)):
        # Each takes seconds to compile, so that in the ordinary run every other kind has one, in its first family.
        able = [text for text in methods if text not in LONG and what not in family.without]
        if (
            what == "gradient" and not every
        ):  # that of frame compiles for half a minute, and has tests of its own
            able.sort(key=lambda text: text.startswith("frame"))
        if not every and (family is not of_kinds(family.kind)[0] or ORDINARY[family.kind] != what):
            continue
        first = ALL.index(family)  # every method in every tenth family
        for text in able[first % 10 :: 10] if every else able[:1]:
            label = f"{family.name}, seed {seed}, {what}, {text}"
            _guarded(count, label, True, lambda text=text, check=check: check(drawn, text))
    return count


def check(family: Family) -> None:
    """The ordinary run of a family, as a test."""
    count = attack(family)
    print(f"seed {SEED}\n{table({family.kind: count})}")  # pytest shows it where the test fails
    assert not count.tracebacks, "\n".join(count.tracebacks)
    assert not count.wrong, "\n".join(count.wrong)
    # Runs that end by themselves are fine, but what never ran to its end was not compared with anything.
    assert count.comparisons >= count.systems
    assert count.refused >= 5


def table(counts: dict[str, Count]) -> str:
    """One line for each kind, and one for all."""
    whole = Count()
    for count in counts.values():
        whole += count
    head = ("kind", "systems", "comparisons", "refused", "told", "wrong", "tracebacks")
    lines = [head]
    for kind, x in [*counts.items(), ("all", whole)]:
        numbers = (x.systems, x.comparisons, x.refused, x.told, len(x.wrong), len(x.tracebacks))
        lines.append((kind, *map(str, numbers)))
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "  ".join(
            x.ljust(w) if k == 0 else x.rjust(w) for k, (x, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def main(arguments: list[str]) -> int:
    seed, members, *names = [*arguments, *(str(SEED), str(MEMBERS))[len(arguments) :]]
    counts: dict[str, Count] = {}
    for family in FAMILIES:
        if not names or family.name in names:
            counts.setdefault(family.kind, Count())
            counts[family.kind] += attack(family, int(members), int(seed))
    print(f"seed {seed}")
    print(table(counts))
    bad = [line for x in counts.values() for line in (*x.wrong, *x.tracebacks)]
    print("\n".join(bad))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
