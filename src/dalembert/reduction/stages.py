"""The two stages of a reduction by a group that is partly horizontal: the horizontal part, then the rest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array

from dalembert.groups import Group, Product, Rn
from dalembert.model import Symmetry, System
from dalembert.reduction.subspaces import named


def horizontal_part(symmetry: Symmetry, directions: np.ndarray) -> tuple[int, ...]:
    """The indices of the algebra that these directions are; refuses directions that mix coordinates."""
    mixed = [x for x in directions.T if np.count_nonzero(x) != 1]
    if mixed:
        raise ValueError(
            f"Symmetry {symmetry.words}: its horizontal part is along {named(mixed[0], symmetry)}, which is not one of "
            "its coordinates, so that the two stages have no coordinates of their own. Use coordinates that have it"
        )
    return tuple(sorted(int(np.argmax(x != 0)) for x in directions.T))


def _pieces(symmetry: Symmetry, chosen: Sequence[int]) -> tuple[list[Group], list[int]]:
    """The factors of the subgroup with these directions, and the places of its numbers."""
    group = symmetry.group
    factors = group.factors if isinstance(group, Product) else (group,)
    made: list[Group] = []
    places: list[int] = []
    place = direction = 0
    for factor in factors:
        own = [i - direction for i in chosen if direction <= i < direction + factor.dimension]
        if own and isinstance(factor, Rn):
            made.append(type(factor)(len(own)))
            places += [place + i for i in own]
        elif own and len(own) == factor.dimension:
            made.append(factor)
            places += range(place, place + factor.size)
        elif own:
            raise ValueError(
                f"Symmetry {symmetry.words}: only some directions of its factor {factor.name} are horizontal, so that "
                "the group is no product of a horizontal part and the rest. Reduce by a subgroup"
            )
        place, direction = place + factor.size, direction + factor.dimension
    return made, places


def part(symmetry: Symmetry, chosen: Sequence[int]) -> Symmetry:
    """The subgroup with these directions of the algebra, acting on the same system."""
    made, places = _pieces(symmetry, chosen)
    on = tuple(symmetry.on[i] for i in places)
    group = made[0] if len(made) == 1 else Product(*made)
    if symmetry.action is None:
        return Symmetry(group, on)
    return Symmetry(group, on, lambda g, q: _acting(symmetry, places, g, q))


def _acting(symmetry: Symmetry, places: Sequence[int], g: Array, q: Array) -> Array:
    whole: Any = symmetry.action
    return whole(symmetry.group.identity().astype(g.dtype).at[np.array(places)].set(g), q)


def rest(symmetry: Symmetry, first: Symmetry, system: System, chosen: Sequence[int]) -> Symmetry:
    """The subgroup with the other directions, acting on what the first stage leaves of the system."""
    others = [i for i in range(symmetry.group.dimension) if i not in chosen]
    made = part(symmetry, others)
    if symmetry.action is None:
        return made
    shape = np.array(first.split(system).shape)
    acting: Any = made.action
    return Symmetry(made.group, made.on, lambda g, r: acting(g, first.section(system, r))[shape])
