"""Shared set-up: one thread for XLA and BLAS, so that two test workers do not fight for two cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
os.environ.setdefault("MPLBACKEND", "Agg")
