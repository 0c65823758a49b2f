"""scalarise(): any small JAX function as scalar operations."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.kernels.graph import Graph, Node, Region, regions_of
from dalembert.kernels.interpret import Interpreter, objects
from dalembert.kernels.sine_cosine import ON_GPU, SPECIAL, sincos
from dalembert.kernels.traced import Traced
from dalembert.numerics.jax_internals import Tracer


class Plan:
    """The nodes that are needed, and the region in which each is computed.

    A node is computed in the innermost region that contains all its uses, but outside every loop in which it
    does not change. Only loop variables that something depends on are kept.
    """

    def __init__(self, outputs: Sequence[Node]):
        self.outputs = list(outputs)
        self.root = Region()
        self.owner: dict[int, tuple[Node, Region, int]] = {}
        """For each loop variable, its loop, region and position."""
        self.kept: dict[int, set[int]] = {}
        """For each control node, which of its results are needed."""
        self.needed: dict[int, Node] = {}
        self._read: dict[int, set[int]] = {}
        self._reach()
        self.content: dict[int, list[Node]] = {id(self.root): []}
        self._schedule()

    def _reach(self) -> None:
        todo = list(self.outputs)
        while todo:
            node = todo.pop()
            if node.op == "result" and node.args[0].op == "series":
                todo.append(node.args[0])
            elif node.op == "result":
                todo += self._keep(node.args[0], node.value)
            elif node.op == "parameter" and node.id not in self.needed:
                control, _, position = self.owner[node.id]
                if position >= 0:
                    todo += self._keep(control, position)
            if node.id not in self.needed:
                self.needed[node.id] = node
                if node.op not in ("result", "while", "cond", "loop"):
                    todo += node.args

    def _keep(self, control: Node, position: int) -> list[Node]:
        """The nodes that result `position` of a control node needs."""
        more: list[Node] = []
        if control.id not in self.needed:
            self.needed[control.id] = control
            self.kept[control.id] = set()
            if control.op == "cond":
                more.append(control.args[0])
            else:
                for region in regions_of(control):
                    # The first parameter of a counted loop is its counter.
                    offset = len(region.parameters) - len(control.args)
                    for i, parameter in enumerate(region.parameters):
                        self.owner[parameter.id] = (control, region, i - offset)
                if control.op == "while":
                    more += control.params[0].results
        if position in self.kept[control.id]:
            return more
        self.kept[control.id].add(position)
        if control.op == "cond":
            return more + [region.results[position] for region in control.params]
        body = control.params[1] if control.op == "while" else control.params[0]
        return [*more, control.args[position], body.results[position]]

    def carried(self, control: Node, body: Region) -> tuple[list[int], list[int]]:
        """The needed results that a loop changes, and those that stay as they were."""
        offset = len(body.parameters) - len(control.args)
        kept = sorted(self.kept[control.id])
        fixed = [i for i in kept if body.results[i] is body.parameters[i + offset]]
        return [i for i in kept if i not in fixed], fixed

    def _schedule(self) -> None:
        """Places the nodes from the last to the first, so that the users of a node are placed before it."""
        uses: dict[int, list[Region]] = {}
        parent: dict[int, Region | None] = {id(self.root): None}
        loops: dict[int, int] = {id(self.root): 0}

        def chain(region: Region | None) -> list[Region]:
            result = []
            while region is not None:
                result.append(region)
                region = parent[id(region)]
            return result

        def open_region(region: Region, where: Region, loop: int) -> None:
            parent[id(region)], loops[id(region)] = where, loops[id(where)] + loop
            self.content[id(region)] = []

        depends = self._dependence()
        for node in self.outputs:
            uses.setdefault(node.id, []).append(self.root)
        for number in sorted(self.needed, reverse=True):
            node = self.needed[number]
            if node.op in ("const", "parameter", "input"):
                continue
            common = chain(uses[number][0])
            for use in uses[number][1:]:
                if use is not common[0]:
                    ids = {id(region) for region in chain(use)}
                    common = [region for region in common if id(region) in ids]
            # Move it outwards, if that leaves a loop, as far as the loop variables that it depends on allow.
            best = common[0]
            for region in common:
                if loops[id(region)] < loops[id(best)]:
                    best = region
                if id(region) in depends[number]:
                    break
            self.content[id(best)].append(node)
            if node.op in ("while", "cond", "loop"):
                self._open(node, best, open_region, uses)
            else:
                for argument in node.args:
                    uses.setdefault(argument.id, []).append(best)
        for nodes in self.content.values():
            nodes.reverse()

    def in_groups(self, region: Region) -> list[Node | list[Node]]:
        """The operations of a region in order, with lists of sines and cosines that can be computed together.

        The operations that need no sine or cosine come first, then all sines and cosines whose arguments are ready, and
        so on.
        """
        order: list[Node | list[Node]] = []
        todo = self.content[id(region)]
        while todo:
            group: list[Node] = []
            later: list[Node] = []
            blocked: set[int] = set()
            for node in todo:
                if any(use in blocked for use in self._uses(node)):
                    later.append(node)
                elif node.op in ("sin", "cos"):
                    group.append(node)
                else:
                    order.append(node)
                    continue
                blocked.add(node.id)
            order += [group] if group else []
            todo = later
        return order

    def _uses(self, node: Node) -> Iterable[int]:
        """The numbers of the nodes that a node reads; for a loop or conditional, those that its inside reads too."""
        if node.id in self._read:
            return self._read[node.id]
        uses = {a.id for a in node.args}
        if node.op in ("while", "cond", "loop"):
            for region in regions_of(node):
                uses.update(result.id for result in region.results)
                for inner in self.content[id(region)]:
                    uses.update(self._uses(inner))
        self._read[node.id] = uses
        return uses

    def _open(self, node: Node, where: Region, open_region: Any, uses: dict[int, list[Region]]) -> None:
        kept, regions = self.kept[node.id], regions_of(node)
        for region in regions:
            open_region(region, where, int(node.op != "cond"))
        if node.op == "cond":
            uses.setdefault(node.args[0].id, []).append(where)
        else:
            for i in kept:
                uses.setdefault(node.args[i].id, []).append(where)
        for k, region in enumerate(regions):
            results = region.results if node.op == "while" and k == 0 else [region.results[i] for i in kept]
            for result in results:
                uses.setdefault(result.id, []).append(region)

    def _dependence(self) -> dict[int, frozenset[int]]:
        """The regions whose loop variables each node depends on, directly or indirectly."""
        depends: dict[int, frozenset[int]] = {}
        empty: frozenset[int] = frozenset()
        for number in sorted(self.needed):
            node = self.needed[number]
            if node.op == "parameter":
                depends[number] = frozenset([id(self.owner[number][1])])
                continue
            if node.op in ("while", "cond", "loop"):
                kept, regions = self.kept[number], regions_of(node)
                inside = [r.results[i] for r in regions for i in kept if i < len(r.results)]
                if node.op == "while":
                    inside += node.params[0].results
                arguments = [*inside, *(node.args if node.op == "cond" else [node.args[i] for i in kept])]
                own = {id(region) for region in regions}
            else:
                arguments, own = node.args, set()
            found = empty
            for argument in arguments:
                more = depends[argument.id]
                if more and not more <= found:
                    found = found | more
            depends[number] = found - own if own else found
        return depends


class Emitter:
    """Computes a plan in JAX, with each scalar as a number or, for a batch, as an array of numbers."""

    def __init__(self, plan: Plan, batch: int | None, fused: Callable | None = None):
        self.plan, self.batch, self.fused = plan, batch, fused

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, from the inputs by position."""
        values = {n.id: inputs[n.value] for n in self.plan.needed.values() if n.op == "input"}
        self._region(self.plan.root, values)
        return [self._read(node, values) for node in self.plan.outputs]

    def _read(self, node: Node, values: dict) -> Any:
        return node.value if node.op == "const" else values[node.id]

    def _wide(self, x: Any) -> Any:
        """x as an array over the batch."""
        if self.batch is None or np.ndim(x):
            return x
        return lax.broadcast(jnp.asarray(x), (self.batch,))

    def _region(self, region: Region, values: dict) -> None:
        for node in self.plan.content[id(region)]:
            if node.op == "result":
                results = values[node.args[0].id]
                values[node.id] = results[node.value]
            elif node.op in ("while", "cond", "loop"):
                values[node.id] = getattr(self, f"_{node.op}")(node, values)
            elif node.op == "series":
                series, order = node.params
                values[node.id] = self._series(series, order, [self._read(x, values) for x in node.args])
            elif node.op == "list":
                index = self._read(node.args[0], values)
                values[node.id] = lax.dynamic_index_in_dim(
                    jnp.asarray(node.params, node.dtype), index, 0, keepdims=False
                )
            elif node.op in ("sin", "cos") and node.dtype == np.float64:
                key = ("circle", node.args[0].id)
                if key not in values:
                    values[key] = sincos(self._read(node.args[0], values))
                values[node.id] = values[key][node.op == "cos"]
            elif not self._fuse(node, values):
                primitive, params = node.params
                arguments = [values[a.id] if a.op != "const" else a.value for a in node.args]
                if self.batch is not None and len(arguments) > 1:
                    wide = [np.ndim(a) > 0 for a in arguments]
                    if any(wide) and not all(wide):
                        keep = node.op == "select_n" and not wide[0] and any(wide[1:])
                        arguments = [a if keep and i == 0 else self._wide(a) for i, a in enumerate(arguments)]
                values[node.id] = primitive.bind(*arguments, **params)

    def _series(self, series: Any, order: int, inputs: list[Any]) -> list[Any]:
        found = series.in_jax(inputs, order, self.batch)
        return list(found.reshape(-1, *found.shape[2:]))

    def _fuse(self, node: Node, values: dict) -> bool:
        """Computes a sum or difference with a product as one operation, if `fused(a, b, c, signs)` = +-a b +- c exists.

        `fused(a, b)` is a quotient, which such operations make cheaper too. Returns whether the node was computed.
        """
        if self.fused is None or node.op not in ("add", "sub", "div") or node.dtype != np.float64:
            return False
        if node.op == "div":
            values[node.id] = self.fused(*(self._wide(self._read(x, values)) for x in node.args))
            return True
        minus = -1 if node.op == "sub" else 1
        left, right = node.args
        for product, other, signs in ((right, left, (minus, 1)), (left, right, (1, minus))):
            if product.op == "mul":
                parts = [self._wide(self._read(x, values)) for x in (*product.args, other)]
                values[node.id] = self.fused(*parts, signs)
                return True
        return False

    def _inside(self, region: Region, values: dict, parameters: dict) -> dict:
        inner = dict(values)
        inner.update(parameters)
        self._region(region, inner)
        return inner

    def _while(self, node: Node, values: dict) -> dict[int, Any]:
        condition, body = node.params
        moving, fixed = self.plan.carried(node, body)
        start = {i: self._read(node.args[i], values) for i in (*moving, *fixed)}
        still = {i: start[i] for i in fixed}

        def parameters(region: Region, carry: Sequence[Any]) -> dict:
            now = {**dict(zip(moving, carry, strict=True)), **still}
            return {region.parameters[i].id: x for i, x in now.items()}

        def going(carry):
            inner = self._inside(condition, values, parameters(condition, carry))
            return self._read(condition.results[0], inner)

        def advance(carry):
            inner = self._inside(body, values, parameters(body, carry))
            return tuple(self._typed(self._read(body.results[i], inner), body.parameters[i]) for i in moving)

        def advance_active(carry):
            active, now = carry[0], carry[1:]
            new = [self._wide(x) for x in advance(now)]
            now = tuple(lax.select(active, a, b) for a, b in zip(new, now, strict=True))
            return (active & self._wide(going(now)), *now)

        begin = tuple(self._typed(self._wide(start[i]), node.args[i]) for i in moving)
        if self.batch is None:
            end = lax.while_loop(going, advance, begin)
        else:
            begin = (self._wide(going(begin)), *begin)
            end = lax.while_loop(lambda carry: _any(carry[0]), advance_active, begin)[1:]
        return {**dict(zip(moving, end, strict=True)), **still}

    def _loop(self, node: Node, values: dict) -> dict[int, Any]:
        body, length = node.params
        moving, fixed = self.plan.carried(node, body)
        still = {i: self._read(node.args[i], values) for i in fixed}

        def advance(carry):
            counter, *now = carry
            inside = {**dict(zip(moving, now, strict=True)), **still}
            inside = {body.parameters[i + 1].id: x for i, x in inside.items()}
            inner = self._inside(body, values, {body.parameters[0].id: counter, **inside})
            new = [self._typed(self._wide(self._read(body.results[i], inner)), node.args[i]) for i in moving]
            return (counter + np.int32(1), *new)

        begin = [self._typed(self._wide(self._read(node.args[i], values)), node.args[i]) for i in moving]
        start = (jnp.zeros((), np.int32), *begin)
        end = lax.while_loop(lambda carry: carry[0] < np.int32(length), advance, start)
        return {**dict(zip(moving, end[1:], strict=True)), **still}

    def _cond(self, node: Node, values: dict) -> dict[int, Any]:
        kept = sorted(self.plan.kept[node.id])
        index = self._read(node.args[0], values)

        def branch(region: Region) -> list[Any]:
            inner = self._inside(region, values, {})
            return [
                self._typed(self._wide(self._read(region.results[i], inner)), region.results[i]) for i in kept
            ]

        if np.ndim(index) == 0:
            cases = [lambda region=region: tuple(branch(region)) for region in node.params]
            results = (
                lax.switch(index.astype(np.int32), cases)
                if len(cases) != 2
                else lax.cond(index if node.args[0].dtype == bool else index > 0, cases[1], cases[0])
            )
        else:
            last = len(node.params) - 1
            lanes = index if node.args[0].dtype == bool else index >= last

            # The last branch is the usual one. It is computed for all members, the others only if a member needs them.
            usual = tuple(branch(node.params[last]))

            def mixed(*usual):
                results = list(branch(node.params[0]))
                for k in range(1, last + 1):
                    here = index if node.args[0].dtype == bool else index >= k
                    these = usual if k == last else branch(node.params[k])
                    results = [lax.select(here, a, b) for a, b in zip(these, results, strict=True)]
                return tuple(results)

            results = lax.cond(_any(~lanes), mixed, lambda *usual: usual, *usual)
        return dict(zip(kept, results, strict=True))

    def _typed(self, x: Any, node: Node) -> Any:
        """x as an array of the node's type (a constant may be a NumPy number)."""
        return jnp.asarray(x, node.dtype)


