"""What kind of system it is: decided here, once, and read everywhere else."""

from enum import Enum
from typing import Any

from dalembert.model.survey import Survey, is_constant_metric, is_mechanical
from dalembert.model.system import System


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

    def refusal(self, system: System) -> tuple[str, str]:
        """Both sentences, about this system."""
        words = {
            "system": system.label,
            "kind": type(system).__name__,
            "group": getattr(system.group, "name", ""),
            "forces": f"forces({'t, ' * system.timed}q, v)",
        }
        refused, otherwise = self.value
        return refused.format(**words), otherwise.format(**words)


def traits_of(system: System, survey: Survey | None = None) -> frozenset[Trait]:
    """The traits that a description tells and, where its values are known around a start, those that they tell."""
    on_group = system.group is not None
    found: dict[Trait, Any] = {
        Trait.GROUP: on_group,
        Trait.COORDINATES: not on_group,
        Trait.EXTRA_VELOCITIES: not on_group and system.velocity_dimension != system.dimension,
        Trait.TIMED: system.timed,
        Trait.AFFINE: system.affine,
        Trait.FORCED: system.gives("forces"),
        Trait.VARYING_MASS: survey is not None and not is_constant_metric(survey),
        Trait.GENERAL_LAGRANGIAN: survey is not None and not is_mechanical(survey),
    }
    return frozenset(trait for trait, has in found.items() if has)
