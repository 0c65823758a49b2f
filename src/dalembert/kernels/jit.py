"""Machine code from LLVM's language, in this process."""

import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import Any

from dalembert.kernels.graph import Unsupported

_lock = threading.Lock()


@functools.cache
def _host() -> tuple[Any, str, str]:
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise Unsupported("llvmlite", f"which is not installed ({error})") from error

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple(), llvm.get_host_cpu_name(), features


@functools.cache
def vector_width() -> int:
    """How many float64 numbers this machine computes at once."""
    return 4 if "+avx" in _host()[2].split(",") else 2


class Machine:
    """A compiled module; `function` gives a callable, which runs without Python's lock."""

    def __init__(self, text: str):
        target, cpu, features = _host()
        import llvmlite.binding as llvm

        with _lock:
            machine = target.create_target_machine(cpu=cpu, features=features, opt=3, jit=True, reloc="pic")
            module = llvm.parse_assembly(text)
            module.triple = machine.triple
            module.data_layout = str(machine.target_data)
            options = llvm.create_pipeline_tuning_options(speed_level=1)
            options.loop_unrolling = False
            options.loop_vectorization = False
            options.slp_vectorization = False
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
            self._engine = llvm.create_mcjit_compiler(module, machine)
            self._engine.finalize_object()

    def function(self, name: str, arguments: Sequence[Any], result: Any = None) -> Any:
        """The function with this name."""
        function = ctypes.CFUNCTYPE(result, *arguments)(self._engine.get_function_address(name))
        setattr(function, "machine", self)  # noqa: B010 (the code lives as long as the function)
        return function
