"""Env: a task on an engine; `reset` and `step` of one world are pure functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.actions import checked_action
from worldline.env.cameras import Cameras
from worldline.env.config import EnvConfig
from worldline.env.control import control_step
from worldline.env.disturb import DISTURBANCES, Disturbance, disturbed, undisturbed
from worldline.env.history import frames_by_part
from worldline.env.observer import Observer
from worldline.env.parts import check_parts
from worldline.env.starts import chosen_parts, start_physics
from worldline.env.task import Outcome, Start, Task, check_task
from worldline.errors import ConfigError
from worldline.host.fork import check_not_forked
from worldline.keys import as_key
from worldline.parallel.devices import cpu_device, default_device
from worldline.physics import Engine, make_physics
from worldline.physics.base import PhysicsState, check_variation, picked
from worldline.rendering.camera import Camera
from worldline.settings import check_settings
from worldline.types import (
    Array,
    ArrayLike,
    Key,
    Metrics,
    Observation,
    PyTree,
    Variation,
    in_32_bits,
)
from worldline.variation.context import Context, Feature

if TYPE_CHECKING:
    from gymnasium import spaces


class EnvState(eqx.Module):
    """One world: a pytree. `Worlds` puts an axis `B` in front of every leaf."""

    physics: PhysicsState
    """The physics, `state.physics.qpos` and so on."""
    memory: PyTree
    """The task's memory."""
    obs: Observation
    """The present observation."""
    reward: Array
    """The last step's reward, `()`; 0 after a reset."""
    terminated: Array
    """Whether the task ended the episode in the last step, `()` bool."""
    diverged: Array
    """Whether the start or a step of this episode failed, `()` bool: the simulation diverged, or a
    number of the task is not finite. Then the reward is 0, the observation is the last good one (or
    zeros), and the episode cannot continue."""
    metrics: Metrics
    """The task's metrics, `()` each; zeros after a reset."""
    context: dict[str, Array]
    """The value of each context feature, `()`."""
    drawn: Variation
    """The constants that the task drew at the start of the episode."""
    taken: Array
    """Control steps of the task that the last step took, `()` int32; 0 after a reset."""

    @property
    def variation(self) -> Variation:
        """The constants of this world that differ from the model's."""
        return self.physics.variation


