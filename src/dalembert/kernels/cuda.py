"""Time loops on NVIDIA's GPUs: one thread per member, whose numbers are in registers and in memory of its own.

LLVM makes PTX from the text that it makes machine code from, and CUDA's driver loads it. The driver keeps the memories
of neighbouring threads side by side, so that threads which do the same read and write whole lines.
"""

import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.kernels.graph import Unsupported
from dalembert.kernels.llvm import literal
from dalembert.kernels.native import LOOP_PASSES, TimeLoop
from dalembert.kernels.sine_cosine import LIMIT

THREADS = 128
"""The number of threads per block."""
FAR = 1e9
"""An angle beyond this ends the member; the reduction of smaller ones by fused products is good to rounding."""
_TRIPLE = "nvptx64-nvidia-cuda"
_HAS = {
    "abs", "copysign", "ctpop", "fabs", "floor", "ceil", "fma", "fptosi", "memcpy", "rint", "round", "smax", "smin",
    "sqrt", "trunc", "umax", "umin",
}  # fmt: skip
"""LLVM's own functions that PTX has; it writes `memcpy` as a loop."""

# The quotient is the device's estimate of 1/b, two steps of Newton's method, and a last correction. It is good to one
# unit in the last place. A divisor that is zero, infinite or beyond 1e307 gives NaN, which ends the member.
_QUOTIENT = """
define internal double @own.quotient(double %a, double %b) alwaysinline {
entry:
  %t = call double @llvm.nvvm.rcp.approx.ftz.d(double %b)
  %minus = fneg double %b
  %e = call double @llvm.fma.f64(double %minus, double %t, double 1.0)
  %u = call double @llvm.fma.f64(double %t, double %e, double %t)
  %f = call double @llvm.fma.f64(double %minus, double %u, double 1.0)
  %v = call double @llvm.fma.f64(double %u, double %f, double %u)
  %q = fmul double %a, %v
  %r = call double @llvm.fma.f64(double %minus, double %q, double %a)
  %result = call double @llvm.fma.f64(double %r, double %v, double %q)
  ret double %result
}
declare double @llvm.nvvm.rcp.approx.ftz.d(double)
"""
# As in JAX, the greater and the smaller of NaN and a number are NaN. PTX has no such functions of float64.
_EXTREME = """
define internal double @own.{name}(double %a, double %b) alwaysinline {{
entry:
  %unknown = fcmp uno double %a, %b
  %sum = fadd double %a, %b
  %first = fcmp {compare} double %a, %b
  %one = select i1 %first, double %a, double %b
  %result = select i1 %unknown, double %sum, double %one
  ret double %result
}}
"""
_EXTREMES = {"maximum": "ogt", "minimum": "olt"}
_FMA = "declare double @llvm.fma.f64(double, double, double)"
_CIRCLE = re.compile(r"define internal \{.*?\} @(?:circle|sine)\d+\(.*?\n\}", re.DOTALL)
_FAR = re.compile(
    r"(define internal \{(.+?), \2\} @(?:circle|sine)\d+\.far\(.*?\) [\w ]*\{\n)entry:\n.*?\n\}", re.DOTALL
)
_ENTRY = """
define void @entry(ptr %shared, ptr %own, ptr %starts, i64 %stride, i64 %to, i64 %steps, i64 %every, ptr %rows, \
ptr %report) {
entry:
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %threads = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %place = zext i32 %thread to i64
  %width = zext i32 %threads to i64
  %number = zext i32 %block to i64
  %before = mul i64 %width, %number
  %member = add i64 %before, %place
  %inside = icmp slt i64 %member, %to
  br i1 %inside, label %run, label %out
run:
  %after = add i64 %member, 1
  call void @many(ptr %shared, ptr %own, ptr %starts, i64 %stride, i64 %member, i64 %after, i64 %steps, i64 %every, \
ptr %rows, ptr %report)
  br label %out
out:
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
!nvvm.annotations = !{!90}
!90 = !{ptr @entry, !"kernel", i32 1}
"""


def without_library(text: str) -> str:
    """The text of a loop without the C library: its functions, its memory, and divisions that take it."""
    text = _CIRCLE.sub(
        lambda found: found[0].replace(literal(np.float64(LIMIT)), literal(np.float64(FAR))), text
    )
    text = _FAR.sub(
        lambda found: f"{found[1]}entry:\n  ret {{{found[2]}, {found[2]}}} {_nans(found[2])}\n}}", text
    )
    text = re.sub(r"call noalias ptr @malloc\(i64 (\d+)\)", r"alloca [\1 x i8], align 32", text)
    text = re.sub(r"\n *call void @free\(.*?\)(?=\n)", "", text)
    text, divisions = re.subn(
        r"fdiv (?:contract )?double ([^,\n]+), ([^,\n]+)",
        r"call double @own.quotient(double \1, double \2)",
        text,
    )
    for name, compare in _EXTREMES.items():
        text, found = re.subn(rf"call double @llvm\.{name}\.f64\(", f"call double @own.{name}(", text)
        text += _EXTREME.format(name=name, compare=compare) if found else ""
    if divisions:
        text += _QUOTIENT + ("" if _FMA in text else _FMA + "\n")
    called = set(re.findall(r"call [^@\n]*@([\w.]+)\(", text))
    text = re.sub(r"\ndeclare [^@\n]*@([\w.]+)\(.*", lambda x: x[0] if x[1] in called else "", text)
    defined = set(re.findall(r"define [^@\n]*@([\w.]+)\(", text))
    for name in sorted(called - defined):
        parts = name.split(".")
        known = parts[0] == "llvm" and (
            parts[1] in _HAS or parts[1] == "nvvm" or parts[1:3] == ["vector", "reduce"]
        )
        if not known:
            raise Unsupported(parts[1] if parts[0] == "llvm" else name, "which PTX does not have")
    return text


