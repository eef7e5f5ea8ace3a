"""Disturbances: sensor noise, actuator noise and delay, random pushes, as a task around a task.

With a `Domain`, they prepare a policy for a real robot: Tan et al. (2018), "Sim-to-real: learning
agile locomotion for quadruped robots", and Peng et al. (2018), "Sim-to-real transfer of robotic
control with dynamics randomization". Each disturbance is a set of pure functions; its state (random
numbers, delayed actions, the present push) is part of the task's memory.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import STATE, part_named
from worldline.env.task import Outcome, Start, Task, inputs_of
from worldline.env.wrapped import WrappedTask, of_task
from worldline.errors import TaskError, did_you_mean
from worldline.model import ModelSource
from worldline.physics.base import PhysicsState
from worldline.types import Array, Key, Observation, PyTree, Variation
from worldline.variation.distributions import Distribution, Uniform
from worldline.variation.domain import Ranges


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disturbance(abc.ABC):
    """One disturbance of a world. A subclass overrides `act`, `observe` or `push`.

    All are pure functions of one world. `memory` is the disturbance's own; its structure never
    changes.
    """

    def check(self, task: Task) -> None:  # noqa: B027 # most disturbances suit every task
        """Checks that the disturbance fits a task.

        Raises:
            WorldlineError: it does not fit.
        """

    @abc.abstractmethod
    def start(self, task: Task, key: Key) -> PyTree:
        """The memory at the start of an episode."""

    @abc.abstractmethod
    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """The memory after a control step in which the policy chose `action`, `(nact,)`."""

    def act(self, task: Task, memory: PyTree, action: Array) -> Array:
        """The action that reaches the actuators, `(nact,)`."""
        return action

    def observe(self, task: Task, memory: PyTree, obs: Observation) -> Observation:
        """The observation that reaches the policy."""
        return obs

    def push(self, task: Task, memory: PyTree) -> Array | None:
        """A force and a torque on each body, `(nbody, 6)` in N and N m along the world's axes."""
        return None


class _Stream(eqx.Module):
    """A stream of random keys, stored as their data.

    JAX's check for reused keys cannot follow a key through the selections that a world's memory
    passes through; it ignores a key's data.
    """

    now: Array
    """Data of the key of this control step."""
    later: Array
    """Data of the key that the later ones are split from."""

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
class _Noise(Disturbance):
    """Gaussian noise, drawn anew each control step; its memory is a `_Stream`."""

    std: float | Mapping[str, float]

    def __post_init__(self) -> None:
        deviations = self.std.values() if isinstance(self.std, Mapping) else (self.std,)
        if not all(np.isfinite(std) and std >= 0 for std in deviations):
            raise TaskError(f"{type(self).__name__} has std {self.std}; give 0 or more")

    def start(self, task: Task, key: Key) -> PyTree:
        return _Stream.begin(key)

    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        return cast(_Stream, memory).advance()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationNoise(_Noise):
    """Gaussian noise on the observation, drawn in each control step."""

    std: float | Mapping[str, float]
    """Standard deviation in the observation's units: one number for all keys except
    `privileged_state`, which a critic reads and no robot measures. Or numbers by name, for keys of
    a dict of observations and for parts of the `state` that the task names
    (`Task.observation_parts`), in the part's own unit; all other numbers stay exact."""

    def observe(self, task: Task, memory: PyTree, obs: Observation) -> Observation:
        """The observation with noise."""
        if not isinstance(obs, dict):
            if not isinstance(self.std, Mapping):
                return obs + self.std * jax.random.normal(memory.key, obs.shape, jnp.float32)
            if STATE in self.std or not task.observation_parts:
                raise TaskError(
                    "the task does not name the parts of its observation; give ObservationNoise "
                    "one number"
                )
            return self._by_name(task, memory, {STATE: obs})[STATE]
        return self._by_name(task, memory, obs)

    def _by_name(self, task: Task, memory: PyTree, obs: dict[str, Array]) -> dict[str, Array]:
        """A dict of observations with noise on keys, and on parts of its `state`."""
        measured = [name for name in obs if name != "privileged_state"]
        deviations = (
            self.std if isinstance(self.std, Mapping) else dict.fromkeys(measured, self.std)
        )
        keys = jax.random.split(memory.key, len(deviations))
        noisy = dict(obs)
        for (name, std), key in zip(deviations.items(), keys, strict=True):
            if name in obs:
                noise = jax.random.normal(key, obs[name].shape, jnp.float32)
                noisy[name] = noisy[name] + std * noise
                continue
            if not task.observation_parts.get(STATE):
                raise TaskError(f"the observation has no {name!r}{did_you_mean(name, obs)}")
            part, *place = part_named(task, name)[:3]
            noise = jax.random.normal(key, (part.size,), jnp.float32)
            noise = std * jnp.asarray(part.scale, jnp.float32) * noise
            noisy[STATE] = noisy[STATE].at[slice(*place)].add(noise)
        return noisy


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionNoise(_Noise):
    """Gaussian noise on the action, drawn in each control step; the result stays in the bounds."""

    std: float
    """Standard deviation, as a share of half the action range (of 1, if the action has no bounds).
    """

    def act(self, task: Task, memory: PyTree, action: Array) -> Array:
        """The action with noise."""
        low, high = (jnp.asarray(bound) for bound in task.action_bounds)
        half = jnp.where(jnp.isfinite(high - low), 0.5 * (high - low), 1.0)
        noise = self.std * half * jax.random.normal(memory.key, action.shape, jnp.float32)
        return jnp.clip(action + noise, low, high)


