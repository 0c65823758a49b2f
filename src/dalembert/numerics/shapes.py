"""Arrays in the signatures of public functions; their shapes are written with jaxtyping."""

from collections.abc import Sequence

import numpy as np
from jax import Array
from jaxtyping import Shaped

Numbers = Array | np.ndarray
"""An array of JAX or NumPy."""
Vector = Shaped[Numbers, " n"] | Sequence[float]
"""What is taken for a configuration or a velocity; anything else is refused with a sentence."""
Vectors = Shaped[Numbers, "rows n"] | Sequence[Sequence[float]] | Sequence[np.ndarray]
"""What is taken for a row of configurations or velocities."""
