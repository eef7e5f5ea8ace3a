"""Env: a task on an engine; one world as two pure functions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Outcome, Start, Task
from worldline.errors import ActionError, TaskError
from worldline.physics import Engine, make_physics
from worldline.physics.base import PhysicsState, Reads
from worldline.types import Array, ArrayLike, Key, Metrics, Observation, PyTree, Variation

if TYPE_CHECKING:
    from gymnasium import spaces


class EnvState(eqx.Module):
    """One world: a pytree. `Worlds` puts an axis `B` in front of every leaf."""

    physics: PhysicsState
    """The physics, `state.physics.qpos` and so on."""
    memory: PyTree
    """What the task carries."""
    obs: Observation
    """What to act on next."""
    reward: Array
    """The last step's reward, `()`; 0 after a reset."""
    terminated: Array
    """Whether the last step ended the episode for good, `()` bool."""
    diverged: Array
    """Whether the last step's simulation failed, `()` bool. Its reward is then 0 and its
    observation the last good one; the episode cannot go on."""
    metrics: Metrics
    """The task's named numbers, `()` each; zeros after a reset."""

    @property
    def variation(self) -> Variation:
        """The constants of this world that differ from the model's."""
        return self.physics.variation


class Env:
    """A task on an engine. `reset` and `step` are pure: `jit`, `vmap` and `scan` them at will.

    Args:
        task: what the world is worth.
        physics: the engine's name (`"native"`, `"fake"`), or a function that builds one from a
            model and the `Reads` of the task.

    Raises:
        TaskError: the task breaks its contract (a wrong shape, a memory that changes structure).
        ModelError: its control time step is no multiple of the model's, or the engine cannot run
            the model.
    """

    def __init__(self, task: Task, physics: Engine = "native") -> None:
        self.task = task
        self.model = task.model
        self.substeps = self.model.substeps(task.control_timestep)
        reads = Reads(tuple(task.fields), tuple(task.changes), task.refresh)
        self.physics = make_physics(physics, self.model, reads)
        low, high = (np.asarray(bound, np.float32) for bound in task.action_bounds)
        self.action_low, self.action_high = low, high
        self._metrics, self._obs = self._check_contract()

    def reset(
        self, key: Key, variation: Variation | None = None, *, mask: ArrayLike = True
    ) -> EnvState:
        """A world at the start of a new episode.

        Args:
            key: decides the start; `jax.random.key(seed)`.
            variation: constants of this world, MjModel field name to the whole field's value.
            mask: `()` bool; where False nothing is simulated and the result is unspecified.
        """
        return self._begin(self.task.start(key), variation, mask)

    def reset_to(
        self,
        key: Key,
        *,
        qpos: ArrayLike | None = None,
        qvel: ArrayLike | None = None,
        variation: Variation | None = None,
    ) -> EnvState:
        """A world at a given start; what is not given is drawn as in `reset`.

        Args:
            key: decides what is not given, the task's memory included.
            qpos: configuration, `(nq,)`.
            qvel: velocity, `(nv,)`.
            variation: as in `reset`.

        Raises:
            TaskError: a shape is wrong.
        """
        start = self.task.start(key)
        given = {"qpos": (qpos, self.model.nq), "qvel": (qvel, self.model.nv)}
        for name, (value, size) in given.items():
            if value is None:
                continue
            if np.shape(value) != (size,):
                raise TaskError(f"{name} has shape {np.shape(value)}; the model's is ({size},)")
            array = jnp.asarray(value, jnp.float32)
            start = eqx.tree_at(functools.partial(_attribute, name), start, array)
        return self._begin(start, variation, True)

    def step(self, state: EnvState, action: ArrayLike, *, mask: ArrayLike = True) -> EnvState:
        """The world one control step later.

        The step after the end of an episode is computed like any other: episodes are `Worlds`'s.

        Args:
            state: the world.
            action: `(nact,)`, in the units of `action_space`.
            mask: `()` bool; where False nothing is simulated and the result is unspecified.

        Raises:
            ActionError: a wrong shape or dtype; or not finite, where that can be seen (outside
                `jit`; inside, such a world is marked `diverged`).
        """
        action = self.check_action(action)
        inputs = self._inputs(action, state.physics, state.memory)
        physics = self.physics.step(state.physics, inputs, self.substeps, mask)
        outcome = self.task.outcome(state.physics, action, physics, state.memory)
        obs = self.task.observe(physics, outcome.memory)
        reward = jnp.asarray(outcome.reward, jnp.float32)
        healthy = ~physics.diverged & _all_finite((obs, reward)) & jnp.isfinite(action).all()

        def keep(new: PyTree, old: PyTree) -> PyTree:
            return jax.tree.map(lambda a, b: jnp.where(healthy, a, b), new, old)

        return EnvState(
            physics=physics,
            memory=keep(outcome.memory, state.memory),
            obs=keep(obs, state.obs),
            reward=jnp.where(healthy, reward, 0.0),
            terminated=jnp.asarray(outcome.terminated, bool) & healthy,
            diverged=~healthy,
            metrics=keep(_float32(outcome.metrics), self._zero_metrics()),
        )

    @functools.cached_property
    def action_space(self) -> spaces.Box:
        """The actions of one world, a `gymnasium.spaces.Box` of float32."""
        from gymnasium import spaces

        return spaces.Box(self.action_low, self.action_high, dtype=np.float32)

    @functools.cached_property
    def observation_space(self) -> spaces.Space[Any]:
        """The observations of one world: a `Box`, or a `Dict` of them."""
        from gymnasium import spaces

        def box(leaf: jax.ShapeDtypeStruct) -> spaces.Box:
            if leaf.dtype == np.uint8:
                return spaces.Box(0, 255, leaf.shape, np.uint8)
            return spaces.Box(-np.inf, np.inf, leaf.shape, leaf.dtype.type)

        if isinstance(self._obs, Mapping):
            return spaces.Dict({name: box(leaf) for name, leaf in self._obs.items()})
        return box(self._obs)

    def check_action(self, action: ArrayLike, lead: tuple[int, ...] = ()) -> Array:
        """An action as float32, after a check of its shape `(*lead, nact)`, dtype and values.

        Raises:
            ActionError: see `step`.
        """
        shape, wanted = np.shape(action), (*lead, *self.action_low.shape)
        if shape != wanted:
            raise ActionError(f"the action has shape {shape}; this environment takes {wanted}")
        array = action if isinstance(action, jax.Array) else np.asarray(action)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ActionError(f"the action has dtype {array.dtype}; give floating point numbers")
        if not isinstance(array, jax.core.Tracer):
            finite = np.isfinite(np.asarray(array))
            if not finite.all():
                where = tuple(int(i) for i in np.argwhere(~finite)[0])
                value = np.asarray(array)[where]
                raise ActionError(f"the action at index {where} is {value}; it must be finite")
        return jnp.asarray(array, jnp.float32)

    def _begin(self, start: Start, variation: Variation | None, mask: ArrayLike) -> EnvState:
        """The world at a start."""
        physics = self.physics.start(
            jnp.asarray(start.qpos, jnp.float32),
            jnp.asarray(start.qvel, jnp.float32),
            {} if variation is None else variation,
            start.inputs,
            mask,
        )
        return EnvState(
            physics=physics,
            memory=jax.tree.map(jnp.asarray, start.memory),
            obs=self.task.observe(physics, start.memory),
            reward=jnp.zeros(()),
            terminated=jnp.zeros((), bool),
            diverged=physics.diverged,
            metrics=self._zero_metrics(),
        )

    def _inputs(self, action: Array, physics: PhysicsState, memory: PyTree) -> Mapping[str, Array]:
        controls = self.task.control(action, physics, memory)
        return controls if isinstance(controls, Mapping) else {"ctrl": controls}

    def _zero_metrics(self) -> Metrics:
        return {name: jnp.zeros(spec.shape, jnp.float32) for name, spec in self._metrics.items()}

    def _check_contract(self) -> tuple[dict[str, Any], Any]:
        """Traces the task once, compares shapes; returns those of its metrics and observation."""
        task, model = self.task, self.model
        name = type(task).__name__
        start = jax.eval_shape(task.start, jax.random.key(0))
        if not isinstance(start, Start):
            raise TaskError(f"{name}.start gives a {type(start).__name__}; it must give a Start")
        for part, size in (("qpos", model.nq), ("qvel", model.nv)):
            shape = getattr(start, part).shape
            if shape != (size,):
                raise TaskError(
                    f"{name}.start gives {part} of shape {shape}; the model's is ({size},)"
                )
        self._check_inputs("start", start.inputs)

        def first_step(key: Key, action: Array) -> tuple[Mapping[str, Array], Outcome, Any, Any]:
            begin = task.start(key)
            physics = self.physics.start(begin.qpos, begin.qvel, {}, begin.inputs)
            inputs = self._inputs(action, physics, begin.memory)
            outcome: object = task.outcome(physics, action, physics, begin.memory)
            if not isinstance(outcome, Outcome):
                given = type(outcome).__name__
                raise TaskError(f"{name}.outcome gives a {given}; it must give an Outcome")
            first, second = (task.observe(physics, m) for m in (begin.memory, outcome.memory))
            return inputs, outcome, first, second

        action = jax.ShapeDtypeStruct(self.action_low.shape, jnp.float32)
        inputs, outcome, first, second = jax.eval_shape(first_step, jax.random.key(0), action)
        self._check_inputs("control", inputs)
        for part in ("reward", "terminated"):
            shape = np.shape(getattr(outcome, part))
            if shape != ():
                raise TaskError(
                    f"{name}.outcome gives a {part} of shape {shape}; it must be a scalar"
                )
        if _specs(outcome.memory) != _specs(start.memory):
            raise TaskError(
                f"{name}.outcome changes the memory's structure, from {_specs(start.memory)} to "
                f"{_specs(outcome.memory)}; shapes and dtypes must stay as `start` made them"
            )
        if _specs(first) != _specs(second):
            raise TaskError(f"{name}.observe gives {_specs(first)}, then {_specs(second)}")
        return outcome.metrics, first

    def _check_inputs(self, function: str, inputs: Mapping[str, Any]) -> None:
        """Compares the shapes of what a function of the task gives the physics."""
        for field, value in inputs.items():
            wanted = self.physics.input_shape(field)
            if np.shape(value) != wanted:
                raise TaskError(
                    f"{type(self.task).__name__}.{function} gives {field} of shape "
                    f"{np.shape(value)}; the model's is {wanted}"
                )

    def __repr__(self) -> str:
        return f"Env({type(self.task).__name__}, physics={self.physics.name!r})"


def _attribute(name: str, tree: Any) -> Any:
    return getattr(tree, name)


def _specs(tree: PyTree) -> Any:
    """Structure, shapes and dtypes of a tree, comparable and readable."""
    return jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree)


def _float32(metrics: Metrics) -> Metrics:
    return {name: jnp.asarray(value, jnp.float32) for name, value in metrics.items()}


def _all_finite(tree: PyTree) -> Array:
    """Whether every floating point number of a tree is finite, `()` bool."""
    checks = [
        jnp.isfinite(x).all()
        for x in jax.tree.leaves(tree)
        if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    return jnp.stack(checks).all()
