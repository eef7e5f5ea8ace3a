"""An environment as gymnax's `Environment`, for learners in JAX such as rejax and PureJaxRL.

`params` are the constants of a world's physics. Learners can `vmap` over them; nothing recompiles.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.env import Env, EnvState
from worldline.errors import ConfigError, MissingExtraError
from worldline.types import Array, ArrayLike, Key, Metrics, Observation

try:
    from flax import struct
    from gymnax.environments import environment, spaces
except ImportError as error:
    # gymnax wants a Gymnasium below 1.4, and uses nothing of it that 1.4 changed.
    then = "pip install --no-deps 'gymnax>=1.0'"
    raise MissingExtraError("the gymnax bridge", "gymnax", then) from error

if not hasattr(environment.Environment, "is_truncated"):
    raise ConfigError("this gymnax has no `truncated`; pip install 'gymnax>=1.0'")

#: The time limit of episodes that have none.
NEVER = np.iinfo(np.int32).max


@struct.dataclass
class EnvParams(environment.EnvParams):  # type: ignore[misc] # as in sb3.py
    """The numbers in which worlds differ: a pytree; every number may vary."""

    max_steps_in_episode: ArrayLike = NEVER
    """Control steps after which an episode is truncated, `()` int32."""
    constants: dict[str, Any] = struct.field(default_factory=dict)
    """MjModel field name to the whole field's value."""
    context: dict[str, ArrayLike] = struct.field(default_factory=dict)
    """Context feature to its value, `()`; the others have their defaults."""


class State(eqx.Module):
    """One world in the middle of an episode."""

    env: EnvState
    """The world."""
    time: Array
    """Control steps taken in the episode, `()` int32."""


class GymnaxEnv(environment.Environment):  # type: ignore[misc]
    """An environment as gymnax's `Environment`; `as_gymnax` makes one.

    New constants take effect in the step that gets them. If an episode ends, `step` begins a new
    one; otherwise it simulates no start.
    """

    _supports_transition_gradients = True

    def __init__(
        self, env: Env, constants: Iterable[str] = (), episode_length: int | None = None
    ) -> None:
        self.env = env
        length = env.task.episode_length if episode_length is None else episode_length
        if length < 0:
            raise ConfigError(f"episode_length is {length}; give steps, or 0 for no limit")
        values = {name: np.asarray(env.model.constant(name), np.float32) for name in constants}
        context = env.context.complete(env.model, {})
        self._default = EnvParams(
            max_steps_in_episode=length or NEVER,
            constants=values,
            context={name: np.asarray(value, np.float32) for name, value in context.items()},
        )

    @property
    def default_params(self) -> EnvParams:
        """The model's own constants, the default context and the time limit."""
        return self._default

    @property
    def name(self) -> str:
        """The name of the task's class."""
        return type(self.env.task).__name__

    @property
    def num_actions(self) -> int:
        """The numbers of an action."""
        return self.env.action_low.size

    def action_space(self, params: EnvParams | None = None) -> Any:
        """The actions: a gymnax `Box`."""
        return _space(self.env.action_space)

    def observation_space(self, params: EnvParams | None = None) -> Any:
        """The observations: a gymnax `Box`, or a `Dict` of them."""
        return _space(self.env.observation_space)

    @functools.partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: Key, state: State, action: ArrayLike, params: EnvParams | None = None
    ) -> tuple[Observation, State, Array, Array, Array, dict[str, Any]]:
        """One control step, and the start of the next episode if this one ends.

        Args:
            key: the random key of this start.
            state: the world.
            action: `(nact,)`.
            params: constants of this step and of this start.

        Returns:
            The observation to act on next, the world, the reward, `terminated`, `truncated`, and
            the info: the task's metrics, `diverged`, `terminated`, `truncated`, and
            `final_observation`, the true successor.
        """
        params = self._default if params is None else params
        _, start_key = jax.random.split(key)
        obs, after, reward, terminated, info = self.step_env(key, state, action, params)
        truncated = self.is_truncated(after, params) & ~terminated
        ended = terminated | truncated
        fresh = self._begin(start_key, params, ended)
        chosen = jax.tree.map(functools.partial(jnp.where, ended), fresh, after)
        told = {"terminated": terminated, "truncated": truncated, "final_observation": obs}
        shown = self._apply_transition_gradient_policy(chosen.env.obs, chosen)
        return (*shown, reward, terminated, truncated, info | told)

    def reset_env(self, key: Key, params: EnvParams) -> tuple[Observation, State]:
        """A world at the start of an episode."""
        state = self._begin(key, params, True)
        return state.env.obs, state

    def step_env(
        self, key: Key, state: State, action: ArrayLike, params: EnvParams
    ) -> tuple[Observation, State, Array, Array, Metrics]:
        """One control step without a new episode."""
        limit = jnp.maximum(jnp.int32(params.max_steps_in_episode) - state.time, 1)
        before = self.env.vary(state.env, params.constants, params.context or None)
        if jnp.size(action) == self.num_actions == 1:  # gymnax's learners may squeeze it
            action = jnp.reshape(action, (1,))
        env = self.env.step(before, action, at_most=limit)
        after = State(env, state.time + env.taken)
        info = {**env.metrics, "diverged": env.diverged}
        return env.obs, after, env.reward, env.terminated, info

    def observe(
        self, key: Key, state: State, action: ArrayLike | None, params: EnvParams
    ) -> Observation:
        """The present observation."""
        return state.env.obs

    def is_truncated(self, state: State, params: EnvParams) -> Array:
        """Whether the time limit is reached or the simulation has diverged."""
        return (state.time >= params.max_steps_in_episode) | state.env.diverged

    def is_terminated(self, state: State, params: EnvParams) -> Array:
        """Whether the task has ended the episode."""
        return state.env.terminated

    def _begin(self, key: Key, params: EnvParams, mask: ArrayLike) -> State:
        env = self.env.reset(key, params.constants, params.context, mask=mask)
        return State(env, jnp.int32(0))


