"""Discrete counterparts of mechanical objects: discrete gradients of the potential."""

from dalembert.discrete.gradients import GRADIENTS, average, gonzalez, itoh_abe

__all__ = ["GRADIENTS", "average", "gonzalez", "itoh_abe"]
