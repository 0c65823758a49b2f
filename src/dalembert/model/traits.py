"""Traits: what kind of system a system is, how to tell, and how a method refuses it."""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """The texts of a trait, and the test that finds it."""

    refusal: str
    """What a method that does not support the trait says, after its own name."""
    otherwise: str = ""
    """What the user may do instead of choosing another method."""
    applies: Callable[[Any, frozenset[str]], bool] | None = None
    """A function of a system and of the names of the functions that its user gave: whether the system's description
    shows the trait. None if only values around a start show it; `observed` then finds it."""


class Trait(Enum):
    """A property that a system may have and that a method must then support."""

    GENERAL_LAGRANGIAN = Kind(
        "needs a Lagrangian that is kinetic energy, quadratic in v, minus a potential; that of {system} is not"
    )
    GROUP = Kind(
        "works in coordinates, but {system} lives on the group {group}",
        "coordinates near one configuration: Chart({kind}(), q0)",
        lambda system, given: system.group is not None,
    )
    COORDINATES = Kind(
        "is defined on Lie groups, but {system} is given in coordinates",
        "write the system as a GroupSystem",
        lambda system, given: system.group is None,
    )
    EXTRA_VELOCITIES = Kind(
        "needs exactly one velocity per coordinate, but {system} has more of them",
        "its own method, reduced.method",
        lambda system, given: system.group is None and system.velocity_dimension != system.dimension,
    )
    TIMED = Kind(
        "is defined for systems that do not depend on time, but {system} does",
        applies=lambda system, given: system.timed,
    )
    AFFINE = Kind(
        "is defined for constraints A(q) v = 0, but those of {system} are affine, A(q) v = b(q)",
        applies=lambda system, given: (
            "offsets" in given or "drift" in given or (system.timed and "holonomic" in given)
        ),
    )
    NONLINEAR = Kind(
        "is defined for constraints that are linear in the velocity, but {system} gives {nonlinear}",
        applies=lambda system, given: "nonlinear" in given,
    )
    HOLONOMIC = Kind(
        "is defined for constraints on velocities alone, but {system} gives position constraints, {holonomic}",
        "coordinates that solve the position constraints",
        lambda system, given: "holonomic" in given,
    )
    FORCED = Kind(
        "is defined without non-conservative forces, but {system} gives {forces}",
        applies=lambda system, given: "forces" in given,
    )
    VARYING_MASS = Kind(
        "is defined for a constant mass matrix, but the mass matrix of {system} depends on q",
        "coordinates in which it is constant",
    )

    INDEFINITE = Kind(
        "needs a positive definite mass matrix, but {system} declares one with {negative} of {velocities} eigenvalues "
        "negative, signature = {signature}",
        applies=lambda system, given: system.signature is not None and system.signature[1] > 0,
    )

    def refusal(self, m: Any) -> tuple[str, str]:
        """Why a method refuses this system, and what its user may do instead of choosing another method."""
        time = "t, " * (Trait.TIMED in m.traits)
        words = {
            "system": m.label,
            "kind": m.class_name,
            "group": m.space.name,
            "forces": f"forces({time}q, v)",
            "holonomic": f"holonomic({time}q)",
            "nonlinear": f"nonlinear({time}q, v)",
            "signature": m.signature,
            "velocities": m.velocity_dimension,
            "negative": m.signature[1],
        }
        return self.value.refusal.format(**words), self.value.otherwise.format(**words)


def traits_of(system: Any, given: frozenset[str]) -> frozenset[Trait]:
    """The traits that a system's description shows."""
    return frozenset(x for x in Trait if x.value.applies is not None and x.value.applies(system, given))