class _Delayed(NamedTuple):
    """Actions that have not reached the actuators yet."""

    recent: Array
    """The last actions, the newest first, `(longest, nact)`."""
    delay: Array
    """Control steps that each action of this episode is late, `()` int32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionDelay(Disturbance):
    """Actions are delayed by some steps; before the first one arrives, the action nearest to 0 is
    used.
    """

    steps: int | Distribution
    """Control steps of delay; a distribution (rounded) is drawn for each episode."""

    def __post_init__(self) -> None:
        low, high = self._support()
        if not 0 <= low <= high < 1000:
            raise TaskError(f"ActionDelay of {low:g} to {high:g} steps; give 0 to 999")

    def start(self, task: Task, key: Key) -> PyTree:
        """The delay of the episode, and the action nearest to 0 in place of earlier ones."""
        low, high = (jnp.asarray(bound) for bound in task.action_bounds)
        rest = jnp.clip(jnp.zeros_like(low), low, high)
        longest = max(1, round(self._support()[1]))
        delay = self.steps if isinstance(self.steps, int) else jnp.round(self.steps.sample(key))
        return _Delayed(jnp.tile(rest, (longest, 1)), jnp.asarray(delay).astype(jnp.int32))

    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """The actions, with the newest in front."""
        recent = jnp.concatenate([action[None], memory.recent[:-1]])
        return _Delayed(recent, memory.delay)

    def act(self, task: Task, memory: PyTree, action: Array) -> Array:
        """The action that was chosen `delay` steps ago."""
        return jnp.concatenate([action[None], memory.recent])[memory.delay]

    def _support(self) -> tuple[float, float]:
        if isinstance(self.steps, int):
            return self.steps, self.steps
        low, high = self.steps.support()
        return float(np.min(low)), float(np.max(high))


class _Push(NamedTuple):
    """The present push, or the next one."""

    stream: _Stream
    wait: Array
    """Seconds until it begins, `()`; 0 or less during the push."""
    force: Array
    """`(3,)` N."""


#: Times that differ by less than this are equal, in seconds.
_INSTANT = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pushes(Disturbance):
    """Pushes a body at random times in random horizontal directions (`xfrc_applied`)."""

    body: str
    """The name of the body. The force acts at its centre of mass."""
    force: Distribution
    """The size of the force, in N."""
    every: Distribution = dataclasses.field(default_factory=lambda: Uniform(2.0, 4.0))
    """Seconds from the end of one push, or from the start of the episode, to the next."""
    duration: float = 0.1
    """Seconds that a push lasts."""

    def __post_init__(self) -> None:
        if not self.duration > 0:
            raise TaskError(f"Pushes of {self.duration} s; give a duration above 0")

    def check(self, task: Task) -> None:
        """Checks that the model has the body."""
        task.model.id("body", self.body)

    def start(self, task: Task, key: Key) -> PyTree:
        """The first push of the episode."""
        return self._draw(_Stream.begin(key))

    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """The push after one control step; after its end, the next push."""
        wait = memory.wait - task.control_timestep
        over = wait <= _INSTANT - self.duration
        waiting, fresh = memory._replace(wait=wait), self._draw(memory.stream.advance())
        return jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, waiting)

    def push(self, task: Task, memory: PyTree) -> Array | None:
        """The force during the push, else 0."""
        force = jnp.where(memory.wait <= _INSTANT, memory.force, 0.0)
        model = task.model
        forces = jnp.zeros((model.mj.nbody, 6), jnp.float32)
        return forces.at[model.id("body", self.body), :3].set(force)

    def _draw(self, stream: _Stream) -> _Push:
        wait_key, force_key, angle_key = jax.random.split(stream.key, 3)
        angle = jax.random.uniform(angle_key, (), jnp.float32, maxval=2 * jnp.pi)
        direction = jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)])
        force = self.force.sample(force_key) * direction
        return _Push(stream, self.every.sample(wait_key), force)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Disturbed(WrappedTask):
    """A task with disturbances: `Disturbed(task=..., disturbances=(Pushes(...), ...))`.

    The task's reward uses the action that the policy chose, and the undisturbed state.
    """

    disturbances: tuple[Disturbance, ...]
    """Actions and observations both pass through them in this order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for disturbance in self.disturbances:
            disturbance.check(self.task)

    observation_parts = of_task("observation_parts")

    def mjcf(self) -> ModelSource:
        """The task's model."""
        return self.task.model

    def start(self, key: Key) -> Start:
        """The task's start; the memory is the task's and each disturbance's."""
        return self._remembering(key, self.task.start)

    def start_within(self, key: Key, ranges: Ranges) -> Start:
        """The task's start from ranges, with the memory of `start`."""
        return self._remembering(key, functools.partial(self.task.start_within, ranges=ranges))

    def _remembering(self, key: Key, begin: Callable[[Key], Start]) -> Start:
        key, *keys = jax.random.split(key, 1 + len(self.disturbances))
        start = begin(key)
        memories = [d.start(self.task, k) for d, k in zip(self.disturbances, keys, strict=True)]
        return dataclasses.replace(start, memory=(start.memory, tuple(memories)))

    def place(self, start: Start, variation: Variation) -> Start:
        """The task's start in its world."""
        memory, own = start.memory
        placed = self.task.place(dataclasses.replace(start, memory=memory), variation)
        return dataclasses.replace(placed, memory=(placed.memory, own))

    def tally(self, memory: PyTree, terminated: Array) -> PyTree:
        """The task's."""
        return self.task.tally(memory[0], terminated)

    def control(self, action: Array, physics: PhysicsState, memory: PyTree) -> dict[str, Array]:
        """The task's control for the disturbed action, and the forces of the pushes."""
        memory, disturbances = self._split(memory)
        push = None
        for disturbance, own in disturbances:
            action = disturbance.act(self.task, own, action)
            force = disturbance.push(self.task, own)
            if force is not None:
                push = force if push is None else push + force
        inputs = dict(inputs_of(self.task, action, physics, memory))
        if push is not None:
            inputs["xfrc_applied"] = inputs.get("xfrc_applied", 0.0) + push
        return inputs

    def observe(self, physics: PhysicsState, memory: PyTree) -> Observation:
        """The task's observation after all disturbances."""
        memory, disturbances = self._split(memory)
        obs = self.task.observe(physics, memory)
        for disturbance, own in disturbances:
            obs = disturbance.observe(self.task, own, obs)
        return obs

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """The task's outcome for the action that the policy chose."""
        memory, disturbances = self._split(memory)
        outcome = self.task.outcome(before, action, after, memory)
        moved = tuple(d.next(self.task, own, action) for d, own in disturbances)
        return dataclasses.replace(outcome, memory=(outcome.memory, moved))

    def _split(self, memory: PyTree) -> tuple[PyTree, list[tuple[Disturbance, PyTree]]]:
        """The task's memory, and each disturbance with its own."""
        memory, owned = memory
        return memory, list(zip(self.disturbances, owned, strict=True))


#: The disturbances by their names in a file, which stay when a class is renamed.
DISTURBANCES: Mapping[str, type[Disturbance]] = {
    "observation_noise": ObservationNoise,
    "action_noise": ActionNoise,
    "action_delay": ActionDelay,
    "pushes": Pushes,
}


def disturbed(task: Task, disturbances: Sequence[Disturbance]) -> Task:
    """The task with further disturbances; the task itself where there are none."""
    plain, earlier = undisturbed(task)
    inner, together = plain.to_run(), (*earlier, *disturbances)
    return Disturbed(task=inner, disturbances=together) if together else inner


def undisturbed(task: Task) -> tuple[Task, tuple[Disturbance, ...]]:
    """The task without its disturbances, and the disturbances; episodes keep their length."""
    if not isinstance(task, Disturbed):
        return task.plain, ()
    inner, earlier = undisturbed(task.task)
    if inner.episode_length != task.episode_length:
        inner = dataclasses.replace(inner, episode_length=task.episode_length)
    return inner, earlier + task.disturbances
