"""The scene of a terrain: a model's ground becomes an atlas, with a plain without end around it."""

from __future__ import annotations

import os
from pathlib import Path

import mujoco
import numpy as np

from worldline.errors import TaskError
from worldline.model import Model, ModelSource
from worldline.tasks.terrain.config import Terrain
from worldline.tasks.terrain.kinds import tile_heights
from worldline.types import NDArray
from worldline.variation.tiles import NUMERIC, SITE, Tiles

#: The name of the height field.
FIELD = "terrain"
#: How far the plain goes on behind the atlas, m.
_FAR = 500.0
#: How thick the ground is below its lowest point, m.
_THICK = 1.0


def atlas_heights(terrain: Terrain) -> NDArray:
    """The heights of all tiles and the border, `(rows, columns)`, m: kinds along rows."""
    cells, border = terrain.cells_per_tile, terrain.border_cells
    shape = (len(terrain.kinds) * cells + 1, terrain.levels * cells + 1)
    heights = np.zeros(shape)
    for row, kind in enumerate(terrain.kinds):
        for level in range(terrain.levels):
            place = np.s_[row * cells : (row + 1) * cells + 1]
            along = np.s_[level * cells : (level + 1) * cells + 1]
            heights[place, along] = tile_heights(terrain, kind, level)
    return np.pad(heights, border)


def with_terrain(source: ModelSource, terrain: Terrain) -> mujoco.MjSpec:
    """A model whose ground is a terrain.

    The geom of the ground keeps its name, and all that decides its contacts.

    Args:
        source: the model, with one geom of the world, a plane or a height field.
        terrain: what the ground becomes.

    Raises:
        TaskError: it has no such geom, or several; or it is compiled, and cannot be edited.
    """
    spec = _editable(source)
    ground = _ground_of(spec)
    heights = atlas_heights(terrain)
    low, high = float(heights.min()), float(heights.max())
    rows, columns = heights.shape
    half = (columns - 1) / 2 * terrain.cell, (rows - 1) / 2 * terrain.cell
    spec.add_hfield(
        name=FIELD,
        nrow=rows,
        ncol=columns,
        size=[*half, max(high - low, 1e-3), _THICK],
        userdata=(heights - low).ravel(),
    )
    ground.type = mujoco.mjtGeom.mjGEOM_HFIELD
    ground.hfieldname = FIELD
    ground.size, ground.pos = np.zeros(3), [0.0, 0.0, low]
    ground.quat = [1.0, 0.0, 0.0, 0.0]
    _add_plain(spec, ground, half)
    if np.isnan(spec.stat.extent):  # cameras would not see what is nearer than 1% of the plain
        spec.stat.extent, spec.stat.center = terrain.tile, np.zeros(3)
    tiles = Tiles(terrain.levels, len(terrain.kinds), terrain.cells_per_tile * terrain.cell)
    spec.add_numeric(name=NUMERIC, data=[tiles.levels, tiles.kinds, tiles.side])
    place = [float(x) for x in tiles.middle(0, 0)]
    spec.worldbody.add_site(name=SITE, pos=[*place, 0.0], group=5)
    return spec


def _editable(source: ModelSource) -> mujoco.MjSpec:
    if isinstance(source, mujoco.MjSpec):
        return source.copy()
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return mujoco.MjSpec.from_string(source)
    if isinstance(source, str | os.PathLike) and Path(source).suffix != ".mjb":
        return mujoco.MjSpec.from_file(str(source))
    kind = type(source).__name__ if isinstance(source, Model | mujoco.MjModel) else repr(source)
    raise TaskError(f"terrain needs a model that can be edited, and mjcf gives a {kind}; give MJCF")


def _ground_of(spec: mujoco.MjSpec) -> mujoco.MjsGeom:
    """The geom of the ground."""
    kinds = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
    grounds = [geom for geom in spec.worldbody.geoms if geom.type in kinds]
    if len(grounds) != 1 or not grounds[0].name:
        names = ", ".join(repr(geom.name) for geom in grounds) or "none"
        raise TaskError(
            "terrain takes the place of the one plane or height field of the world, which needs a "
            f"name; the model has {names}"
        )
    return grounds[0]


def _add_plain(spec: mujoco.MjSpec, ground: mujoco.MjsGeom, half: tuple[float, float]) -> None:
    """Four boxes around the atlas with their tops at 0, which touch what the ground touches."""
    thick, (x, y) = _THICK / 2, half
    places = {
        "east": ([x + _FAR / 2, 0.0], [_FAR / 2, y + _FAR]),
        "west": ([-x - _FAR / 2, 0.0], [_FAR / 2, y + _FAR]),
        "north": ([0.0, y + _FAR / 2], [x, _FAR / 2]),
        "south": ([0.0, -y - _FAR / 2], [x, _FAR / 2]),
    }
    pairs = [pair for pair in spec.pairs if ground.name in (pair.geomname1, pair.geomname2)]
    for side, (middle, size) in places.items():
        name = f"{ground.name} {side}"
        box = spec.worldbody.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_BOX)
        for field in _CONTACT:
            setattr(box, field, getattr(ground, field))
        box.pos, box.size = [*middle, -thick], [*size, thick]
        for pair in pairs:
            _add_pair(spec, pair, ground.name, name)
    for sensor in spec.sensors:
        for kind, named in (("objtype", "objname"), ("reftype", "refname")):
            of_ground = getattr(sensor, kind) == mujoco.mjtObj.mjOBJ_GEOM
            of_ground &= getattr(sensor, named) == ground.name
            if sensor.type == mujoco.mjtSensor.mjSENS_CONTACT and of_ground:
                setattr(sensor, kind, mujoco.mjtObj.mjOBJ_BODY)
                setattr(sensor, named, "world")


#: What decides the contacts and the looks of a geom.
_CONTACT = (
    "contype",
    "conaffinity",
    "condim",
    "priority",
    "friction",
    "solmix",
    "solref",
    "solimp",
    "margin",
    "gap",
    "group",
    "material",
    "rgba",
)

#: What decides the contacts of a pair.
_OF_PAIR = ("condim", "solref", "solreffriction", "solimp", "margin", "gap", "friction")


def _add_pair(spec: mujoco.MjSpec, pair: mujoco.MjsPair, old: str, new: str) -> None:
    """A pair of geoms like another one, with a box in place of the ground."""
    names = (new if name == old else name for name in (pair.geomname1, pair.geomname2))
    like = spec.add_pair(name=f"{pair.name} {new}", **dict(zip(_ENDS, names, strict=True)))
    for field in _OF_PAIR:
        setattr(like, field, getattr(pair, field))


_ENDS = ("geomname1", "geomname2")
