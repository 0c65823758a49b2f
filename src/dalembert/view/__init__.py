"""Pictures of trajectories, drawn with matplotlib."""

from dalembert.view.plots import Plots, compare_energies

__all__ = ["Plots", "compare_energies"]
