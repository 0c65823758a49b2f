"""Sweeps over methods, steps, parameters and starts, on a laptop or a cluster, without losing finished work."""

from dalembert.sweeps.errors import SweepError
from dalembert.sweeps.sweeping import Standing, open_sweep, standing, summary, sweep

__all__ = ["Standing", "SweepError", "open_sweep", "standing", "summary", "sweep"]
