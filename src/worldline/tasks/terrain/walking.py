"""WalkingTask: a task of a robot with legs, whose ground may be a terrain."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.mirror import Mirror, Symmetry
from worldline.env.parts import STATE, ObservationPart, ObservationParts
from worldline.env.task import Outcome, Start, Task, check_task, inputs_of
from worldline.env.wrapped import WrappedTask
from worldline.errors import TaskError
from worldline.model import Model
from worldline.physics.base import PhysicsState
from worldline.tasks.terrain.config import Terrain
from worldline.tasks.terrain.heights import HeightField
from worldline.tasks.terrain.scene import FIELD, with_terrain
from worldline.types import Array, Key, Observation, PyTree, Variation
from worldline.variation.domain import Ranges
from worldline.variation.tiles import Tiles, site_of

#: The keys of an observation that get the height scan.
_SEEING = (STATE, "privileged_state")
#: The fields with the positions of objects, `(n, 3)` each.
_PLACES = ("xpos", "xipos", "geom_xpos", "site_xpos", "subtree_com")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WalkingTask(Task):
    """A task of a robot with a free body on even or uneven ground.

    A subclass is written for even ground at height 0. On a terrain, all heights are above the
    ground, the observation has a part `height_scan`, and episodes start on a tile.
    """

    terrain: Terrain = Terrain()  # noqa: RUF009 # frozen
    """The terrain; by default the task's own ground."""

    @functools.cached_property
    def model(self) -> Model:
        """The compiled model, with the terrain as its ground."""
        source = self.mjcf()
        return Model(with_terrain(source, self.terrain) if self.terrain.kinds else source)

    def to_run(self) -> Task:
        """The task on its terrain."""
        return OnTerrain(task=self) if self.terrain.kinds else self


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OnTerrain(WrappedTask):
    """A task on a terrain; `WalkingTask.to_run` makes it.

    For the inner task, the ground below each point is at height 0: the heights of its free body, of
    bodies, geoms and sites, and of position sensors are above the ground below them.
    """

    task: WalkingTask
    """The task, with a terrain."""

    def __post_init__(self) -> None:
        super().__post_init__()
        mj = self.task.model.mj
        if not mj.njnt or mj.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
            raise TaskError(
                f"{type(self.task).__name__} has no free body as its first; terrain needs a robot "
                "that walks"
            )

    @property
    def plain(self) -> Task:
        """The task with the option `terrain`."""
        if self.episode_length == self.task.episode_length:
            return self.task
        return dataclasses.replace(self.task, episode_length=self.episode_length)

    def without_noise(self) -> Task:
        """The same without noise."""
        return OnTerrain(
            task=self.task.without_noise(),  # type: ignore[arg-type] # a walking task again
            episode_length=self.episode_length,
        )

    def mjcf(self) -> Model:
        """The task's model."""
        return self.task.model

    @functools.cached_property
    def ground(self) -> HeightField:
        """The surface of the atlas."""
        mj = self.model.mj
        field = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_HFIELD, FIELD)
        of_field = (mj.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD) & (mj.geom_dataid == field)
        return HeightField(self.model, self.model.names("geom")[int(np.flatnonzero(of_field)[0])])

    @functools.cached_property
    def tiles(self) -> Tiles:
        """Where the tiles are."""
        tiles = Tiles.of(self.model.mj)
        assert tiles is not None
        return tiles

    def start(self, key: Key) -> Start:
        """The task's start, and any tile for it."""
        return self._on_a_tile(key, self.task.start)

    def start_within(self, key: Key, ranges: Ranges) -> Start:
        """The task's start from ranges, and any tile for it."""
        return self._on_a_tile(key, functools.partial(self.task.start_within, ranges=ranges))

    def tally(self, memory: PyTree, terminated: Array) -> PyTree:
        """The task's."""
        return self.task.tally(memory, terminated)

    def _on_a_tile(self, key: Key, begin: Callable[[Key], Start]) -> Start:
        tile_key, key = jax.random.split(key)
        start = begin(key)
        counts = jnp.array([self.tiles.levels, self.tiles.kinds], jnp.float32)
        level, kind = jax.random.uniform(tile_key, (2,), jnp.float32) * counts
        sites = start.variation.get("site_pos", jnp.asarray(self.model.constant("site_pos")))
        middle = jnp.stack([*self.tiles.middle(level, kind), jnp.zeros(())])
        sites = jnp.float32(sites).at[site_of(self.model.mj)].set(middle)
        return dataclasses.replace(start, variation={**start.variation, "site_pos": sites})

    def place(self, start: Start, variation: Variation) -> Start:
        """The start on the world's tile, above the highest ground within the footprint."""
        start = self.task.place(start, variation)
        middle = variation["site_pos"][site_of(self.model.mj)]
        qpos = jnp.asarray(start.qpos, jnp.float32).at[:2].add(middle[:2])
        around = qpos[:2] + jnp.asarray(_grid(2 * self._footprint, 2 * self._footprint, 0.1))
        return dataclasses.replace(start, qpos=qpos.at[2].add(self.ground.height(around).max()))

    @property
    def _footprint(self) -> float:
        return self.task.terrain.footprint

    def control(self, action: Array, physics: PhysicsState, memory: PyTree) -> dict[str, Array]:
        """The task's control."""
        return dict(inputs_of(self.task, action, self.above_ground(physics), memory))

    def observe(self, physics: PhysicsState, memory: PyTree) -> Observation:
        """The task's observation, and the height scan."""
        obs = self.task.observe(self.above_ground(physics), memory)
        scan = self.height_scan(physics)
        if not isinstance(obs, dict):
            return jnp.concatenate([obs, scan])
        seen = {key: jnp.concatenate([obs[key], scan]) for key in _SEEING if key in obs}
        return {**obs, **seen}

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """The task's outcome; the level of the tile is a metric."""
        outcome = self.task.outcome(
            self.above_ground(before), action, self.above_ground(after), memory
        )
        level = self.tiles.level(after.variation["site_pos"][site_of(self.model.mj), 0])
        return dataclasses.replace(outcome, metrics={**outcome.metrics, "terrain_level": level})

    @property
    def observation_parts(self) -> ObservationParts:
        """The parts of the task, and at the end of each key that has it, the height scan.

        Of a task that names no parts, all that it observes is one part.
        """
        scan = ObservationPart(
            "height_scan",
            len(self._scanned),
            offset=float(self.model.qpos0[2]),
            unit="m",
            frame="world",
        )
        parts = self.task.observation_parts or self._unnamed
        return {key: (*own, scan) if key in _SEEING else own for key, own in parts.items()}

    @property
    def symmetry(self) -> Symmetry | None:
        """That of the task; in the mirror, the height scan is read from the other side."""
        own = self.task.symmetry
        if own is None:
            return None
        numbers = np.arange(len(self._scanned)).reshape(len(np.unique(self._scanned[:, 0])), -1)
        scan = Mirror(tuple(numbers[:, ::-1].ravel().tolist()), (1.0,) * numbers.size)
        seen = {
            key: Mirror.joined([mirror, scan]) if key in _SEEING else mirror
            for key, mirror in own.observation.items()
        }
        return Symmetry(seen, own.action)

    @functools.cached_property
    def _unnamed(self) -> ObservationParts:
        """The observation of a task that names no parts, as one part for each key."""
        obs = check_task(self.task).obs
        keys = obs if isinstance(obs, dict) else {STATE: obs}
        return {
            key: (ObservationPart("task_observation", keys[key].shape[0]),)
            for key in _SEEING
            if key in keys
        }

    @functools.cached_property
    def _scanned(self) -> np.ndarray[Any, Any]:
        terrain = self.task.terrain
        return _grid(terrain.scan_length, terrain.scan_width, terrain.scan_spacing)

    def height_scan(self, physics: PhysicsState) -> Array:
        """How far the ground around the robot is below its body, `(n,)`, m, from the height there
        in the model; row by row from behind on the right to ahead on the left, turned with the
        robot.
        """
        w, x, y, z = physics.qpos[3:7]
        yaw = jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        cos, sin = jnp.cos(yaw), jnp.sin(yaw)
        points = jnp.asarray(self._scanned) @ jnp.array([[cos, sin], [-sin, cos]])
        below = physics.qpos[2] - self.ground.height(physics.qpos[:2] + points)
        widest = self.task.terrain.scan_range
        return jnp.clip(below - jnp.float32(self.model.qpos0[2]), -widest, widest)

    def above_ground(self, physics: PhysicsState) -> PhysicsState:
        """The world in which the ground beneath each point is at height 0."""
        height = self.ground.height
        fields = dict(physics.fields)
        for name in _PLACES:
            if name in fields:
                fields[name] = fields[name].at[..., 2].add(-height(fields[name]))
        if "sensordata" in fields:
            for row in self._place_sensors:
                readings = fields["sensordata"]
                here = jax.lax.dynamic_slice_in_dim(readings, row, 3)
                fields["sensordata"] = readings.at[row + 2].add(-height(here))
        qpos = physics.qpos.at[2].add(-height(physics.qpos[:2]))
        return dataclasses.replace(physics, qpos=qpos, fields=fields)

    @functools.cached_property
    def _place_sensors(self) -> list[int]:
        """The first numbers of the sensors that measure places in the world's frame."""
        mj = self.model.mj
        places = (mj.sensor_type == mujoco.mjtSensor.mjSENS_FRAMEPOS) & (mj.sensor_refid < 0)
        return [int(row) for row in mj.sensor_adr[places]]


def _grid(length: float, width: float, spacing: float) -> np.ndarray[Any, Any]:
    """Points of a rectangle about 0, `(n, 2)` float32, m: x the slower one."""
    sides = [
        np.linspace(-side / 2, side / 2, round(side / spacing) + 1) if side else np.zeros(1)
        for side in (length, width)
    ]
    return np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)
