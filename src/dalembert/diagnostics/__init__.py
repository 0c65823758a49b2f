"""Measurements of what a method preserves and of the structure of a system."""

from dalembert.diagnostics.actions_and_angles import ActionAngle, action_angle
from dalembert.diagnostics.auditing import Audit, audit, compare
from dalembert.diagnostics.balance import EnergyBalance, energy_balance
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.coupled_structure import (
    Involution,
    Structure,
    averaging_symmetry_defect,
    group_dimension,
    group_name,
    least_defect,
    lie_algebra,
    rebase,
    reversibility,
    structure,
)
from dalembert.diagnostics.discrete import (
    DiscreteLaws,
    discrete_laws,
    flight_energy,
    momentum_residuals,
    phase_determinant,
    space_momentum_change,
    symplectic_defect,
)
from dalembert.diagnostics.equations import Linearisation, Motion, Start, acceleration, linearise, start
from dalembert.diagnostics.field_analysis import BackwardError, Finding, Kept, backward_error
from dalembert.diagnostics.floquet import (
    Averaging,
    Orbit,
    averaging,
    measured_period,
    orbit,
    resonance,
    section,
)
from dalembert.diagnostics.frequency_map import Nondegeneracy, nondegeneracy
from dalembert.diagnostics.growth import Nonholonomy, nonholonomy
from dalembert.diagnostics.hidden_integral import Latitude, latitude
from dalembert.diagnostics.hypotheses import (
    Hypothesis,
    ReversibleIntegrability,
    reversible_integrability,
)
from dalembert.diagnostics.interpolated_field import Expansion, FieldValue, ModifiedField, modified_field
from dalembert.diagnostics.modified_driver import CoupledField, Growth, predicted_growth
from dalembert.diagnostics.modified_structure import Form
from dalembert.diagnostics.order import Order, Terms, exact_ends, fitted_order, measured_order, measured_terms
from dalembert.diagnostics.parasitic import Parasitic, normal_velocity, parasitic_levels, parasitic_mode
from dalembert.diagnostics.periodic import PeriodicAveraging, periodic_averaging
from dalembert.diagnostics.precise_field import PreciseValue
from dalembert.diagnostics.series import Drift, Verdict, drift, judged_together, running_mean, slope
from dalembert.diagnostics.stepmap import (
    Fibration,
    Volume,
    fibration_defects,
    passenger_exponents,
    passenger_matrices,
    reversibility_defect,
    step_jacobian,
    step_map,
    volume_along,
    volume_change,
)
from dalembert.diagnostics.variable_steps import (
    EnergyRoots,
    VariableStepLaws,
    WellPosedness,
    edla_well_posedness,
    energy_roots,
    variable_step_laws,
)
from dalembert.numerics import renamed_names

__all__ = [
    "ActionAngle",
    "Audit",
    "Averaging",
    "BackwardError",
    "CoupledField",
    "CoupledSystem",
    "DiscreteLaws",
    "Drift",
    "EnergyBalance",
    "EnergyRoots",
    "Expansion",
    "Fibration",
    "FieldValue",
    "Finding",
    "Form",
    "Growth",
    "Hypothesis",
    "Involution",
    "Kept",
    "Latitude",
    "Linearisation",
    "ModifiedField",
    "Motion",
    "Nondegeneracy",
    "Nonholonomy",
    "Orbit",
    "Order",
    "Parasitic",
    "PeriodicAveraging",
    "PreciseValue",
    "ReversibleIntegrability",
    "Start",
    "Structure",
    "Terms",
    "VariableStepLaws",
    "Verdict",
    "Volume",
    "WellPosedness",
    "acceleration",
    "action_angle",
    "audit",
    "averaging",
    "averaging_symmetry_defect",
    "backward_error",
    "compare",
    "discrete_laws",
    "drift",
    "edla_well_posedness",
    "energy_balance",
    "energy_roots",
    "exact_ends",
    "fibration_defects",
    "fitted_order",
    "flight_energy",
    "group_dimension",
    "group_name",
    "judged_together",
    "latitude",
    "least_defect",
    "lie_algebra",
    "linearise",
    "measured_order",
    "measured_period",
    "measured_terms",
    "modified_field",
    "momentum_residuals",
    "nondegeneracy",
    "nonholonomy",
    "normal_velocity",
    "orbit",
    "parasitic_levels",
    "parasitic_mode",
    "passenger_exponents",
    "passenger_matrices",
    "periodic_averaging",
    "phase_determinant",
    "predicted_growth",
    "rebase",
    "resonance",
    "reversibility",
    "reversibility_defect",
    "reversible_integrability",
    "running_mean",
    "section",
    "slope",
    "space_momentum_change",
    "start",
    "step_jacobian",
    "step_map",
    "structure",
    "symplectic_defect",
    "variable_step_laws",
    "volume_along",
    "volume_change",
]

__getattr__ = renamed_names(globals(), {"theorem_4_4": "averaging_symmetry_defect"})
