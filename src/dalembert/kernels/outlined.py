"""Long functions of LLVM as calls of shorter ones.

LLVM looks through a whole function for every loop that it makes vectors of, so the time to compile grows with the
square of a function's length: it takes 37 seconds for the 34,000 lines of one step of a gradient, and 8 if they are in
parts. The writer of a function marks where it may be cut; between two marks of one region control comes in at the
beginning and goes out at the end.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

BEGIN, CUT, END = "; begin", "; cut", "; end"
"""Marks of a region, as lines of a function."""
LONG, PART = 1600, 800
"""The lines from which on a region is cut, and the lines of a part."""

_NAME = re.compile(r"%[\w.]+")
_DEFINED = re.compile(r"  (%[\w.]+) = (.*)")
_BEFORE = re.compile(r", %([\w.]+)\]")
_TYPE = re.compile(r"<\d+ x \w+>|\bdouble\b|\bptr\b|\bi\d+\b")
_POINTER = re.compile(r"ptr (%[\w.]+)")
_CAST = re.compile(r"(?:[sz]ext|trunc|bitcast|[su]itofp|fpto[su]i) ")


class Split:
    """One function in parts: `lines` are what is left of it, and `functions` what it calls."""

    def __init__(self, name: str, lines: Sequence[str], pointers: Iterable[str]):
        """`lines` are the body with its marks; `pointers` point to pieces of memory that do not overlap."""
        self.name = name
        self.functions: list[str] = []
        self.types = dict.fromkeys(pointers, "ptr")
        self.origin: dict[str, str | None] = {x: x for x in self.types}
        """The piece of memory to which a pointer points."""
        self.labels = {"entry"}
        self.moved: dict[str, str] = {}
        """Where control comes from instead of from a block whose end is in a function of its own now."""
        for line in lines:
            self._learn(line)
        self.uses = Counter(x for line in lines for x in _NAME.findall(line))
        self.lines = [self._rerouted(line) for line in self._cut(lines)]

    def _learn(self, line: str) -> None:
        if line.endswith(":"):
            self.labels.add(line[:-1])
        found = _DEFINED.match(line)
        if found:
            name, text = found.groups()
            self.types[name] = type_of(text)
            if text.startswith("getelementptr"):
                base = _POINTER.search(text)
                # What does not begin at a register is a constant, which nothing writes.
                self.origin[name] = self.origin.get(base[1]) if base else name

    def _resolved(self, label: str) -> str:
        while label in self.moved:
            label = self.moved[label]
        return label

    def _rerouted(self, line: str, start: str | None = None) -> str:
        """The line with the blocks that control comes from now; `start` is the one in which a part begins."""
        if " = phi " not in line:
            return line

        def now(found: re.Match) -> str:
            label = self._resolved(found[1])
            return f", %{'entry' if label == start else label}]"

        return _BEFORE.sub(now, line)

    def _cut(self, lines: Sequence[str]) -> list[str]:
        """The lines without marks, with calls in place of parts."""
        label = "entry"
        # For each open region its parts so far, and the block in which it begins; around them, the function.
        frames: list[tuple[list[list[str]], str]] = [([[]], label)]
        for line in lines:
            if line == BEGIN:
                frames.append(([[]], self._resolved(label)))
            elif line == CUT:
                frames[-1][0].append([])
            elif line == END:
                parts, start = frames.pop()
                frames[-1][0][-1] += self._grouped(parts, start)
            else:
                if line.endswith(":"):
                    label = line[:-1]
                frames[-1][0][-1].append(line)
        return frames[0][0][0]

    def _grouped(self, parts: list[list[str]], label: str) -> list[str]:
        """The lines of a region; `label` is the block in which it begins."""
        if sum(map(len, parts)) < LONG:
            return [line for part in parts for line in part]
        lines: list[str] = []
        waiting: list[str] = []
        for k, part in enumerate(parts):
            waiting += part
            if len(waiting) >= PART or k == len(parts) - 1:
                lines += self._outlined(waiting, label)
                waiting = []
        return lines

    def _outlined(self, lines: list[str], label: str) -> list[str]:
        """The call of a new function with these lines, which begin in the block `label`."""
        inside = Counter(x for line in lines for x in _NAME.findall(line))
        made = {found[1] for line in lines if (found := _DEFINED.match(line))}
        given = [x for x in inside if x not in made and x[1:] not in self.labels]
        wanted = [x for x in sorted(made) if self.uses[x] > inside[x]]
        kinds = [self.types[x] for x in wanted]
        result = "void" if not wanted else kinds[0] if len(wanted) == 1 else f"{{{', '.join(kinds)}}}"
        origins = Counter(self.origin.get(x) for x in given if self.types[x] == "ptr")
        alone = {x for x in given if None not in origins and origins[self.origin.get(x)] == 1}
        heads = [
            f"{self.types[x]} {'noalias ' if x in alone and self.types[x] == 'ptr' else ''}{x}" for x in given
        ]
        function = f"@{self.name}_{len(self.functions)}"
        self.functions.append(
            "\n".join(
                [
                    f"define internal {result} {function}({', '.join(heads)}) noinline {{",
                    "entry:",
                    *(self._rerouted(line, label) for line in lines),
                    *_returned(wanted, kinds, result),
                    "}",
                ]
            )
        )
        ends = [line[:-1] for line in lines if line.endswith(":")]
        if ends:
            self.moved[ends[-1]] = label
        call = f"call {result} {function}({', '.join(f'{self.types[x]} {x}' for x in given)})"
        if len(wanted) < 2:
            after = [f"  {wanted[0]} = {call}" if wanted else f"  {call}"]
        else:
            whole = f"%parts{len(self.functions)}"
            after = [f"  {whole} = {call}"]
            after += [f"  {x} = extractvalue {result} {whole}, {i}" for i, x in enumerate(wanted)]
            self.types[whole] = result
        self.uses -= inside
        self.uses += Counter(x for line in after for x in _NAME.findall(line))
        return after


def _returned(wanted: list[str], kinds: list[str], result: str) -> list[str]:
    """The lines that return these values."""
    if len(wanted) < 2:
        return [f"  ret {result} {wanted[0]}" if wanted else "  ret void"]
    lines, whole = [], "poison"
    for i, (x, kind) in enumerate(zip(wanted, kinds, strict=True)):
        lines.append(f"  %whole{i} = insertvalue {result} {whole}, {kind} {x}, {i}")
        whole = f"%whole{i}"
    return [*lines, f"  ret {result} {whole}"]


def type_of(text: str) -> str:
    """The type of the result of an instruction."""
    kind = _TYPE.findall(text)
    if text.startswith(("getelementptr", "alloca")):
        return "ptr"
    if text.startswith(("icmp", "fcmp")):
        return re.sub(r"x \w+", "x i1", kind[0]) if kind[0].startswith("<") else "i1"
    if text.startswith("extractelement"):
        return kind[0].partition(" x ")[2][:-1]
    if text.startswith("select"):
        return kind[1]
    if _CAST.match(text):
        return _TYPE.findall(text.rpartition(" to ")[2])[0]
    return kind[0]
