"""What a sweep that ends early raises."""


class SweepError(Exception):
    """A sweep that could not be finished; what was computed is in the store, and a rerun goes on from there."""
