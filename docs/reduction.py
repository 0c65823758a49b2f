"""Measures what docs/reduction.md says: `python docs/reduction.py NAME ...`, or `all`; fails where it is not so."""

import sys
import time

import numpy as np
from entries import show

import dalembert as da

ROBOT = da.zoo.MobileRobot()
PLANE = da.Symmetry(da.groups.Rn(2), on=("x1", "x2"))


def speed():
    """A million steps of the mobile robot, full and without R^2, side by side: the best of five runs each."""
    reduced = da.reduce(ROBOT, da.VariationalDLA(), PLANE)
    start = ROBOT.start()
    runs = {
        "full": (ROBOT, da.VariationalDLA(), *start),
        "reduced": (reduced, reduced.method, *reduced.project(*start)),
    }
    best = dict.fromkeys(runs, np.inf)
    for turn in range(6):
        for name, given in runs.items():
            began = time.perf_counter()
            da.simulate(*given, h=0.1, steps=1_000_000, save_every=1000)
            if turn:  # the first one compiles
                best[name] = min(best[name], time.perf_counter() - began)
    ratio = best["full"] / best["reduced"]
    print(f"    full {best['full']:.2f} s, reduced {best['reduced']:.2f} s")
    print(f"    the reduced run is {ratio:.2f} times as fast")
    assert ratio > 1


def exactness():
    """The same runs over 1000 steps: reduced against projected, reconstructed against full."""
    reduced = da.reduce(ROBOT, da.VariationalDLA(), PLANE)
    q0, v0 = ROBOT.start()
    full = da.simulate(ROBOT, da.VariationalDLA(), q0, v0, h=0.1, steps=1000)
    run = da.simulate(reduced, reduced.method, *reduced.project(q0, v0), h=0.1, steps=1000)
    shapes = np.max(np.abs(run.q - reduced.project(full).q))
    again = np.max(np.abs(reduced.reconstruct(run, q0[:2]).q - full.q))
    print(f"    shapes {shapes:.0e}, all coordinates after reconstruction {again:.0e}")
    assert max(shapes, again) < 1e-11


ENTRIES = {"speed": speed, "exactness": exactness}

if __name__ == "__main__":
    show(ENTRIES, sys.argv[1:])
