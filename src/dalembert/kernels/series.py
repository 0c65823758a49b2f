"""Taylor series of solutions of differential equations, in JAX and as machine code.

Both walk through the same recurrences, order by order. At each order come first the sums over products of lower
coefficients, which do not depend on each other, and then the few operations that do.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.kernels.graph import Graph, Node, Unsupported
from dalembert.kernels.interpret import Interpreter, objects, rule
from dalembert.kernels.llvm import FLOAT, Value, Writer, literal
from dalembert.kernels.recurrences import Pair, Recurrences
from dalembert.kernels.sine_cosine import SPECIAL
from dalembert.numerics.jax_internals import Primitive, ShapedArray, ad, batching, mlir

series_p = Primitive("taylor_series")
_DOUBLE = np.dtype(np.float64)


def taylor_series(field: Callable[[Array], Array], y: Array, order: int) -> Array:
    """The coefficients, shape (order + 1, n), of the solution of y' = field(y) from y, as a power series in time.

    `field` may be any function of whose operations there are recurrences; Unsupported names one without. `order` is at
    least 1.
    """
    made = jax.make_jaxpr(field)(y)
    return series_p.bind(*map(jnp.asarray, made.consts), y, jaxpr=made.jaxpr, order=order)


class _Interpreter(Interpreter):
    """It also notes which decisions only serve accuracy, such as the choice of a pivot.

    All outcomes lead to the same result, so what was decided at the start of a series serves for all of it.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.still: set[int] = set()

    def equation(self, equation: Any, inputs: list[Any]) -> Sequence[Any]:
        before = self.graph.count
        found = super().equation(equation, inputs)
        if equation.primitive.name in _DECIDING:
            made = map(self.graph.nodes.__getitem__, range(before + 1, self.graph.count + 1))
            self.still |= {node.id for node in made if node.dtype.kind in "bi" and node.op != "cond"}
        elif equation.primitive.name in _COMPARING:
            # A decision of the user's that happens to be the same one is not of this kind.
            self.still -= {node.id for node in found[0].flat}
        return found


_DECIDING = {"lu", "small_solve"}
_COMPARING = {"gt", "ge", "lt", "le", "eq", "ne"}


