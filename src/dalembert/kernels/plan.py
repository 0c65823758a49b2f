"""Which operations of a graph are needed, and where each is computed."""

from collections.abc import Iterable, Sequence
from typing import Any

from dalembert.kernels.graph import Node, Region


def regions_of(control: Node) -> Sequence[Region]:
    """The regions of a loop or conditional."""
    return control.params if control.op != "loop" else control.params[:1]


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
        self._read: dict[int, set[int]] = {}
        self._reach()
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
                for region in regions_of(control):
                    # A counted loop has its counter first.
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
        """The results that a loop changes, and those needed that stay as they were."""
        offset = len(body.parameters) - len(control.args)
        kept = sorted(self.kept[control.id])
        fixed = [i for i in kept if body.results[i] is body.parameters[i + offset]]
        return [i for i in kept if i not in fixed], fixed

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
            self.content[id(best)].append(node)
            if node.op in ("while", "cond", "loop"):
                self._open(node, best, open_region, uses)
            else:
                for argument in node.args:
                    uses.setdefault(argument.id, []).append(best)
        for nodes in self.content.values():
            nodes.reverse()

    def in_groups(self, region: Region) -> list[Node | list[Node]]:
        """The operations of a region in order, sines and cosines that can be computed together as lists.

        Whatever needs none of them comes first, then all those whose arguments are ready, and so on.
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
        """What a node is computed from, by number; of a loop or conditional, all that its inside reads."""
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
        """The regions whose loop variables each node depends on (through anything)."""
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
