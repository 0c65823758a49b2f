"""Matrix factorisations of small matrices, written out in scalar nodes."""

import numpy as np

from dalembert.kernels.graph import Graph, Node
from dalembert.kernels.interpret import Interpreter, Nodes, conditional, objects, rule
from dalembert.numerics import multiplier_bound, pivot_floor


@rule("small_solve")
def _small_solve(it: Interpreter, equation, a: Nodes, b: Nodes):
    """As in dalembert.numerics: elimination without pivoting, and with it where that went badly."""
    g, n = it.graph, len(a)
    if b.size == 0:
        return [b]
    dtype = a[0, 0].dtype
    columns, plain, one = b.reshape(n, -1).T, a.copy(), g.const(1, dtype)
    inverses = []
    for k in range(n):
        inverses.append(g.op("div", one, plain[k, k]))
        for i in range(k + 1, n):
            plain[i, k] = g.op("mul", plain[i, k], inverses[k])
            for j in range(k + 1, n):
                plain[i, j] = g.op("sub", plain[i, j], g.op("mul", plain[i, k], plain[k, j]))
    if equation.params["positive"]:
        floor, nan = g.const(pivot_floor(dtype), dtype), g.const(np.nan, dtype)
        for i in range(n):
            sound = g.op("gt", plain[i, i], g.op("mul", floor, g.op("abs", a[i, i])))
            inverses[i] = g.choose(sound, inverses[i], nan)
        return [_substituted(g, plain, inverses, columns, b.shape)]
    result = _substituted(g, plain, inverses, columns, b.shape)
    multipliers = [plain[i, k] for i in range(n) for k in range(i)]
    if all(x.is_const and abs(x.value) <= multiplier_bound(n) for x in multipliers):
        return [result]
    bound = g.const(multiplier_bound(n), dtype)
    well = g.fold_left("and", [g.op("le", g.op("abs", x), bound) for x in multipliers])
    factors, _, order = _factor(g, a)
    factors = objects(factors, a.shape)
    inverses = [g.op("div", one, factors[k, k]) for k in range(n)]
    permuted = np.array([[g.pick(row, list(column)) for row in order] for column in columns], object)
    pivoted = _substituted(g, factors, inverses, permuted, b.shape)
    return [objects(conditional(g, well, [list(pivoted.flat), list(result.flat)]), b.shape)]


def _substituted(g: Graph, factors: Nodes, inverses: list[Node], columns: Nodes, shape: tuple) -> Nodes:
    """The solution from L U = `factors` (L with ones on its diagonal) and 1/diag U, for each right side."""
    n, solved = len(factors), []
    for column in columns:
        y = list(column)
        for i in range(n):
            for k in range(i):
                y[i] = g.op("sub", y[i], g.op("mul", factors[i, k], y[k]))
        for i in reversed(range(n)):
            for j in range(i + 1, n):
                y[i] = g.op("sub", y[i], g.op("mul", factors[i, j], y[j]))
            y[i] = g.op("mul", y[i], inverses[i])
        solved.append(y)
    return objects([y[i] for i in range(n) for y in solved], shape)


def _batches(x: Nodes) -> list[Nodes]:
    return list(x.reshape(-1, *x.shape[-2:]))


@rule("lu")
def _lu(it: Interpreter, equation, a: Nodes):
    results = [_factor(it.graph, matrix) for matrix in _batches(a)]
    return [objects([x for r in results for x in r[i]], v.aval.shape) for i, v in enumerate(equation.outvars)]


