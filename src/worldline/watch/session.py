"""Session: worlds that somebody watches and changes while they run. It needs no browser."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.disturb import undisturbed
from worldline.env.env import Env
from worldline.env.episodes import WorldsState
from worldline.env.worlds import Worlds
from worldline.learn.policy import Policy
from worldline.physics.base import PhysicsState
from worldline.rendering.scene import CONSTANTS
from worldline.types import Array, Key, PyTree
from worldline.watch.hand import with_forces
from worldline.watch.knobs import Knob, Knobs, NDArray
from worldline.watch.source import Source

#: How the worlds act: as the policy does, by its random draws, not at all, at random, or as the
#: sliders say.
Acting: TypeAlias = Literal["policy", "policy, random draws", "rest", "random", "sliders"]

#: How long the history is that can be saved as a clip, in seconds.
HISTORY_S = 10.0


@dataclasses.dataclass(frozen=True)
class Seen:
    """What there is to show of B worlds after a step, on the host."""

    qpos: NDArray
    """`(B, nq)`"""
    qvel: NDArray
    """`(B, nv)`"""
    reward: NDArray
    """The last step's, `(B,)`."""
    episode_return: NDArray
    """`(B,)`"""
    steps: NDArray
    """Control steps of the present episodes, `(B,)`."""
    metrics: Mapping[str, NDArray]
    """The task's, `(B,)` each."""
    action: NDArray
    """The last, `(B, nact)`."""
    ended: NDArray
    """Whether the last step ended an episode, `(B,)` bool."""
    diverged: NDArray
    """Whether it did so because the simulation failed, `(B,)` bool."""
    shown: Mapping[str, NDArray]
    """What a picture depends on beside `qpos`: mocap bodies, constants, `(B, ...)` each."""


