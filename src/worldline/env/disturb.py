"""Disturbances: sensor noise, actuator noise and delay, random pushes, as a task around a task.

The other half of what sim-to-real needs beside a `Domain`: Tan et al. (2018), "Sim-to-real:
learning agile locomotion for quadruped robots", and Peng et al. (2018), "Sim-to-real transfer of
robotic control with dynamics randomization". Each piece is pure, and what it remembers (its random
numbers, the actions under way, the push that lasts) is part of the world's memory.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Outcome, Start, Task
from worldline.errors import TaskError, did_you_mean
from worldline.model import ModelSource
from worldline.physics.base import PhysicsState
from worldline.types import Array, Key, Observation, PyTree
from worldline.variation.distributions import Distribution, Uniform
from worldline.variation.domain import AbstractDomain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disturbance(abc.ABC):
    """One thing that goes wrong in a world. A subclass changes one of the three functions.

    All are pure functions of one world. `memory` is this piece's own; its structure never changes.
    """

    def check(self, task: Task) -> None:  # noqa: B027 # most can disturb any
        """Refuses a task that it cannot disturb.

        Raises:
            TaskError: with the mend.
        """

    @abc.abstractmethod
    def start(self, task: Task, key: Key) -> PyTree:
        """Its memory at the start of an episode."""

    @abc.abstractmethod
    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """Its memory after a control step in which the policy chose `action`."""

    def act(self, task: Task, memory: PyTree, action: Array) -> Array:
        """The action that reaches the actuators, `(nact,)`."""
        del task, memory
        return action

    def observe(self, task: Task, memory: PyTree, obs: Observation) -> Observation:
        """The observation that reaches the policy."""
        del task, memory
        return obs

    def push(self, task: Task, memory: PyTree) -> Array | None:
        """A force and a torque on each body, `(nbody, 6)` in N and N m along the world's axes."""
        del task, memory
        return None


