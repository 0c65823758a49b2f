"""Time loops as machine code: one trajectory, or many side by side."""

import ctypes
import functools
import importlib.metadata
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from dalembert.kernels import cache
from dalembert.kernels.graph import Node, Region, Unsupported
from dalembert.kernels.llvm import TYPES, Value, Writer, literal
from dalembert.kernels.scalars import Plan, Scalars
from dalembert.kernels.sine_cosine import circles
from dalembert.kernels.traced import Functions, Made, Shapes, dtypes_of, shape_of
from dalembert.kernels.waiting import begun, compiling, interruptible, making


class Function:
    """A plan that can be written into a Writer wherever it is called."""

    def __init__(self, plan: Plan):
        self.plan = plan

    def write(self, w: Writer, inputs: Sequence[Value]) -> list[Value]:
        """Writes the instructions that compute the outputs from the inputs; returns the outputs."""
        self.w = w
        values = {n.id: inputs[n.value] for n in self.plan.needed.values() if n.op == "input"}
        self._region(self.plan.root, values)
        return [self._read(node, values) for node in self.plan.outputs]

    def _read(self, node: Node, values: dict) -> Value:
        return Value(literal(node.value)) if node.op == "const" else values[node.id]

    def _wide(self, node: Node, values: dict) -> Value:
        value = self._read(node, values)
        return self.w.widen(value, node.dtype) if self.w.lanes > 1 else value

    def _region(self, region: Region, values: dict) -> None:
        for node in self.plan.in_groups(region):
            if isinstance(node, list):
                self._circles(node, values)
            elif node.op == "result":
                values[node.id] = values[node.args[0].id][node.value]
            elif node.op == "series":
                series, order = node.params
                inputs = [self._read(a, values) for a in node.args]
                values[node.id] = series.write(self.w, inputs, order, _evaluate)
            elif node.op in ("while", "loop", "cond"):
                values[node.id] = {"while": self._while, "loop": self._loop, "cond": self._cond}[node.op](
                    node, values
                )
            else:
                values[node.id] = self.w.instruction(node, [self._read(a, values) for a in node.args])

    def _circles(self, group: list[Node], values: dict) -> None:
        """Writes sines and cosines, several arguments at a time."""
        wanted: dict[int, list[Node]] = {}
        for node in group:
            wanted.setdefault(node.args[0].id, []).append(node)
        # Arguments that need only the sine, which is cheaper, go together.
        sets = sorted(wanted.values(), key=lambda nodes: nodes[0].op != "sin" or len(nodes) > 1)
        width = 1 if self.w.lanes > 1 else vector_width()
        for start in range(0, len(sets), width):
            these = sets[start : start + width]
            angles = [self._read(nodes[0].args[0], values) for nodes in these]
            both = any(node.op == "cos" for nodes in these for node in nodes)
            for nodes, results in zip(these, circles(self.w, angles, both), strict=True):
                for node in nodes:
                    values[node.id] = results[node.op == "cos"]

    def _phi(
        self, nodes: Sequence[Node], starts: Sequence[Value], before: str
    ) -> tuple[list[str], list[int], str]:
        """Writes loop variables; their values at the end of the loop are filled in later."""
        registers, places = [], []
        for node, start in zip(nodes, starts, strict=True):
            registers.append(
                self.w.put(f"phi {self.w.type(node.dtype, self.w.lanes > 1)} [{start.text}, %{before}]")
            )
            places.append(len(self.w.lines) - 1)
        return registers, places, before

    def _close(self, places: Sequence[int], ends: Sequence[Value], block: str) -> None:
        for place, end in zip(places, ends, strict=True):
            self.w.lines[place] += f", [{end.text}, %{block}]"

    def _while(self, node: Node, values: dict) -> dict[int, Value]:
        w, (condition, body) = self.w, node.params
        wide = w.lanes > 1
        moving, fixed = self.plan.carried(node, body)
        still = {i: self._wide(node.args[i], values) for i in fixed}
        starts = [self._wide(node.args[i], values) for i in moving]
        head, inside, done = w.name("while"), w.name("do"), w.name("done")
        before = w.block_name
        w.do(f"br label %{head}")
        w.block(head)
        registers, places, _ = self._phi([node.args[i] for i in moving], starts, before)
        now = {**dict(zip(moving, [Value(r, wide) for r in registers], strict=True)), **still}
        active = ""
        if wide:
            active = w.put(f"phi <{w.lanes} x i1> [{self._all_true()}, %{before}]")
            active_place = len(w.lines) - 1
        inner = {**values, **{condition.parameters[i].id: x for i, x in now.items()}}
        self._region(condition, inner)
        going = self._wide(condition.results[0], inner)
        if wide:
            going = Value(w.put(f"and <{w.lanes} x i1> {going.text}, {active}"), True)
        w.do(f"br i1 {w.reduce('or', going)}, label %{inside}, label %{done}")
        w.block(inside)
        inner = {**values, **{body.parameters[i].id: x for i, x in now.items()}}
        self._region(body, inner)
        ends = [self._wide(body.results[i], inner) for i in moving]
        if wide:
            ends = [
                Value(w.put(f"select <{w.lanes} x i1> {going.text}, {t} {new.text}, {t} {old}"), True)
                for new, old, t in zip(
                    ends, registers, [w.type(node.args[i].dtype, True) for i in moving], strict=True
                )
            ]
            w.lines[active_place] += f", [{going.text}, %{w.block_name}]"
        self._close(places, ends, w.block_name)
        w.do(f"br label %{head}")
        w.block(done)
        return now

    def _all_true(self) -> str:
        return "<" + ", ".join(["i1 true"] * self.w.lanes) + ">"

    def _loop(self, node: Node, values: dict) -> dict[int, Value]:
        w, (body, length) = self.w, node.params
        moving, fixed = self.plan.carried(node, body)
        still = {i: self._wide(node.args[i], values) for i in fixed}
        starts = [self._wide(node.args[i], values) for i in moving]
        head, done, before = w.name("loop"), w.name("done"), w.block_name
        w.do(f"br label %{head}")
        w.block(head)
        counter = w.put(f"phi i32 [0, %{before}]")
        counter_place = len(w.lines) - 1
        registers, places, _ = self._phi([node.args[i] for i in moving], starts, before)
        now = {**dict(zip(moving, [Value(r, w.lanes > 1) for r in registers], strict=True)), **still}
        inner = {**values, body.parameters[0].id: Value(counter)}
        inner.update({body.parameters[i + 1].id: x for i, x in now.items()})
        self._region(body, inner)
        ends = [self._wide(body.results[i], inner) for i in moving]
        following = w.put(f"add i32 {counter}, 1")
        w.lines[counter_place] += f", [{following}, %{w.block_name}]"
        self._close(places, ends, w.block_name)
        again = w.put(f"icmp slt i32 {following}, {length}")
        w.do(f"br i1 {again}, label %{head}, label %{done}")
        w.block(done)
        return {**dict(zip(moving, ends, strict=True)), **still}

    def _cond(self, node: Node, values: dict) -> dict[int, Value]:
        w, kept = self.w, sorted(self.plan.kept[node.id])
        index = self._read(node.args[0], values)
        regions = node.params
        # The last branch is the usual one. If members may differ, it is computed for all of them, and the other
        # branches only if a member needs them. Otherwise it is the first of a chain of two-way choices.
        mask = self._is_at_least(node, index, len(regions) - 1)
        if w.lanes == 1 or not index.wide:
            chosen = self._chain(node, index, len(regions) - 1, kept, values)
            return dict(zip(kept, chosen, strict=True))
        usual = self._branch(regions[-1], kept, values)
        before, others, end = w.block_name, w.name("others"), w.name("end")
        w.usually(w.reduce("and", mask), end, others)
        w.block(others)
        mixed = self._branch(regions[0], kept, values)
        for k in range(1, len(regions)):
            here = self._is_at_least(node, index, k)
            these = usual if k == len(regions) - 1 else self._branch(regions[k], kept, values)
            for j, i in enumerate(kept):
                t = w.type(regions[0].results[i].dtype, True)
                text = f"select <{w.lanes} x i1> {here.text}, {t} {these[j].text}, {t} {mixed[j].text}"
                mixed[j] = Value(w.put(text), True)
        after = w.block_name
        w.do(f"br label %{end}")
        w.block(end)
        result: dict[int, Value] = {}
        for j, i in enumerate(kept):
            t = w.type(regions[0].results[i].dtype, True)
            text = f"phi {t} [{usual[j].text}, %{before}], [{mixed[j].text}, %{after}]"
            result[i] = Value(w.put(text), True)
        return result

    def _chain(self, node: Node, index: Value, k: int, kept: list[int], values: dict) -> list[Value]:
        """Writes branches k, k-1, ..., 0 of a choice that is the same for all members; returns the results."""
        w = self.w
        if k == 0:
            return self._branch(node.params[0], kept, values)
        mask = self._is_at_least(node, index, k)
        yes, no, end = w.name("yes"), w.name("no"), w.name("end")
        w.usually(mask.text, yes, no)
        w.block(yes)
        first, yes_end = self._branch(node.params[k], kept, values), w.block_name
        w.do(f"br label %{end}")
        w.block(no)
        second, no_end = self._chain(node, index, k - 1, kept, values), w.block_name
        w.do(f"br label %{end}")
        w.block(end)
        types = [w.type(node.params[0].results[i].dtype, w.lanes > 1) for i in kept]
        return [
            Value(w.put(f"phi {t} [{a.text}, %{yes_end}], [{b.text}, %{no_end}]"), w.lanes > 1)
            for t, a, b in zip(types, first, second, strict=True)
        ]

    def _is_at_least(self, node: Node, index: Value, k: int) -> Value:
        if node.args[0].dtype == bool:
            return index
        wide = index.wide and self.w.lanes > 1
        of = self.w.type(node.args[0].dtype, wide)
        bound = self.w.number(k, node.args[0].dtype, wide)
        return Value(self.w.put(f"icmp sge {of} {index.text}, {bound}"), wide)

    def _branch(self, region: Region, kept: list[int], values: dict) -> list[Value]:
        inner = dict(values)
        self._region(region, inner)
        return [self._wide(region.results[i], inner) for i in kept]