class Series:
    """The recurrences of a jaxpr, whose last argument is y and whose other ones do not change along the motion."""

    def __init__(self, jaxpr: Any):
        graph, arrays, position = Graph(), [], 0
        inner = [*jaxpr.constvars, *jaxpr.invars]
        for variable in inner:
            aval, last = variable.aval, variable is inner[-1]
            size = math.prod(aval.shape)
            nodes = [graph.input(aval.dtype, position + i, not last) for i in range(size)]
            arrays.append(objects(nodes, aval.shape))
            position += size
        interpreter = _Interpreter(graph, SPECIAL)
        outputs = interpreter.run(jaxpr, arrays[: len(jaxpr.constvars)], arrays[len(jaxpr.constvars) :])
        self.dtypes = [node.dtype for array in arrays for node in array.flat]
        self.size = arrays[-1].size
        self.recurrences = Recurrences(graph, list(arrays[-1].flat), list(outputs[0].flat), interpreter.still)
        # Imported here, because the writing of scalar operations in turn knows series.
        from dalembert.kernels.scalars import Plan

        self.zeroth = list(self.recurrences.zeroth.values())
        self.plan = Plan(self.zeroth)

    def in_jax(self, inputs: Sequence[Any], order: int, batch: int | None = None) -> Array:
        """The coefficients, shape (order + 1, n) and the batch, from the entries of the arguments."""
        from dalembert.kernels.scalars import Emitter

        r, width = self.recurrences, () if batch is None else (batch,)

        def wide(x: Any) -> Array:
            return jnp.broadcast_to(jnp.asarray(x, float), width)

        values = Emitter(self.plan, batch).run(inputs)
        zero = {
            node.id: wide(x) if node.dtype == _DOUBLE else jnp.broadcast_to(x, width)
            for node, x in zip(self.zeroth, values, strict=True)
        }
        place = {node.id: i for i, node in enumerate(r.summed)}
        plain, rated = (
            [(node.id, p) for node in r.order for p in getattr(r.of[node.id], kind)]
            for kind in ("pairs", "rated")
        )

        def sums(terms: list[tuple[int, Pair]], left: Array, right: Array) -> dict[int, Array]:
            if not terms:
                return {}
            firsts = np.array([place[x.id] for _, (_, x, _) in terms])
            seconds = np.array([place[y.id] for _, (_, _, y) in terms])
            signs = np.array([p[0] for _, p in terms]).reshape(-1, *[1] * len(width))
            found = signs * jnp.sum(left[:, firsts] * right[:, seconds], axis=0)
            result: dict[int, Array] = {}
            for (number, _), x in zip(terms, found, strict=True):
                result[number] = result[number] + x if number in result else x
            return result

        inverse = {
            node.id: 1 / zero[made.divisor.id]
            for node, made in ((x, r.of[x.id]) for x in r.order)
            if made.divisor is not None
        }
        numbers = jnp.arange(order, dtype=float).reshape(-1, 1, *[1] * len(width))
        y1 = jnp.stack([zero[x.id] for x in r.outputs])

        def further(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            kept, y, found = carry
            opposite = jnp.roll(kept[::-1], k - (order - 1), axis=0)  # entry j is coefficient k - j
            inner, slopes = sums(plain, kept, opposite), sums(rated, numbers * kept, opposite)
            now = dict(zip((x.id for x in r.variables), y, strict=True))
            for node in r.order:
                made = r.of[node.id]
                if made.choice:
                    condition, no, yes = made.choice
                    # What does not change has coefficients zero, but NaN stays NaN.
                    no, yes = (now[x.id] if x.id in now else 0 * zero[x.id] for x in (no, yes))
                    now[node.id] = jnp.where(zero[condition.id], yes, no)
                    continue
                x = inner.get(node.id, jnp.zeros(width))
                if node.id in slopes:
                    x = x + slopes[node.id] / k
                for sign, a, b in made.leads:
                    x = x + sign * (now[a.id] if b is None else now[a.id] * zero[b.id])
                now[node.id] = x * inverse[node.id] if node.id in inverse else x
            if r.summed:
                kept = kept.at[k].set(jnp.stack([now[x.id] for x in r.summed]))
            following = jnp.stack([now.get(x.id, jnp.zeros(width)) / (k + 1) for x in r.outputs])
            return kept, following, found.at[k + 1].set(following)

        kept = jnp.zeros((order, len(r.summed), *width))  # without coefficient zero, as sums do not have it
        y0 = jnp.stack([zero[x.id] for x in r.variables])
        found = jnp.zeros((order + 1, self.size, *width)).at[0].set(y0).at[1].set(y1)
        return lax.fori_loop(1, order, further, (kept, y1, found))[2]

    def write(self, w: Writer, inputs: Sequence[Value], order: int, evaluate: Callable) -> list[Value]:
        """Writes a call that computes the coefficients; `evaluate(writer, plan, inputs)` writes plain operations."""
        text, declared, name = self._function(w.lanes, order, evaluate)
        w.declared |= {text, *declared}
        kind, count = w.type(_DOUBLE, True), (order + 1) * self.size
        room = f"%{w.name('series')}"
        w.rooms.append(f"{room} = alloca [{count} x {kind}], align 64")
        inputs = [w.widen(x, t) for x, t in zip(inputs, self.dtypes, strict=True)]
        arguments = [f"{w.type(t, True)} {x.text}" for x, t in zip(inputs, self.dtypes, strict=True)]
        w.do(f"call void @{name}({', '.join([*arguments, f'ptr {room}'])})")
        return [
            Value(
                w.put(f"load {kind}, ptr {w.put(f'getelementptr {kind}, ptr {room}, i64 {i}')}, align 8"),
                True,
            )
            for i in range(count)
        ]

    def _function(self, lanes: int, order: int, evaluate: Callable) -> tuple[str, set[str], str]:
        from dalembert.kernels.native import vector_width

        w = _Orders(self, lanes, order, 1 if lanes > 1 else vector_width())
        inputs = [Value(f"%x{i}", lanes > 1) for i in range(len(self.dtypes))]
        values = evaluate(w, self.plan, inputs)
        w.write(dict(zip((x.id for x in self.zeroth), values, strict=True)))
        heads = [f"{w.type(t, True)} %x{i}" for i, t in enumerate(self.dtypes)]
        body, declared = w.function("")
        name = f"series.{hashlib.sha256(repr((lanes, heads, body)).encode()).hexdigest()[:16]}"
        head = f"define internal void @{name}({', '.join([*heads, 'ptr noalias %out'])}) noinline"
        return f"{head}{body}", declared, name


class _Orders(Writer):
    """Writes the computation of all coefficients into %out, where those of y lie one order after the other.

    A node that sums need has a row of coefficients in memory. For one trajectory, sums take `width` products at once.
    Their second factors then lie in rows that run backwards, so that both factors are read in the same direction.
    Rows do not hold coefficient zero, and end with zeros, so that a sum may run on past its end.
    """

    def __init__(self, series: Series, lanes: int, order: int, width: int):
        super().__init__(lanes)
        self.series, self.order, self.width = series, order, width
        self.kind = self.type(_DOUBLE, True)
        self.wide = lanes > 1
        made = series.recurrences.of.values()
        plain = [p for m in made for p in m.pairs]
        rated = [p for m in made for p in m.rated]
        self.forward, self.slopes = {p[1].id for p in plain}, {p[1].id for p in rated}
        self.backward = {p[2].id for p in (*plain, *rated)}
        self.memory = 0
        self.rows: dict[tuple[str, int], int] = {}

    def row(self, which: str, node: Node) -> int:
        """Where the row of a node begins, in numbers from the start of the memory."""
        key = (which, node.id)
        if key not in self.rows:
            self.rows[key] = self.memory
            self.memory += -(-(self.order + 2 * self.width) // 8) * 8
        return self.rows[key]

    def at(self, begin: int, index: str, negative: bool = False) -> str:
        """The address of entry `index` of a row, or of entry -index."""
        there = self.put(f"{'sub' if negative else 'add'} i64 {begin}, {index}")
        return self.put(f"getelementptr {self.kind}, ptr %memory, i64 {there}")

    def two(self, how: str, a: str, b: str) -> str:
        return self.put(f"{how} {FLOAT} {self.kind} {a}, {b}")

    def number_of(self, value: float) -> str:
        return self.number(value, _DOUBLE, self.wide)

    def write(self, zero: dict[int, Value]) -> None:
        """Writes everything after the coefficients zero."""
        r = self.series.recurrences
        zero = {i: self.widen(x, r.zeroth[i].dtype) for i, x in zero.items()}
        self.inverse = {}
        for node in r.order:
            divisor = r.of[node.id].divisor
            if divisor is not None:
                one = self.number_of(1.0)
                self.inverse[node.id] = self.put(f"fdiv {self.kind} {one}, {zero[divisor.id].text}")
        for i, x in enumerate(r.variables):
            self.give(zero[x.id].text, str(i))
        for i, x in enumerate(r.outputs):
            self.give(zero[x.id].text, str(self.series.size + i))
        cleared = len(self.lines)  # the size of the memory is known at the end
        before, head, done = self.block_name, self.name("order"), self.name("done")
        more = self.put(f"icmp sgt i64 {self.order}, 1")
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        self.block(head)
        k = self.put(f"phi i64 [1, %{before}]")
        place = len(self.lines) - 1
        self.one_order(k, zero)
        following = self.put(f"add nuw nsw i64 {k}, 1")
        self.lines[place] += f", [{following}, %{self.block_name}]"
        again = self.put(f"icmp slt i64 {following}, {self.order}")
        self.do(f"br i1 {again}, label %{head}, label %{done}")
        self.block(done)
        self.do("ret void")
        if self.memory:
            self.rooms.append(f"%memory = alloca [{self.memory} x {self.kind}], align 64")
            if not self.wide:  # sums over members end where they should
                size = self.memory * 8
                self.lines.insert(
                    cleared, f"  call void @llvm.memset.p0.i64(ptr %memory, i8 0, i64 {size}, i1 false)"
                )
                self.declared.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")

    def give(self, x: str, index: str) -> None:
        """Writes a coefficient of y."""
        self.do(
            f"store {self.kind} {x}, ptr {self.put(f'getelementptr {self.kind}, ptr %out, i64 {index}')}, align 8"
        )

    def keep(self, which: str, node: Node, x: str, k: str) -> None:
        """Writes coefficient k of a node into one of its rows."""
        begin = self.row(which, node)
        if which == "backward" and self.width > 1:
            there = self.at(begin + self.order - 1, k, negative=True)
        else:
            there = self.at(begin, k)
        self.do(f"store {self.kind} {x}, ptr {there}, align 8")

    def one_order(self, k: str, zero: dict[int, Value]) -> None:
        """Writes the computation of the coefficients k of all nodes, and of k + 1 of y."""
        r = self.series.recurrences
        sums: dict[tuple[str, int], str] = {}
        wanted = [
            (kind, node, terms)
            for node in r.order
            for kind, terms in (("pairs", r.of[node.id].pairs), ("rated", r.of[node.id].rated))
            if terms
        ]
        at_once = 6 if self.wide else 10
        for i in range(0, len(wanted), at_once):
            sums.update(self.sums(wanted[i : i + at_once], k))
        whole = self.put(f"sitofp i64 {k} to double")
        number = self.widen(Value(whole), _DOUBLE).text
        share = self.share(number)
        base = self.put(f"mul i64 {k}, {self.series.size}")
        now: dict[int, str] = {}
        for i, x in enumerate(r.variables):
            index = self.put(f"add i64 {base}, {i}")
            address = self.put(f"getelementptr {self.kind}, ptr %out, i64 {index}")
            now[x.id] = self.put(f"load {self.kind}, ptr {address}, align 8")
        for node in r.order:
            made = r.of[node.id]
            if made.choice:
                condition, *cases = made.choice
                none = self.number_of(0.0)
                no, yes = (
                    f"{self.kind} {now.get(x.id) or self.put(f'fmul {self.kind} {none}, {zero[x.id].text}')}"
                    for x in cases
                )
                mask = f"{self.type(condition.dtype, self.wide)} {zero[condition.id].text}"
                now[node.id] = self.put(f"select {mask}, {yes}, {no}")
                continue
            x = sums.get(("pairs", node.id), "")
            if ("rated", node.id) in sums:
                x = self.plus(x, self.part(sums["rated", node.id], share))
            for sign, a, b in made.leads:
                part = now[a.id] if b is None else self.two("fmul", now[a.id], zero[b.id].text)
                x = self.plus(x, part, sign)
            x = x or self.number_of(0.0)
            now[node.id] = self.two("fmul", x, self.inverse[node.id]) if node.id in self.inverse else x
        for node in r.summed:
            if node.id in self.forward:
                self.keep("forward", node, now[node.id], k)
            if node.id in self.backward:
                self.keep("backward", node, now[node.id], k)
            if node.id in self.slopes:
                self.keep("slopes", node, self.two("fmul", now[node.id], number), k)
        following = self.share(self.two("fadd", number, self.number_of(1.0)))
        after = self.put(f"add i64 {base}, {self.series.size}")
        for i, x in enumerate(r.outputs):
            value = self.part(now[x.id], following) if x.id in now else self.number_of(0.0)
            self.give(value, self.put(f"add i64 {after}, {i}"))

    def share(self, k: str) -> tuple[str, str]:
        """1/k as a sum of two numbers. One alone would be too large or too small in every step, which adds up."""
        one = self.number_of(1.0)
        high = self.two("fdiv", one, k)
        name, minus = f"llvm.fma.{self.suffix(_DOUBLE, self.wide)}", self.put(f"fneg {self.kind} {high}")
        rest = self.call(name, _DOUBLE, [Value(x, self.wide) for x in (minus, k, one)], self.wide)
        return high, self.two("fmul", rest, high)

    def part(self, x: str, share: tuple[str, str]) -> str:
        """x/k, from the shares of k."""
        high, low = share
        return self.two("fadd", self.two("fmul", x, high), self.two("fmul", x, low))

    def plus(self, x: str, part: str, sign: float = 1.0) -> str:
        """x + sign part, where x may be nothing."""
        if abs(sign) != 1.0:
            part = self.two("fmul", part, self.number_of(abs(sign)))
        if not x:
            return part if sign > 0 else self.put(f"fneg {self.kind} {part}")
        return self.two("fadd" if sign > 0 else "fsub", x, part)

    def sums(self, wanted: list[tuple[str, Node, list[Pair]]], k: str) -> dict[tuple[str, int], str]:
        """Writes one loop over all these sums; returns what they come to."""
        vector = self.kind if self.wide else f"<{self.width} x double>"
        zeros = "zeroinitializer"
        before, head, inside, done = self.block_name, *(self.name(x) for x in ("sum", "term", "summed"))
        self.do(f"br label %{head}")
        self.block(head)
        j = self.put(f"phi i64 [1, %{before}]")
        places = [len(self.lines) - 1]
        totals = []
        for _ in wanted:
            totals.append(self.put(f"phi {vector} [{zeros}, %{before}]"))
            places.append(len(self.lines) - 1)
        self.do(f"br i1 {self.put(f'icmp slt i64 {j}, {k}')}, label %{inside}, label %{done}")
        self.block(inside)
        other = self.put(f"sub i64 {k}, {j}") if self.wide or self.width == 1 else ""
        read: dict[tuple[str, int], str] = {}

        def load(which: str, node: Node) -> str:
            key = (which, node.id)
            if key not in read:
                begin = self.row(which, node)
                if which != "backward":
                    there = self.at(begin, j)
                elif other:
                    there = self.at(begin, other)
                else:  # coefficient k - j lies at order - 1 - k + j
                    moved = self.put(f"sub i64 {j}, {k}")
                    there = self.at(begin + self.order - 1, moved)
                read[key] = self.put(f"load {vector}, ptr {there}, align 8")
            return read[key]

        ends = []
        for total, (kind, _, terms) in zip(totals, wanted, strict=True):
            for sign, a, b in terms:
                x, y = load("forward" if kind == "pairs" else "slopes", a), load("backward", b)
                product = self.put(f"fmul {FLOAT} {vector} {x}, {y}")
                if abs(sign) != 1.0:
                    factor = literal(np.float64(abs(sign)))
                    many = (
                        "<"
                        + ", ".join([f"double {factor}"] * (self.lanes if self.wide else self.width))
                        + ">"
                    )
                    product = self.put(f"fmul {FLOAT} {vector} {product}, {many}")
                total = self.put(f"{'fadd' if sign > 0 else 'fsub'} {FLOAT} {vector} {total}, {product}")
            ends.append(total)
        following = self.put(f"add nuw nsw i64 {j}, {self.width}")
        for place, end in zip(places, [following, *ends], strict=True):
            self.lines[place] += f", [{end}, %{self.block_name}]"
        self.do(f"br label %{head}")
        self.block(done)
        return {
            (kind, node.id): total if self.wide else self.across(total)
            for total, (kind, node, _) in zip(totals, wanted, strict=True)
        }

    def across(self, vector: str) -> str:
        """The sum of the entries of a vector."""
        name, kind = f"llvm.vector.reduce.fadd.v{self.width}f64", f"<{self.width} x double>"
        self.declared.add(f"declare double @{name}(double, {kind})")
        return self.put(f"call reassoc double @{name}(double -0.0, {kind} {vector})")


@functools.lru_cache(maxsize=64)
def series_of(jaxpr: Any) -> Series:
    """The recurrences of a jaxpr; made once."""
    return Series(jaxpr)


def _in_jax(*arguments: Array, jaxpr: Any, order: int) -> Array:
    flat = [x for a in arguments for x in jnp.ravel(a)]
    return series_of(jaxpr).in_jax(flat, order)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, order: int):
    tangents = [ad.instantiate_zeros(t) for t in tangents]
    return jax.jvp(functools.partial(_in_jax, jaxpr=jaxpr, order=order), tuple(primals), tuple(tangents))


def _batch(arguments: Sequence[Any], dims: Sequence[Any], *, jaxpr: Any, order: int):
    return jax.vmap(functools.partial(_in_jax, jaxpr=jaxpr, order=order), tuple(dims))(*arguments), 0


series_p.def_impl(functools.partial(jax.jit, static_argnames=("jaxpr", "order"))(_in_jax))
series_p.def_abstract_eval(lambda *a, jaxpr, order: ShapedArray((order + 1, *a[-1].shape), a[-1].dtype))
ad.primitive_jvps[series_p] = _jvp
batching.primitive_batchers[series_p] = _batch
mlir.register_lowering(series_p, mlir.lower_fun(_in_jax, multiple_results=False))


@rule("taylor_series")
def _series(it: Interpreter, equation: Any, *inputs: Any):
    if not it.lists:
        raise Unsupported("taylor_series", "which has no kernel for GPUs")
    g, order = it.graph, equation.params["order"]
    series = series_of(equation.params["jaxpr"])
    node = g.series(tuple(x for array in inputs for x in array.flat), (series, order))
    items = [g.result(node, i, _DOUBLE) for i in range((order + 1) * series.size)]
    return [objects(items, equation.outvars[0].aval.shape)]


def missing_recurrence(field: Callable[[Array], Array], y: Array) -> Unsupported | None:
    """What keeps a field from having Taylor series; None if nothing does."""
    made = jax.make_jaxpr(field)(y)
    try:
        Series(made.jaxpr)
    except Unsupported as error:
        return error.with_traceback(None)
    return None
