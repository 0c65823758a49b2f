"""Specs of sweeps, changed at random: each is read, or refused with a sentence."""

import contextlib
import copy
import json
import math
import random
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import dalembert as da
from dalembert.sweeps import sweeping
from dalembert.sweeps.layout import layout_of
from dalembert.sweeps.spec import Spec

REFUSED, ACCEPTED, TRACEBACK = "refused with a sentence", "accepted", "traceback"
BASES: list[dict[str, Any]] = [
    {
        "system": "PendulumCVT", "start": "rotating", "time": 300.0, "rows": 500, "project": True, "seed": 3,
        "reduce": ["final", "energy", "section"], "window": 3.0, "block": 8,
        "parameters": {"eps": 0.1},
        "section": {"coordinate": "xi", "at": 0.0, "direction": "up", "count": 20},
        "grid": {"method": ["leapfrog", "frame"], "h": {"from": 0.05, "to": 0.3, "count": 10, "unit": "s"}},
        "list": {"q0.x1": [0.5, 1.0, 1.0], "q0.x2": [0.5, 0.5, 1.0]},
        "random": {"count": 8, "v0.xi": {"uniform": [2.5, 3.0]}, "v0.x2": {"normal": [0.0, 0.1]}},
    },
    {
        "system": "Snakeboard", "method": "dla:0.5", "h": 0.1, "steps": 1000, "save_every": 7, "t0": 1.0,
        "reduce": ["integrals", "constraint", "math:fsum"],
        "grid": {"convention": ["relative", "absolute"], "mass": {"from": 0.1, "to": 10.0, "count": 3,
                                                                  "spacing": "log"}},
    },
    {
        "system": "Suslov", "method": "lie-gni", "h": 0.05, "steps": 460, "start": {"q": [1.0, 0.0], "v": [1.0]},
        "members": "math:pow", "grid": {"x": {"values": [0.3, 0.4]}, "y": [0.5, 1.0]},
    },
]  # fmt: skip
ODD: list[Any] = [
    0, 1, -1, 10**18, -(10**18), 10**30, 2**63, 2**63 - 1, 10**400, 0.0, -0.0, 1e-320, 1e308, -1e308, math.nan,
    math.inf, -math.inf, True, False, "", " ", "a", "é\u4e2d\U0001f600", "\u202e", "x" * 3000, "frame", "h", "q0.xi",
    ":", "a:", ":b", "json:dumps", "dalembert:zoo", "leapfrog@", "frame@3", "frame@4", "dla:nan", "dla:",
    "dla:1e999", "PendulumCVT", "energy", [], [[]], [1.0], ["a"], [1.0, "a"], [[1.0], [1.0, 2.0]], [math.nan],
    [10**400], [0.1, 0.1], {}, {"a": 1}, {"from": 0.0, "to": 1.0, "count": 10**18},
    {"from": 0.0, "to": 1.0, "count": 10**400},
    {"from": -1e308, "to": 1e308, "count": 3}, {"from": 0.0, "to": 1.0, "count": [3]},
    {"from": 1.0, "to": 2.0, "count": 3, "spacing": []}, {"values": {}}, {"values": [{}]}, {"unit": 3},
    {"uniform": []}, {"uniform": [0.0, 10**400]}, {"normal": [math.nan, 1.0]}, {"log-uniform": [1e-300, 1e300]},
    {"q": [], "v": []},
    {"q": [[1.0]], "v": [1.0]}, {"xi": [1.0]}, {"x": {"y": {"z": 1}}},
]  # fmt: skip
KEYS = (
    "grid", "list", "random", "section", "parameters", "start", "h", "method", "count", "eps", "q0", "v0", "q0.xi",
    "unit", "values", "steps", "time", "members", "reduce", "", "\u00e9", "sample", "block", "done", "t", "a b",
    "x.y.z",
)  # fmt: skip
SNIPPETS = (
    "\x00", "[", "]", "{", "}", "=", '"', "\\", "\n", "#", ".", ",", "nan", "1e999", "[grid]\n", "[[grid]]\n",
    "[grid.h]\n", "h = 1\n", "\ufeff", "9" * 5000, "[" * 3000, "\r", "'''", "1979-05-27T07:32:00Z",
    "0x10", "1_000", "+", "-",
)  # fmt: skip


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {toml(x)}' for key, x in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def written(spec: dict[str, Any]) -> str:
    """The text of a spec; tables come last, as TOML wants it."""
    plain = {key: x for key, x in spec.items() if not isinstance(x, dict) or not key}
    lines = [f"{json.dumps(key)} = {toml(x)}" for key, x in plain.items()]
    for key, table in spec.items():
        if key not in plain:
            lines += [
                "",
                f"[{json.dumps(key)}]",
                *(f"{json.dumps(name)} = {toml(x)}" for name, x in table.items()),
            ]
    return "\n".join([*lines, ""])


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every table and list: where it is, and its key."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _changed(spec: dict[str, Any], chance: random.Random) -> None:
    """One change of type, key or value."""
    where, key = chance.choice(list(_places(spec)))
    what = chance.randrange(6)
    if what <= 2:
        where[key] = copy.deepcopy(chance.choice(ODD))
    elif what == 3:
        del where[key]
    elif what == 4:
        value = copy.deepcopy(chance.choice([where[key], chance.choice(ODD)]))
        if isinstance(where, dict):
            where[chance.choice(KEYS)] = value
        else:
            where.append(value)
    else:
        other, place = chance.choice(list(_places(spec)))
        where[key] = copy.deepcopy(other[place])


def mutated_specs(n: int, seed: int) -> Iterator[str]:
    """Texts of specs with one to three changes of values, types and keys; one of four has its text changed, too."""
    chance = random.Random(seed)
    for i in range(n):
        spec = copy.deepcopy(BASES[i % len(BASES)])
        for _ in range(chance.randint(1, 3)):
            if spec:
                _changed(spec, chance)
        text = written(spec)
        if chance.random() < 0.25:
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(SNIPPETS) + text[at + chance.randrange(3) :]
        yield text


class _AcceptedError(Exception):
    """The spec was read and checked; workers would start now."""


class _Look:
    """In place of workers: what is done with a spec before they have it."""

    def preview(self, told: dict[str, Any], objects: dict[str, Any]) -> None:
        spec = Spec(json.loads(json.dumps(told, allow_nan=False)), objects)
        layout_of(spec, [], 100, False)
        raise _AcceptedError


def outcome(text: str) -> tuple[str, str]:
    """What comes of a spec, and what is said."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(sweeping, "engine", return_value=contextlib.nullcontext(_Look())),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        path, store = Path(folder, "spec.toml"), Path(folder, "store.zarr")
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            da.sweep(path, store)
        except _AcceptedError:
            return ACCEPTED, ""
        except ValueError as error:
            said = str(error)
            # A sentence of the library's own names the file, and mostly the key; one about room what it would take.
            own = said.startswith("spec.toml") or "would take" in said
            written = store.exists()
            return (REFUSED if own and not written else TRACEBACK), said
        except Exception:
            return TRACEBACK, traceback.format_exc()
    raise AssertionError("a sweep without workers ended")


def count_outcomes(n: int, seed: int) -> tuple[Counter, list[tuple[str, str]]]:
    """How often what came of it, and the specs with what was said where it was no sentence."""
    counts: Counter = Counter({REFUSED: 0, ACCEPTED: 0, TRACEBACK: 0})
    bad = []
    for text in mutated_specs(n, seed):
        found, said = outcome(text)
        counts[found] += 1
        if found == TRACEBACK:
            bad.append((text, said))
    return counts, bad
