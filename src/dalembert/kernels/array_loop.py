"""Time loops as machine code with arrays in memory, for large systems."""

from collections.abc import Sequence

from dalembert.kernels.array_code import Program
from dalembert.kernels.drivers import Driver
from dalembert.kernels.native import LOOP_PASSES, Machine, Once, Text, TimeLoop, joined, machine
from dalembert.kernels.traced import Functions


class ArrayLoop(TimeLoop):
    """A time loop in operations on arrays, for large systems."""

    def __init__(self, functions: Functions):
        super().__init__(functions.made, functions.begin.example, functions.output.example)
        begin, step, output = map(Program.of, functions.parts)
        prepare, step = step.prepared()
        self.prepared = prepare.results
        """How many numbers all steps share, because they depend on the parameters alone."""
        self._parts = {"begin": begin, "prepare": prepare, "step": step, "output": output}
        self._texts: dict[str, Text] = {}

    def _text(self, name: str) -> Text:
        """One of the functions, written when it is first asked for."""
        if name not in self._texts:
            self._texts[name] = self._parts[name].text(name)
        return self._texts[name]

    def _of_a_step(self) -> list[Text]:
        return [self._text("output"), self._text("prepare"), self._text("step"), self._steps()]

    def machine(self) -> Machine:
        """The functions `start` and `run`."""
        once = Once(self._text("begin"), self._text("output"), self._start())
        return machine(*self._of_a_step(), self._run(), once=once, passes=LOOP_PASSES)

    def machine_of_many(self, varied: Sequence[bool]) -> Machine:
        """The function `many`."""
        return machine(*self._for_many(varied), passes=LOOP_PASSES)

    def _for_many(self, varied: Sequence[bool]) -> list[Text]:
        return [self._text("begin"), *self._of_a_step(), self._many(varied)]

    def text_of_many(self, varied: Sequence[bool]) -> str:
        """The text of `many`, with all that it calls, for one member at a time."""
        return joined(self._for_many(varied))

    def _start(self) -> Text:
        w = Driver()
        w.do("call void @begin(ptr %parameters, ptr %first, ptr %carry)")
        w.do("call void @output(ptr %parameters, ptr %carry, ptr %row)")
        w.do("ret void")
        return w.function(
            "define void @start(ptr noalias %parameters, ptr noalias %first, ptr noalias %carry, ptr noalias %row)"
        )

    def _well(self, w: Driver, carry: str) -> str:
        """Whether the code of a carry says that all is well."""
        code = w.put(f"load double, ptr {w.entry(carry, self.code)}")
        return w.put(f"fcmp oeq double {code}, 0.0")

    def _steps(self) -> Text:
        """Up to `todo` steps, as long as all is well; returns how many were done."""
        w = Driver()
        new = w.room(len(self.carry))
        w.do(f"br i1 {self._well(w, '%carry')}, label %more, label %stop")
        w.block("more")
        done, place = w.counter("0", "entry")
        w.do(f"br i1 {w.put(f'icmp slt i64 {done}, %todo')}, label %make, label %stop")
        w.block("make")
        w.do(f"call void @step(ptr %parameters, ptr %carry, ptr %shared, ptr {new})")
        w.do(f"br i1 {self._well(w, new)}, label %good, label %bad")
        w.block("good")
        w.copy("%carry", new, len(self.carry))
        w.lines[place] += f", [{w.put(f'add i64 {done}, 1')}, %good]"
        w.do("br label %more")
        w.block("bad")
        for k in self.report:
            w.move(w.entry("%carry", k), w.entry(new, k))
        w.do("br label %stop")
        w.block("stop")
        w.do(f"ret i64 {w.put(f'phi i64 [0, %entry], [{done}, %more], [{done}, %bad]')}")
        return w.function(
            "define internal i64 @steps(ptr noalias %parameters, ptr noalias %shared, ptr noalias %carry, i64 %todo)"
        )

    def _run(self) -> Text:
        w = Driver()
        shared = w.heap(self.prepared)
        w.do(f"call void @prepare(ptr %parameters, ptr {shared})")
        w.do("br label %segment")
        w.block("segment")
        left, left_place = w.counter("%count", "entry")
        size, size_place = w.counter("%first", "entry")
        row, row_place = w.counter("0", "entry")
        few = w.put(f"icmp slt i64 {left}, {size}")
        todo = w.put(f"select i1 {few}, i64 {left}, i64 {size}")
        done = w.put(f"call i64 @steps(ptr %parameters, ptr {shared}, ptr %carry, i64 {todo})")
        target = w.entry("%rows", w.put(f"mul i64 {row}, {len(self.row)}"))
        w.do(f"call void @output(ptr %parameters, ptr %carry, ptr {target})")
        fine = self._well(w, "%carry")
        whole = w.put(f"icmp eq i64 {done}, {size}")
        full = w.put(f"zext i1 {w.put(f'and i1 {fine}, {whole}')} to i64")
        new_row, new_left = w.put(f"add i64 {row}, {full}"), w.put(f"sub i64 {left}, {done}")
        more, room = w.put(f"icmp sgt i64 {new_left}, 0"), w.put(f"icmp slt i64 {new_row}, %capacity")
        again = w.put(f"and i1 {w.put(f'and i1 {fine}, {more}')}, {room}")
        for place, text in ((left_place, new_left), (size_place, "%every"), (row_place, new_row)):
            w.lines[place] += f", [{text}, %segment]"
        w.do(f"br i1 {again}, label %segment, label %end")
        w.block("end")
        w.release(shared)
        w.do(f"ret i64 {new_row}")
        return w.function(
            "define i64 @run(ptr noalias %parameters, ptr noalias %carry, i64 %first, i64 %every, i64 %count, "
            "ptr noalias %rows, i64 %capacity)"
        )

    def _many(self, varied: Sequence[bool]) -> Text:
        w = Driver()
        sizes = len(self.parameters), len(self.start), len(self.carry), len(self.row)
        parameters, start, carry, row = (w.room(size) for size in sizes)
        shared = w.heap(self.prepared)
        w.copy(parameters, "%shared", len(self.parameters))
        own = [i for i, flag in enumerate(varied) if flag]
        block = w.put(f"mul i64 %stride, {len(self.row)}")

        def member(m: str) -> None:
            for k, i in enumerate(own):
                w.move(w.entry(parameters, i), w.of("%own", k, "%stride", m))
            w.gather(start, "%starts", len(self.start), "%stride", m)
            w.do(f"call void @begin(ptr {parameters}, ptr {start}, ptr {carry})")
            w.do(f"call void @prepare(ptr {parameters}, ptr {shared})")
            save(m, "0")
            rows = w.put(f"sdiv i64 {w.put('add i64 %steps, ' + w.put('sub i64 %every, 1'))}, %every")
            w.each(0, rows, lambda k: segment(m, k))
            for i, k in enumerate((*self.report, *self.counted)):
                w.move(w.of("%report", i, "%stride", m), w.entry(carry, k))

        def segment(m: str, k: str) -> None:
            left = w.put(f"sub i64 %steps, {w.put(f'mul i64 {k}, %every')}")
            todo = w.put(f"select i1 {w.put(f'icmp slt i64 {left}, %every')}, i64 {left}, i64 %every")
            w.put(f"call i64 @steps(ptr {parameters}, ptr {shared}, ptr {carry}, i64 {todo})")
            save(m, w.put(f"add i64 {k}, 1"))

        def save(m: str, k: str) -> None:
            w.do(f"call void @output(ptr {parameters}, ptr {carry}, ptr {row})")
            target = w.entry("%rows", w.put(f"mul i64 {block}, {k}"))
            w.each(0, len(self.row), lambda i: w.move(w.of(target, i, "%stride", m), w.entry(row, i)))

        w.each("%from", "%to", member)
        w.release(shared)
        w.do("ret void")
        return w.function(
            "define void @many(ptr noalias %shared, ptr noalias %own, ptr noalias %starts, i64 %stride, i64 %from, "
            "i64 %to, i64 %steps, i64 %every, ptr noalias %rows, ptr noalias %report)"
        )