def _any(mask: Any) -> Any:
    """Whether a condition holds for any member, computed as a maximum, which every device supports."""
    return jnp.max(mask.astype(np.int32)) > 0


class Scalars:
    """A function of arrays, prepared for scalars: `run` takes and returns flat lists of them.

    It is prepared for the shapes and types of example arguments. A list holds the entries of all leaves one after
    another; `split` and `join` convert between lists and trees of arrays (with the batch axis last in a list's
    entries, and first in arrays). The first `fixed` entries are parameters of a run: what depends only on them may be
    computed once for all steps.
    """

    def __init__(self, function: Callable | Traced, *examples: Any, fixed: int = 0, gpu: bool = False):
        traced = function if isinstance(function, Traced) else Traced(function, *examples)
        self.tree, self.inputs = traced.tree, traced.inputs
        self.result_tree, self.results = traced.result_tree, traced.results
        jaxpr, graph = traced.jaxpr, Graph()
        arrays, position = [], 0
        for shape, dtype in self.inputs:
            size = math.prod(shape)
            nodes = [graph.input(dtype, position + i, position + i < fixed) for i in range(size)]
            arrays.append(objects(nodes, shape))
            position += size
        interpreter = Interpreter(graph, ON_GPU if gpu else SPECIAL, lists=not gpu)
        self.closed_over = [c for c in jaxpr.consts if isinstance(c, Tracer)]
        """Values of other JAX code that the function uses; `run` expects their entries after those of the arguments."""
        for tracer in self.closed_over:
            nodes = [graph.input(tracer.dtype, position + i) for i in range(tracer.size)]
            interpreter.closed_over[id(tracer)] = objects(nodes, tracer.shape)
            position += tracer.size
        outputs = interpreter.closed(jaxpr, arrays)
        self.plan = Plan([node for array in outputs for node in array.flat])

    @property
    def is_zero(self) -> bool:
        """Whether all results are zero, whatever the arguments are."""
        return all(node.is_const and node.value == 0 for node in self.plan.outputs)

    def reads(self, inputs: Iterable[int]) -> bool:
        """Whether the results depend on any of these entries of the arguments."""
        wanted = set(inputs)
        return any(node.op == "input" and node.value in wanted for node in self.plan.needed.values())

    @property
    def operations(self) -> int:
        """The number of scalar operations that are left."""
        return sum(
            node.op not in ("const", "input", "parameter", "result") for node in self.plan.needed.values()
        )

    def run(
        self, scalars: Sequence[Any], batch: int | None = None, fused: Callable | None = None
    ) -> list[Any]:
        """The results, one scalar (or array over the batch) per entry; `fused` is a b + c with one rounding step."""
        return Emitter(self.plan, batch, fused).run(scalars)