class LegacyGymnaxEnv(GymnaxEnv):
    """The same, with the `step` of gymnax before 1.0, which rejax 0.1 calls."""

    @functools.partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: Key, state: State, action: ArrayLike, params: EnvParams | None = None
    ) -> tuple[Observation, State, Array, Array, dict[str, Any]]:
        """As `GymnaxEnv.step`, with `done` in place of `terminated` and `truncated`."""
        obs, after, reward, terminated, truncated, info = super().step(key, state, action, params)
        return obs, after, reward, terminated | truncated, info


def as_gymnax(
    env: Env,
    constants: Iterable[str] = (),
    episode_length: int | None = None,
    *,
    legacy_step: bool = False,
) -> GymnaxEnv:
    """An environment with gymnax's interface: `reset(key, params)`, `step(key, state, action,
    params)`.

    Args:
        env: the environment.
        constants: names of model fields for `default_params.constants`, for example `["body_mass",
            "opt.gravity"]`; they get the model's values. Other params may have other fields.
        episode_length: control steps after which an episode is truncated; 0 for no limit; None for
            the task's own.
        legacy_step: whether `step` returns the five values of gymnax before 1.0, with `done`.

    Raises:
        VariationError: the model has no such field.
        ConfigError: `episode_length` is negative.
    """
    return (LegacyGymnaxEnv if legacy_step else GymnaxEnv)(env, constants, episode_length)


def _space(space: gymnasium.Space[Any]) -> Any:
    """A space of gymnax's for one of Gymnasium's."""
    if isinstance(space, gymnasium.spaces.Dict):
        return spaces.Dict({name: _space(part) for name, part in space.items()})
    box: Any = space
    return spaces.Box(box.low, box.high, box.shape, box.dtype)