def _evaluate(w: Writer, plan: Plan, inputs: Sequence[Value]) -> list[Value]:
    """Writes a plan into a function of its own."""
    return Function(plan).write(w, inputs)


@functools.cache
def _host() -> tuple[Any, str, str]:
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise Unsupported("llvmlite", f"which is not installed ({error})") from error

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple(), llvm.get_host_cpu_name(), features


@functools.cache
def vector_width() -> int:
    """The number of float64 numbers that this machine computes at once."""
    return 4 if "+avx" in _host()[2].split(",") else 2


TARGET = {"jit": True, "reloc": "pic"}
PASSES: dict[str, Any] = {
    "opt": 3,
    "speed_level": 1,
    "loop_unrolling": False,
    "loop_vectorization": False,
    "slp_vectorization": False,
}
LOOP_PASSES = {**PASSES, "speed_level": 2, "loop_vectorization": True}
"""For code with loops over arrays."""
UNCHANGED = {"opt": 3}
"""For long code of scalars. Equal and needless operations are gone before LLVM sees it, so passes gain nothing there
but take a third of the time."""
LONG = 5000
"""The number of lines from which code is long."""
ONCE = {"opt": 1}
"""For code that runs once per run: it takes less than half the time to compile, and runs somewhat longer."""


def _target_machine(opt: int) -> Any:
    target, cpu, features = _host()
    return target.create_target_machine(cpu=cpu, features=features, opt=opt, **TARGET)


