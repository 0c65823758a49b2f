"""The functions of a state that the exact motion of a system conserves, as far as its description says."""

from collections.abc import Callable

import jax.numpy as jnp

from dalembert.model import System, lower
from dalembert.numerics import is_syntactically_constant


def horizontal_momenta(system: System) -> dict[str, Callable]:
    """The momenta of horizontal symmetries (constant sections), which the exact motion keeps."""

    def momentum(section):
        return lambda q, v: jnp.sum(section(q) * (system.generators(q).T @ lower(system).momentum(q, v)))

    q = jnp.zeros(system.dimension)
    sections = system.sections().items()
    return {f"momentum of {name}": momentum(x) for name, x in sections if is_syntactically_constant(x, q)}
