"""MJX: MuJoCo written in JAX."""

from __future__ import annotations

from worldline.physics.mjx.engine import MjxPhysics as MjxPhysics