@functools.cache
def origin() -> dict[str, Any]:
    """What shapes the code besides the text and the passes: versions, the processor, and the kind of object file."""
    target, cpu, features = _host()  # llvmlite may be missing
    import llvmlite
    import llvmlite.binding as llvm

    try:
        version = importlib.metadata.version("dalembert")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return {
        "dalembert": version,
        "llvmlite": llvmlite.__version__,
        "llvm": llvm.llvm_version_info,
        "triple": llvm.get_process_triple(),
        "target": target.name,
        "cpu": cpu,
        "features": features,
        **TARGET,
    }


def optimise_and_emit(text: str, passes: dict[str, Any]) -> bytes:
    """The object code of a text, by LLVM. Several threads may call this at once."""
    import llvmlite.binding as llvm
    from llvmlite.binding import ffi

    machine = _target_machine(passes["opt"])
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    if "speed_level" in passes:
        options = llvm.create_pipeline_tuning_options()
        for name in passes.keys() - {"opt"}:
            setattr(options, name, passes[name])
        builder = llvm.create_pass_builder(machine, options)
        _unlocked(ffi.lib.LLVMPY_RunNewModulePassManager)(builder.getModulePassManager(), module, builder)
    with ffi.OutputString() as error:
        buffer = _unlocked(ffi.lib.LLVMPY_TargetMachineEmitToMemory)(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _unlocked(function: Any) -> Callable:
    """A function of LLVM's library that other threads may call meanwhile, each on a module and a context of its own.

    llvmlite lets one thread at a time call anything in the library. Should it come to do so in another way, this is the
    function that waits.
    """
    return getattr(function, "_cfn", function)


def code_key(text: str, passes: dict[str, Any]) -> str:
    """The key under which the object code of a text is kept."""
    return cache.key_of(text, passes=sorted(passes.items()), **origin())


def _compiled_by(key: str, text: str, passes: dict[str, Any]) -> Callable[[], bytes]:
    def work() -> bytes:
        code = optimise_and_emit(text, passes)
        cache.keep(key, code)
        return code

    return work


def object_code(text: str, passes: dict[str, Any]) -> bytes:
    """The object code of a text, from the disk if it was compiled before.

    The text names all functions that it calls, and holds no addresses, so the code runs in other processes, too.
    """
    key = code_key(text, passes)
    found = cache.find(key)
    return interruptible(key, _compiled_by(key, text, passes)) if found is None else found


Text = tuple[str, set[str]]
"""A function, and what it uses."""


def joined(functions: Sequence[Text]) -> str:
    """The text of functions and of all that they use."""
    declared = set().union(*(names for _, names in functions))
    return "\n".join([*(text for text, _ in functions), *sorted(declared)])


class Once:
    """Functions that are called once per run; another thread compiles them while this one writes those of a step."""

    def __init__(self, *functions: Text):
        text = joined(functions)
        self.key = code_key(text, ONCE)
        found = cache.find(self.key)
        self.code: Callable[[], bytes] = (
            begun(self.key, _compiled_by(self.key, text, ONCE)).wait if found is None else lambda: found
        )
        """Returns the object code, when it is there."""


class Machine:
    """Compiled modules; `function` returns a callable that runs without Python's lock."""

    def __init__(self, codes: dict[str, bytes]):
        self.keys = tuple(codes)
        """The keys under which the code is kept."""
        _host()  # llvmlite may be missing
        import llvmlite.binding as llvm

        self._engines = []
        for code in codes.values():
            # An engine must begin with a module; this one is empty, so that LLVM has nothing to compile. Each code has
            # an engine of its own: in one, functions of the same name, even internal ones, would be mixed up.
            engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(opt=3))
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            engine.finalize_object()
            self._engines.append(engine)

    def function(self, name: str, arguments: Sequence[Any], result: Any = None) -> Any:
        """The function with this name."""
        address = next(filter(None, (engine.get_function_address(name) for engine in self._engines)))
        function = ctypes.CFUNCTYPE(result, *arguments)(address)
        setattr(function, "machine", self)  # noqa: B010 (the code lives as long as the function)
        return function


