"""The kinds of ground: the heights of a tile, from its difficulty.

A kind is a function `(terrain, ground) -> heights`. Heights are in m, 0 at the tile's border, so
that any tile fits beside any other. The kinds are those of Rudin et al. (2022), "Learning to walk
in minutes using massively parallel deep reinforcement learning", and of its code, legged_gym.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from worldline.tasks.terrain.config import NAMES, FromTo, Terrain
from worldline.types import NDArray


@dataclasses.dataclass(frozen=True)
class Ground:
    """The points of a tile at which a kind computes the heights; n is their number along a side."""

    x: NDArray
    """From the middle, `(n, n)`, m; constant along the first axis."""
    y: NDArray
    """From the middle, `(n, n)`, m; constant along the second axis."""
    platform: float
    """How far from the middle the even square in it goes, m."""
    edge: float
    """How far from the middle the ground may be uneven, m."""
    difficulty: float
    """In [0, 1]."""
    rng: np.random.Generator
    """What is random in the tile is drawn from it."""

    @property
    def ring(self) -> NDArray:
        """How far each point is from the middle along the farther axis, `(n, n)`, m."""
        return np.maximum(np.abs(self.x), np.abs(self.y))

    def at(self, numbers: FromTo) -> float:
        """A number of this difficulty, from those of the lowest and the highest level."""
        low, high = numbers
        return low + self.difficulty * (high - low)

    def fading(self, width: float) -> NDArray:
        """A factor that falls from 1 to 0 over a width, m, to the edge, `(n, n)`."""
        share = np.clip((self.edge - self.ring) / width, 0.0, 1.0)
        return share * share * (3 - 2 * share)


#: Gives the heights of a tile, `(n, n)`, m.
Kind = Callable[[Terrain, Ground], NDArray]


def flat(terrain: Terrain, ground: Ground) -> NDArray:
    """Even ground."""
    return np.zeros_like(ground.x)


def slope_up(terrain: Terrain, ground: Ground) -> NDArray:
    """A basin: from the even ground in the middle it goes up to the border on all sides."""
    return -slope_down(terrain, ground)


def slope_down(terrain: Terrain, ground: Ground) -> NDArray:
    """A hill with an even top."""
    way = ground.edge - np.clip(ground.ring, ground.platform, ground.edge)
    return ground.at(terrain.slope) * way


def waves(terrain: Terrain, ground: Ground) -> NDArray:
    """Waves along both axes."""
    turn = 2 * np.pi / terrain.wave_length
    sum_ = np.cos(turn * ground.x) + np.cos(turn * ground.y)
    return ground.at(terrain.wave_height) / 4 * sum_ * ground.fading(terrain.wave_length / 2)


def rough(terrain: Terrain, ground: Ground) -> NDArray:
    """Random heights, with slopes between."""
    count, every = len(ground.x), 3  # a height for each third point, so that slopes can be walked
    coarse = ground.rng.uniform(-0.5, 0.5, (count // every + 2, count // every + 2))
    place = np.arange(count) / every
    low, share = np.floor(place).astype(int), place % 1
    rows = coarse[low] * (1 - share)[:, None] + coarse[low + 1] * share[:, None]
    fine = rows[:, low] * (1 - share) + rows[:, low + 1] * share
    return ground.at(terrain.roughness) * fine * ground.fading(0.3)


def stairs_up(terrain: Terrain, ground: Ground) -> NDArray:
    """A pit of stairs: from the platform at its bottom they go up on all sides."""
    return -stairs_down(terrain, ground)


def stairs_down(terrain: Terrain, ground: Ground) -> NDArray:
    """A pyramid of stairs with the platform on top."""
    most = int((ground.edge - ground.platform) / terrain.step_depth)
    steps = np.ceil((ground.edge - ground.ring) / terrain.step_depth - 1e-9)
    return ground.at(terrain.step_height) * np.clip(steps, 0, most)


def gaps(terrain: Terrain, ground: Ground) -> NDArray:
    """Trenches around the platform, one around the other."""
    width = ground.at(terrain.gap_width)
    period = width + terrain.gap_land
    way = ground.ring - ground.platform
    whole = np.floor(way / period) * period + width <= ground.edge - ground.platform
    trench = (way > 0) & (way % period < width) & whole & (width > 0)
    return np.where(trench, -terrain.gap_depth, 0.0)


def stepping_stones(terrain: Terrain, ground: Ground) -> NDArray:
    """Square stones around the platform, with deep ground between."""
    gap, side = ground.at(terrain.stone_gap), ground.at(terrain.stone_side)
    period = gap + side
    between = [(axis - side / 2) % period > side for axis in (ground.x, ground.y)]
    inside = (ground.ring > ground.platform) & (ground.ring < ground.edge)
    return np.where(inside & (between[0] | between[1]), -terrain.gap_depth, 0.0)


def obstacles(terrain: Terrain, ground: Ground) -> NDArray:
    """Blocks and hollows with upright sides, at random places, but not on the platform."""
    heights = np.zeros_like(ground.x)
    tall = ground.at(terrain.obstacle_height)
    for _ in range(terrain.obstacles):
        x, y = ground.rng.uniform(-ground.edge, ground.edge, 2)
        length, width = ground.rng.uniform(0.15, 0.5, 2)
        height = tall * ground.rng.uniform(0.5, 1.0) * ground.rng.choice((-1.0, 1.0))
        heights[(np.abs(ground.x - x) < length) & (np.abs(ground.y - y) < width)] = height
    heights[(ground.ring <= ground.platform) | (ground.ring >= ground.edge)] = 0.0
    return heights


def pit(terrain: Terrain, ground: Ground) -> NDArray:
    """A pit with upright walls, in which the episode begins."""
    return np.where(ground.ring <= ground.platform, -ground.at(terrain.pit_depth), 0.0)


#: The kinds by their names.
KINDS: Mapping[str, Kind] = dict(
    zip(
        NAMES,
        (
            flat,
            slope_up,
            slope_down,
            waves,
            rough,
            stairs_up,
            stairs_down,
            gaps,
            stepping_stones,
            obstacles,
            pit,
        ),
        strict=True,
    )
)


def tile_heights(terrain: Terrain, kind: str, level: int) -> NDArray:
    """The heights of a tile, `(n, n)`, m: row by row along x, rows along y.

    They are the same whatever other tiles there are.
    """
    cells = terrain.cells_per_tile
    along = (np.arange(cells + 1) - cells / 2) * terrain.cell
    x, y = np.meshgrid(along, along)
    ground = Ground(
        x=x,
        y=y,
        platform=terrain.platform / 2,
        edge=cells / 2 * terrain.cell - terrain.margin,
        difficulty=terrain.difficulty(level),
        rng=np.random.default_rng((terrain.seed, NAMES.index(kind), level)),
    )
    heights = KINDS[kind](terrain, ground)
    heights[ground.ring >= cells / 2 * terrain.cell - 1e-9] = 0.0
    return heights
