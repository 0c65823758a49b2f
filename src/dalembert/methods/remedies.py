"""What a refusal may recommend."""

from functools import cache

from dalembert.discrete import Retraction
from dalembert.methods.base import Method
from dalembert.methods.edla import EDLA
from dalembert.methods.frame_gradient import FrameGradient
from dalembert.methods.gni import GNI
from dalembert.methods.lie_gni import LieGNI
from dalembert.methods.reference import Reference
from dalembert.methods.variational import VariationalDLA


@cache
def remedies() -> dict[str, Method]:
    """Methods as a user writes them, the best first; the last one takes every system."""
    return {
        "FrameGradient()": FrameGradient(),
        "LieGNI()": LieGNI(),
        'VariationalDLA(Retraction("exp"))': VariationalDLA(Retraction("exp")),
        "VariationalDLA()": VariationalDLA(),
        "GNI()": GNI(),
        "EDLA()": EDLA(),
        "Reference()": Reference(),
    }
