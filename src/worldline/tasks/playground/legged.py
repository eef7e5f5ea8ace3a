"""What Playground's legged robots share: a model, its sensors, noise, weighted rewards."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.mirror import Symmetry
from worldline.env.symmetry import left_right
from worldline.env.task import Outcome
from worldline.model import Model
from worldline.physics.base import PhysicsState
from worldline.settings import NotNegative, Positive
from worldline.tasks.playground.assets import scene
from worldline.tasks.playground.fast import make_fast
from worldline.tasks.terrain.walking import WalkingTask
from worldline.types import Array, ArrayLike, Key, PyTree

NDArray = np.ndarray[Any, np.dtype[Any]]


class Draws(NamedTuple):
    """The keys of one control step, made of the words that a task's memory holds."""

    noise: Key
    """For the noise of the observation."""
    command: Key
    """For the next command."""
    push: Key
    """For a push."""
    words: Array
    """The words for the next step, `(2,)` uint32. They stand in place of a key because JAX's check
    for keys that are used twice cannot follow a key through the memories of many worlds."""


def draws(words: Array) -> Draws:
    """The keys of the control step that `words`, `(2,)` uint32, belong to."""
    noise, command, push, following = jax.random.split(jax.random.wrap_key_data(words), 4)
    return Draws(noise, command, push, jax.random.key_data(following))


