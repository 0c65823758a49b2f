"""Rows of matrices in vector registers."""

from collections.abc import Callable, Sequence
from typing import Any

from dalembert.kernels.array_writer import ArrayWriter
from dalembert.kernels.llvm import Value
from dalembert.kernels.native import Block

COLUMNS = 32
"""The entries of a row that stay in registers while numbers are added to them."""


def blocks(t: ArrayWriter, width: int, body: Callable[[Any, list[tuple[int, str]]], None]) -> None:
    """Writes body(start, vectors) for all blocks of a row; a vector is its first column after `start`, and its type."""
    whole, rest = divmod(width, COLUMNS)
    t.loop(whole, lambda i: body(t.times(i, COLUMNS), _vectors(COLUMNS)), 1)
    if rest:
        body(whole * COLUMNS, _vectors(rest))


def _vectors(width: int) -> list[tuple[int, str]]:
    found, first = [], 0
    while first < width:
        size = next(x for x in (4, 2, 1) if x <= width - first)
        found.append((first, f"<{size} x double>"))
        first += size
    return found


def spread(w: Block, x: Value, kind: str) -> str:
    """A vector whose entries are all x."""
    one = w.put(f"insertelement {kind} poison, double {x.text}, i32 0")
    return w.put(
        f"shufflevector {kind} {one}, {kind} poison, {kind.replace('double', 'i32')} zeroinitializer"
    )


def carried(
    w: Block,
    first: Any,
    end: Any,
    starts: Sequence[tuple[str, str]],
    body: Callable[[str, list[str]], Sequence[str]],
) -> list[str]:
    """Values (type, register) that body(i, values) changes, for i from `first` up to `end`."""
    before, head, inside, done = w.block_name, *(w.name(x) for x in ("each", "one", "all"))
    w.do(f"br label %{head}")
    w.block(head)
    i, place = w.counter(first, before)
    places = [place]
    values = []
    for kind, x in starts:
        values.append(w.put(f"phi {kind} [{x}, %{before}]"))
        places.append(len(w.lines) - 1)
    w.do(f"br i1 {w.put(f'icmp slt i64 {i}, {end}')}, label %{inside}, label %{done}")
    w.block(inside)
    after = body(i, values)
    following = w.put(f"add nuw nsw i64 {i}, 1")
    for place, x in zip(places, [following, *after], strict=True):
        w.lines[place] += f", [{x}, %{w.block_name}]"
    w.again(f"br label %{head}", few=True)  # these are vectors already
    w.block(done)
    return values
