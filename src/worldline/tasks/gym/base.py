"""What Gymnasium's MuJoCo tasks share: model files, options, starts and the reward for running."""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib.util
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp

from worldline.env.task import Outcome, Start, Task
from worldline.errors import TaskError
from worldline.physics.base import PhysicsState
from worldline.settings import Count
from worldline.types import Array, ArrayLike, Key, Metrics, PyTree

#: Attributes of `mujoco.MjvCamera`: `distance` (m), `azimuth` and `elevation` (degrees), `lookat`
#: (m), `trackbodyid`.
Camera: TypeAlias = Mapping[str, float | tuple[float, float, float]]

#: A lowest and a highest value.
Range: TypeAlias = tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GymTask(Task):
    """A task of Gymnasium. Its fields are the options of Gymnasium's constructor, by their names.

    The fields that Gymnasium reads from MjData are those `mj_step` leaves behind: forces and body
    positions are of the last physics step, not of the state it led to. So is `refresh` here.
    """

    xml_file: str
    """The MJCF file: the name of one that Gymnasium ships, or a path that starts with `.`, `~` or
    `/`."""
    frame_skip: Count
    """Physics steps in a control step."""
    default_camera_config: Camera = dataclasses.field(default_factory=dict)
    """How to look at the task: attributes of `mujoco.MjvCamera`."""

    refresh: ClassVar[bool] = False

    def mjcf(self) -> str:
        """The path of the model."""
        path = Path(self.xml_file).expanduser()
        in_gymnasium = not (path.is_absolute() or self.xml_file.startswith("."))
        return str(assets() / path if in_gymnasium else path)

    @property
    def control_timestep(self) -> float:
        """Seconds between two actions."""
        return self.frame_skip * self.model.timestep

    @property
    def camera(self) -> Mapping[str, Any]:
        """How to look at the task."""
        return self.default_camera_config


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisyStart(GymTask):
    """A task whose episodes start at the model's default state, with noise on every coordinate."""

    reset_noise_scale: float
    """Size of the random change to the default state at a start: m, rad, m/s, rad/s."""

    normal_velocity: ClassVar[bool] = False
    """Whether initial velocities are normal, with `reset_noise_scale` as standard deviation; else
    they are uniform in `[-reset_noise_scale, reset_noise_scale)`, as positions always are."""

    def start(self, key: Key) -> Start:
        """The default state with noise."""
        position, velocity = jax.random.split(key)
        draw = jax.random.normal if self.normal_velocity else symmetric
        scale, model = self.reset_noise_scale, self.model
        return Start(
            qpos=jnp.asarray(model.qpos0) + scale * symmetric(position, (model.nq,)),
            qvel=scale * draw(velocity, (model.nv,)),
        )

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions and velocities."""
        return jnp.concatenate([physics.qpos, physics.qvel])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Locomotion(NoisyStart):
    """A robot that moves freely in the world, and pays for what its motors do."""

    ctrl_cost_weight: float
    """Cost of the sum of the squared actions."""
    exclude_current_positions_from_observation: bool = True
    """Leave the robot's position in the world (x, or x and y) out of the observation."""

    position_size: ClassVar[int]
    """The number of first coordinates in `qpos` that are the robot's position in the world: 1 or 2.
    """

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions (by default without the position in the world) and velocities."""
        skipped = self.position_size if self.exclude_current_positions_from_observation else 0
        return jnp.concatenate([physics.qpos[skipped:], physics.qvel])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Runner(Locomotion):
    """A robot that is rewarded for its velocity along x. An episode never terminates."""

    forward_reward_weight: float = 1.0
    """Reward for each m/s along x."""

    changes = ("qpos",)  # from which `velocity` is computed

    def velocity(self, after: PhysicsState) -> Array:
        """Mean velocity over the control step, along x (and y), `(position_size,)`, m/s."""
        return after.changes["qpos"][: self.position_size] / self.control_timestep

    def reward_terms(self, action: Array, after: PhysicsState, speed: Array) -> Metrics:
        """The terms of the reward, `()` each, in the order in which they are added.

        Args:
            action: `(nact,)`.
            after: the state after the step.
            speed: the velocity along x, `()`, m/s.
        """
        return {
            "reward_forward": self.forward_reward_weight * speed,
            "reward_ctrl": -self.ctrl_cost_weight * sum_of_squares(action),
        }

    def terminated(self, after: PhysicsState) -> Array:
        """Whether the state ends the episode, `()` bool."""
        return jnp.asarray(False)

    def motion_metrics(self, after: PhysicsState, velocity: Array) -> Metrics:
        """Where the robot is, m, and how fast it moves, m/s; `()` each."""
        metrics = {"x_position": after.qpos[0], "x_velocity": velocity[0]}
        if self.position_size == 1:
            return metrics
        return metrics | {
            "y_position": after.qpos[1],
            "y_velocity": velocity[1],
            "distance_from_origin": jnp.linalg.norm(after.qpos[:2]),
        }

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """The sum of the reward's terms, which are metrics too."""
        velocity = self.velocity(after)
        terms = self.reward_terms(action, after, velocity[0])
        return Outcome(
            reward=functools.reduce(operator.add, terms.values()),
            terminated=self.terminated(after),
            metrics=self.motion_metrics(after, velocity) | terms,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class UprightRunner(Runner):
    """A runner that can fall. Each healthy step has a bonus, and a fall ends the episode."""

    healthy_reward: float = 1.0
    """Reward for each step after which the robot is healthy."""
    terminate_when_unhealthy: bool = True
    """Whether a robot that is not healthy ends the episode."""
    healthy_z_range: Range
    """Heights of the torso at which the robot is healthy, m."""

    @abc.abstractmethod
    def healthy(self, physics: PhysicsState) -> Array:
        """Whether the robot has not fallen, `()` bool."""

    def reward_terms(self, action: Array, after: PhysicsState, speed: Array) -> Metrics:
        """Forward velocity and health, less the cost of control."""
        terms = super().reward_terms(action, after, speed)
        return {
            "reward_forward": terms["reward_forward"],
            "reward_survive": jnp.where(self.healthy(after), self.healthy_reward, 0.0),
            "reward_ctrl": terms["reward_ctrl"],
        }

    def terminated(self, after: PhysicsState) -> Array:
        """Whether the robot has fallen."""
        return ~self.healthy(after) & self.terminate_when_unhealthy


def assets() -> Path:
    """The folder of the MJCF files of the installed Gymnasium, found without importing it."""
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or not spec.submodule_search_locations:
        raise TaskError("the gym/* tasks load their models from Gymnasium: pip install gymnasium")
    return Path(spec.submodule_search_locations[0]) / "envs" / "mujoco" / "assets"


def tracking_camera(body: int, distance: float, height: float) -> Camera:
    """A camera that follows a body from above.

    Args:
        body: the number of the body.
        distance: how far the camera is from the point that it looks at, m.
        height: of that point, m.
    """
    lookat = (0.0, 0.0, height)
    return {"trackbodyid": body, "distance": distance, "lookat": lookat, "elevation": -20.0}


def symmetric(key: Key, shape: tuple[int, ...]) -> Array:
    """Uniform draws from `[-1, 1)`."""
    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


def sum_of_squares(values: ArrayLike) -> Array:
    """The sum of the squares of all elements, `()`."""
    return jnp.sum(jnp.square(values))


def within(values: Array, limits: Range) -> Array:
    """Whether every value lies between the two limits and on neither, `()` bool."""
    low, high = limits
    return jnp.all((low < values) & (values < high))
