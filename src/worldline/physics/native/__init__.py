"""MuJoCo's own CPU engine."""

from __future__ import annotations

from worldline.physics.native.engine import NativePhysics as NativePhysics
