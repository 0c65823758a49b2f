"""What kind of system it is, in the words of a refusal."""

from enum import Enum
from typing import Any


class Trait(Enum):
    """What a system may have, and a method must support.

    The value says how a method refuses a system that has it, and what its user may do beside taking another method.
    """

    GENERAL_LAGRANGIAN = (
        "needs a Lagrangian that is kinetic energy, quadratic in v, minus a potential; that of {system} is not",
        "",
    )
    GROUP = (
        "works in coordinates, but {system} lives on the group {group}",
        "coordinates near one configuration: Chart({kind}(), q0)",
    )
    COORDINATES = (
        "is defined on Lie groups, but {system} is given in coordinates",
        "write the system as a GroupSystem",
    )
    EXTRA_VELOCITIES = (
        "needs velocities that are those of the coordinates, but {system} has more of them",
        "its own method, reduced.method",
    )
    TIMED = ("is defined for systems that do not depend on time, but {system} does", "")
    AFFINE = ("is defined for constraints A(q) v = 0, but those of {system} are affine, A(q) v = b(q)", "")
    FORCED = ("is defined without non-conservative forces, but {system} gives {forces}", "")
    VARYING_MASS = (
        "is defined for a constant mass matrix, but the mass matrix of {system} depends on q",
        "coordinates in which it is constant",
    )

    def refusal(self, system: Any) -> tuple[str, str]:
        """Both sentences, about this system."""
        words = {
            "system": system.label,
            "kind": system.class_name,
            "group": system.space.name,
            "forces": f"forces({'t, ' * (Trait.TIMED in system.traits)}q, v)",
        }
        refused, otherwise = self.value
        return refused.format(**words), otherwise.format(**words)
