"""Many trajectories side by side as machine code, a few in each vector register."""

import ctypes
from collections.abc import Callable, Sequence

from dalembert.kernels.flow import Function
from dalembert.kernels.jit import vector_width
from dalembert.kernels.native import Block, Loop, dtypes_of, machine


def lanes_here() -> int:
    """Members to a vector: two registers full, which keeps the arithmetic units busy."""
    return 2 * vector_width()


def many(loop: Loop, varied: Sequence[bool]) -> Callable:
    """run(shared, own, starts, stride, first, last, steps, every, rows, told), all arrays float64.

    Parameter i is shared[i], or row `sum(varied[:i])` of `own` where it varies. `own`, `starts` and `told` hold
    one row per quantity with `stride` members in it; `rows` one such block per saved row, the start first,
    with the row's distinct entries. Members
    `first` to `last` are run, a multiple of `lanes_here()`.
    """
    lanes = lanes_here()
    w = Block(lanes)
    w.do("br label %member")
    w.block("member")
    member, member_place = w.counter("%from", "entry")
    rank = [sum(varied[:i]) for i in range(len(varied))]
    parameters = [
        w.load("%own", rank[i], t, "%stride", member) if varied[i] else w.load("%shared", i, t)
        for i, t in enumerate(loop.parameters)
    ]
    rest = dtypes_of(loop.begin.inputs)[len(parameters) :]
    starts = [w.load("%starts", i, t, "%stride", member) for i, t in enumerate(rest)]
    carry = Function(loop.begin.plan).write(w, [*parameters, *starts])
    carry = [w.widen(x, t) for x, t in zip(carry, loop.carry, strict=True)]
    size = w.put(f"mul i64 %stride, {len(loop.distinct)}")
    before = w.block_name
    w.do("br label %segment")
    w.block("segment")
    carry, places = w.phis(loop.carry, carry, before)
    left, left_place = w.counter("%steps", before)
    row, row_place = w.counter("0", before)
    target = w.put(f"getelementptr double, ptr %rows, i64 {w.put(f'mul i64 {size}, {row}')}")
    row_values = Function(loop.output.plan).write(w, [*parameters, *carry])
    for place, i in enumerate(loop.distinct):
        w.store(row_values[i], loop.row[i], target, place, "%stride", member)
    w.do(f"br i1 {w.put(f'icmp sgt i64 {left}, 0')}, label %go, label %end")
    w.block("go")
    few = w.put(f"icmp slt i64 {left}, %every")
    todo = w.put(f"select i1 {few}, i64 {left}, i64 %every")
    new, _ = loop.write_steps(w, parameters, carry, todo)
    w.close(places, new)
    for place, text in ((left_place, f"sub i64 {left}, {todo}"), (row_place, f"add i64 {row}, 1")):
        w.lines[place] += f", [{w.put(text)}, %{w.block_name}]"
    w.do("br label %segment")
    w.block("end")
    for i, k in enumerate((*loop.told, *loop.counted)):
        w.store(carry[k], loop.carry[k], "%told", i, "%stride", member)
    following = w.put(f"add i64 {member}, {lanes}")
    w.lines[member_place] += f", [{following}, %end]"
    w.do(f"br i1 {w.put(f'icmp slt i64 {following}, %to')}, label %member, label %out")
    w.block("out")
    w.do("ret void")
    head = (
        "define void @many(ptr noalias %shared, ptr noalias %own, ptr noalias %starts, i64 %stride, i64 %from, "
        "i64 %to, i64 %steps, i64 %every, ptr noalias %rows, ptr noalias %told)"
    )
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    types = [pointer, pointer, pointer, whole, whole, whole, whole, whole, pointer, pointer]
    return machine(w.function(head)).function("many", types)
