"""Systems ready to run, one per file, with the data of the publications that they come from."""

from dalembert.zoo.appell_hamel import AppellHamel
from dalembert.zoo.ball_in_cylinder import BallInCylinder
from dalembert.zoo.ball_on_surface import BallOnSurface
from dalembert.zoo.bicycle import Bicycle
from dalembert.zoo.car import Car
from dalembert.zoo.chain_of_pendula import ChainOfPendula
from dalembert.zoo.chaplygin_sleigh import ChaplyginSleigh
from dalembert.zoo.chaplygin_sphere import ChaplyginSphere
from dalembert.zoo.constant_speed import ConstantSpeed
from dalembert.zoo.falling_disk import FallingDisk
from dalembert.zoo.group_sleigh import GroupSleigh
from dalembert.zoo.harmonic_cvt import HarmonicCVT
from dalembert.zoo.heisenberg import Heisenberg
from dalembert.zoo.knife_edge import KnifeEdge
from dalembert.zoo.mobile_robot import MobileRobot
from dalembert.zoo.nonholonomic_particle import NonholonomicParticle
from dalembert.zoo.particle_with_wheel import ParticleWithWheel
from dalembert.zoo.pendulum_cvt import PendulumCVT
from dalembert.zoo.rattleback import Rattleback
from dalembert.zoo.rheonomic_particle import RheonomicParticle, TravellingWell
from dalembert.zoo.roller_racer import RollerRacer
from dalembert.zoo.rolling_disk import RollingDisk
from dalembert.zoo.round_body import RoundBody
from dalembert.zoo.routh_sphere import RouthSphere
from dalembert.zoo.rubber_ball import RubberBall
from dalembert.zoo.snake import Snake
from dalembert.zoo.snakeboard import Snakeboard
from dalembert.zoo.spring_particle import SpringParticle
from dalembert.zoo.suslov import Suslov
from dalembert.zoo.turntable import BallOnTurntable
from dalembert.zoo.two_wheeled_robot import TwoWheeledRobot
from dalembert.zoo.veselova import Veselova

__all__ = [
    "AppellHamel",
    "BallInCylinder",
    "BallOnSurface",
    "BallOnTurntable",
    "Bicycle",
    "Car",
    "ChainOfPendula",
    "ChaplyginSleigh",
    "ChaplyginSphere",
    "ConstantSpeed",
    "FallingDisk",
    "GroupSleigh",
    "HarmonicCVT",
    "Heisenberg",
    "KnifeEdge",
    "MobileRobot",
    "NonholonomicParticle",
    "ParticleWithWheel",
    "PendulumCVT",
    "Rattleback",
    "RheonomicParticle",
    "RollerRacer",
    "RollingDisk",
    "RoundBody",
    "RouthSphere",
    "RubberBall",
    "Snake",
    "Snakeboard",
    "SpringParticle",
    "Suslov",
    "TravellingWell",
    "TwoWheeledRobot",
    "Veselova",
]