TRACING = "tracing the functions of the system, which are compiled next"
_POINTER, _LONG = ctypes.c_void_p, ctypes.c_int64


class Block(Writer):
    """A writer that also reads and writes memory, where everything is stored as float64."""

    def load(self, pointer: str, index: int, dtype: np.dtype, stride: str = "", lane: str = "") -> Value:
        """Loads entry `index` of a vector or, with a stride, row `index` of the members from `lane` on."""
        wide = bool(stride) and self.lanes > 1
        at = self._address(pointer, index, stride, lane)
        value = self.put(f"load {self.type(np.dtype(float), wide)}, ptr {at}, align 8")
        before, after = self.type(np.dtype(float), wide), self.type(dtype, wide)
        if dtype.kind == "b":
            zero = self.number(0, np.dtype(float), wide)
            value = self.put(f"fcmp une {before} {value}, {zero}")
        elif dtype.kind == "i":
            value = self.put(f"fptosi {before} {value} to {after}")
        return Value(value, wide)

    def store(
        self, x: Value, dtype: np.dtype, pointer: str, index: int, stride: str = "", lane: str = ""
    ) -> None:
        """Stores a value where `load` would read it."""
        wide = bool(stride) and self.lanes > 1
        if wide:
            x = self.widen(x, dtype)
        text, after = x.text, self.type(np.dtype(float), wide)
        if dtype.kind in "ib":
            how = "uitofp" if dtype.kind == "b" else "sitofp"
            text = self.put(f"{how} {self.type(dtype, wide)} {text} to {after}")
        self.do(f"store {after} {text}, ptr {self._address(pointer, index, stride, lane)}, align 8")

    def _address(self, pointer: str, index: int, stride: str, lane: str) -> str:
        if not stride:
            return self.put(f"getelementptr double, ptr {pointer}, i64 {index}")
        row = self.put(f"mul i64 {stride}, {index}")
        return self.put(f"getelementptr double, ptr {pointer}, i64 {self.put(f'add i64 {row}, {lane}')}")

    def phis(
        self, dtypes: Sequence[np.dtype], starts: Sequence[Value], before: str
    ) -> tuple[list[Value], list[int]]:
        """Writes loop variables; returns them, and the lines that `close` completes."""
        wide = self.lanes > 1
        places, values = [], []
        for dtype, start in zip(dtypes, starts, strict=True):
            values.append(Value(self.put(f"phi {self.type(dtype, wide)} [{start.text}, %{before}]"), wide))
            places.append(len(self.lines) - 1)
        return values, places

    def close(self, places: Sequence[int], ends: Sequence[Value]) -> None:
        """Completes loop variables with their values at the end of the loop body, which is the current block."""
        for place, end in zip(places, ends, strict=True):
            self.lines[place] += f", [{end.text}, %{self.block_name}]"

    def counter(self, start: str, before: str) -> tuple[str, int]:
        """Writes an integer loop variable; returns it, and the line that must be completed."""
        return self.put(f"phi i64 [{start}, %{before}]"), len(self.lines) - 1

    def each(self, first: Any, end: Any, body: Callable[[str], None]) -> None:
        """Writes body(i) for i from `first` up to `end`."""
        before, head, inside, done = self.block_name, *(self.name(x) for x in ("each", "one", "all"))
        self.do(f"br label %{head}")
        self.block(head)
        i, place = self.counter(first, before)
        self.do(f"br i1 {self.put(f'icmp slt i64 {i}, {end}')}, label %{inside}, label %{done}")
        self.block(inside)
        body(i)
        self.lines[place] += f", [{self.put(f'add nuw nsw i64 {i}, 1')}, %{self.block_name}]"
        self.again(f"br label %{head}")
        self.block(done)

    def again(self, branch: str, few: bool = False) -> None:
        """Writes the branch that closes a loop, whose vectors are to be taken one after the other.

        LLVM would take four at once. Rows here are short, so most of a row would then be left for the loop of single
        numbers that follows, and the code would be much longer. LLVM makes no vectors for loops of few repetitions, but
        takes long to find that out.
        """
        if few:
            self.declared |= {
                "!4 = distinct !{!4, !5}",
                '!5 = !{!"llvm.loop.vectorize.enable", i1 false}',
            }
            self.do(f"{branch}, !llvm.loop !4")
            return
        self.declared |= {
            "!2 = distinct !{!2, !3}",
            '!3 = !{!"llvm.loop.interleave.count", i32 1}',
        }
        self.do(f"{branch}, !llvm.loop !2")

    def when(self, condition: str, body: Callable[[], None]) -> None:
        """Writes body(), for the case that the condition holds."""
        yes, done = self.name("yes"), self.name("done")
        self.do(f"br i1 {condition}, label %{yes}, label %{done}")
        self.block(yes)
        body()
        self.do(f"br label %{done}")
        self.block(done)