class _Stream(eqx.Module):
    """A stream of random numbers: words of a key for now, and of one for what comes after.

    Words and not keys: a world's memory passes through selections in which JAX's check for keys
    used twice cannot follow a key.
    """

    now: Array
    later: Array

    @classmethod
    def begin(cls, key: Key) -> _Stream:
        now, later = jax.random.split(key)
        return cls(jax.random.key_data(now), jax.random.key_data(later))

    def advance(self) -> _Stream:
        return self.begin(jax.random.wrap_key_data(self.later))

    @property
    def key(self) -> Key:
        return jax.random.wrap_key_data(self.now)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationNoise(Disturbance):
    """Gaussian noise on the observation, anew each control step."""

    std: float | Mapping[str, float]
    """Standard deviation in the observation's units; by key where the observation is a dict, whose
    other keys stay exact."""

    def __post_init__(self) -> None:
        deviations = self.std.values() if isinstance(self.std, Mapping) else (self.std,)
        if not all(np.isfinite(std) and std >= 0 for std in deviations):
            raise TaskError(f"ObservationNoise has std {self.std}; give 0 or more")

    def start(self, task: Task, key: Key) -> PyTree:
        """A stream of random numbers."""
        del task
        return _Stream.begin(key)

    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """The stream moved on."""
        del task, action
        return cast(_Stream, memory).advance()

    def observe(self, task: Task, memory: PyTree, obs: Observation) -> Observation:
        """The observation with noise."""
        del task
        if not isinstance(obs, dict):
            if isinstance(self.std, Mapping):
                raise TaskError("the observation is an array; give ObservationNoise one number")
            return obs + self.std * jax.random.normal(memory.key, obs.shape)
        deviations = self.std if isinstance(self.std, Mapping) else dict.fromkeys(obs, self.std)
        for name in deviations:
            if name not in obs:
                raise TaskError(f"the observation has no {name!r}{did_you_mean(name, obs)}")
        keys = jax.random.split(memory.key, len(deviations))
        noisy = {
            name: obs[name] + std * jax.random.normal(key, obs[name].shape)
            for (name, std), key in zip(deviations.items(), keys, strict=True)
        }
        return {**obs, **noisy}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionNoise(Disturbance):
    """Gaussian noise on the action, anew each control step; the result stays in the bounds."""

    std: float
    """Standard deviation, as a share of half the action range (of 1, where it has no bounds)."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.std) and self.std >= 0):
            raise TaskError(f"ActionNoise has std {self.std}; give 0 or more")

    def start(self, task: Task, key: Key) -> PyTree:
        """A stream of random numbers."""
        del task
        return _Stream.begin(key)

    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """The stream moved on."""
        del task, action
        return cast(_Stream, memory).advance()

    def act(self, task: Task, memory: PyTree, action: Array) -> Array:
        """The action with noise."""
        low, high = (jnp.asarray(bound) for bound in task.action_bounds)
        half = jnp.where(jnp.isfinite(high - low), 0.5 * (high - low), 1.0)
        noise = self.std * half * jax.random.normal(memory.key, action.shape)
        return jnp.clip(action + noise, low, high)


class _Line(NamedTuple):
    """Actions under way."""

    recent: Array
    """The last actions, the newest first, `(longest, nact)`."""
    delay: Array
    """How many control steps an action takes in this episode, `()` int32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionDelay(Disturbance):
    """Actions arrive some steps late; before the first one, the action nearest to 0 holds."""

    steps: int | Distribution
    """Control steps of delay; a distribution (rounded) is drawn for each episode."""

    def __post_init__(self) -> None:
        low, high = self._support()
        if not 0 <= low <= high < 1000:
            raise TaskError(f"ActionDelay of {low:g} to {high:g} steps; give 0 to 999")

    def start(self, task: Task, key: Key) -> PyTree:
        """The delay, and no action yet."""
        low, high = (jnp.asarray(bound) for bound in task.action_bounds)
        rest = jnp.clip(jnp.zeros_like(low), low, high)
        longest = max(1, round(self._support()[1]))
        delay = self.steps if isinstance(self.steps, int) else jnp.round(self.steps.sample(key))
        return _Line(jnp.tile(rest, (longest, 1)), jnp.asarray(delay).astype(jnp.int32))

    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """The newest action in line."""
        del task
        recent = jnp.concatenate([action[None], memory.recent[:-1]])
        return _Line(recent, memory.delay)

    def act(self, task: Task, memory: PyTree, action: Array) -> Array:
        """The action that was chosen `delay` steps ago."""
        del task
        return jnp.concatenate([action[None], memory.recent])[memory.delay]

    def _support(self) -> tuple[float, float]:
        if isinstance(self.steps, int):
            return self.steps, self.steps
        low, high = self.steps.support()
        return float(np.min(low)), float(np.max(high))


class _Push(NamedTuple):
    """The push under way, or the wait for the next."""

    stream: _Stream
    wait: Array
    """Seconds until it begins; below 0 it lasts, `()`."""
    force: Array
    """`(3,)` N."""


