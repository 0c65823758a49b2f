"""The integrators, one per file."""

from dalembert.methods.base import Claims, Method, Report, State, Status
from dalembert.methods.chetaev import ChetaevGradient
from dalembert.methods.cli_names import METHODS, method_from_text, method_named, usual_method
from dalembert.methods.composition import Composition
from dalembert.methods.discrete_gradient import DiscreteGradient
from dalembert.methods.dla import DLA, DLA01
from dalembert.methods.edla import EDLA, well_posedness
from dalembert.methods.frame_collocation import FrameCollocation
from dalembert.methods.frame_gradient import FrameGradient
from dalembert.methods.frame_integrals import FrameIntegrals
from dalembert.methods.gni import GNI, LieGNI, Reflecting, parasitic_amplitude
from dalembert.methods.leapfrog import LeapFrog
from dalembert.methods.paired import Paired
from dalembert.methods.reference import Reference
from dalembert.methods.taylor import Taylor
from dalembert.methods.variational import VariationalDLA

__all__ = [
    "DLA",
    "DLA01",
    "EDLA",
    "GNI",
    "METHODS",
    "ChetaevGradient",
    "Claims",
    "Composition",
    "DiscreteGradient",
    "FrameCollocation",
    "FrameGradient",
    "FrameIntegrals",
    "LeapFrog",
    "LieGNI",
    "Method",
    "Paired",
    "Reference",
    "Reflecting",
    "Report",
    "State",
    "Status",
    "Taylor",
    "VariationalDLA",
    "method_from_text",
    "method_named",
    "parasitic_amplitude",
    "usual_method",
    "well_posedness",
]
