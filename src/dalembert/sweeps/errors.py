"""The exception of a sweep that ends early."""


class SweepError(Exception):
    """A sweep could not be finished. The finished blocks are in the store, and a rerun continues from there."""
