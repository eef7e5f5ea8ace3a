"""Environments of Brax and MuJoCo Playground as an engine: each has its own physics in JAX."""

from worldline.physics.brax.engine import BraxPhysics
from worldline.physics.brax.system import SystemModel

__all__ = ["BraxPhysics", "SystemModel"]
