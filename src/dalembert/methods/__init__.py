"""The integrators, one a file."""

from dalembert.methods.base import Claims, Method, Report, State
from dalembert.methods.composition import Composition
from dalembert.methods.discrete_gradient import DiscreteGradient
from dalembert.methods.dla import DLA, DLA01
from dalembert.methods.frame_gradient import FrameGradient
from dalembert.methods.leapfrog import LeapFrog
from dalembert.methods.reference import Reference
from dalembert.methods.spelling import METHODS, method_from_text

__all__ = [
    "DLA",
    "DLA01",
    "METHODS",
    "Claims",
    "Composition",
    "DiscreteGradient",
    "FrameGradient",
    "LeapFrog",
    "Method",
    "Reference",
    "Report",
    "State",
    "method_from_text",
]
