"""Environments of Brax and MuJoCo Playground as tasks: `brax:ant`, or one that somebody made."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.env import Env
from worldline.env.task import Outcome, Start, Task
from worldline.errors import ConfigError, MissingExtraError, TaskError, did_you_mean
from worldline.physics.base import PhysicsState
from worldline.physics.brax import SystemModel
from worldline.types import Array, Key, Observation, PyTree
from worldline.variation.domain import AbstractDomain


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BraxTask(Task):
    """An environment of Brax or MuJoCo Playground as a task; its engine is `"brax"`."""

    name: str = ""
    """The environment's name in Brax; empty where `env` is given."""
    backend: str = ""
    """The backend of an environment by name; empty for its own choice."""
    env: Any = None
    """An environment that somebody made."""

    @functools.cached_property
    def model(self) -> SystemModel:
        """The environment's system."""
        made = self.env
        if made is None:
            made = _named(self.name, {"backend": self.backend} if self.backend else {})
        return SystemModel(made)

    @property
    def control_timestep(self) -> float:
        """Seconds of a step of the environment."""
        return self.model.timestep

    @property
    def fields(self) -> tuple[str, ...]:
        """All that the environment tells of a step."""
        return tuple(self.model.readings)

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """None: which fields an environment reads, and what they should be, its user knows."""
        return {}

    def mjcf(self) -> mujoco.MjModel:
        """The model that the environment was made of."""
        return self.model.mj

    def start(self, key: Key) -> Start:
        """The key from which the environment draws its start."""
        nothing, words = np.zeros(0, np.float32), jax.random.key_data(key)
        # Brax's keys are of two words; those of other generators have more.
        return Start(jnp.asarray(nothing), jnp.asarray(nothing), inputs={"userdata": words[:2]})

    def observe(self, physics: PhysicsState, memory: PyTree) -> Observation:
        """The environment's observation."""
        if "obs" in physics.fields:
            return physics.fields["obs"]
        return _below("obs/", physics)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """The environment's reward, `done` and metrics."""
        numbers = after.fields
        done = numbers["done"] > 0.5
        return Outcome(numbers["reward"], done, metrics=_below("metrics/", after))


def brax_env(env: Any, episode_length: int = 1000) -> Env:
    """An environment of Brax or MuJoCo Playground as one of ours: what `BraxWorlds` has copies of.

    Args:
        env: a `brax.envs.Env` or an `MjxEnv`, not wrapped for training.
        episode_length: steps after which an episode is truncated; 0 for no limit.

    Raises:
        ConfigError: it is wrapped for training, or is no such environment.
    """
    return Env(BraxTask(env=env, episode_length=episode_length), "brax")


def brax_by_name(name: str) -> Env:
    """The environment that `brax.envs.get_environment(name)` makes, as one of ours.

    Raises:
        TaskError: Brax has no such environment.
        MissingExtraError: Brax is not installed.
        ConfigError: its version and JAX's do not fit.
    """
    return Env(BraxTask(name=name), "brax")


def import_brax(module: str) -> Any:
    """A module of Brax.

    Raises:
        MissingExtraError: Brax is not installed.
        ConfigError: its version refuses that of JAX or MuJoCo.
    """
    try:
        importlib.import_module("brax")
        return importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "brax":
            raise MissingExtraError("the Brax bridge", "brax") from error
        versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("brax", "jax"))
        raise ConfigError(
            f"{versions} do not work together ({type(error).__name__}: {error}); "
            "pip install 'brax>=0.14.2,<0.15'"
        ) from error


def _named(name: str, options: Mapping[str, Any]) -> Any:
    envs = import_brax("brax.envs")
    if name not in envs._envs:
        raise TaskError(f"Brax has no environment {name!r}{did_you_mean(name, envs._envs)}")
    return envs.get_environment(name, **options)


def _below(prefix: str, physics: PhysicsState) -> dict[str, Array]:
    """The fields whose names begin so, without that."""
    n = len(prefix)
    return {name[n:]: value for name, value in physics.fields.items() if name[:n] == prefix}
