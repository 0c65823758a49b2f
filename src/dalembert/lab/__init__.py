"""Programs that use the library without being part of it: reproductions of published experiments, and benchmarks."""
