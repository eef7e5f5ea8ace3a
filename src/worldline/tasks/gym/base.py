"""What Gymnasium's MuJoCo tasks share: the model files, the options, the starts."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp

from worldline.env.task import Start, Task
from worldline.errors import TaskError
from worldline.model import Model
from worldline.types import Array, ArrayLike, Key

#: Attributes of `mujoco.MjvCamera`: `distance` (m), `azimuth` and `elevation` (degrees), `lookat`
#: (m), `trackbodyid`.
Camera: TypeAlias = Mapping[str, Any]

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
    frame_skip: int
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
class Locomotion(GymTask):
    """A robot that can leave the place where it starts, and is charged for what its motors do."""

    ctrl_cost_weight: float
    """Cost of the sum of the squared actions."""
    reset_noise_scale: float
    """Size of the random change to the default state at a start: m, rad, m/s, rad/s."""
    exclude_current_positions_from_observation: bool = True
    """Leave the robot's place in the world (x, or x and y) out of the observation."""


def assets() -> Path:
    """The folder of the MJCF files of the installed Gymnasium, found without importing it."""
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or not spec.submodule_search_locations:
        raise TaskError("the gym/* tasks load their models from Gymnasium: pip install gymnasium")
    return Path(spec.submodule_search_locations[0]) / "envs" / "mujoco" / "assets"


def noisy_start(model: Model, key: Key, scale: float, *, normal_velocity: bool = False) -> Start:
    """The model's default state with noise on every coordinate.

    Args:
        model: the model.
        key: consumed.
        scale: positions change by a uniform draw from `[-scale, scale)`, and so do velocities.
        normal_velocity: velocities are normal with standard deviation `scale` instead.
    """
    position, velocity = jax.random.split(key)
    draw = jax.random.normal if normal_velocity else symmetric
    return Start(
        qpos=jnp.asarray(model.qpos0) + scale * symmetric(position, (model.nq,)),
        qvel=scale * draw(velocity, (model.nv,)),
    )


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
