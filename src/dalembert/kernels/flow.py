"""Loops and conditionals of the graph in LLVM's language."""

from collections.abc import Sequence

from dalembert.kernels.circle import circles
from dalembert.kernels.graph import Node, Region
from dalembert.kernels.jit import vector_width
from dalembert.kernels.llvm import Value, Writer, literal
from dalembert.kernels.plan import Plan


class Function:
    """A plan, written into a Writer wherever it is called."""

    def __init__(self, plan: Plan):
        self.plan = plan

    def write(self, w: Writer, inputs: Sequence[Value]) -> list[Value]:
        """The instructions that compute the outputs from the inputs, at the writer's place."""
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
            elif node.op in ("while", "loop", "cond"):
                values[node.id] = {"while": self._while, "loop": self._loop, "cond": self._cond}[node.op](
                    node, values
                )
            else:
                values[node.id] = self.w.instruction(node, [self._read(a, values) for a in node.args])

    def _circles(self, group: list[Node], values: dict) -> None:
        """Sines and cosines, several arguments at a time."""
        wanted: dict[int, list[Node]] = {}
        for node in group:
            wanted.setdefault(node.args[0].id, []).append(node)
        # Those that want the sine alone, which is cheaper, go together.
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
        """Loop variables; what they become at the loop's end is filled in later."""
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
        # The last branch is the usual one. For members that may differ it is computed for all, and the others
        # only where a member needs them; else it is the first of a chain of two-way choices.
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
        """Branches k, k-1, ..., 0 of a choice that is the same for all members."""
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