def split(tree: Any, batch: bool = False) -> list[Any]:
    """The entries of all leaves; if the first axis is a batch axis, one array over the batch per entry."""
    result: list[Any] = []
    for leaf in jax.tree.leaves(tree):
        flat = jnp.reshape(leaf, (np.shape(leaf)[0], -1) if batch else (-1,))
        result += [flat[:, i] for i in range(flat.shape[1])] if batch else list(flat)
    return result


def join(
    scalars: Sequence[Any], shapes: Sequence[tuple[tuple[int, ...], Any]], tree: Any, batch: int | None = None
) -> Any:
    """The tree of arrays with these entries."""
    leaves, position = [], 0
    for shape, dtype in shapes:
        size = math.prod(shape)
        items = [jnp.asarray(x, dtype) for x in scalars[position : position + size]]
        if batch is not None:
            items = [x if x.ndim else jnp.broadcast_to(x, (batch,)) for x in items]
            empty = jnp.zeros((batch, 0), dtype)
            leaves.append((jnp.stack(items, axis=1) if items else empty).reshape((batch, *shape)))
        else:
            leaves.append((jnp.stack(items) if items else jnp.zeros(0, dtype)).reshape(shape))
        position += size
    return jax.tree.unflatten(tree, leaves)


def scalarise(function: Callable, batch: bool = False) -> Callable:
    """The same function, computed by scalar operations, with constants folded and equal expressions computed once.

    With `batch` every leaf of arguments and results has a leading batch axis, as under jax.vmap, and loops
    run until their last member is done. A call raises Unsupported if the function uses an operation without a
    scalar form. Exact zeros in derivatives are dropped, so 0 times infinity is 0 here.
    """

    def call(*arguments: Any) -> Any:
        arguments = jax.tree.map(jnp.asarray, arguments)
        size = jax.tree.leaves(arguments)[0].shape[0] if batch else None
        one = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape[1:] if batch else x.shape, x.dtype), arguments
        )
        scalars = Scalars(function, *one)
        results = scalars.run([*split(arguments, batch), *split(scalars.closed_over)], size)
        return join(results, scalars.results, scalars.result_tree, size)

    return call
