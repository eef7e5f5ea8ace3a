"""Any Gymnasium vector environment as worlds, for training with PPO and SAC.

In each step, a learner needs one transition of each world, with its true successor and the
observation to act on next. In the reset mode SAME_STEP the environment returns both at once. In
NEXT_STEP and DISABLED, a mask resets the worlds with ended episodes at the end of the step. So in
NEXT_STEP there are no steps that only return a new episode and are not transitions.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from jax.dtypes import canonicalize_dtype

from worldline.env.worlds import Step
from worldline.errors import ConfigError, WorldlineError
from worldline.host.calls import HostCall, Spec
from worldline.host.primitive import host_primitive
from worldline.parallel.devices import cpu_device, put, unless_default
from worldline.types import Array, ArrayLike, Key, NDArray, Observation

#: Tell the environments of this process apart.
_numbers = itertools.count()


class StaleStateError(WorldlineError, RuntimeError):
    """A step from a state that is not the latest state of the Gymnasium environment."""


class ExternalState(eqx.Module):
    """The state of the vector, as far as it is known."""

    obs: Observation
    """What to act on next, `(B, ...)`."""
    calls: Array
    """The number of resets and steps of the environment so far, `()` int32."""
    steps: Array
    """Steps taken in the current episode, `(B,)` int32."""
    episode_return: Array
    """Rewards of the current episode so far, `(B,)`."""
    ranges: dict[str, Any] = eqx.field(default_factory=dict)
    """Empty, because nothing is drawn."""


@dataclasses.dataclass(frozen=True)
class ExternalEnv:
    """The spaces of one environment of the vector, in the form that learners need."""

    action_space: gymnasium.spaces.Box
    observation_space: gymnasium.Space[Any]

    @property
    def action_low(self) -> NDArray:
        """Lowest action, `(nact,)`."""
        return np.asarray(self.action_space.low, np.float32)

    @property
    def action_high(self) -> NDArray:
        """Highest action, `(nact,)`."""
        return np.asarray(self.action_space.high, np.float32)


class ExternalWorlds:
    """A Gymnasium vector environment that replaces `Worlds` in `ppo` and `sac`.

    `reset` and `step` have the shapes of those of `Worlds`, and `step` runs inside `jit` and
    `scan`. They are not pure: the environment changes, so only its latest state can be stepped,
    once.

    Args:
        env: the environment, in any of Gymnasium's reset modes. In NEXT_STEP and DISABLED it must
            support the option `reset_mask`, as Gymnasium's own vectors do.

    Raises:
        ConfigError: it does not declare its reset mode, its action space is not a flat `Box`, or
            its observation space is not a `Box` or a flat `Dict` of them.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ConfigError(
                f"the environment's metadata['autoreset_mode'] is {mode!r}; it must be a "
                "gymnasium.vector.AutoresetMode"
            )
        action, obs = env.single_action_space, env.single_observation_space
        if not (isinstance(action, gymnasium.spaces.Box) and len(action.shape) == 1):
            raise ConfigError(f"the action space is {action}; give a Box with one axis")
        leaves = obs.values() if isinstance(obs, gymnasium.spaces.Dict) else [obs]
        if not all(isinstance(leaf, gymnasium.spaces.Box) for leaf in leaves):
            raise ConfigError(f"the observation space is {obs}; give a Box, or a flat Dict of them")
        self.vector = env
        self.num_worlds = int(env.num_envs)
        self.mesh = None  # one process has the environment
        self.device = cpu_device()
        self.env = ExternalEnv(action, obs)
        self._mode, self._calls = mode, 0
        boxes, self._structure = jax.tree.flatten(_as_dict(obs))
        rows = (self.num_worlds,)
        obs_specs = [((*rows, *box.shape), canonicalize_dtype(box.dtype)) for box in boxes]
        flags = [(rows, np.bool_), (rows, np.bool_)]
        self._specs = [((), np.int32), (rows, np.float32), *flags, *obs_specs, *obs_specs]
        self._name = f"external {next(_numbers)}"

    def reset(self, key: Key) -> ExternalState:
        """All worlds at the start of an episode, seeded by the key; outside of `jit`."""
        seed = int(jax.random.randint(key, (), 0, np.iinfo(np.int32).max))
        obs, _ = self.vector.reset(seed=seed)
        self._calls += 1
        state = ExternalState(
            obs=jax.tree.map(jnp.asarray, self._own(obs)),
            calls=jnp.int32(self._calls),
            steps=jnp.zeros(self.num_worlds, jnp.int32),
            episode_return=jnp.zeros(self.num_worlds, jnp.float32),
        )
        return put(state, unless_default(self.device))

    def step(self, state: ExternalState, action: ArrayLike) -> tuple[ExternalState, Step]:
        """One transition of every world; see `Worlds.step`.

        Args:
            state: the latest state.
            action: `(B, nact)`.

        Raises:
            StaleStateError: the environment has changed since `state` (inside `jit`, JAX raises an
                error that quotes it).
        """
        operands = state.calls, jnp.asarray(action, jnp.float32)
        results = _external.bind(*operands, call=_ExternalStep(self), lead=0)
        calls, reward, terminated, truncated, *leaves = results
        half = len(leaves) // 2
        obs = jax.tree.unflatten(self._structure, leaves[:half])
        final_obs = jax.tree.unflatten(self._structure, leaves[half:])
        steps, episode_return = state.steps + 1, state.episode_return + reward
        metrics = {
            "episode_return": episode_return,
            "episode_length": steps,
            "diverged": jnp.zeros(self.num_worlds, bool),
        }
        ended = terminated | truncated
        after = ExternalState(
            obs=obs,
            calls=calls,
            steps=jnp.where(ended, 0, steps),
            episode_return=jnp.where(ended, 0.0, episode_return),
        )
        return after, Step(obs, reward, terminated, truncated, final_obs, metrics)

    def stagger(self, state: ExternalState) -> ExternalState:
        """The unchanged state: the environment itself counts the time of its episodes."""
        return state

    def _step_on_host(self, calls: NDArray, action: NDArray) -> list[NDArray]:
        """One step of the environment, and the resets that it needs.

        Args:
            calls: how many resets and steps led to the state, `()` int32.
            action: `(B, nact)`.

        Returns:
            `calls` after the step, the reward, `terminated`, `truncated`, and the leaves of `obs`
            and of `final_obs`.
        """
        if int(calls) != self._calls:
            raise StaleStateError(
                f"the state is from call {int(calls)} of the environment, but its latest state is "
                f"from call {self._calls}; continue from the latest state"
            )
        obs, reward, terminated, truncated, info = self.vector.step(np.array(action))
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        obs = final = self._own(obs)
        ended = terminated | truncated
        if ended.any() and self._mode is AutoresetMode.SAME_STEP:
            final = _with_rows(obs, ended, info["final_obs"])
        elif ended.any():
            obs = self._reset_where(final, ended)
        self._calls += 1
        numbers = [np.asarray(self._calls, np.int32), np.asarray(reward, np.float32)]
        observed = [*jax.tree.leaves(obs), *jax.tree.leaves(final)]
        return [*numbers, terminated, truncated & ~terminated, *observed]

    def _reset_where(self, obs: Any, rows: NDArray) -> Any:
        """Resets the worlds where `rows`, `(B,)` bool; checks that the others keep their `obs`."""
        fresh, _ = self.vector.reset(options={"reset_mask": rows.copy()})
        fresh = self._own(fresh)
        for new, old in zip(jax.tree.leaves(fresh), jax.tree.leaves(obs), strict=True):
            if not np.array_equal(new[~rows], old[~rows], equal_nan=True):
                raise ConfigError(
                    f"{type(self.vector).__name__} ignores options['reset_mask'] and resets other "
                    "worlds too; use its reset mode SAME_STEP"
                )
        return fresh

    def _own(self, obs: Any) -> Any:
        """Copies of an observation's arrays, in the dtypes that JAX computes with."""

        def copied(x: Any) -> NDArray:
            return np.array(x, canonicalize_dtype(np.asarray(x).dtype))

        return jax.tree.map(copied, _as_dict(obs))


