"""What a method keeps and what a system is, measured."""

from dalembert.diagnostics.auditing import audit
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.findings import Audit, compare
from dalembert.diagnostics.floquet import (
    Averaging,
    Orbit,
    averaging,
    measured_period,
    orbit,
    resonance,
    section,
)
from dalembert.diagnostics.latitude import Latitude, latitude
from dalembert.diagnostics.nonholonomy import Nonholonomy, nonholonomy
from dalembert.diagnostics.order import Order, Terms, exact_ends, fitted_order, measured_order, measured_terms
from dalembert.diagnostics.parasitic import Parasitic, normal_velocity, parasitic_levels, parasitic_mode
from dalembert.diagnostics.series import Drift, Verdict, drift, running_mean, slope
from dalembert.diagnostics.stepmap import (
    Fibration,
    Volume,
    fibration_defects,
    passenger_exponents,
    passenger_matrices,
    reversibility_defect,
    step_jacobian,
    step_map,
    volume_change,
)
from dalembert.diagnostics.structure import (
    Involution,
    Structure,
    group_dimension,
    group_name,
    least_defect,
    lie_algebra,
    rebase,
    reversibility,
    structure,
    theorem_4_4,
)

__all__ = [
    "Audit",
    "Averaging",
    "CoupledSystem",
    "Drift",
    "Fibration",
    "Involution",
    "Latitude",
    "Nonholonomy",
    "Orbit",
    "Order",
    "Parasitic",
    "Structure",
    "Terms",
    "Verdict",
    "Volume",
    "audit",
    "averaging",
    "compare",
    "drift",
    "exact_ends",
    "fibration_defects",
    "fitted_order",
    "group_dimension",
    "group_name",
    "latitude",
    "least_defect",
    "lie_algebra",
    "measured_order",
    "measured_period",
    "measured_terms",
    "nonholonomy",
    "normal_velocity",
    "orbit",
    "parasitic_levels",
    "parasitic_mode",
    "passenger_exponents",
    "passenger_matrices",
    "rebase",
    "resonance",
    "reversibility",
    "reversibility_defect",
    "running_mean",
    "section",
    "slope",
    "step_jacobian",
    "step_map",
    "structure",
    "theorem_4_4",
    "volume_change",
]
