"""The library's systems for the problems that `equations/problems.py` writes out by hand."""

import jax.numpy as jnp
import numpy as np
from equations.problems import PROBLEMS

import dalembert as da

SUITE = (
    "cvt-osc-0",
    "cvt-osc-0.1",
    "cvt-osc-0.5",
    "cvt-rot-0",
    "cvt-rot-0.1",
    "cvt-rot-0.5",
    "knife-0",
    "knife-0.1",
    "harmonic",
    "particle",
    "disk",
    "robot",
)


class Massive(da.System):
    """A full constant mass matrix and a potential that couples all coordinates."""

    coordinates = ("a", "b", "c")

    def metric(self, q):
        return jnp.asarray(PROBLEMS["massive"].M)

    def potential(self, q):
        a, b, c = q
        return 1 - jnp.cos(c) + a**2 / 2 + a * b / 3 + b**2 / 2 + 0.1 * a * c**2

    def constraints(self, q):
        return jnp.array([[1.0, jnp.sin(q[2]), 0.3 * jnp.cos(q[2])]])


class SleighInPotential(da.zoo.ChaplyginSleigh):
    """The sleigh in a potential: a metric that depends on q, and forces."""

    def potential(self, q):
        x, y, theta = q
        return 0.3 * x**2 + 0.2 * y**2 + 0.1 * x * jnp.cos(theta)


def make(name: str) -> tuple[da.System, np.ndarray, np.ndarray, float]:
    """The library's system of a problem, and the start and step that the library gives for it."""
    zoo = da.zoo
    kind, _, rest = name.partition("-")
    if kind == "cvt":
        motion, eps = rest.split("-")
        start = {"osc": "oscillating", "rot": "rotating"}[motion]
        system: da.System = zoo.PendulumCVT(eps=float(eps))
        return system, *map(np.asarray, system.start(start)), 0.1
    system = {
        "knife-0": zoo.KnifeEdge(),
        "knife-0.1": zoo.KnifeEdge(eps=0.1),
        "harmonic": zoo.HarmonicCVT(),
        "particle": zoo.SpringParticle(),
        "disk": zoo.RollingDisk(),
        "robot": zoo.MobileRobot(),
        "sleigh-contact": zoo.ChaplyginSleigh(),
        "sleigh-cm": zoo.ChaplyginSleigh(coordinates="mass-centre"),
        "snakeboard-relative": zoo.Snakeboard(),
        "snakeboard-absolute": zoo.Snakeboard(convention="absolute"),
        "falling-disk": zoo.FallingDisk(),
        "cylinder": zoo.BallInCylinder(),
        "routh": zoo.RouthSphere(),
        "roller-racer": zoo.RollerRacer(),
        "car": zoo.Car(trailers=1, hitch=0.3),
        "massive": Massive(),
        "sleigh-potential": SleighInPotential(),
    }[name]
    problem = PROBLEMS[name]
    start = system.start() if system.starts() else (problem.q0, problem.v0)
    return system, *map(np.asarray, start), system.step or problem.h
