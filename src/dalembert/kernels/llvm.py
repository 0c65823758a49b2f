"""Translate the graph of scalars to LLVM's language, for one trajectory or a vector of them.

Every scalar lives in a register: a number, or with `lanes` a vector with one number per member. Loops run until
their last member is done, and each member keeps its own result.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from dalembert.kernels.graph import Node, Unsupported

_NAMES = {"float64": "double", "bool": "i1", "int32": "i32", "int64": "i64", "uint32": "i32", "uint64": "i64"}
TYPES = {np.dtype(name): kind for name, kind in _NAMES.items()}
FLOAT = "contract"  # a product and a sum may share one rounding step, as in C

_FLOATS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_WHOLE = {
    "add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shift_left": "shl",
    "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr",
}  # fmt: skip
_COMPARE = {"eq": ("oeq", "eq"), "ne": ("une", "ne"), "lt": ("olt", "slt"), "le": ("ole", "sle"),
            "gt": ("ogt", "sgt"), "ge": ("oge", "sge")}  # fmt: skip
_INTRINSIC = {
    "sin": "sin", "cos": "cos", "sqrt": "sqrt", "exp": "exp", "exp2": "exp2", "log": "log", "abs": "fabs",
    "floor": "floor", "ceil": "ceil", "pow": "pow", "max": "maximum", "min": "minimum",
}  # fmt: skip
_LIBRARY = {
    "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "atan2": "atan2", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "cbrt": "cbrt",
    "expm1": "expm1", "log1p": "log1p", "erf": "erf", "erfc": "erfc", "nextafter": "nextafter",
}  # fmt: skip


class Value:
    """A register or a constant, and whether it differs between members."""

    __slots__ = ("text", "wide")

    def __init__(self, text: str, wide: bool = False):
        self.text, self.wide = text, wide


def literal(value: np.generic) -> str:
    """A constant in LLVM's spelling."""
    if value.dtype == np.float64:
        return f"0x{np.float64(value).view(np.uint64):016X}"
    return str(int(value)) if value.dtype != bool else ("true" if value else "false")


