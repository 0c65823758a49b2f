"""Functions of the tests' own, compiled in a hurry: XLA's optimisations take longer than what they gain in a test."""

from collections.abc import Iterator

import jax
import pytest

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


@pytest.fixture(scope="module", autouse=True)
def unoptimised() -> Iterator[None]:
    """For files of units/ that import it: what they look at does not depend on XLA's optimisations."""
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)