def _nans(kind: str) -> str:
    """A pair of numbers or vectors of this type that are NaN."""
    number, one = re.fullmatch(r"<(\d+) x double>", kind), literal(np.float64(np.nan))
    nan = f"<{', '.join([f'double {one}'] * int(number[1]))}>" if number else one
    return f"{{{kind} {nan}, {kind} {nan}}}"


def ptx(text: str, chip: str) -> bytes:
    """The code of a loop for a GPU such as sm_90."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(_TRIPLE)
    except RuntimeError as error:
        raise Unsupported("PTX", f"which this LLVM does not write ({error})") from error
    machine = target.create_target_machine(cpu=chip, opt=3)
    module = llvm.parse_assembly(text + _ENTRY, llvm.create_context())
    module.triple, module.data_layout = _TRIPLE, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options()
    for name in LOOP_PASSES.keys() - {"opt"}:
        setattr(options, name, LOOP_PASSES[name])
    options.loop_vectorization = False  # a thread has no vectors
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module).encode() + b"\0"


class _Driver:
    """CUDA's driver, with the context that JAX uses on its first GPU."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Unsupported("CUDA's driver", "which is not installed here") from error
        self.call("cuInit", 0)
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), jax.local_devices()[0].local_hardware_id)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        found = []
        for attribute in (16, 75, 76):  # the number of processors, and the compute capability
            number = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
            found.append(number.value)
        self.processors, self.chip = found[0], f"sm_{found[1]}{found[2]}"

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver in JAX's context."""
        if hasattr(self, "chip"):
            self.library.cuCtxSetCurrent(self.context)
        code = getattr(self.library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(text))
            said = (text.value or b"").decode() or code
            if name == "cuLaunchKernel":
                raise Unsupported(
                    "more memory per thread than the GPU has free", f"CUDA's driver says {said}"
                )
            raise Unsupported("CUDA's driver", f"{name} failed with {said}")


@functools.cache
def _driver() -> _Driver:
    return _Driver()


_SIZES = {"double": 8, "i64": 8, "i32": 4, "i8": 1, "i1": 1}


def memory_of(text: str) -> int:
    """About the bytes of memory of one thread: those of `many`, and of the largest function that it calls."""
    sizes: dict[str, int] = {}
    for function in re.split(r"\n(?=define )", text):
        name = re.search(r"define [^@\n]*@([\w.]+)\(", function)
        arrays = re.findall(r"alloca \[(\d+) x (\w+)\]", function)
        sizes[name[1] if name else ""] = sum(int(n) * _SIZES[kind] for n, kind in arrays)
    return sizes.pop("many", 0) + max(sizes.values(), default=0)


MEMBERS_PER_BYTE = 1 / 4 / 132
"""The members for each byte of a thread's memory and each processor of the GPU from which on the kernel is quicker than
XLA, which shares the work of one member among threads. Measured on an H200, which has 132 processors, for cars and
snakes of 16 to 43 coordinates by frame and gni."""


@functools.lru_cache(maxsize=64)
def fewest(loop: TimeLoop, flags: tuple[bool, ...]) -> int:
    """The number of members from which on the kernel of a loop of arrays is quicker than XLA."""
    memory = memory_of(without_library(loop.text_of_many(flags)))
    return int(memory * _driver().processors * MEMBERS_PER_BYTE)


@functools.lru_cache(maxsize=64)
def _kernel(loop: TimeLoop, flags: tuple[bool, ...]) -> Any:
    """The kernel, or the reason why there is none."""
    driver, module, function = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
    try:
        code = ptx(without_library(loop.text_of_many(flags)), driver.chip)
        driver.call("cuModuleLoadData", ctypes.byref(module), code)
        driver.call("cuModuleGetFunction", ctypes.byref(function), module, b"entry")
    except Unsupported as error:
        return error.with_traceback(None)
    return function


def call_of_many(
    loop: TimeLoop,
    flags: Sequence[bool],
    shared: Any,
    own: Any,
    starts: Any,
    steps: int,
    every: int,
    count: int,
) -> Callable[[], tuple[Any, Any]]:
    """A function that runs all members and returns their rows, shape (count, distinct entries, members), and how each
    member ended; Unsupported if there is no kernel for this loop."""
    function = _kernel(loop, tuple(flags))
    if isinstance(function, Unsupported):
        raise Unsupported(function.primitive, function.why)
    driver, wide = _driver(), starts.shape[1]
    device = jax.local_devices()[0]
    given = [jax.device_put(np.ascontiguousarray(x, float), device) for x in (shared, own, starts)]

    def call() -> tuple[Any, Any]:
        rows = jnp.zeros((count, len(loop.distinct), wide), device=device)
        report = jnp.zeros((3, wide), device=device)
        jax.block_until_ready((given, rows, report))
        pointers = [ctypes.c_uint64(x.unsafe_buffer_pointer()) for x in (*given, rows, report)]
        numbers = [ctypes.c_int64(x) for x in (wide, wide, steps, every)]
        arguments = [*pointers[:3], *numbers, *pointers[3:]]
        places = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        blocks = -(-wide // THREADS)
        driver.call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, None, places, None)
        driver.call("cuCtxSynchronize")
        return rows, report

    return call
