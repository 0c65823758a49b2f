"""Functions of the tests' own, compiled in a hurry: XLA's optimisations take longer than what they gain in a test."""

import jax

OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
}


def compiled(function, *arguments):
    """The function, compiled for arguments of these shapes."""
    made = jax.jit(function).lower(*arguments)
    try:
        return made.compile(OPTIONS)
    except jax.errors.JaxRuntimeError:  # a version of XLA that does not know these options
        return made.compile()
