"""From the graph of scalars back into JAX."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.kernels.graph import Node, Region
from dalembert.kernels.plan import Plan
from dalembert.kernels.trig import sincos


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