def _shapes(example: Any) -> tuple[Shapes, Any]:
    leaves, tree = jax.tree.flatten(example)
    return [shape_of(x) for x in leaves], tree


class TimeLoop:
    """What all forms of a time loop share: the shapes of its numbers, and where the important ones are."""

    lanes = 1
    """The number of members that `many` runs side by side."""

    def __init__(self, made: Made, carry: Any, row: Any):
        self.made = made
        leaves, self.tree = jax.tree.flatten((made.parameters, made.start))
        self.inputs = [shape_of(x) for x in leaves]
        """How the parameters and the start are made from arrays of these shapes."""
        count = len(jax.tree.leaves(made.parameters))
        self.parameters, self.start = dtypes_of(self.inputs[:count]), dtypes_of(self.inputs[count:])
        self.examples = carry, row
        """A carry and a row, of shapes and types alone."""
        (self.carry_shapes, self.carry_tree), (self.row_shapes, self.row_tree) = map(_shapes, self.examples)
        self.row_sizes = [math.prod(shape) for shape, _ in self.row_shapes]
        self.carry, self.row = dtypes_of(self.carry_shapes), dtypes_of(self.row_shapes)
        self.report, self.counted = self.entries(made.report), self.entries(made.counted)
        self.code = self.report[0]
        self.distinct = list(range(len(self.row)))
        """Entries of a row that are always equal are kept once."""
        self.copies = self.distinct
        """For every entry of a row, its position among the distinct entries."""

    @property
    def whole(self) -> "TimeLoop":
        """The loop with its traced functions."""
        return self

    def entries(self, which: Callable) -> list[int]:
        """The positions of the scalars `which(carry)` among the entries of the carry."""
        number = jax.tree.unflatten(self.carry_tree, range(len(self.carry_shapes)))
        return [sum(math.prod(s) for s, _ in self.carry_shapes[:k]) for k in which(number)]

    def rows(self, block: Any) -> Any:
        """Rows of numbers, shape (K, R), as the tree of arrays that `output` returns, with K as first axis."""
        leaves, position = [], 0
        for (shape, dtype), size in zip(self.row_shapes, self.row_sizes, strict=True):
            part = block[:, position : position + size]
            leaves.append((part if len(shape) == 1 else part.reshape(len(block), *shape)).astype(dtype))
            position += size
        return jax.tree.unflatten(self.row_tree, leaves)

    def single(self) -> tuple[Callable, Callable]:
        """start(parameters, start, carry, row) and run(parameters, carry, first, every, count, rows, capacity).

        All arrays are float64. `run` makes up to `count` steps and writes a row after `first` steps and then after
        every `every` steps. It returns the number of full rows; the row after them holds the last state.
        """
        code = self.machine()
        start = code.function("start", [_POINTER] * 4)
        run = code.function("run", [_POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER, _LONG], _LONG)
        return start, run

    def machine(self) -> "Machine":
        """The functions `start` and `run`."""
        raise NotImplementedError

    def many(self, varied: Sequence[bool]) -> Callable:
        """run(shared, own, starts, stride, first, last, steps, every, rows, report), where all arrays are float64.

        Parameter i is shared[i] or, if it varies, row `sum(varied[:i])` of `own`. `own`, `starts` and `report` hold
        one row per quantity, with `stride` members in it. `rows` holds one such block per saved row, with the distinct
        entries of the row; the start comes first. The members from `first` up to `last` are run; their number must be a
        multiple of `lanes`.
        """
        types = [_POINTER, _POINTER, _POINTER, _LONG, _LONG, _LONG, _LONG, _LONG, _POINTER, _POINTER]
        return self.machine_of_many(varied).function("many", types)

    def machine_of_many(self, varied: Sequence[bool]) -> "Machine":
        """The function `many`."""
        raise NotImplementedError

    def text_of_many(self, varied: Sequence[bool]) -> str:
        """The text of `many`, with all that it calls, for one member at a time."""
        raise NotImplementedError


