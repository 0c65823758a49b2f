"""A vocabulary for rigid bodies: shapes, contacts, joints, springs, dampers and motors, which make a `System`."""

from dalembert.bodies.assembly import Assembly, Body, assemble
from dalembert.bodies.pieces import BallJoint, Blade, Contact, Damper, Hinge, Motor, Piece, Spring, Touch
from dalembert.bodies.shapes import (
    WORLD,
    Ball,
    Box,
    Cylinder,
    Ellipsoid,
    Ground,
    Plane,
    Pose,
    Shape,
    Surface,
    Wheel,
    gap,
    touch,
)

__all__ = [
    "WORLD",
    "Assembly",
    "Ball",
    "BallJoint",
    "Blade",
    "Body",
    "Box",
    "Contact",
    "Cylinder",
    "Damper",
    "Ellipsoid",
    "Ground",
    "Hinge",
    "Motor",
    "Piece",
    "Plane",
    "Pose",
    "Shape",
    "Spring",
    "Surface",
    "Touch",
    "Wheel",
    "assemble",
    "gap",
    "touch",
]
