"""Recurrences for the Taylor coefficients of the scalar operations of a function.

The coefficient k of a product is a sum over those of its factors, and all other functions here satisfy differential
equations with products alone. So every coefficient k >= 1 has one form,

    c_k = (sum of leads s x_k y_0 + sum of pairs s [x, y]_k + 1/k sum of rated s [x', y]_k) / d_0,

where [x, y]_k = x_1 y_(k-1) + ... + x_(k-1) y_1, and x' has the coefficients j x_j. The sums [x, y]_k use lower
coefficients alone. A choice between two nodes that is made at the start of the series chooses their coefficients.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dalembert.kernels.graph import Graph, Node, Region, Unsupported, regions_of

Lead = tuple[float, Node, Node | None]
"""A sign or number, x, and y; None stands for one."""
Pair = tuple[float, Node, Node]


class Recurrence(NamedTuple):
    """How the coefficients of a node come from those of others; see above. Without `divisor` nothing is divided."""

    leads: list[Lead]
    pairs: list[Pair]
    rated: list[Pair]
    divisor: Node | None = None
    choice: tuple[Node, Node, Node] | None = None
    """A condition, and the nodes of which it chooses the first if it does not hold, else the second."""

    @property
    def beside(self) -> list[Node]:
        """The nodes of which the same coefficient is needed."""
        return [x for _, x, _ in self.leads] + list((self.choice or ())[1:])


Rule = Callable[[Graph, Node], Recurrence]
_rules: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            _rules[name] = function
        return function

    return register


def _number(g: Graph, value: float) -> Node:
    return g.const(value, np.float64)


def _along(factor: Node, x: Node, sign: float = 1.0) -> Recurrence:
    """c' = sign factor x'."""
    return Recurrence([(sign, x, factor)], [], [(sign, x, factor)])


def _against(c: Node, factor: Node, x: Node, sign: float = 1.0) -> Recurrence:
    """factor c' = sign x'."""
    return Recurrence([(sign, x, None)], [], [(-1.0, c, factor)], factor)


@_rule("add", "add_any")
def _add(g: Graph, c: Node) -> Recurrence:
    return Recurrence([(1.0, x, None) for x in c.args], [], [])


@_rule("sub")
def _sub(g: Graph, c: Node) -> Recurrence:
    return Recurrence([(1.0, c.args[0], None), (-1.0, c.args[1], None)], [], [])


@_rule("neg")
def _neg(g: Graph, c: Node) -> Recurrence:
    return Recurrence([(-1.0, c.args[0], None)], [], [])


@_rule("mul")
def _mul(g: Graph, c: Node) -> Recurrence:
    a, b = c.args
    leads: list[Lead] = [(2.0, a, a)] if a is b else [(1.0, a, b), (1.0, b, a)]
    return Recurrence(leads, [(1.0, a, b)], [])


@_rule("div")
def _div(g: Graph, c: Node) -> Recurrence:
    a, b = c.args
    return Recurrence([(1.0, a, None), (-1.0, b, c)], [(-1.0, b, c)], [], b)


@_rule("sqrt")
def _sqrt(g: Graph, c: Node) -> Recurrence:
    return Recurrence([(1.0, c.args[0], None)], [(-1.0, c, c)], [], g.op("mul", _number(g, 2.0), c))


def _powered(g: Graph, c: Node, base: Node, power: Node) -> Recurrence:
    """c = base^power for a power that does not change: base c' = c (power base)'."""
    moved = g.op("mul", power, base)
    return Recurrence([(1.0, moved, c)], [], [(1.0, moved, c), (-1.0, c, base)], base)


@_rule("rsqrt")
def _rsqrt(g: Graph, c: Node) -> Recurrence:
    return _powered(g, c, c.args[0], _number(g, -0.5))


@_rule("cbrt")
def _cbrt(g: Graph, c: Node) -> Recurrence:
    return _powered(g, c, c.args[0], _number(g, 1 / 3))


@_rule("integer_pow")
def _integer_pow(g: Graph, c: Node) -> Recurrence:
    return _powered(g, c, c.args[0], _number(g, c.params[1]["y"]))


@_rule("exp")
def _exp(g: Graph, c: Node) -> Recurrence:
    return _along(c, c.args[0])


@_rule("exp2")
def _exp2(g: Graph, c: Node) -> Recurrence:
    return _along(c, g.op("mul", _number(g, np.log(2.0)), c.args[0]))


@_rule("expm1")
def _expm1(g: Graph, c: Node) -> Recurrence:
    return _along(g.op("add", c, _number(g, 1.0)), c.args[0])


@_rule("log")
def _log(g: Graph, c: Node) -> Recurrence:
    return _against(c, c.args[0], c.args[0])


@_rule("log1p")
def _log1p(g: Graph, c: Node) -> Recurrence:
    return _against(c, g.op("add", c.args[0], _number(g, 1.0)), c.args[0])


@_rule("sin")
def _sin(g: Graph, c: Node) -> Recurrence:
    return _along(g.op("cos", *c.args), c.args[0])


@_rule("cos")
def _cos(g: Graph, c: Node) -> Recurrence:
    return _along(g.op("sin", *c.args), c.args[0], -1.0)


def _other(g: Graph, name: str, c: Node) -> Node:
    """Another elementary function of the argument of c."""
    primitive, params = elementary()[name]
    return g.primitive(name, primitive, c.args, c.dtype, params)


@_rule("sinh")
def _sinh(g: Graph, c: Node) -> Recurrence:
    return _along(_other(g, "cosh", c), c.args[0])


@_rule("cosh")
def _cosh(g: Graph, c: Node) -> Recurrence:
    return _along(_other(g, "sinh", c), c.args[0])


def _square(g: Graph, x: Node, sign: int, one: float = 1.0) -> Node:
    """one + sign x^2."""
    return g.op("add" if sign > 0 else "sub", _number(g, one), g.op("mul", x, x))


@_rule("tan")
def _tan(g: Graph, c: Node) -> Recurrence:
    return _along(_square(g, c, 1), c.args[0])


@_rule("tanh")
def _tanh(g: Graph, c: Node) -> Recurrence:
    return _along(_square(g, c, -1), c.args[0])


@_rule("logistic")
def _logistic(g: Graph, c: Node) -> Recurrence:
    return _along(g.op("sub", c, g.op("mul", c, c)), c.args[0])


@_rule("atan")
def _atan(g: Graph, c: Node) -> Recurrence:
    return _against(c, _square(g, c.args[0], 1), c.args[0])


@_rule("atanh")
def _atanh(g: Graph, c: Node) -> Recurrence:
    return _against(c, _square(g, c.args[0], -1), c.args[0])


@_rule("asin", "acos")
def _asin(g: Graph, c: Node) -> Recurrence:
    root = g.op("sqrt", _square(g, c.args[0], -1))
    return _against(c, root, c.args[0], 1.0 if c.op == "asin" else -1.0)


@_rule("asinh")
def _asinh(g: Graph, c: Node) -> Recurrence:
    return _against(c, g.op("sqrt", _square(g, c.args[0], 1)), c.args[0])


@_rule("acosh")
def _acosh(g: Graph, c: Node) -> Recurrence:
    # As a product, so that no digits are lost near one, where both are singular.
    x, one = c.args[0], _number(g, 1.0)
    return _against(
        c, g.op("mul", g.op("sqrt", g.op("sub", x, one)), g.op("sqrt", g.op("add", x, one))), c.args[0]
    )


@_rule("erf", "erfc")
def _erf(g: Graph, c: Node) -> Recurrence:
    x = c.args[0]
    primitive, params = elementary()["exp"]
    bell = g.primitive("exp", primitive, (g.op("neg", g.op("mul", x, x)),), c.dtype, params)
    factor = g.op("mul", _number(g, 2 / np.sqrt(np.pi)), bell)
    return _along(factor, x, 1.0 if c.op == "erf" else -1.0)


@_rule("atan2")
def _atan2(g: Graph, c: Node) -> Recurrence:
    y, x = c.args
    size = g.op("add", g.op("mul", x, x), g.op("mul", y, y))
    return Recurrence([(1.0, y, x), (-1.0, x, y)], [], [(1.0, y, x), (-1.0, x, y), (-1.0, c, size)], size)


@_rule("convert_element_type", "reduce_precision")
def _same(g: Graph, c: Node) -> Recurrence:
    if c.args[0].dtype.kind != "f":
        raise Unsupported(c.op, f"of a changing {c.args[0].dtype}, which has no Taylor series")
    return Recurrence([(1.0, c.args[0], None)], [], [])


def _chosen(g: Graph, c: Node, changes: Callable[[Node], bool]) -> Recurrence:
    """A choice by a condition that does not change, or that holds everywhere or nowhere but at single points.

    Solutions of linear equations are NaN where they are not sound, and some derivatives have values of their own at
    single points. At such a point there is no series: its coefficients are NaN.
    """
    condition, no, yes = _cases(c)
    if not changes(condition):
        return Recurrence([], [], [], None, (condition, no, yes))
    for x, other in ((no, yes), (yes, no)):
        if x.is_const and np.isnan(x.value):
            return Recurrence([(1.0, other, None)], [], [])
    compared: list[Node] = []
    usual = _usual(condition, changes, compared)
    if usual is None:
        raise Unsupported("jnp.where, jnp.abs or the like" if c.op == "select_n" else "lax.cond", _SWITCH)
    nan = _number(g, np.nan)
    # What is compared must itself have a series; if it were constant in pieces, it could be equal for a while.
    leads: list[Lead] = [(0.0, x, None) for x in compared]
    return Recurrence(leads, [], [], None, (condition, nan, yes) if usual else (condition, no, nan))


def _cases(c: Node) -> tuple[Node, Node, Node]:
    """The condition of a choice, what it chooses if the condition does not hold, and what otherwise."""
    if c.op == "select_n":
        condition, *cases = c.args
    else:
        control = c.args[0]
        condition, cases = control.args[0], [region.results[c.value] for region in control.params]
    if condition.op == "convert_element_type" and len(cases) == 2:
        condition = condition.args[0]  # of lax.cond
    if condition.dtype != bool or len(cases) != 2:
        raise Unsupported("a choice", "among more than two cases, which has no Taylor series")
    return condition, cases[0], cases[1]


def _usual(condition: Node, changes: Callable[[Node], bool], compared: list[Node]) -> bool | None:
    """Whether a condition holds everywhere but at single points (True), or only at such points; None if neither.

    The numbers that it compares are added to `compared`.
    """
    if condition.op in ("eq", "ne") and changes(condition) and condition.args[0].dtype.kind == "f":
        if condition.args[0] is condition.args[1]:  # a test for NaN
            return condition.op == "eq"
        compared += [x for x in condition.args if changes(x)]
        return condition.op == "ne"
    if condition.op == "not":
        found = _usual(condition.args[0], changes, compared)
        return None if found is None else not found
    found = [_usual(x, changes, compared) for x in condition.args] if condition.op in ("and", "or") else []
    if condition.op == "and" and False in found:
        return False
    if condition.op == "or" and True in found:
        return True
    return found[0] if len(found) == 2 and found[0] is found[1] else None


_SWITCH = "which changes between formulas along the motion, so no Taylor series reaches past the switch"
_WHY = {
    "while": "whose number of repetitions may change along the motion",
    "loop": "of many repetitions, which has no recurrences",
    **dict.fromkeys(("abs", "max", "min", "sign", "floor", "ceil", "round", "rem"), _SWITCH),
}


def _written_as_power(g: Graph, c: Node, changes: Callable[[Node], bool]) -> Recurrence:
    base, power = c.args
    if not changes(power):
        return _powered(g, c, base, power)
    primitive, params = elementary()["log"]
    return _along(c, g.op("mul", power, g.primitive("log", primitive, (base,), c.dtype, params)))


def elementary() -> dict:
    """The primitives of functions that recurrences bring in, with their parameters."""
    import jax
    from jax import lax

    if not _elementary:
        for name in ("exp", "log", "sinh", "cosh"):
            (equation,) = jax.make_jaxpr(getattr(lax, name))(np.float64(0.5)).jaxpr.eqns
            _elementary[name] = (equation.primitive, dict(equation.params))
    return _elementary


_elementary: dict = {}


class Recurrences:
    """The recurrences of all nodes that the outputs depend on, in an order in which they can be computed.

    Nodes that do not change along the motion have coefficient zero alone, and take no part.
    """

    def __init__(
        self, graph: Graph, variables: Sequence[Node], outputs: Sequence[Node], still: Iterable[int] = ()
    ):
        """The recurrences; the nodes `still` do not change along the motion, although they depend on the variables."""
        self.graph = graph
        self.variables, self.outputs = list(variables), list(outputs)
        self._changing: dict[int, bool] = {**dict.fromkeys(still, False), **{x.id: True for x in variables}}
        found: dict[int, Recurrence] = {}
        self.zeroth: dict[int, Node] = {x.id: x for x in (*variables, *outputs)}
        """The nodes of which coefficient zero is needed, by number."""
        todo = [x for x in outputs if self.changes(x)]
        while todo:
            node = todo.pop()
            if node.id in found or node.op == "input":
                continue
            made = found[node.id] = self._of(node)
            self.zeroth[node.id] = node
            products = [x for p in (*made.pairs, *made.rated) for x in p[1:]]
            todo += [*(x for x in made.beside if self.changes(x)), *products]
            at_once = [*products, made.divisor, *(y for _, _, y in made.leads), *(made.choice or ())]
            self.zeroth.update({x.id: x for x in at_once if x is not None})
        self.of = _joined(found, self.outputs)
        self.order = self._sorted()
        self.summed = self._summed()

    def changes(self, node: Node) -> bool:
        """Whether a node depends on the variables."""
        stack = [node]
        while stack:
            x = stack[-1]
            if x.id in self._changing:
                stack.pop()
                continue
            unknown = [a for a in x.args if a.id not in self._changing]
            if unknown:
                stack += unknown
                continue
            # What these read is not among their arguments alone.
            inside = x.op in ("while", "cond", "loop") and any(map(self._inside, regions_of(x)))
            self._changing[x.id] = inside or any(self._changing[a.id] for a in x.args)
            stack.pop()
        return self._changing[node.id]

    def _inside(self, region: Region) -> bool:
        """Whether a loop or branch depends on the variables; its own variables alone do not matter."""
        self._changing.update(dict.fromkeys((x.id for x in region.parameters), False))
        return any(map(self.changes, region.results))

    def _of(self, node: Node) -> Recurrence:
        if node.op == "result" and node.args[0].op != "cond":
            raise Unsupported(node.args[0].op, _WHY[node.args[0].op])
        if node.op in ("select_n", "result"):
            made = _chosen(self.graph, node, self.changes)
        elif node.op == "pow":
            made = _written_as_power(self.graph, node, self.changes)
        elif node.op in _rules:
            made = _rules[node.op](self.graph, node)
        else:
            raise Unsupported(node.op, _WHY.get(node.op, "which has no Taylor series everywhere"))
        leads = [x for x in made.leads if self.changes(x[1])]
        pairs, rated = (
            [p for p in found if self.changes(p[1]) and self.changes(p[2])]
            for found in (made.pairs, made.rated)
        )
        return made._replace(leads=leads, pairs=pairs, rated=rated)

    def _sorted(self) -> list[Node]:
        """The nodes, those first that others need at the same order."""
        order: list[Node] = []
        seen: set[int] = {x.id for x in self.variables}
        stack = [(x, False) for x in map(self.graph.nodes.__getitem__, sorted(self.of, reverse=True))]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
            elif node.id not in seen:
                seen.add(node.id)
                stack.append((node, True))
                stack += [(x, False) for x in self.of[node.id].beside if x.id in self.of and x.id not in seen]
        return order

    def _summed(self) -> list[Node]:
        """The nodes all of whose coefficients are kept, because sums need them."""
        used = {x.id: x for made in self.of.values() for p in (*made.pairs, *made.rated) for x in p[1:]}
        return [used[i] for i in sorted(used)]


def _joined(found: dict[int, Recurrence], outputs: Sequence[Node]) -> dict[int, Recurrence]:
    """The same recurrences without those that are used only once, in a sum; they become part of that sum."""
    uses: dict[int, int] = {x.id: 2 for x in outputs}
    for made in found.values():
        for _, x, y in made.leads:
            uses[x.id] = uses.get(x.id, 0) + (1 if y is None else 2)
        for p in (*made.pairs, *made.rated):
            uses.update({x.id: 2 for x in p[1:]})
        uses.update({x.id: 2 for x in made.choice or ()})
    result: dict[int, Recurrence] = {}
    inside: set[int] = set()
    # What a sum takes in may have taken in others before, so the deepest go first.
    for number in sorted(found):
        made = found[number]
        leads: list[Lead] = []
        pairs, rated = list(made.pairs), list(made.rated)
        for sign, x, y in made.leads:
            part = result.get(x.id)
            if part is None or y is not None or uses[x.id] > 1 or part.divisor is not None or part.choice:
                leads.append((sign, x, y))
                continue
            inside.add(x.id)
            leads += [(sign * s, a, b) for s, a, b in part.leads]
            pairs += [(sign * s, a, b) for s, a, b in part.pairs]
            rated += [(sign * s, a, b) for s, a, b in part.rated]
        result[number] = made._replace(leads=leads, pairs=pairs, rated=rated)
    return {number: made for number, made in result.items() if number not in inside}
