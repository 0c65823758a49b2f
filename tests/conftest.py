"""Shared set-up: one thread for XLA, its compiler and BLAS, so that two test workers do not fight for two cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
# A function that is compiled in one piece takes less time in all than in the pieces that threads would share.
FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"
os.environ.setdefault("MPLBACKEND", "Agg")
