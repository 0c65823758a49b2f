"""Sweeps over methods, steps, parameters and starts: from a laptop to a cluster, nothing lost."""

from dalembert.sweeps.errors import SweepError
from dalembert.sweeps.sweeping import Standing, open_sweep, standing, summary, sweep

__all__ = ["Standing", "SweepError", "open_sweep", "standing", "summary", "sweep"]
