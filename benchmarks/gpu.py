"""Kernels on a GPU: against hand-written CUDA, against vmap + scan, and against the CPU's results.

python benchmarks/gpu.py expect cpu.npz     (on any machine: what the CPU computes)
python benchmarks/gpu.py agree cpu.npz      (on the GPU: every system and method against it)
python benchmarks/gpu.py speed gpu.json     (on the GPU: rates; `dalembert bench --merge gpu.json` takes them)
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from dalembert.lab.bench.gpu import agree, expect, speed

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("expect", "agree", "speed"))
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    tell = partial(print, flush=True)
    sys.exit({"expect": expect, "agree": agree, "speed": speed}[given.what](given.file, tell))
