"""Gaits: a phase for each foot, and how high the foot should be at it.

After the gaits of MuJoCo MPC (Howell et al. 2022).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from worldline.types import Array

#: The phases of four feet when they start, rad: front left, front right, hind left, hind right.
GAITS = {
    "trot": (0.0, np.pi, np.pi, 0.0),
    "walk": (0.0, 0.5 * np.pi, np.pi, 1.5 * np.pi),
    "pace": (0.0, np.pi, 0.0, np.pi),
    "bound": (0.0, 0.0, np.pi, np.pi),
    "pronk": (0.0, 0.0, 0.0, 0.0),
}

#: The phases of two feet when they start, rad.
BIPED_GAITS = {"walk": (0.0, np.pi), "jump": (0.0, 0.0)}


def advanced(phase: Array, change: Array) -> Array:
    """Phases after a control step, of any shape, in [-pi, pi), rad, that grow by `change`."""
    return jnp.fmod(phase + change + jnp.pi, 2 * jnp.pi) - jnp.pi


def foot_height(phase: Array, swing: Array) -> Array:
    """How high a foot should be, m: at a phase of -pi on the ground, at 0 at the height of a swing.

    Args:
        phase: of any shape, rad.
        swing: the height of a swing, m.
    """
    share = (phase + jnp.pi) / (2 * jnp.pi)
    return jnp.where(share <= 0.5, swing * _rise(2 * share), swing * (1 - _rise(2 * share - 1)))


def _rise(share: Array) -> Array:
    """From 0 to 1, with no slope at both ends."""
    return share**3 + 3 * share**2 * (1 - share)