class Session:
    """B worlds with knobs, forces and a policy that may be replaced while they run.

    Nothing here compiles twice: policies of one shape, knobs, forces and commands are arguments of
    one program. A policy of another shape, and a field that did not vary before, compile anew.

    Args:
        source: what to watch.
        num_worlds: B.
        seed: decides the starts.
    """

    def __init__(self, source: Source, num_worlds: int, seed: int = 0) -> None:
        self.env = source.env
        self.worlds = Worlds(source.env, num_worlds, adaptive=False)
        self.knobs = Knobs(source.env, num_worlds, source.domains)
        self.num_worlds = num_worlds
        self.policy: Policy | None = None
        self.acting: Acting = "rest"
        #: The action with which worlds rest, and the one of the sliders, `(nact,)`.
        self.rest = rest_of(source.env)
        self.sliders = self.rest.copy()
        self.forces = np.zeros((num_worlds, source.env.model.mj.nbody, 6), np.float32)
        #: Numbers of the task's memory that are held: name to `(B, n)`, NaN where they are free.
        self.held: dict[str, NDArray] = {}
        self.time_limit = True
        self._advance = jax.jit(self._program)
        self._vary = jax.jit(self._with_constants)
        self.history: collections.deque[tuple[NDArray, dict[str, NDArray]]] = collections.deque(
            maxlen=max(1, round(HISTORY_S / source.env.control_timestep))
        )
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Begins new episodes in all worlds; knobs stay as they are."""
        self.seed, self.taken = seed, 0
        self._noise = jax.random.key(seed)
        variation: Any = self.knobs.variation
        self.state = self.worlds.reset(jax.random.key(seed), variation, self.knobs.context)
        self._begin()

    def resume_from(self, state: WorldsState) -> None:
        """Goes on from a state of these worlds."""
        self.state = state
        self._begin()

    def _begin(self) -> None:
        self.memory = () if self.policy is None else self.policy.start(self.num_worlds)
        self.forces[:] = 0
        self.history.clear()
        nothing = np.zeros(self.num_worlds, bool)
        action = np.tile(self.rest, (self.num_worlds, 1))
        reward = np.zeros(self.num_worlds, np.float32)
        metrics = dict.fromkeys(self.env.task_specs.metrics, reward)
        self.seen = self._look(self.state, (reward, metrics, action, nothing, nothing))

    def use(self, policy: Policy) -> None:
        """Acts with a policy from now on."""
        first = self.policy is None
        self.policy, self.memory = policy, policy.start(self.num_worlds)
        if first:
            self.acting = "policy"

    def step(self) -> Seen:
        """Takes one control step in every world."""
        self._noise, key = jax.random.split(self._noise)
        follows = self.acting.startswith("policy") and self.policy is not None
        limit = None if self.time_limit else np.zeros(self.num_worlds, np.int32)
        self.state, self.memory, outcome = self._advance(
            self.state,
            self.memory,
            self.policy if follows else None,
            key if self.acting == "policy, random draws" else None,
            None if follows else self._actions(),
            self.forces,
            self.held,
            limit,
        )
        self.taken += 1
        self.seen = self._look(self.state, outcome)
        self.history.append((self.seen.qpos, dict(self.seen.shown)))
        return self.seen

    def turn(self, name: str, value: float | NDArray, worlds: list[int] | None = None) -> None:
        """Turns a knob, and gives the worlds the constants that follow.

        Raises:
            VariationError: the model cannot have this value; nothing has changed.
        """
        self.knobs.set(name, value, worlds)
        self.vary()

    def vary(self) -> None:
        """Gives the worlds what the knobs say, in the middle of their episodes."""
        self.state = self._vary(self.state, self.knobs.variation, self.knobs.context)

    def add_field(self, field: str, row: int, element: int) -> Knob:
        """A new knob for an element of a field; the next step compiles anew if it did not vary.

        Raises:
            VariationError: as `Knobs.add_field`.
        """
        known = set(self.knobs.fields)
        knob = self.knobs.add_field(field, row, element)
        if set(self.knobs.fields) != known:
            added = {field: jnp.asarray(self.knobs.variation[field])}
            fixed, context = self.state.fixed
            physics = self.state.env.physics
            grown = dataclasses.replace(physics, variation={**physics.variation, **added})
            env = dataclasses.replace(self.state.env, physics=grown)
            both = ({**fixed, **added}, context)
            self.state = dataclasses.replace(self.state, env=env, fixed=both)
            self.vary()
        return knob

    def begin_again(self, world: int) -> None:
        """Begins a new episode in one world."""
        mask = np.arange(self.num_worlds) == world
        self.state = self.worlds.reset_where(self.state, mask)

    def _actions(self) -> NDArray:
        if self.acting == "random":
            low, high = self.env.action_low, self.env.action_high
            low, high = np.maximum(low, -1e3), np.minimum(high, 1e3)
            random = np.random.default_rng((self.seed, self.taken))
            drawn = random.uniform(low, high, (self.num_worlds, *low.shape))
            return drawn.astype(np.float32)
        action = self.sliders if self.acting == "sliders" else self.rest
        return np.tile(action, (self.num_worlds, 1))

    def _program(
        self,
        state: WorldsState,
        memory: PyTree,
        policy: Policy | None,
        key: Key | None,
        action: Array | None,
        forces: Array,
        held: dict[str, Array],
        limit: Array | None,
    ) -> tuple[WorldsState, PyTree, PyTree]:
        """One control step of all worlds: a pure function, compiled once a kind of policy."""
        state = with_forces(self._commanded(state, held), forces)
        if limit is not None:
            state = dataclasses.replace(state, limit=limit)
        if policy is not None:
            action, memory = policy.step(state.obs, memory, key)
        assert action is not None
        after, step = self.worlds.step(state, action)
        ended = step.terminated | step.truncated
        if policy is not None:
            memory = policy.restart(memory, ended)
        metrics = {name: step.metrics[name] for name in self.env.task_specs.metrics}
        return after, memory, (step.reward, metrics, action, ended, step.metrics["diverged"])

    def _commanded(self, state: WorldsState, held: dict[str, Array]) -> WorldsState:
        """The worlds with the numbers of their memory that are held."""

        def put(path: Any, leaf: Array) -> Array:
            value = held.get(jax.tree_util.keystr(path))
            if value is None:
                return leaf
            value = value.reshape(leaf.shape)
            return jnp.where(jnp.isnan(value), leaf, value)

        task_memory, others = state.env.memory
        memory = jax.tree_util.tree_map_with_path(put, task_memory), others
        return dataclasses.replace(state, env=dataclasses.replace(state.env, memory=memory))

    def _with_constants(
        self, state: WorldsState, variation: dict[str, Array], context: dict[str, Array]
    ) -> WorldsState:
        env = jax.vmap(self.env.vary)(state.env, variation, context)
        return dataclasses.replace(state, env=env, fixed=(variation, context))

    def _look(self, state: WorldsState, outcome: Any) -> Seen:
        physics = state.env.physics
        shown = shown_of(physics)
        parts = (physics.qpos, physics.qvel, state.episode_return, state.steps, shown, outcome)
        qpos, qvel, total, steps, shown, outcome = jax.device_get(parts)
        reward, metrics, action, ended, diverged = outcome
        return Seen(
            qpos, qvel, reward, total, steps, metrics, np.asarray(action), ended, diverged, shown
        )


def rest_of(env: Env) -> NDArray:
    """The action with which a world of an environment rests, `(nact,)`."""
    low, high = env.action_low, env.action_high
    rest = getattr(undisturbed(env.task)[0], "rest", np.zeros_like(low))
    return np.clip(rest, low, high).astype(np.float32)


def shown_of(physics: PhysicsState) -> dict[str, Array]:
    """What a picture of worlds depends on beside `qpos`: mocap bodies and constants."""
    shown = {n: x for n, x in physics.fields.items() if n.startswith("mocap")}
    return shown | {n: x for n, x in physics.variation.items() if n in CONSTANTS}


@dataclasses.dataclass(frozen=True)
class Command:
    """An array of the task's memory that its starts draw, such as a velocity to follow."""

    path: str
    """Where it is in the memory."""
    label: str
    """Its name, for a person."""
    low: NDArray
    """The lowest value that starts have, flat."""
    high: NDArray
    """The highest value that starts have, flat."""


def commands_of(session: Session, most: int = 6) -> list[Command]:
    """The small arrays of real numbers in the task's memory that differ from start to start."""
    task = undisturbed(session.env.task)[0]
    keys = jax.random.split(jax.random.key(0), 256)
    memories = jax.device_get(jax.jit(jax.vmap(lambda key: task.start(key).memory))(keys))
    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(memories)[0]:
        values = leaf.reshape(len(leaf), -1)
        small = values.dtype.kind == "f" and 1 <= values.shape[1] <= most
        if small and np.ptp(values, axis=0).any():
            label = jax.tree_util.keystr(path, simple=True, separator=".") or "command"
            place = jax.tree_util.keystr(path)
            found.append(Command(place, label, values.min(axis=0), values.max(axis=0)))
    return found
