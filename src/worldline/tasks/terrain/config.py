"""Terrain: what the ground of a task is, as its option `terrain`."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

from worldline.errors import ConfigError, did_you_mean
from worldline.settings import Count, NotNegative, Positive, Range, Seed, check_settings

#: A number at the lowest level and at the highest one.
FromTo = tuple[NotNegative, NotNegative]

#: The kinds of ground, in the order in which `worldline.tasks.terrain.kinds` makes them.
NAMES = (
    "flat",
    "slope_up",
    "slope_down",
    "waves",
    "rough",
    "stairs_up",
    "stairs_down",
    "gaps",
    "stepping_stones",
    "obstacles",
    "pit",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terrain:
    """Square tiles: a row for each kind of ground, from easy to difficult. An episode begins in the
    middle of a tile. `up` and `down` describe the way of a robot that walks away from the middle.
    If an option has two numbers, they are for the lowest and the highest level.
    """

    kinds: tuple[str, ...] = ()
    """The kinds of ground: flat, slope_up, slope_down, waves, rough, stairs_up, stairs_down, gaps,
    stepping_stones, obstacles, pit. Without any, the task has its own ground."""
    levels: Count = 6
    """The number of tiles of a kind, each more difficult than the one before."""
    tile: Positive = 8.0
    """The side of a tile, m."""
    cell: Positive = 0.05
    """The distance between two points of the height field, m."""
    platform: Positive = 1.6
    """Side of the even square in the middle of most tiles, m."""
    margin: NotNegative = 0.4
    """Even ground along the border of each tile, m."""
    seed: Seed = 0
    """Random seed of the ground."""
    slope: FromTo = (0.0, 0.6)
    """Rise of slopes divided by their length."""
    wave_height: FromTo = (0.0, 0.3)
    """Height of waves from trough to crest, m."""
    wave_length: Positive = 1.6
    """Length of waves from crest to crest, m."""
    roughness: FromTo = (0.0, 0.15)
    """Height difference between the lowest and the highest point of rough ground, m."""
    step_height: FromTo = (0.02, 0.2)
    """Height of a step of stairs, m."""
    step_depth: Positive = 0.3
    """Depth of a step of stairs, m."""
    gap_width: FromTo = (0.05, 0.6)
    """Width of the trenches of `gaps`, m."""
    gap_depth: Positive = 0.5
    """Depth of trenches, and of the ground between stepping stones, m."""
    gap_land: Positive = 0.8
    """Distance from one trench to the next, m."""
    stone_gap: FromTo = (0.05, 0.25)
    """Distance from one stepping stone to the next, m."""
    stone_side: FromTo = (0.6, 0.3)
    """Side of a stepping stone, m."""
    obstacle_height: FromTo = (0.02, 0.2)
    """Height of blocks, and depth of hollows, m."""
    obstacles: Count = 60
    """The number of blocks and hollows on a tile."""
    pit_depth: FromTo = (0.05, 0.4)
    """Depth of a pit, m."""
    scan_length: NotNegative = 1.2
    """Length of the rectangle of the height scan, along the robot, m."""
    scan_width: NotNegative = 0.8
    """Width of the rectangle of the height scan, across the robot, m."""
    scan_spacing: Positive = 0.1
    """The distance between two points of the height scan, m."""
    scan_range: Positive = 1.0
    """The largest absolute value in the height scan, m."""
    footprint: NotNegative = 0.4
    """Largest distance of the feet from the robot's centre at a start, m. The robot starts above
    the highest ground within this distance."""
    border: Annotated[float, Range(0, 100)] = 1.0
    """Width of the even ground around all tiles, m; an infinite plane follows it."""

    def __post_init__(self) -> None:
        check_settings(self)
        for kind in self.kinds:
            if kind not in NAMES:
                raise ConfigError(
                    f"there is no terrain {kind!r}{did_you_mean(kind, NAMES)}; there are "
                    f"{', '.join(NAMES)}"
                )
        if self.platform + 2 * self.margin + 2 * self.cell > self.tile:
            raise ConfigError(
                f"a tile of {self.tile:g} m has no room for a platform of {self.platform:g} m and "
                f"margins of {self.margin:g} m; give a larger tile"
            )
        if self.cells > _MOST_CELLS:
            raise ConfigError(
                f"the terrain has {self.cells:,} heights; give a larger cell, or fewer or smaller "
                f"tiles, for {_MOST_CELLS:,} at most"
            )

    @property
    def cells_per_tile(self) -> int:
        """How many cells a side of a tile has; the tile is as near to `tile` as they allow."""
        return max(2, round(self.tile / self.cell))

    @property
    def border_cells(self) -> int:
        """How many cells the border is wide."""
        return math.ceil(self.border / self.cell - 1e-9)

    @property
    def cells(self) -> int:
        """How many heights there are, about."""
        sides = (len(self.kinds), self.levels)
        across, along = (n * self.cells_per_tile + 2 * self.border_cells + 1 for n in sides)
        return across * along

    def difficulty(self, level: int) -> float:
        """The difficulty of a level, in [0, 1]; that of the only level is 1."""
        return level / (self.levels - 1) if self.levels > 1 else 1.0


#: The most heights of an atlas.
_MOST_CELLS = 8_000_000
