"""suite/quadruped: walk, run, fetch a ball and climb out of a bowl on four legs."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from scipy import ndimage

from worldline.env.task import Start
from worldline.errors import TaskError
from worldline.model import ModelSource
from worldline.physics.base import PhysicsState
from worldline.tasks.rewards import tolerance
from worldline.tasks.suite.base import (
    XML,
    SuiteTask,
    at_least,
    found,
    named,
    random_rotation,
    read,
    remove,
    variant,
)
from worldline.tasks.suite.contacts import matrix
from worldline.types import Array, Key, NDArray

_WALLS = ("wall_px", "wall_py", "wall_nx", "wall_ny")
_SENSOR = mujoco.mjtSensor


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Quadruped(SuiteTask):
    """Four legs of three motors each, which lag by 0.1 s.

    Action `(12,)`: where to hold yaw, lift and extension of each leg.
    """

    file = "quadruped.xml"
    control_timestep: float = 0.02

    fields: ClassVar[tuple[str, ...]] = ("xmat", "sensordata")  # the torso's orientation; sensors

    @functools.cached_property
    def _outline(self) -> _Outline:
        return _Outline(self.model.mj)

    def torso(self, physics: PhysicsState) -> Array:
        """The torso's orientation, `(3, 3)`."""
        return self.row(physics, "xmat", "torso").reshape(3, 3)

    def readings(self, physics: PhysicsState, *kinds: mujoco.mjtSensor) -> Array:
        """All sensors of some kinds, in the model's order."""
        mj = self.model.mj
        parts = [
            physics.fields["sensordata"][mj.sensor_adr[i] : mj.sensor_adr[i] + mj.sensor_dim[i]]
            for i in np.flatnonzero(np.isin(mj.sensor_type, kinds))
        ]
        return jnp.concatenate(parts)

    def velocity(self, physics: PhysicsState) -> Array:
        """Of the torso in its own frame, `(3,)`, m/s."""
        return self.sensors(physics, "velocimeter")

    def upright(self, physics: PhysicsState, within: float = 0.0) -> Array:
        """1 where the torso leans by no more than `within` degrees, 0 upside down."""
        bound = float(np.cos(np.deg2rad(within)))
        return at_least(self.torso(physics)[2, 2], bound, margin=1 + bound)

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """What the quadruped feels of itself."""
        mj = self.model.mj
        hinges = mj.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        legs = [physics.qpos[mj.jnt_qposadr[hinges]], physics.qvel[mj.jnt_dofadr[hinges]]]
        forces = self.readings(physics, _SENSOR.mjSENS_FORCE, _SENSOR.mjSENS_TORQUE)
        return {
            "egocentric_state": jnp.concatenate([*legs, physics.act]),
            "torso_velocity": self.velocity(physics),
            "torso_upright": self.torso(physics)[2, 2],
            "imu": self.readings(physics, _SENSOR.mjSENS_GYRO, _SENSOR.mjSENS_ACCELEROMETER),
            "force_torque": jnp.arcsinh(forces),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuadrupedMove(Quadruped):
    """Move forward at a speed.

    Observation `(78,)`: joint angles and velocities, states of the motors, the torso's velocity in
    its frame, uprightness, acceleration and angular velocity, forces and torques at the toes (the
    inverse hyperbolic sine of them). Action `(12,)`. Reward: uprightness times forward speed.
    """

    speed: float
    """Forward speed for the full reward, m/s."""

    def edit(self, root: XML) -> None:
        """A floor as large as the episode needs, and nothing else."""
        size = 20 * self.speed
        named(root, "geom", "floor").set("size", f"{size} {size} .5")
        _without_ball(root)
        remove(root, "geom", "terrain")
        _without_rangefinders(root)

    def start(self, key: Key) -> Start:
        """Turned in any way, just above the ground, at rest."""
        turn = random_rotation(key)
        pose = self._outline.above_ground(turn, jnp.zeros(2))
        return self.at_rest(jnp.asarray(self.model.qpos0, float).at[:7].set(pose))

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Uprightness, times speed."""
        speed = self.velocity(physics)[0]
        return self.upright(physics) * at_least(speed, self.speed, self.speed, value_at_margin=0.5)


QuadrupedWalk = variant(QuadrupedMove, "QuadrupedWalk", "Walk on four legs", speed=0.5)
QuadrupedRun = variant(QuadrupedMove, "QuadrupedRun", "Run on four legs", speed=5.0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuadrupedFetch(Quadruped):
    """Bring a ball to the middle of an arena.

    Observation `(90,)`: as `suite/quadruped-walk`, then position and velocities of the ball and the
    place of the target, as the torso sees them. Action `(12,)`. Reward: uprightness, times how near
    the ball is, times how near it is to the target.
    """

    fields = (*Quadruped.fields, "xpos", "site_xpos")  # also the positions of ball and target

    def edit(self, root: XML) -> None:
        """Walls, ball and target stay."""
        remove(root, "geom", "terrain")
        _without_rangefinders(root)

    def start(self, key: Key) -> Start:
        """Upright anywhere in the arena; the ball falls, with a push, anywhere."""
        turn_key, place_key, ball_key, push_key = jax.random.split(key, 4)
        angle = jax.random.uniform(turn_key, maxval=2 * jnp.pi)
        zero = jnp.zeros(())
        turn = jnp.stack([jnp.cos(angle / 2), zero, zero, jnp.sin(angle / 2)])
        size = 0.9 * self.size("geom_size", "floor")
        place, ball = (
            jax.random.uniform(k, (2,), minval=-size, maxval=size) for k in (place_key, ball_key)
        )
        qpos = jnp.asarray(self.model.qpos0, float)
        qpos = qpos.at[:7].set(self._outline.above_ground(turn, place))
        at, moves = self._ball
        qpos = qpos.at[at : at + 3].set(jnp.append(ball, 2.0))
        push = 5 * jax.random.normal(push_key, (2,))
        return Start(qpos=qpos, qvel=jnp.zeros(self.model.nv).at[moves : moves + 2].set(push))

    @property
    def _ball(self) -> tuple[int, int]:
        """Where the ball lies in `qpos` and in `qvel`."""
        joint = self.model.id("joint", "ball_root")
        return int(self.model.mj.jnt_qposadr[joint]), int(self.model.mj.jnt_dofadr[joint])

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Itself, the ball and the target."""
        torso, (_, ball) = self.torso(physics), self._ball
        center = self.row(physics, "xpos", "torso")
        state = jnp.stack(
            [
                self.offset(physics, "xpos", "torso", "ball"),
                physics.qvel[ball : ball + 3] - physics.qvel[:3],
                physics.qvel[ball + 3 : ball + 6],
            ]
        )
        target = self.row(physics, "site_xpos", "target")
        return {
            **super().features(physics),
            "ball_state": (state @ torso).ravel(),
            "target_position": (target - center) @ torso,
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Near the ball, and the ball near the target."""
        ball = self.row(physics, "xpos", "ball")
        arena = self.size("geom_size", "floor") * 2**0.5

        def near(site: str, more: float = 0.0) -> Array:
            distance = jnp.linalg.norm((self.row(physics, "site_xpos", site) - ball)[:2])
            bounds = (0.0, self.size("site_size", site) + more)
            return tolerance(distance, bounds, sigmoid="linear", margin=arena, value_at_margin=0.0)

        reach, fetch = near("workspace", self.size("geom_size", "ball")), near("target")
        return self.upright(physics) * reach * (0.5 + 0.5 * fetch)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuadrupedEscape(Quadruped):
    """Climb out of a bowl of bumps.

    Observation `(101,)`: as `suite/quadruped-walk`, then the way to the middle as the torso sees it
    and twenty distances to the ground (their hyperbolic tangent). Action `(12,)`. Reward:
    uprightness times the distance from the middle.

    dm_control draws new bumps for each episode. MuJoCo shares a height field among worlds, so here
    an episode draws one of `terrains`, which are made as dm_control makes them.
    """

    terrains: int = 8
    """The number of terrains to draw from."""
    terrain_seed: int = 0
    """Random seed of the terrains."""

    fields = (*Quadruped.fields, "xpos", "site_xpos")  # also those of torso and workspace

    def mjcf(self) -> ModelSource:
        """The suite's model with several terrains in place of one."""
        if self.terrains < 1:
            raise TaskError(f"terrains is {self.terrains}; give 1 or more")
        root = read(self.file)
        named(root, "geom", "floor").set("size", "40 40 .5")
        _without_ball(root)
        self._add_terrains(root)
        model = mujoco.MjModel.from_xml_string(ElementTree.tostring(root, "unicode"))
        model.hfield_data[:] = self.heights.ravel()
        return model

    def _add_terrains(self, root: XML) -> None:
        """A mocap body for each terrain; an episode puts all but its own out of reach."""
        field, geom = named(root, "hfield", "terrain"), named(root, "geom", "terrain")
        assets = next(section for section in root.iter("asset") if field in list(section))
        world = found(root, "worldbody")
        world.remove(geom)
        for number in range(self.terrains):
            name = f"terrain_{number}"
            if number:
                ElementTree.SubElement(assets, "hfield", field.attrib | {"name": name})
            else:
                field.set("name", name)
            body = ElementTree.Element("body", name=name, mocap="true")
            ElementTree.SubElement(body, "geom", geom.attrib | {"name": name, "hfield": name})
            world.insert(number, body)  # before the robot: contacts come in the same order

    @functools.cached_property
    def heights(self) -> NDArray:
        """Of the terrains, in units of the height field's: `(terrains, nrow, ncol)` float32."""
        field = named(read(self.file), "hfield", "terrain")
        nrow, size = int(field.attrib["nrow"]), 2 * float(field.attrib["size"].split()[0])
        generators = np.random.default_rng(self.terrain_seed).spawn(self.terrains)
        return np.stack([_bowl(nrow, size, generator) for generator in generators])

    def start(self, key: Key) -> Start:
        """Turned in any way, just above the middle of a terrain, at rest."""
        turn_key, terrain_key = jax.random.split(key)
        turn = random_rotation(turn_key)
        terrain = jax.random.randint(terrain_key, (), 0, self.terrains)
        ground = _Ground(self.model.mj, jnp.asarray(self.heights)[terrain])
        pose = self._outline.above_ground(turn, jnp.zeros(2), ground)
        depth = jnp.where(jnp.arange(self.terrains) == terrain, 0.0, -1000.0)
        return self.at_rest(
            jnp.asarray(self.model.qpos0, float).at[:7].set(pose),
            inputs={"mocap_pos": jnp.zeros((self.terrains, 3)).at[:, 2].set(depth)},
        )

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Itself, the middle and the ground ahead."""
        center = self.row(physics, "xpos", "torso")
        rays = self.readings(physics, _SENSOR.mjSENS_RANGEFINDER)
        return {
            **super().features(physics),
            "origin": -center @ self.torso(physics),
            "rangefinder": jnp.where(rays < 0, 1.0, jnp.tanh(rays)),
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """How far from the middle."""
        size = float(self.model.mj.hfield_size[0, 0])
        distance = jnp.linalg.norm(self.row(physics, "site_xpos", "workspace"))
        return self.upright(physics, within=20.0) * at_least(distance, size, margin=size)


def _without_ball(root: XML) -> None:
    """Takes walls, ball and target away."""
    for wall in _WALLS:
        remove(root, "geom", wall)
    remove(root, "body", "ball")
    remove(root, "site", "target")


def _without_rangefinders(root: XML) -> None:
    sensors = found(root, "sensor")
    for sensor in sensors.findall("rangefinder"):
        sensors.remove(sensor)


def _bowl(nrow: int, size: float, rng: np.random.Generator) -> NDArray:
    """Heights of a bowl of smooth bumps, `(nrow, nrow)`: the suite's terrain.

    Args:
        nrow: samples a side.
        size: of a side, m.
        rng: decides the bumps, one each 2 m, of heights from 0.15 to 1.
    """
    line = np.linspace(-1, 1, nrow)
    radius = np.clip(np.hypot(line[:, None], line), 0.04, 1)
    bumps = int(size / 2)
    bumpy = ndimage.zoom(rng.uniform(0.15, 1, (bumps, bumps)), nrow / bumps)
    return ((0.5 - np.cos(2 * np.pi * radius) / 2) * bumpy).astype(np.float32)


class _Ground:
    """The height of a terrain, or of the floor where that is higher."""

    def __init__(self, mj: mujoco.MjModel, heights: Array) -> None:
        size, _, self._scale, _ = mj.hfield_size[0]
        self._heights, self._size = heights, float(size)
        terrain = int(np.flatnonzero(mj.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD)[0])
        self._base = float(mj.geom_pos[terrain, 2])

    def __call__(self, places: Array) -> Array:
        """Heights at places `(n, 2)`, between samples linear in each direction: `(n,)`, m."""
        nrow = self._heights.shape[0]
        row_col = (places[:, ::-1] + self._size) / (2 * self._size) * (nrow - 1)
        heights = jax.scipy.ndimage.map_coordinates(self._heights, list(row_col.T), order=1)
        return jnp.maximum(self._base + self._scale * heights, 0.0)


class _Outline:
    """The quadruped with straight legs, as a rigid body that stands on its lowest point. A capsule
    is the two balls at its ends, since the ground is nearly flat where it stands.
    """

    def __init__(self, mj: mujoco.MjModel) -> None:
        data = mujoco.MjData(mj)
        mujoco.mj_kinematics(mj, data)
        root, sphere = mj.body("torso").id, mujoco.mjtGeom.mjGEOM_SPHERE
        parts = []
        for geom in range(mj.ngeom):
            if mj.body_rootid[mj.geom_bodyid[geom]] != root or not mj.geom_contype[geom]:
                continue
            kind, size = mj.geom_type[geom], mj.geom_size[geom]
            center, frame = data.geom_xpos[geom] - data.xpos[root], data.geom_xmat[geom]
            if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
                half = size[1] * frame.reshape(3, 3)[:, 2]
                parts += [(sphere, size, center + end, frame) for end in (half, -half)]
            else:
                parts.append((kind, size, center, frame))
        kinds, sizes, centers, frames = zip(*parts, strict=True)
        self._kind = np.array([int(kind) for kind in kinds])
        self._size, self._center = np.array(sizes, np.float32), np.array(centers, np.float32)
        self._frame = np.array(frames, np.float32).reshape(-1, 3, 3)

    def above_ground(self, turn: Array, place: Array, ground: _Ground | None = None) -> Array:
        """The pose of a body turned so, where it first is free of the ground on its way up in steps
        of 1 cm from height 0: place and quaternion `(7,)`.
        """
        center, reach = self._reach(matrix(turn))
        height = 0.0 if ground is None else ground(place + center[:, :2])
        lift = jnp.ceil(jnp.max(height + reach - center[:, 2]) / 0.01) * 0.01
        return jnp.concatenate([place, jnp.maximum(lift, 0.0)[None], turn])

    def _reach(self, turn: Array) -> tuple[Array, Array]:
        """Centres of the turned parts, `(n, 3)`, and how far below them they reach, `(n,)`."""
        down = (turn @ self._frame)[:, 2]  # each part's axes, along the vertical
        kinds, size = mujoco.mjtGeom, self._size
        along, aside = jnp.abs(down[:, 2]), jnp.sqrt(jnp.maximum(1 - down[:, 2] ** 2, 0.0))
        reach = {
            kinds.mjGEOM_SPHERE: size[:, 0] * jnp.ones_like(along),
            kinds.mjGEOM_CYLINDER: size[:, 0] * aside + size[:, 1] * along,
            kinds.mjGEOM_ELLIPSOID: jnp.linalg.norm(size * down, axis=1),
        }
        of_kinds = [jnp.where(self._kind == int(kind), r, 0.0) for kind, r in reach.items()]
        return jnp.asarray(self._center) @ turn.T, jnp.stack(of_kinds).sum(axis=0)
