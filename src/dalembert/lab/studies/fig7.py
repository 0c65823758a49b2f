"""Figure 7: the driver energy of the pendulum CVT."""

from dalembert.lab.studies.cvt_integrals import Integral, Runs, compared, where
from dalembert.lab.studies.cvt_integrals import measure as measure_integral
from dalembert.lab.studies.cvt_integrals import present as present_integral
from dalembert.lab.studies.result import Result, number
from dalembert.lab.studies.shared_runs import METHODS, PANELS, Lab

WHAT = Integral("fig7", "h", "driver energy", "running mean of |h - h(0)|", 1e-15, 10.0, 2)


def measure(lab: Lab) -> Runs:
    """The driver energy in every motion by every method."""
    return measure_integral(lab, WHAT.key)


def present(lab: Lab, runs: Runs) -> Result:
    """The figure and its verdicts."""
    hard = {s: runs[s][PANELS[3]].drift for s in METHODS}
    said = (
        "The driver moves by itself and is a Hamiltonian system, so every method whose driver is "
        "symplectic keeps its energy, reversible or not; DLA 0.4 is an instance. Only DD fails, because "
        "its driver feels the passenger.",
    )
    found = (
        f"{compared(WHAT.key, runs)} DD drifts in {where(runs, 'dd')} ({number(hard['dd'].largest)} at worst with the "
        "rotating perturbed driver). What it loses in h it gains in E, since their sum is kept exactly.",
        f"With the rotating perturbed driver the frame method is off by {number(hard['frame'].largest)}, DLA 0.4 by "
        f"{number(hard['dla:0.4'].largest)}.",
    )
    see = (
        "Error of the driver energy, running mean over 30 units of time. All curves are level except that "
        "of DD in the lower right panel; those of the frame methods lie at rounding, which accumulates "
        "slowly."
    )
    return present_integral(lab, WHAT, runs, said, found, see)