def _factor(g: Graph, matrix: Nodes) -> tuple[list[Node], list[Node], list[Node]]:
    """L and U in one matrix, the row exchanged with each row, and the permutation."""
    a = matrix.copy()
    n, columns = a.shape
    rows = [g.const(i, np.int32) for i in range(n)]
    pivots = []
    for k in range(min(n, columns)):
        best, where = g.op("abs", a[k, k]), g.const(k, np.int32)
        for i in range(k + 1, n):
            wins = g.op("gt", g.op("abs", a[i, k]), best)
            best, where = (
                g.choose(wins, g.op("abs", a[i, k]), best),
                g.choose(wins, g.const(i, np.int32), where),
            )
        pivots.append(where)
        for i in range(k + 1, n):
            here = g.op("eq", where, g.const(i, np.int32))
            for j in range(columns):
                a[k, j], a[i, j] = g.choose(here, a[i, j], a[k, j]), g.choose(here, a[k, j], a[i, j])
            rows[k], rows[i] = g.choose(here, rows[i], rows[k]), g.choose(here, rows[k], rows[i])
        for i in range(k + 1, n):
            a[i, k] = g.op("div", a[i, k], a[k, k])
            for j in range(k + 1, columns):
                a[i, j] = g.op("sub", a[i, j], g.op("mul", a[i, k], a[k, j]))
    return list(a.flat), pivots, rows


@rule("lu_pivots_to_permutation")
def _permutation(it: Interpreter, equation, pivots: Nodes):
    g, size = it.graph, equation.params["permutation_size"]
    result = []
    for line in pivots.reshape(-1, pivots.shape[-1]):
        rows = [g.const(i, np.int32) for i in range(size)]
        for k, pivot in enumerate(line):
            other = g.pick(pivot, rows)
            old = rows[k]
            rows = [g.choose(g.op("eq", pivot, g.const(i, np.int32)), old, row) for i, row in enumerate(rows)]
            rows[k] = other
        result += rows
    return [objects(result, equation.outvars[0].aval.shape)]


@rule("triangular_solve")
def _triangular_solve(it: Interpreter, equation, a: Nodes, b: Nodes):
    g, p = it.graph, equation.params
    result = []
    for matrix, right in zip(_batches(a), _batches(b), strict=True):
        lower = p["lower"]
        if p["transpose_a"]:
            matrix, lower = matrix.T, not lower
        if not p["left_side"]:  # x a = b is a^T x^T = b^T
            matrix, right, lower = matrix.T, right.T, not lower
        n = len(matrix)
        x = right.copy()
        order = range(n) if lower else range(n)[::-1]
        for column in range(x.shape[1]):
            for i in order:
                for j in range(i) if lower else range(i + 1, n):
                    x[i, column] = g.op("sub", x[i, column], g.op("mul", matrix[i, j], x[j, column]))
                if not p["unit_diagonal"]:
                    x[i, column] = g.op("div", x[i, column], matrix[i, i])
        result += list((x if p["left_side"] else x.T).flat)
    return [objects(result, b.shape)]


@rule("cholesky")
def _cholesky(it: Interpreter, equation, a: Nodes):
    g, result = it.graph, []
    for matrix in _batches(a):
        n = len(matrix)
        low = np.full((n, n), g.const(0, equation.outvars[0].aval.dtype), object)
        for j in range(n):
            diagonal = matrix[j, j]
            for k in range(j):
                diagonal = g.op("sub", diagonal, g.op("mul", low[j, k], low[j, k]))
            low[j, j] = g.op("sqrt", diagonal)
            for i in range(j + 1, n):
                entry = matrix[i, j]
                for k in range(j):
                    entry = g.op("sub", entry, g.op("mul", low[i, k], low[j, k]))
                low[i, j] = g.op("div", entry, low[j, j])
        result += list(low.flat)
    return [objects(result, a.shape)]


@rule("custom_linear_solve")
def _custom_linear_solve(it: Interpreter, equation, *inputs):
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    sizes = [lengths.matvec, lengths.vecmat, lengths.solve, lengths.transpose_solve]
    cuts = np.cumsum(sizes)
    consts = inputs[cuts[1] : cuts[2]]
    return it.closed(jaxprs.solve, [*consts, *inputs[cuts[3] :]])
