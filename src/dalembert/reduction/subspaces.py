"""Linear algebra of directions in a Lie algebra: when two are the same, and how a space of them is written."""

import numpy as np

from dalembert.model import Symmetry

# Directions count as the same if the sine of the angle between them is below this. Rounding is 1e-15, and samples are
# not this close to places where different directions meet.
SAME = 1e-8


def echelon(rows: np.ndarray) -> np.ndarray:
    """The reduced row echelon form, in which coordinate directions are easy to recognise."""
    rows, at = rows.copy(), 0
    for column in range(rows.shape[1]):
        if at == len(rows):
            break
        best = at + int(np.argmax(np.abs(rows[at:, column])))
        if abs(rows[best, column]) < 1e-6:
            continue
        rows[[at, best]] = rows[[best, at]]
        rows[at] /= rows[at, column]
        others = np.arange(len(rows)) != at
        rows[others] -= np.outer(rows[others, column], rows[at])
        at += 1
    rows[np.abs(rows) < 1e-12] = 0.0
    return rows


def named(xi: np.ndarray, symmetry: Symmetry) -> str:
    """An algebra element written in the names of the coordinates on which the group acts."""
    names = symmetry.on if len(xi) == len(symmetry.on) else symmetry.group.velocities
    sizes = [f"{x:.4g}" for x in xi]  # an entry of one may be rounded
    terms = [
        f"{'' if x == '1' else f'{x} '}d/d{name}" for x, name in zip(sizes, names, strict=True) if x != "0"
    ]
    return " + ".join(terms)