def _as_dict(tree: Any) -> Any:
    """A mapping or a `Dict` space as a plain dict; any other observation or space as it is."""
    mapping = isinstance(tree, Mapping | gymnasium.spaces.Dict)
    return dict(tree.items()) if mapping else tree


def _with_rows(obs: Any, rows: NDArray, others: NDArray) -> Any:
    """A copy of `obs` with the rows of a mask replaced by those of `others`, `(B,)` objects."""
    changed = jax.tree.map(np.array, obs)
    for row in np.flatnonzero(rows):
        leaves = jax.tree.leaves(_as_dict(others[row]))
        for new, old in zip(leaves, jax.tree.leaves(changed), strict=True):
            old[row] = new
    return changed


@dataclasses.dataclass(frozen=True)
class _ExternalStep(HostCall):
    """A step of a whole environment. JAX sees its worlds as one."""

    worlds: ExternalWorlds

    @property
    def name(self) -> str:
        return self.worlds._name

    @property
    def results(self) -> list[Spec]:
        return self.worlds._specs

    def run(self, *operands: NDArray) -> list[NDArray]:
        calls, action = (x[0] for x in operands)
        return [x[None] for x in self.worlds._step_on_host(calls, action)]


#: It has an effect. Each step needs the number of calls that the step before it returned, so that
#: steps keep their order.
_external = host_primitive("worldline_external", has_side_effect=True)
