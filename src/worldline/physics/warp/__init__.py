"""MuJoCo Warp: the engine for NVIDIA cards."""

from __future__ import annotations

from worldline.physics.warp.engine import WarpPhysics as WarpPhysics