def noisy(
    key: Key,
    values: Sequence[Array],
    scales: Sequence[ArrayLike],
    level: float,
    share: ArrayLike = 1.0,
) -> list[Array]:
    """Measurements with uniform noise.

    Args:
        key: decides the noise.
        values: the measurements, of any shapes.
        scales: the largest noise on each: a number, or an array that broadcasts.
        level: a factor of all of them.
        share: another one, `()`, that may be traced.
    """
    # One draw for all: random numbers cost more by their calls than by their number.
    ends = np.cumsum([value.size for value in values])
    noise = jnp.split(jax.random.uniform(key, (int(ends[-1]),), jnp.float32, -1.0), ends[:-1])
    sizes = [np.asarray(level * np.asarray(scale), np.float32) for scale in scales]
    return [
        value + share * (size * part.reshape(value.shape))
        for value, size, part in zip(values, sizes, noise, strict=True)
    ]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LeggedTask(WalkingTask):
    """A task of a robot with legs whose motors are servos.

    Its fields named `<term>_weight` are the weights of the terms of its reward. A term's weighted
    value is the metric `reward/<term>`; the reward is their sum times the control time step.

    As in MuJoCo Playground, the positions, velocities and forces in the observation are those that
    the last physics step computed, one physics step behind the state.
    """

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "unroll_length": 32,
            "minibatches": 8,
            "discount": 0.97,
            "actor_hidden": (128, 64),
            "critic_hidden": (128, 64),
            "initial_log_std": -1.0,
        },
        "train": {"steps": 10_000_000},
    }

    control_timestep: Positive = 0.02
    """Seconds between two actions; a multiple of `physics_timestep`."""
    physics_timestep: Positive = 0.004
    """The model's time step, s."""
    action_scale: Positive
    """How far an action of 1 moves the target of a joint, rad."""
    noise_level: NotNegative = 1.0
    """Factor for all noise of the observation; 0: no noise."""
    fast: bool = False
    """Train in a cheaper model: steps up to 2.5 times as long, few iterations of the solver, and
    contacts of the feet alone, where nothing else has to touch the ground. Names, sizes and masses
    are the same: evaluate the policy in the full model."""

    refresh = False
    camera = {"name": "track"}

    file: ClassVar[str]
    """The scene among Playground's files."""
    keyframe: ClassVar[str] = "home"
    """The keyframe of the model in which the robot stands."""
    imu_site: ClassVar[str] = "imu"
    """The site of the sensors of its motion."""
    lowest_reward: ClassVar[float] = 0.0
    """What the reward of a control step is at least."""
    torso: ClassVar[str]
    """The body that is pushed."""
    feet: ClassVar[tuple[str, ...]]
    """Names of the feet: of their geoms and sites; those of their sensors begin so."""
    soles: ClassVar[tuple[tuple[str, ...], ...]]
    """The geoms of each foot that touch the ground, where a foot has several."""
    longest_step: ClassVar[float] = 2.5
    """How many times as long `fast` may make a step; the servos must follow their joints still."""
    on_feet: ClassVar[bool] = True
    """Whether nothing but feet has to touch the ground. False, where the robot may lie on it: then
    `fast` leaves all contacts."""

    @property
    def path(self) -> Path:
        """The MJCF file."""
        return scene(self.file)

    def mjcf(self) -> mujoco.MjSpec:
        """The scene with this task's time step, made cheaper where `fast` asks for it."""
        spec = mujoco.MjSpec.from_file(str(self.path))
        spec.option.timestep = self.physics_timestep
        if self.fast:
            soles = itertools.chain(*getattr(self, "soles", ()))
            feet = {*self.feet, *soles} if self.on_feet else ()
            make_fast(spec, self.control_timestep, self.longest_step, feet)
        return spec

    @functools.cached_property
    def home(self) -> NDArray:
        """`qpos` in the pose in which the robot stands, `(nq,)`."""
        return np.asarray(self.model.mj.key(self.keyframe).qpos, np.float32)

    @property
    def pose(self) -> NDArray:
        """The joints' angles there, `(nu,)`, rad."""
        return self.home[7:]

    @property
    def symmetry(self) -> Symmetry:
        """Left and right, by the names of joints and feet, and the axes of the joints."""
        return left_right(self)

    @property
    def action_bounds(self) -> tuple[NDArray, NDArray]:
        """From -1 to 1 for each joint."""
        return -np.ones(self.model.nu, np.float32), np.ones(self.model.nu, np.float32)

    def somewhere(self, key: Key, qpos: Array) -> tuple[Array, Array]:
        """A configuration moved and turned on the ground, and a random velocity of the torso."""
        place_key, yaw_key, velocity_key = jax.random.split(key, 3)
        place = jax.random.uniform(place_key, (2,), jnp.float32, -0.5, 0.5)
        yaw = jax.random.uniform(yaw_key, (), jnp.float32, -3.14, 3.14)
        qpos = turned(qpos.at[:2].add(place), yaw)
        return qpos, self.thrown(velocity_key)

    def thrown(self, key: Key) -> Array:
        """A random velocity of the torso, `(nv,)`: up to 0.5 m/s and rad/s along each axis."""
        velocity = jax.random.uniform(key, (6,), jnp.float32, -0.5, 0.5)
        return jnp.zeros(self.model.nv, jnp.float32).at[:6].set(velocity)

    def without_noise(self) -> LeggedTask:
        """The same task without noise of the observation."""
        return dataclasses.replace(self, noise_level=0.0)

    def within_range(self, targets: ArrayLike) -> Array:
        """The nearest targets that the servos can be given, `(nu,)`, rad."""
        low, high = self.model.ctrlrange.T
        return jnp.clip(targets, low, high)

    def sensor(self, physics: PhysicsState, name: str) -> Array:
        """The reading of a sensor."""
        return physics.fields["sensordata"][self.model.sensor(name)]

    def imu(self, physics: PhysicsState, field: str) -> Array:
        """The row of a field of sites, such as `site_xpos`, that belongs to the `imu_site`."""
        return physics.fields[field][self.model.id("site", self.imu_site)]

    def down(self, physics: PhysicsState) -> Array:
        """The direction of gravity in the frame of the `imu_site`, `(3,)`."""
        return -self.imu(physics, "site_xmat").reshape(3, 3)[2]

    def touching(self, physics: PhysicsState, geoms: Sequence[str]) -> Array:
        """Whether geoms touch the ground, `(n,)` bool."""
        found = [self.sensor(physics, f"{geom}_floor_found") for geom in geoms]
        return jnp.concatenate(found) > 0

    def joints_at(self, *names: str) -> NDArray:
        """Where the joints of these names are among the joints' angles, `(n,)`."""
        joints = (self.model.mj.joint(name) for name in names)
        return np.array([joint.qposadr[0] - 7 for joint in joints])

    def beyond_range(self, physics: PhysicsState) -> Array:
        """Whether a joint is beyond the range of its servo, `()` bool."""
        joints, (low, high) = physics.qpos[7:], self.model.ctrlrange.T
        return ((joints < low) | (joints > high)).any()

    def grounded(self, physics: PhysicsState) -> Array:
        """Whether each foot touches the ground with any of its `soles`, `(n,)` bool."""
        return jnp.stack([self.touching(physics, sole).any() for sole in self.soles])

    def feet_velocity(self, physics: PhysicsState) -> Array:
        """Of each foot along the world's axes, `(n, 3)`, m/s."""
        return jnp.stack([self.sensor(physics, f"{foot}_global_linvel") for foot in self.feet])

    def feet_height(self, physics: PhysicsState) -> Array:
        """Of each foot above the world's origin, `(n,)`, m."""
        sites = np.array([self.model.id("site", foot) for foot in self.feet])
        return physics.fields["site_xpos"][sites, 2]

    def push_force(self, acceleration: Array) -> Array:
        """The forces of a push on all bodies, `(nbody, 6)`; the acceleration is `(3,)`, m/s^2."""
        model = self.model
        torso = model.id("body", self.torso)
        mass = float(model.mj.body_subtreemass[torso])
        forces = jnp.zeros((model.mj.nbody, 6), jnp.float32)
        return forces.at[torso, :3].set(mass * acceleration)

    def scored(
        self, terms: Mapping[str, Array], terminated: Array, memory: PyTree, **metrics: Array
    ) -> Outcome:
        """The outcome with these terms of the reward, without their weights."""
        weighted = {
            name: getattr(self, f"{name}_weight") * jnp.asarray(value, jnp.float32)
            for name, value in terms.items()
        }
        total = self.control_timestep * jnp.sum(jnp.stack(list(weighted.values())))
        return Outcome(
            reward=jnp.maximum(total, self.lowest_reward),
            terminated=terminated,
            memory=memory,
            metrics={f"reward/{name}": value for name, value in weighted.items()} | metrics,
        )

    def scored_together(
        self,
        good: Mapping[str, Array],
        bad: Mapping[str, Array],
        terminated: Array,
        memory: PyTree,
        **metrics: Array,
    ) -> Outcome:
        """The outcome whose reward is the sum of the good terms, times `exp(0.2 x)` of the bad."""
        scored = self.scored({**good, **bad}, terminated, memory, **metrics)
        gain, loss = (
            jnp.sum(jnp.stack([scored.metrics[f"reward/{name}"] for name in terms]))
            for terms in (good, bad)
        )
        reward = gain * jnp.exp(0.2 * loss) * self.control_timestep
        return dataclasses.replace(scored, reward=reward)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ServoTask(LeggedTask):
    """A task whose robot has the same servo and the same damping in each joint."""

    stiffness: NotNegative
    """Stiffness of each joint's servo, N m / rad."""
    damping: NotNegative
    """Damping of each joint, N m s / rad."""

    def mjcf(self) -> mujoco.MjSpec:
        """The scene with this task's time step, servos and damping."""
        spec = super().mjcf()
        for joint in spec.joints:
            if joint.type != mujoco.mjtJoint.mjJNT_FREE:
                damping = np.array(joint.damping, float)
                damping.flat[0] = self.damping  # behind it, MuJoCo 4 has those of a polynomial
                joint.damping = damping if damping.ndim else float(damping)
        for actuator in spec.actuators:
            actuator.gainprm[0], actuator.biasprm[1] = self.stiffness, -self.stiffness
        return spec