#: Rounding of times, in seconds.
_INSTANT = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pushes(Disturbance):
    """A body is pushed at random times in a random horizontal direction (`xfrc_applied`)."""

    body: str
    """The body, at its centre of mass."""
    force: Distribution
    """Of the push, in N."""
    every: Distribution = dataclasses.field(default_factory=lambda: Uniform(2.0, 4.0))
    """Seconds from the end of one push, or from the start of the episode, to the next."""
    duration: float = 0.1
    """Seconds that a push lasts."""

    def __post_init__(self) -> None:
        if not self.duration > 0:
            raise TaskError(f"Pushes of {self.duration} s; give a duration above 0")

    def check(self, task: Task) -> None:
        """Refuses a task whose model has no such body."""
        task.model.id("body", self.body)

    def start(self, task: Task, key: Key) -> PyTree:
        """The first push to come."""
        del task
        return self._drawn(_Stream.begin(key))

    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """A control step nearer to the next push, or through this one."""
        del action
        wait = memory.wait - task.control_timestep
        over = wait <= _INSTANT - self.duration
        waiting, fresh = memory._replace(wait=wait), self._drawn(memory.stream.advance())
        return jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, waiting)

    def push(self, task: Task, memory: PyTree) -> Array | None:
        """The force while the push lasts."""
        force = jnp.where(memory.wait <= _INSTANT, memory.force, 0.0)
        model = task.model
        forces = jnp.zeros((model.mj.nbody, 6))
        return forces.at[model.id("body", self.body), :3].set(force)

    def _drawn(self, stream: _Stream) -> _Push:
        wait_key, force_key, angle_key = jax.random.split(stream.key, 3)
        angle = jax.random.uniform(angle_key, maxval=2 * jnp.pi)
        direction = jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)])
        force = self.force.sample(force_key) * direction
        return _Push(stream, self.every.sample(wait_key), force)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Disturbed(Task):
    """A task whose worlds are disturbed: `Disturbed(task=..., disturbances=(Pushes(...), ...))`.

    The task itself is judged as before: its reward sees the action that the policy chose, and
    the undisturbed state.
    """

    task: Task
    """The task."""
    disturbances: tuple[Disturbance, ...]
    """What goes wrong. Actions pass through them in order, and observations."""
    episode_length: int = -1
    """Control steps after which an episode is truncated; 0 for no limit; -1: the task's own."""

    def __post_init__(self) -> None:
        if self.episode_length == -1:
            object.__setattr__(self, "episode_length", self.task.episode_length)
        for disturbance in self.disturbances:
            disturbance.check(self.task)

    @property
    def refresh(self) -> bool:  # type: ignore[override] # a constant of the class elsewhere
        """As the task has it."""
        return self.task.refresh

    @property
    def defaults(self) -> Mapping[str, Mapping[str, Any]]:  # type: ignore[override] # alike
        """As the task has them."""
        return self.task.defaults

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """The task's."""
        return self.task.domains

    @property
    def control_timestep(self) -> float:
        """Seconds between two actions."""
        return self.task.control_timestep

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the task reads."""
        return self.task.fields

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes that the task reads."""
        return self.task.changes

    @property
    def action_bounds(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The task's."""
        return self.task.action_bounds

    @property
    def camera(self) -> Mapping[str, Any]:
        """The task's."""
        return self.task.camera

    def mjcf(self) -> ModelSource:
        """The task's model."""
        return self.task.model

    def start(self, key: Key) -> Start:
        """The task's start; the memory is the task's and each disturbance's."""
        key, *keys = jax.random.split(key, 1 + len(self.disturbances))
        start = self.task.start(key)
        pieces = [d.start(self.task, k) for d, k in zip(self.disturbances, keys, strict=True)]
        return dataclasses.replace(start, memory=(start.memory, tuple(pieces)))

    def control(
        self, action: Array, physics: PhysicsState, memory: PyTree
    ) -> Array | dict[str, Array]:
        """What the disturbed action makes the actuators do, and the pushes."""
        memory, pieces = memory
        push = None
        for disturbance, piece in zip(self.disturbances, pieces, strict=True):
            action = disturbance.act(self.task, piece, action)
            force = disturbance.push(self.task, piece)
            if force is not None:
                push = force if push is None else push + force
        controls = self.task.control(action, physics, memory)
        if push is None:
            return controls
        inputs = controls if isinstance(controls, Mapping) else {"ctrl": controls}
        return {**inputs, "xfrc_applied": inputs.get("xfrc_applied", 0.0) + push}

    def observe(self, physics: PhysicsState, memory: PyTree) -> Observation:
        """What is left of the task's observation."""
        memory, pieces = memory
        obs = self.task.observe(physics, memory)
        for disturbance, piece in zip(self.disturbances, pieces, strict=True):
            obs = disturbance.observe(self.task, piece, obs)
        return obs

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """The task's own judgement."""
        memory, pieces = memory
        outcome = self.task.outcome(before, action, after, memory)
        moved = tuple(
            disturbance.next(self.task, piece, action)
            for disturbance, piece in zip(self.disturbances, pieces, strict=True)
        )
        return dataclasses.replace(outcome, memory=(outcome.memory, moved))