class Env:
    """A task on an engine. `reset` and `step` are pure: `jit`, `vmap` and `scan` work on both.

    Args:
        task: the model, the starts, the observation and the reward.
        physics: the engine's name (`"native"`, `"fake"`), or a function that builds an engine from
            a model and the `Reads` of the task.
        context: the context features of its worlds: a `Context`, or names of features that are all
            visible (`["gravity", "friction"]`). Visible features are added to the observation,
            which is then a dict with the keys `context` and `state`.
        cameras: cameras of the model, by the names that they get in the observation; or `Cameras`
            of the task's model. Each camera adds images to the observation, which is then a dict:
            `pixels/<name>` and `depth/<name>`. They are drawn once per step.
        action_repeat: the number of control steps of the task that `step` takes with one action.
            Rewards are summed until the episode ends; the observation, with its images, is that of
            the last control step.
        last_action: whether the last action is added to the observation, which is then a dict:
            `last_action`, `(nact,)`, zeros at the start of an episode. A policy with images needs
            it, because images show the effect of an action only one step later.
        disturbances: delays, noise and pushes, for example `ActionDelay(steps=2)`. They are added
            to those of a `Disturbed` task.
        history: the number of latest measurements in the state, oldest first, for each part that
            the task names (`Task.observation_parts`): one number for all parts, or numbers by name
            (`{"joint_position": 5}`). At the start of an episode, the first measurement fills the
            history.

    Raises:
        VariationError: the model has no such feature.
        ConfigError: `cameras` is empty, or the model has no such camera; `action_repeat` is not
            positive.
        RendererUnavailableError: the cameras cannot be drawn on this machine.
        TaskError: the task returns a wrong shape, or a memory with a changing structure.
        ModelError: the task's control time step is not a multiple of the model's time step, or the
            engine cannot run the model.
    """

    def __init__(
        self,
        task: Task,
        physics: Engine = "native",
        context: Context | Iterable[str | Feature] = (),
        cameras: Cameras | Mapping[str, Camera] | None = None,
        action_repeat: int = 1,
        last_action: bool = False,
        disturbances: Sequence[Disturbance] = (),
        history: int | Mapping[str, int] = 1,
    ) -> None:
        check_not_forked()
        check_settings(task)
        task = disturbed(task, disturbances)
        self.history = frames_by_part(task, history)
        self.action_repeat, self.last_action = action_repeat, last_action
        self.task, self.engine = task, physics
        self.context = context if isinstance(context, Context) else Context(context)
        self.model = task.model
        self.substeps = self.model.substeps(task.control_timestep)
        self.context.features(self.model)
        low, high = (np.asarray(bound, np.float32) for bound in task.action_bounds)
        self.action_low, self.action_high = low, high
        if cameras is not None and not isinstance(cameras, Cameras):
            cameras = Cameras(self.model, cameras)
        self.cameras = cameras
        _ = self.config  # checks the settings
        self.task_specs = check_task(task)
        if self.history:
            check_parts(task, self.task_specs.obs)
        self.observer = Observer(task, self.context, cameras, last_action, self.history)
        self.physics = make_physics(physics, self.model, self.task_specs.reads)
        #: Where its worlds are simulated: the CPU, or what is now JAX's default device.
        self.device = cpu_device() if self.physics.on_cpu else default_device()

    @property
    def control_timestep(self) -> float:
        """Seconds between two actions."""
        return self.task.control_timestep * self.action_repeat

    @property
    def config(self) -> EnvConfig:
        """The arguments that this environment was made with, without its task, as data."""
        custom = [f.name for f in self.context.requested if not isinstance(f, str)]
        missing = [f"the context feature {name!r} of your own" for name in custom]
        disturbances = undisturbed(self.task)[1]
        foreign = [d for d in disturbances if type(d) not in DISTURBANCES.values()]
        missing += [f"the disturbance {type(d).__name__} of your own" for d in foreign]
        if not isinstance(self.engine, str):
            missing.append("the engine, which a function builds")
        return EnvConfig(
            physics=self.engine if isinstance(self.engine, str) else "",
            action_repeat=self.action_repeat,
            last_action=self.last_action,
            context=self.context.names,
            visible=self.context.visible,
            cameras={} if self.cameras is None else self.cameras.views,
            renderer="auto" if self.cameras is None else self.cameras.renderer,
            disturbances=disturbances,
            history=self.history,
            not_stored=tuple(missing),
        )

    @classmethod
    def from_config(cls, task: Task, config: EnvConfig) -> Env:
        """Makes the environment of a task from a configuration.

        Raises:
            ConfigError: the configuration lacks a part that a file cannot store.
        """
        if config.not_stored:
            raise ConfigError(f"a configuration cannot store {config.not_stored[0]}; give an Env")
        context = Context(config.context, visible=config.visible)
        cameras = Cameras(task.model, config.cameras, config.renderer) if config.cameras else None
        way = config.action_repeat, config.last_action, config.disturbances, config.history
        return cls(task, config.physics, context, cameras, *way)

    def but(
        self,
        *,
        context: Context | None = None,
        cameras: Cameras | Mapping[str, Camera] | None = None,
        action_repeat: int | None = None,
        last_action: bool | None = None,
    ) -> Env:
        """The same environment with other constructor arguments; None keeps the old value."""
        return Env(
            self.task,
            self.engine,
            self.context if context is None else context,
            self.cameras if cameras is None else cameras,
            self.action_repeat if action_repeat is None else action_repeat,
            self.last_action if last_action is None else last_action,
            history=self.history,
        )

    def reset(
        self,
        key: Key,
        variation: Variation | None = None,
        context: Mapping[str, ArrayLike] | None = None,
        *,
        mask: ArrayLike = True,
    ) -> EnvState:
        """A world at the start of a new episode.

        If several sources set the same field of the model, the context has priority over
        `variation`, and `variation` over the draws of the task.

        Args:
            key: the random key of the start: `jax.random.key(seed)`.
            variation: constants of this world, MjModel field name to the whole field's value.
            context: values of context features, `()` each; the others have their defaults.
            mask: `()` bool; where False nothing is simulated and the result is unspecified.
        """
        return self.begin(self.task.start(as_key(key)), variation, context, mask=mask)

    def reset_to(
        self,
        key: Key,
        *,
        qpos: ArrayLike | None = None,
        qvel: ArrayLike | None = None,
        variation: Variation | None = None,
        context: Mapping[str, ArrayLike] | None = None,
    ) -> EnvState:
        """A world at a start with this configuration and velocity.

        Args:
            key: the random key of the rest of the start and of the task's memory, as in `reset`.
            qpos: configuration, `(nq,)`; None: as in `reset`.
            qvel: velocity, `(nv,)`; None: as in `reset`.
            variation: as in `reset`.
            context: as in `reset`.

        Raises:
            TaskError: a shape is wrong.
        """
        start, chosen = self.task.start(as_key(key)), chosen_parts(self.model, qpos, qvel)
        if start.settle_time:  # before what is chosen, which stays as it is
            rest = self.begin(start, variation, context).physics
            chosen = {"qpos": rest.qpos, "qvel": rest.qvel, **chosen, "settle_time": 0}
        return self.begin(start, variation, context, chosen=chosen)

    def vary(
        self,
        state: EnvState,
        variation: Variation,
        context: Mapping[str, ArrayLike] | None = None,
    ) -> EnvState:
        """The same world, in the middle of its episode, with other constants.

        Args:
            state: the world; it must already have a value for each field of `variation`.
            variation: as in `reset`; other fields keep their values.
            context: as in `reset`; None keeps the values.
        """
        values = self.context.complete(self.model, state.context if context is None else context)
        drawn = self.context.variation(self.model, values, {**state.drawn, **variation})
        physics = self.physics.vary(state.physics, {**state.variation, **drawn})
        obs = self.observer.with_context(state.obs, values)
        return dataclasses.replace(state, physics=physics, obs=obs, context=values)

    def step(
        self,
        state: EnvState,
        action: ArrayLike,
        *,
        mask: ArrayLike = True,
        at_most: ArrayLike | None = None,
    ) -> EnvState:
        """The world after an action: one control step later, or `action_repeat` of them.

        A step after the end of an episode is a normal step: only `Worlds` begins new episodes.

        Args:
            state: the world.
            action: `(nact,)`, in the units of `action_space`.
            mask: `()` bool; where False nothing is simulated and the result is unspecified.
            at_most: `()` int32, 1 or more: the most control steps to take; None: no limit.

        Raises:
            ActionError: a wrong shape or dtype; or outside of `jit`, a value that is not finite.
                Inside `jit`, this world is marked `diverged`.
        """
        action = jnp.asarray(self.check_action(action))
        physics, outcome = self._control_step(state.physics, state.memory, action, mask)
        taken = jnp.int32(1)
        if self.action_repeat > 1:
            limit = self.action_repeat if at_most is None else at_most
            again = functools.partial(self._control_again, action, mask, limit)
            carry, repeats = (physics, outcome, taken), self.action_repeat - 1
            (physics, outcome, taken), _ = jax.lax.scan(again, carry, length=repeats)
        obs = self.observer.next(
            physics, outcome.memory, state.context, mask, action, previous=state.obs
        )
        finite = _all_finite((obs, outcome.reward)) & jnp.isfinite(action).all()
        healthy = ~physics.diverged & finite & ~state.diverged

        def keep(new: PyTree, old: PyTree) -> PyTree:
            return jax.tree.map(lambda a, b: jnp.where(healthy, a, b), new, old)

        return EnvState(
            physics=physics,
            memory=keep(outcome.memory, state.memory),
            obs=keep(obs, state.obs),
            reward=jnp.where(healthy, outcome.reward, 0.0),
            terminated=outcome.terminated & healthy,
            diverged=~healthy,
            metrics=keep(outcome.metrics, self._zero_metrics()),
            context=state.context,
            drawn={**state.drawn, **picked(self.task_specs.constants, physics.variation)},
            taken=taken,
        )

    def _control_step(
        self, physics: PhysicsState, memory: PyTree, action: Array, mask: ArrayLike
    ) -> tuple[PhysicsState, Outcome]:
        """The physics one control step later, and the task's outcome."""
        after = control_step(self.task, self.physics, physics, memory, action, self.substeps, mask)
        outcome = self.task.outcome(physics, action, after, memory)
        return after, Outcome(
            reward=jnp.asarray(outcome.reward, jnp.float32),
            terminated=jnp.asarray(outcome.terminated, bool),
            memory=in_32_bits(outcome.memory),
            metrics={n: jnp.asarray(value, jnp.float32) for n, value in outcome.metrics.items()},
        )

    def _control_again(
        self,
        action: Array,
        mask: ArrayLike,
        limit: ArrayLike,
        carry: tuple[PhysicsState, Outcome, Array],
        _: None,
    ) -> tuple[tuple[PhysicsState, Outcome, Array], None]:
        """One more control step with the same action, unless the episode is over."""
        physics, outcome, taken = carry
        going = jnp.asarray(mask) & (taken < limit) & ~outcome.terminated & ~physics.diverged
        after, more = self._control_step(physics, outcome.memory, action, going)
        more = dataclasses.replace(more, reward=outcome.reward + more.reward)
        moved = after, more, taken + 1
        return jax.tree.map(lambda new, old: jnp.where(going, new, old), moved, carry), None

    @functools.cached_property
    def action_space(self) -> spaces.Box:
        """The actions of one world, a `gymnasium.spaces.Box` of float32."""
        from gymnasium import spaces

        return spaces.Box(self.action_low, self.action_high, dtype=np.float32)

    @functools.cached_property
    def context_space(self) -> spaces.Dict:
        """The values that context features may have: a `gymnasium.spaces.Dict` by name."""
        return self.context.space(self.model)

    @functools.cached_property
    def observation_space(self) -> spaces.Space[Any]:
        """The observations of one world: a `Box`, or a `Dict` of them.

        Raises:
            TaskError: the task observes something else, for example a dict in a dict.
        """
        return self.observer.space(self.task_specs.obs)

    def check_action(
        self, action: ArrayLike, lead: tuple[int, ...] = ()
    ) -> Array | np.ndarray[Any, Any]:
        """An action as float32, after a check of its shape `(*lead, nact)`, dtype and values.

        NumPy arrays stay NumPy arrays, because passing them to a compiled program costs less than
        making JAX arrays. They are copied, because the caller may change them while a program runs.

        Raises:
            ActionError: a wrong shape or dtype; or outside of `jit`, a value that is not finite.
        """
        return checked_action(action, (*lead, *self.action_low.shape))

    def begin(
        self,
        start: Start,
        variation: Variation | None = None,
        context: Mapping[str, ArrayLike] | None = None,
        *,
        mask: ArrayLike = True,
        chosen: Mapping[str, Any] | None = None,
    ) -> EnvState:
        """A world at a start that the task drew, except for the parts that the caller chose
        (`chosen`).

        The other arguments are those of `reset`.
        """
        values = self.context.complete(self.model, context or {})
        own = check_variation(self.model, start.variation)
        drawn = {**own, **(variation or {})}
        constants = self.context.variation(self.model, values, drawn)
        start = dataclasses.replace(self.task.place(start, constants), **(chosen or {}))
        physics = start_physics(self.physics, start, constants, mask)
        obs = self.observer.first(physics, start.memory, values, mask)
        healthy = ~physics.diverged & _all_finite(obs)
        return EnvState(
            physics=physics,
            memory=in_32_bits(jax.tree.map(jnp.asarray, start.memory)),
            obs=jax.tree.map(lambda x: jnp.where(healthy, x, jnp.zeros_like(x)), obs),
            reward=jnp.zeros((), jnp.float32),
            terminated=jnp.zeros((), bool),
            diverged=~healthy,
            metrics=self._zero_metrics(),
            context=values,
            drawn=own,
            taken=jnp.int32(0),
        )

    def _zero_metrics(self) -> Metrics:
        return {
            name: jnp.zeros(spec.shape, jnp.float32)
            for name, spec in self.task_specs.metrics.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it is made of; programs are compiled again."""
        made_of = (self.task, self.engine, self.context, self.cameras)
        return type(self), (*made_of, self.action_repeat, self.last_action, (), self.history)

    def __repr__(self) -> str:
        return f"Env({type(self.task).__name__}, physics={self.physics.name!r})"


def _all_finite(tree: PyTree) -> Array:
    """Whether every floating point number of a tree is finite, `()` bool."""
    leaves = (x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating))
    return jnp.stack([jnp.asarray(True), *(jnp.isfinite(x).all() for x in leaves)]).all()