class Loop(TimeLoop):
    """A time loop in scalar operations, for small systems."""

    def __init__(self, functions: Functions, gpu: bool = False):
        super().__init__(functions.made, functions.begin.example, functions.output.example)
        options = {"fixed": len(self.parameters), "gpu": gpu}
        self.begin, self.output = (Scalars(part, **options) for part in (functions.begin, functions.output))
        self._later: Callable[[], Scalars] | None = lambda: Scalars(functions.step, **options)
        self._lock = threading.Lock()
        # These are mostly a velocity and the method's own velocity.
        same = [node.id for node in self.output.plan.outputs]
        self.distinct = [i for i, node in enumerate(same) if same.index(node) == i]
        self.copies = [self.distinct.index(same.index(node)) for node in same]

    @property
    def step(self) -> Scalars:
        """The operations of a step, made when they are first asked for."""
        with self._lock:
            if self._later is not None:
                self._step, self._later = self._later(), None
            return self._step

    @property
    def lanes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """They fill two registers, which keeps the arithmetic units busy."""
        return 2 * vector_width()

    def for_gpu(self) -> "Loop":
        """The same loop, in operations that Triton has."""
        return Loop(Functions(self.made), gpu=True)

    def machine(self) -> "Machine":
        """The functions `start` and `run`."""
        row = self._row()
        once = Once(row, self._start())
        run = self._run()
        return machine(row, run, once=once, passes=UNCHANGED if run[0].count("\n") > LONG else PASSES)

    def _row(self) -> tuple[str, set[str]]:
        w = Block()
        inputs = [w.load("%parameters", i, t) for i, t in enumerate(self.parameters)]
        inputs += [w.load("%carry", i, t) for i, t in enumerate(self.carry)]
        for i, (x, t) in enumerate(zip(Function(self.output.plan).write(w, inputs), self.row, strict=True)):
            w.store(x, t, "%row", i)
        w.do("ret void")
        head = "define internal void @row(ptr noalias %parameters, ptr noalias %carry, ptr noalias %row) noinline"
        return w.function(head)

    def _start(self) -> tuple[str, set[str]]:
        w = Block()
        inputs = [w.load("%parameters", i, t) for i, t in enumerate(self.parameters)]
        inputs += [w.load("%first", i, t) for i, t in enumerate(self.start)]
        self._keep(w, Function(self.begin.plan).write(w, inputs))
        w.do("call void @row(ptr %parameters, ptr %carry, ptr %row)")
        w.do("ret void")
        head = "define void @start(ptr noalias %parameters, ptr noalias %first, ptr noalias %carry, ptr noalias %row)"
        return w.function(head)

    def _keep(self, w: Block, carry: list[Value]) -> None:
        """Writes the carry into memory."""
        for i, (x, t) in enumerate(zip(carry, self.carry, strict=True)):
            w.store(x, t, "%carry", i)

    def _run(self) -> tuple[str, set[str]]:
        w = Block()
        parameters = [w.load("%parameters", i, t) for i, t in enumerate(self.parameters)]
        carry = [w.load("%carry", i, t) for i, t in enumerate(self.carry)]
        w.do("br label %segment")
        w.block("segment")
        carry, carry_places = w.phis(self.carry, carry, "entry")
        left, left_place = w.counter("%count", "entry")
        size, size_place = w.counter("%first", "entry")
        row, row_place = w.counter("0", "entry")
        fits = w.put(f"icmp slt i64 {left}, {size}")
        todo = w.put(f"select i1 {fits}, i64 {left}, i64 {size}")
        carry, done = self.write_steps(w, parameters, carry, todo)
        target = w.put(f"getelementptr double, ptr %rows, i64 {w.put(f'mul i64 {row}, {len(self.row)}')}")
        self._keep(w, carry)
        w.do(f"call void @row(ptr %parameters, ptr %carry, ptr {target})")
        fine = w.put(f"icmp eq {TYPES[self.carry[self.code]]} {carry[self.code].text}, 0")
        whole = w.put(f"icmp eq i64 {done}, {size}")
        full = w.put(f"zext i1 {w.put(f'and i1 {fine}, {whole}')} to i64")
        new_row, new_left = w.put(f"add i64 {row}, {full}"), w.put(f"sub i64 {left}, {done}")
        more = w.put(f"icmp sgt i64 {new_left}, 0")
        room = w.put(f"icmp slt i64 {new_row}, %capacity")
        again = w.put(f"and i1 {w.put(f'and i1 {fine}, {more}')}, {room}")
        w.close(carry_places, carry)
        for place, text in ((left_place, new_left), (size_place, "%every"), (row_place, new_row)):
            w.lines[place] += f", [{text}, %{w.block_name}]"
        w.do(f"br i1 {again}, label %segment, label %end")
        w.block("end")
        w.do(f"ret i64 {new_row}")
        head = (
            "define i64 @run(ptr noalias %parameters, ptr noalias %carry, i64 %first, i64 %every, i64 %count, "
            "ptr noalias %rows, i64 %capacity)"
        )
        return w.function(head)

    def machine_of_many(self, varied: Sequence[bool]) -> "Machine":
        """The function `many`."""
        return machine(self._many(varied, self.lanes))

    def text_of_many(self, varied: Sequence[bool]) -> str:
        """The text of `many`, with all that it calls, for one member at a time."""
        return joined([self._many(varied, 1)])

    def _many(self, varied: Sequence[bool], lanes: int) -> Text:
        w = Block(lanes)
        w.do("br label %member")
        w.block("member")
        member, member_place = w.counter("%from", "entry")
        rank = [sum(varied[:i]) for i in range(len(varied))]
        parameters = [
            w.load("%own", rank[i], t, "%stride", member) if varied[i] else w.load("%shared", i, t)
            for i, t in enumerate(self.parameters)
        ]
        starts = [w.load("%starts", i, t, "%stride", member) for i, t in enumerate(self.start)]
        carry = Function(self.begin.plan).write(w, [*parameters, *starts])
        carry = [w.widen(x, t) for x, t in zip(carry, self.carry, strict=True)]
        size = w.put(f"mul i64 %stride, {len(self.distinct)}")
        before = w.block_name
        w.do("br label %segment")
        w.block("segment")
        carry, places = w.phis(self.carry, carry, before)
        left, left_place = w.counter("%steps", before)
        row, row_place = w.counter("0", before)
        target = w.put(f"getelementptr double, ptr %rows, i64 {w.put(f'mul i64 {size}, {row}')}")
        row_values = Function(self.output.plan).write(w, [*parameters, *carry])
        for place, i in enumerate(self.distinct):
            w.store(row_values[i], self.row[i], target, place, "%stride", member)
        w.do(f"br i1 {w.put(f'icmp sgt i64 {left}, 0')}, label %go, label %end")
        w.block("go")
        few = w.put(f"icmp slt i64 {left}, %every")
        todo = w.put(f"select i1 {few}, i64 {left}, i64 %every")
        new, _ = self.write_steps(w, parameters, carry, todo)
        w.close(places, new)
        for place, text in ((left_place, f"sub i64 {left}, {todo}"), (row_place, f"add i64 {row}, 1")):
            w.lines[place] += f", [{w.put(text)}, %{w.block_name}]"
        w.do("br label %segment")
        w.block("end")
        for i, k in enumerate((*self.report, *self.counted)):
            w.store(carry[k], self.carry[k], "%report", i, "%stride", member)
        following = w.put(f"add i64 {member}, {lanes}")
        w.lines[member_place] += f", [{following}, %end]"
        w.do(f"br i1 {w.put(f'icmp slt i64 {following}, %to')}, label %member, label %out")
        w.block("out")
        w.do("ret void")
        head = (
            "define void @many(ptr noalias %shared, ptr noalias %own, ptr noalias %starts, i64 %stride, i64 %from, "
            "i64 %to, i64 %steps, i64 %every, ptr noalias %rows, ptr noalias %report)"
        )
        return w.function(head)

    def write_steps(self, w: Block, parameters: list[Value], carry: list[Value], todo: str):
        """Writes up to `todo` steps while some member is well; returns the carry then, and how many were done."""
        before = w.block_name
        head, body, done = (w.name(x) for x in ("steps", "step", "stepped"))
        w.do(f"br label %{head}")
        w.block(head)
        now, places = w.phis(self.carry, carry, before)
        i, i_place = w.counter("0", before)
        more = w.put(f"icmp slt i64 {i}, {todo}")
        well = self._well(w, now[self.code])
        if w.lanes > 1:
            more = w.put(f"and i1 {w.reduce('or', well)}, {more}")
        w.do(f"br i1 {more}, label %{body}, label %{done}")
        w.block(body)
        new = Function(self.step.plan).write(w, [*parameters, *now])
        fine = self._well(w, w.widen(new[self.code], self.carry[self.code]))
        if w.lanes > 1:
            fine = Value(w.put(f"and <{w.lanes} x i1> {fine.text}, {well.text}"), True)
            new = self._unless_failed(w, fine, well, new, now)
        following = w.put(f"add i64 {i}, 1")
        w.close(places, new)
        w.lines[i_place] += f", [{following}, %{w.block_name}]"
        if w.lanes > 1:
            w.do(f"br label %{head}")
            w.block(done)
            return now, i
        end = w.block_name
        w.do(f"br i1 {fine.text}, label %{head}, label %{done}")
        w.block(done)
        last = [
            Value(
                w.put(
                    f"phi {w.type(t, False)} [{a.text}, %{head}], [{(b if k in self.report else a).text}, %{end}]"
                )
            )
            for k, (a, b, t) in enumerate(zip(now, new, self.carry, strict=True))
        ]
        return last, i

    def _unless_failed(
        self, w: Block, fine: Value, well: Value, new: list[Value], now: list[Value]
    ) -> list[Value]:
        """The new values, but the old ones for members that failed; usually none has."""
        new = [w.widen(x, t) for x, t in zip(new, self.carry, strict=True)]
        before, mixed, end = w.block_name, w.name("mixed"), w.name("end")
        w.do(f"br i1 {w.reduce('and', fine)}, label %{end}, label %{mixed}")
        w.block(mixed)
        chosen = []
        for k, (a, b, t) in enumerate(zip(new, now, self.carry, strict=True)):
            mask, of = well if k in self.report else fine, w.type(t, True)
            chosen.append(w.put(f"select <{w.lanes} x i1> {mask.text}, {of} {a.text}, {of} {b.text}"))
        w.do(f"br label %{end}")
        w.block(end)
        return [
            Value(w.put(f"phi {w.type(t, True)} [{a.text}, %{before}], [{b}, %{mixed}]"), True)
            for a, b, t in zip(new, chosen, self.carry, strict=True)
        ]

    def _well(self, w: Block, code: Value) -> Value:
        """Whether a code says that all is well."""
        wide = w.lanes > 1
        zero = w.number(0, self.carry[self.code], wide)
        return Value(w.put(f"icmp eq {w.type(self.carry[self.code], wide)} {code.text}, {zero}"), wide)


def pack(tree: Any) -> np.ndarray:
    """The entries of all leaves as one vector of float64."""
    return np.concatenate(
        [np.asarray(x, np.float64).reshape(-1) for x in jax.tree.leaves(tree)] or [np.zeros(0)]
    )


def machine(*functions: Text, once: Once | None = None, passes: dict[str, Any] = PASSES) -> Machine:
    """The functions, compiled together, and those that are being compiled already."""
    text = joined(functions)
    with making(compiling(text, passes is LOOP_PASSES)):
        codes = {code_key(text, passes): object_code(text, passes)}
        if once is not None:
            codes[once.key] = once.code()
        return Machine(codes)
