"""From the graph of scalars back into JAX."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.kernels.graph import Node, Region


class Plan:
    """Which nodes are needed, and which region each is computed in.

    A node is computed in the innermost region that contains all its uses, but outside every loop in which it
    does not change. Only loop variables that something depends on are kept.
    """

    def __init__(self, outputs: Sequence[Node]):
        self.outputs = list(outputs)
        self.root = Region()
        self.owner: dict[int, tuple[Node, Region, int]] = {}
        """Of a loop variable: its loop, region and position."""
        self.kept: dict[int, set[int]] = {}
        """Of a control node: which of its results are needed."""
        self.needed: dict[int, Node] = {}
        self._reach()
        self.place: dict[int, Region] = {}
        self.content: dict[int, list[Node]] = {id(self.root): []}
        self._schedule()

    def _reach(self) -> None:
        todo = list(self.outputs)
        while todo:
            node = todo.pop()
            if node.op == "result":
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
                regions = control.params if control.op == "while" else control.params[:1]
                for region in regions:
                    offset = len(region.parameters) - len(control.args)  # a counted loop has its counter first
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

    def _schedule(self) -> None:
        """From the last node to the first: a node's users are placed before it."""
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
            # Outwards as far as the loop variables it depends on allow, where that leaves a loop.
            best = common[0]
            for region in common:
                if loops[id(region)] < loops[id(best)]:
                    best = region
                if id(region) in depends[number]:
                    break
            self.place[number] = best
            self.content[id(best)].append(node)
            if node.op in ("while", "cond", "loop"):
                self._open(node, best, open_region, uses)
            else:
                for argument in node.args:
                    uses.setdefault(argument.id, []).append(best)
        for nodes in self.content.values():
            nodes.reverse()

    def _open(self, node: Node, where: Region, open_region: Any, uses: dict[int, list[Region]]) -> None:
        kept = self.kept[node.id]
        regions = node.params if node.op != "loop" else node.params[:1]
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
        """The regions whose loop variables each node depends on (through anything)."""
        depends: dict[int, frozenset[int]] = {}
        empty: frozenset[int] = frozenset()
        for number in sorted(self.needed):
            node = self.needed[number]
            if node.op == "parameter":
                depends[number] = frozenset([id(self.owner[number][1])])
                continue
            if node.op in ("while", "cond", "loop"):
                kept = self.kept[number]
                regions = node.params if node.op != "loop" else node.params[:1]
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
    """Computes a plan in JAX, each scalar as a number or, for a batch, as an array of numbers."""

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
            elif not self._fuse(node, values):
                primitive, params = node.params
                arguments = [values[a.id] if a.op != "const" else a.value for a in node.args]
                if self.batch is not None and len(arguments) > 1:
                    wide = [np.ndim(a) > 0 for a in arguments]
                    if any(wide) and not all(wide):
                        keep = node.op == "select_n" and not wide[0] and any(wide[1:])
                        arguments = [
                            a if keep and i == 0 else self._wide(a) for i, a in enumerate(arguments)
                        ]
                values[node.id] = primitive.bind(*arguments, **params)

    def _fuse(self, node: Node, values: dict) -> bool:
        """A sum or difference with a product, as one operation where `fused(a, b, c, signs)` = +-a b +- c exists.

        `fused(a, b)` is a quotient, which such operations make cheaper too.
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

    def _carried(self, node: Node, region: Region, offset: int = 0) -> tuple[list[int], dict[int, int]]:
        """The results a loop carries, and those that stay as they were: position to loop variable."""
        kept = sorted(self.plan.kept[node.id])
        fixed = [i for i in kept if region.results[i] is region.parameters[i + offset]]
        return [i for i in kept if i not in fixed], {i: region.parameters[i + offset].id for i in fixed}

    def _while(self, node: Node, values: dict) -> dict[int, Any]:
        condition, body = node.params
        moving, fixed = self._carried(node, body)
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
            return tuple(
                self._typed(self._read(body.results[i], inner), body.parameters[i]) for i in moving
            )

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
        moving, fixed = self._carried(node, body, offset=1)
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
            return [self._typed(self._wide(self._read(region.results[i], inner)), region.results[i]) for i in kept]

        if np.ndim(index) == 0:
            cases = [lambda region=region: tuple(branch(region)) for region in node.params]
            results = lax.switch(index.astype(np.int32), cases) if len(cases) != 2 else lax.cond(
                index if node.args[0].dtype == bool else index > 0, cases[1], cases[0]
            )
        else:
            last = len(node.params) - 1
            lanes = index if node.args[0].dtype == bool else index >= last

            # The last branch is the usual one: computed for all, and the others only where a member needs them.
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
        """x with the node's type, as an array (a constant may be a NumPy number)."""
        return jnp.asarray(x, node.dtype)


def _any(mask: Any) -> Any:
    """Whether a condition holds for any member (as a maximum, which every device can take)."""
    return jnp.max(mask.astype(np.int32)) > 0
