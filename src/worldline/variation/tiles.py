"""Tiles: the squares of a terrain; each episode begins on one of them.

A model with a terrain has a site, the middle of the tile on which an episode begins, and a custom
number, which determines the positions of the tiles. The position of the site is a constant of the
world: a task, a domain or a context draws it, and a curriculum can change the ranges.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import mujoco

from worldline.types import Array, ArrayLike

#: The site in the middle of an episode's tile.
SITE = "terrain_tile"
#: The custom numbers of a model with an atlas: levels, kinds, side of a tile.
NUMERIC = "terrain"


@dataclasses.dataclass(frozen=True)
class Tiles:
    """The positions of tiles: levels along x, kinds along y, the world's origin in the middle."""

    levels: int
    """The number of levels."""
    kinds: int
    """The number of kinds."""
    side: float
    """The side of a tile, m."""

    @classmethod
    def of(cls, mj: mujoco.MjModel) -> Tiles | None:
        """The tiles of a model; None if it has no terrain."""
        index = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_NUMERIC, NUMERIC)
        site = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_SITE, SITE)
        if index < 0 or site < 0:
            return None
        start = mj.numeric_adr[index]
        levels, kinds, side = mj.numeric_data[start : start + 3]
        return cls(int(levels), int(kinds), float(side))

    def middle(self, level: ArrayLike, kind: ArrayLike) -> tuple[Array, Array]:
        """The middle of a tile along x and y, `()` each, m; only the integer part of numbers
        counts.
        """
        return _middle(level, self.levels, self.side), _middle(kind, self.kinds, self.side)

    def level(self, x: Array) -> Array:
        """The level of the tile with this x, m, `()` float32."""
        return jnp.clip(jnp.floor(x / self.side + self.levels / 2), 0, self.levels - 1)


def _middle(index: ArrayLike, count: int, side: float) -> Array:
    whole = jnp.clip(jnp.floor(jnp.asarray(index, jnp.float32)), 0, count - 1)
    return jnp.float32(side) * (whole - jnp.float32((count - 1) / 2))


def site_of(mj: mujoco.MjModel) -> int:
    """The index of the site of a model with a terrain."""
    return int(mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_SITE, SITE))


def moved(mj: mujoco.MjModel, constants: Mapping[str, Any], axis: int, index: Array) -> Array:
    """`site_pos`, `(nsite, 3)`, with the tile at another position along an axis.

    Args:
        mj: a model with an atlas.
        constants: of the world.
        axis: 0 for levels, 1 for kinds.
        index: of the level or kind, `()`; it counts by its whole part.
    """
    tiles = Tiles.of(mj)
    assert tiles is not None
    place = tiles.middle(index, index)[axis]
    sites: Array = constants["site_pos"]
    return sites.at[site_of(mj), axis].set(place)
