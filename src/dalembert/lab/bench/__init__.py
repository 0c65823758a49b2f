"""Benchmarks of this library against hand-written C, plain JAX and other solvers, side by side in one run."""