class Writer:
    """Writes one function: its instructions in order, its blocks, and the external functions that it calls."""

    def __init__(self, lanes: int = 1):
        self.lanes = lanes
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.count = 0
        self.block_name = "entry"
        self.rooms: list[str] = []
        """Memory of the function, made when it begins."""

    def name(self, prefix: str = "v") -> str:
        """A new name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def put(self, text: str) -> str:
        """Writes an instruction with a result; returns its register."""
        register = f"%{self.name()}"
        self.lines.append(f"  {register} = {text}")
        return register

    def do(self, text: str) -> None:
        """Writes an instruction without a result."""
        self.lines.append(f"  {text}")

    def block(self, name: str) -> None:
        """Begins a block; the jump to it from the previous block must already be written."""
        self.lines.append(f"{name}:")
        self.block_name = name

    def type(self, dtype: np.dtype, wide: bool) -> str:
        """The type of a value."""
        name = TYPES.get(dtype)
        if name is None:
            raise Unsupported("convert_element_type", f"numbers of type {dtype}")
        return f"<{self.lanes} x {name}>" if wide and self.lanes > 1 else name

    def widen(self, x: Value, dtype: np.dtype) -> Value:
        """x as a vector over the members."""
        if x.wide or self.lanes == 1:
            return Value(x.text, True)
        kind = TYPES[dtype]
        if not x.text.startswith("%"):
            return Value("<" + ", ".join([f"{kind} {x.text}"] * self.lanes) + ">", True)
        one = self.put(f"insertelement <{self.lanes} x {kind}> poison, {kind} {x.text}, i32 0")
        wide = self.put(
            f"shufflevector <{self.lanes} x {kind}> {one}, <{self.lanes} x {kind}> poison, "
            f"<{self.lanes} x i32> zeroinitializer"
        )
        return Value(wide, True)

    def number(self, value: float, dtype: np.dtype, wide: bool) -> str:
        """A constant, either once or for every member."""
        text = literal(dtype.type(value))
        return self.widen(Value(text), dtype).text if wide else text

    def call(
        self, function: str, dtype: np.dtype, arguments: Sequence[Value], wide: bool, result: str = ""
    ) -> str:
        """Writes a call of an intrinsic function of numbers or vectors; returns the register of its result."""
        kind = self.type(dtype, wide)
        result = result or kind
        self.declared.add(f"declare {result} @{function}({', '.join([kind] * len(arguments))})")
        return self.put(f"call {result} @{function}({', '.join(f'{kind} {a.text}' for a in arguments)})")

    def usually(self, condition: str, here: str, there: str) -> None:
        """Writes a branch that usually goes to `here`, and seldom to `there`, which saves and restores registers."""
        self.declared.add('!0 = !{!"branch_weights", i32 2000, i32 1}')
        self.do(f"br i1 {condition}, label %{here}, label %{there}, !prof !0")

    def reduce(self, how: str, mask: Value) -> str:
        """Whether a condition holds for any ("or") or for all ("and") members."""
        if self.lanes == 1 or not mask.wide:
            return mask.text
        function = f"llvm.vector.reduce.{how}.v{self.lanes}i1"
        return self.call(function, np.dtype(bool), [mask], True, "i1")

    def instruction(self, node: Node, arguments: list[Value]) -> Value:
        """Writes one operation; returns its value."""
        wide = self.lanes > 1 and any(a.wide for a in arguments)
        if wide:
            keep = node.op == "select_n" and not arguments[0].wide
            arguments = [
                a if a.wide or (keep and i == 0) else self.widen(a, node.args[i].dtype)
                for i, a in enumerate(arguments)
            ]
        kind = node.args[0].dtype.kind
        for table in (_list, _select, _arithmetic, _functions, _conversions):
            text = table(self, node, arguments, kind, wide)
            if text:
                return Value(text, wide)
        raise Unsupported(node.op)

    def suffix(self, dtype: np.dtype, wide: bool) -> str:
        """The type of a value as the names of intrinsics spell it."""
        number = f"{'f' if dtype.kind == 'f' else 'i'}{8 * dtype.itemsize}"
        return f"v{self.lanes}{number}" if wide and self.lanes > 1 else number

    def function(self, head: str) -> tuple[str, set[str]]:
        """The whole function, and the external functions that it calls."""
        rooms = "".join(f"  {room}\n" for room in self.rooms)
        return f"{head} {{\nentry:\n{rooms}" + "\n".join(self.lines) + "\n}", self.declared


def _list(w: Writer, node: Node, a: list[Value], kind: str, wide: bool) -> str:
    if node.op != "list":
        return ""
    if wide:
        raise Unsupported("scan", "over numbers chosen differently by each member")
    numbers = [literal(np.float64(x)) for x in node.params]
    name = f"@list{hashlib.sha256(repr(numbers).encode()).hexdigest()[:16]}"
    array = f"[{len(numbers)} x double]"
    w.declared.add(f"{name} = private constant {array} [{', '.join(f'double {x}' for x in numbers)}]")
    index = w.type(node.args[0].dtype, False)
    return w.put(
        f"load double, ptr {w.put(f'getelementptr {array}, ptr {name}, i64 0, {index} {a[0].text}')}"
    )


def _select(w: Writer, node: Node, a: list[Value], kind: str, wide: bool) -> str:
    if node.op != "select_n":
        return ""
    if node.args[0].dtype != bool or len(a) != 3:
        raise Unsupported("select_n", "among more than two cases")
    mask = w.type(np.dtype(bool), wide and a[0].wide)
    of = w.type(node.dtype, wide)
    return w.put(f"select {mask} {a[0].text}, {of} {a[2].text}, {of} {a[1].text}")


def _arithmetic(w: Writer, node: Node, a: list[Value], kind: str, wide: bool) -> str:
    of = w.type(node.args[0].dtype, wide)
    if node.op in _COMPARE:
        # Booleans compare as unsigned numbers: true is greater than false.
        code = _COMPARE[node.op][0] if kind == "f" else _COMPARE[node.op][1]
        code = code.replace("s", "u") if kind in "bu" else code
        return w.put(f"{'fcmp' if kind == 'f' else 'icmp'} {code} {of} {a[0].text}, {a[1].text}")
    if kind == "f" and node.op in _FLOATS:
        return w.put(f"{_FLOATS[node.op]} {FLOAT} {of} {a[0].text}, {a[1].text}")
    if kind == "f" and node.op == "neg":
        return w.put(f"fneg {of} {a[0].text}")
    if kind in "ibu" and node.op in _WHOLE:
        return w.put(f"{_WHOLE[node.op]} {of} {a[0].text}, {a[1].text}")
    dtype = node.args[0].dtype

    def one(value):
        return w.number(value, dtype, wide)

    if kind in "ibu" and node.op == "not":
        return w.put(f"xor {of} {a[0].text}, {one(True) if kind == 'b' else one(-1)}")
    if kind == "i" and node.op == "neg":
        return w.put(f"sub {of} {one(0)}, {a[0].text}")
    if kind in "iu" and node.op in ("div", "rem"):
        # As in JAX, x/0 is -1, or the largest unsigned number, and x rem 0 is x.
        mask = w.type(np.dtype(bool), wide)
        zero = w.put(f"icmp eq {of} {a[1].text}, {one(0)}")
        safe = w.put(f"select {mask} {zero}, {of} {one(1)}, {of} {a[1].text}")
        value = w.put(f"{'s' if kind == 'i' else 'u'}{node.op} {of} {a[0].text}, {safe}")
        other = one(-1 if kind == "i" else np.iinfo(dtype).max) if node.op == "div" else a[0].text
        return w.put(f"select {mask} {zero}, {of} {other}, {of} {value}")
    return ""


def _functions(w: Writer, node: Node, a: list[Value], kind: str, wide: bool) -> str:
    dtype, of = node.args[0].dtype, w.type(node.args[0].dtype, wide)
    suffix = w.suffix(dtype, wide)
    if kind == "f" and node.op in _INTRINSIC:
        return w.call(f"llvm.{_INTRINSIC[node.op]}.{suffix}", dtype, a, wide)
    if kind == "f" and node.op == "round":
        even = "EVEN" in str(node.params[1].get("rounding_method"))
        return w.call(f"llvm.{'rint' if even else 'round'}.{suffix}", dtype, a, wide)
    if kind in "iu" and node.op in ("max", "min"):
        return w.call(f"llvm.{'s' if kind == 'i' else 'u'}{node.op}.{suffix}", dtype, a, wide)
    if kind == "b" and node.op in ("max", "min"):
        return w.put(f"{'or' if node.op == 'max' else 'and'} {of} {a[0].text}, {a[1].text}")

    def number(value):
        return w.number(value, dtype, wide)

    if kind == "f" and node.op == "rsqrt":
        root = w.call(f"llvm.sqrt.{suffix}", dtype, a, wide)
        return w.put(f"fdiv {of} {number(1)}, {root}")
    if kind == "f" and node.op == "logistic":
        minus = Value(w.put(f"fneg {of} {a[0].text}"), wide)
        power = w.call(f"llvm.exp.{suffix}", dtype, [minus], wide)
        return w.put(f"fdiv {of} {number(1)}, {w.put(f'fadd {of} {number(1)}, {power}')}")
    if kind in "fi" and node.op in ("sign", "abs"):
        mask, code = w.type(np.dtype(bool), wide), "fcmp o" if kind == "f" else "icmp s"
        below = w.put(f"{code}lt {of} {a[0].text}, {number(0)}")
        if node.op == "abs":
            minus = w.put(f"sub {of} {number(0)}, {a[0].text}")
            return w.put(f"select {mask} {below}, {of} {minus}, {of} {a[0].text}")
        above = w.put(f"{code}gt {of} {a[0].text}, {number(0)}")
        rest = w.put(f"select {mask} {below}, {of} {number(-1)}, {of} {a[0].text}")  # zero and NaN stay
        return w.put(f"select {mask} {above}, {of} {number(1)}, {of} {rest}")
    if kind == "f" and node.op in _LIBRARY:
        return _library(w, _LIBRARY[node.op], a, wide)
    return ""


def _library(w: Writer, function: str, arguments: list[Value], wide: bool) -> str:
    """Writes calls of a function of the C library, one member at a time."""
    w.declared.add(f"declare double @{function}({', '.join(['double'] * len(arguments))})")
    if not wide:
        return w.put(f"call double @{function}({', '.join(f'double {a.text}' for a in arguments)})")
    vector, result = f"<{w.lanes} x double>", "poison"
    for i in range(w.lanes):
        parts = [w.put(f"extractelement {vector} {a.text}, i32 {i}") for a in arguments]
        value = w.put(f"call double @{function}({', '.join(f'double {x}' for x in parts)})")
        result = w.put(f"insertelement {vector} {result}, double {value}, i32 {i}")
    return result


def _conversions(w: Writer, node: Node, a: list[Value], kind: str, wide: bool) -> str:
    if node.op == "bitcast_convert_type" and node.dtype.itemsize == node.args[0].dtype.itemsize:
        return w.put(f"bitcast {w.type(node.args[0].dtype, wide)} {a[0].text} to {w.type(node.dtype, wide)}")
    if node.op != "convert_element_type":
        return ""
    source, target = node.args[0].dtype, node.dtype
    before, after = w.type(source, wide), w.type(target, wide)
    if target.kind == "b":
        zero = w.number(0, source, wide)
        return w.put(f"{'fcmp une' if kind == 'f' else 'icmp ne'} {before} {a[0].text}, {zero}")
    if kind == "f" and target.kind == "u":
        raise Unsupported(node.op, f"to {target}")
    if kind == "f":
        name = f"llvm.fptosi.sat.{w.suffix(target, wide)}.{w.suffix(source, wide)}"
        return w.call(name, source, a, wide, after)
    if target.kind == "f":
        return w.put(f"{'uitofp' if kind in 'bu' else 'sitofp'} {before} {a[0].text} to {after}")
    if target.itemsize == source.itemsize and kind != "b":
        return a[0].text
    longer = target.itemsize > source.itemsize
    how = "zext" if kind == "b" or (kind == "u" and longer) else "sext" if longer else "trunc"
    return w.put(f"{how} {before} {a[0].text} to {after}")