def soft_limits(model: Model, share: float) -> tuple[NDArray, NDArray]:
    """The limits of the joints that are not free, drawn in about their middles to a share."""
    low, high = model.mj.jnt_range[1:].T
    middle, half = (low + high) / 2, (high - low) / 2
    return (middle - share * half).astype(np.float32), (middle + share * half).astype(np.float32)


def between(key: Key, bounds: tuple[float, float]) -> Array:
    """A number, `()`, uniform between bounds."""
    return jax.random.uniform(key, (), jnp.float32, *bounds)


def turned(qpos: Array, yaw: Array) -> Array:
    """A configuration of an upright robot, turned about the vertical by `yaw`, rad."""
    zero = jnp.zeros_like(yaw)
    turn = jnp.stack([jnp.cos(yaw / 2), zero, zero, jnp.sin(yaw / 2)])
    return qpos.at[3:7].set(turn)


def random_fall(key: Key, height: float, low: NDArray, high: NDArray) -> Array:
    """The configuration of a robot about to fall, `(nq,)`: any orientation, any joint angles.

    Args:
        key: decides the draws.
        height: of the torso, m.
        low: lowest joint angles, `(nu,)`, rad.
        high: highest joint angles, `(nu,)`, rad.
    """
    turn_key, joints_key = jax.random.split(key)
    quaternion = jax.random.normal(turn_key, (4,), jnp.float32)
    quaternion = quaternion / jnp.linalg.norm(quaternion)
    joints = jax.random.uniform(
        joints_key, low.shape, jnp.float32, np.float32(low), np.float32(high)
    )
    return jnp.concatenate([jnp.array([0.0, 0.0, height], jnp.float32), quaternion, joints])
