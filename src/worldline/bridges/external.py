"""The other way round: any Gymnasium vector environment as worlds that our learners train on.

A learner asks for one transition of each world a step, with its true successor and what to act on
next. Every reset mode can give that without a step lost: SAME_STEP shows both at once; in the other
two, the worlds whose episode is over are reset by a mask before the next step. In NEXT_STEP that
takes the place of the step which would only show the new episode, and is no transition.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, TypeAlias

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode

from worldline.env.worlds import Step
from worldline.errors import ConfigError, WorldlineError
from worldline.host.calls import HostCall, Spec
from worldline.host.primitive import host_primitive
from worldline.types import Array, ArrayLike, Key, Observation

NDArray: TypeAlias = np.ndarray[Any, Any]

#: Tell the environments of this process apart.
_numbers = itertools.count()


class StaleStateError(WorldlineError, RuntimeError):
    """A step from where a Gymnasium environment is no more."""


class ExternalState(eqx.Module):
    """Where the environment is, as far as it tells."""

    obs: Observation
    """What to act on next, `(B, ...)`."""
    turn: Array
    """Steps and resets since the environment was made, `()` int32."""
    steps: Array
    """Steps taken in the current episode, `(B,)` int32."""
    episode_return: Array
    """Rewards of the current episode so far, `(B,)`."""
    ranges: dict[str, Any] = eqx.field(default_factory=dict)
    """Empty: nothing is drawn here."""


@dataclasses.dataclass(frozen=True)
class ExternalEnv:
    """One environment of the vector, as far as learners ask about it."""

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
    """A Gymnasium vector environment in the place of `Worlds`, for `ppo` and `sac`.

    `reset` and `step` have the shapes of `Worlds`'s, and `step` runs inside `jit` and `scan`. They
    are not pure: the environment moves on, so that only its latest state can be stepped, once.

    Args:
        env: the environment, in any of Gymnasium's reset modes. In NEXT_STEP and DISABLED it must
            know the option `reset_mask`, as Gymnasium's own do.

    Raises:
        ConfigError: it does not say its mode, its actions are not a flat `Box`, or its observations
            not a `Box` or a flat `Dict` of them.
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
            raise ConfigError(f"the actions are {action}; only a Box of one axis can be learned")
        leaves = obs.values() if isinstance(obs, gymnasium.spaces.Dict) else [obs]
        if not all(isinstance(leaf, gymnasium.spaces.Box) for leaf in leaves):
            raise ConfigError(f"the observations are {obs}; give a Box, or a flat Dict of them")
        self.vector = env
        self.num_worlds = int(env.num_envs)
        self.mesh = None  # the environment is where it is
        self.env = ExternalEnv(action, obs)
        self._mode, self._turn = mode, 0
        self._name = f"external {next(_numbers)}"
        boxes, self._structure = jax.tree.flatten(_boxes(obs))
        self._obs_specs = [((self.num_worlds, *box.shape), _dtype(box.dtype)) for box in boxes]

    def reset(self, key: Key) -> ExternalState:
        """All worlds at the start of an episode, seeded by the key; outside of `jit`."""
        seed = int(jax.random.randint(key, (), 0, np.iinfo(np.int32).max))
        obs, _ = self.vector.reset(seed=seed)
        self._turn += 1
        return ExternalState(
            obs=jax.tree.map(jnp.asarray, self._flat_obs(obs)),
            turn=jnp.int32(self._turn),
            steps=jnp.zeros(self.num_worlds, jnp.int32),
            episode_return=jnp.zeros(self.num_worlds),
        )

    def step(self, state: ExternalState, action: ArrayLike) -> tuple[ExternalState, Step]:
        """One transition of every world; see `Worlds.step`.

        Args:
            state: the latest state.
            action: `(B, nact)`.

        Raises:
            StaleStateError: the environment has moved on since `state` (inside `jit`, an error of
                JAX's that quotes it).
        """
        operands = state.turn, jnp.asarray(action, jnp.float32)
        results = _external.bind(*operands, call=_ExternalStep(self), lead=0)
        turn, reward, terminated, truncated, *leaves = results
        half = len(leaves) // 2
        obs, final_obs = (
            jax.tree.unflatten(self._structure, part) for part in (leaves[:half], leaves[half:])
        )
        steps, episode_return = state.steps + 1, state.episode_return + reward
        metrics = {
            "episode_return": episode_return,
            "episode_length": steps,
            "diverged": jnp.zeros(self.num_worlds, bool),
        }
        ended = terminated | truncated
        after = ExternalState(
            obs=obs,
            turn=turn,
            steps=jnp.where(ended, 0, steps),
            episode_return=jnp.where(ended, 0.0, episode_return),
        )
        return after, Step(obs, reward, terminated, truncated, final_obs, metrics)

    def stagger(self, state: ExternalState) -> ExternalState:
        """The state as it is: the environment keeps the time of its episodes itself."""
        return state

    @property
    def _specs(self) -> list[Spec]:
        """The shapes and dtypes of what `_step_on_host` returns."""
        rows = (self.num_worlds,)
        worth = [(rows, np.float32), (rows, np.bool_), (rows, np.bool_)]
        return [((), np.int32), *worth, *self._obs_specs, *self._obs_specs]

    def _step_on_host(self, turn: NDArray, action: NDArray) -> list[NDArray]:
        """One step of the environment, and the resets that it asks for."""
        if int(turn) != self._turn:
            raise StaleStateError(
                f"the state is of turn {int(turn)}, and the environment at turn {self._turn}; "
                "go on from its latest state"
            )
        obs, reward, terminated, truncated, info = self.vector.step(np.array(action))
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        obs = final = self._flat_obs(obs)
        ended = terminated | truncated
        if ended.any() and self._mode is AutoresetMode.SAME_STEP:
            final = _with_rows(obs, ended, info["final_obs"])
        elif ended.any():
            obs = self._reset_where(final, ended)
        self._turn += 1
        worth = [np.asarray(reward, np.float32), terminated, truncated & ~terminated]
        observed = [*jax.tree.leaves(obs), *jax.tree.leaves(final)]
        return [np.asarray(self._turn, np.int32), *worth, *observed]

    def _reset_where(self, obs: Any, rows: NDArray) -> Any:
        """New episodes in some worlds; the others must stay."""
        fresh, _ = self.vector.reset(options={"reset_mask": rows.copy()})
        fresh = self._flat_obs(fresh)
        for new, old in zip(jax.tree.leaves(fresh), jax.tree.leaves(obs), strict=True):
            if not np.array_equal(new[~rows], old[~rows], equal_nan=True):
                raise ConfigError(
                    f"{type(self.vector).__name__} resets more than options['reset_mask'] asks "
                    "for; give it the reset mode SAME_STEP"
                )
        return fresh

    def _flat_obs(self, obs: Any) -> Any:
        """Arrays of our own in the dtypes that JAX computes with."""
        return jax.tree.map(lambda x: np.array(x, _dtype(np.asarray(x).dtype)), _boxes(obs))


def _boxes(tree: Any) -> Any:
    """A space or an observation, where it is a mapping as a plain dict."""
    mapping = isinstance(tree, Mapping | gymnasium.spaces.Dict)
    return dict(tree.items()) if mapping else tree


def _dtype(dtype: Any) -> Any:
    """Double precision becomes single."""
    return jax.dtypes.canonicalize_dtype(dtype)


def _with_rows(obs: Any, rows: NDArray, others: NDArray) -> Any:
    """A copy of `obs` with what `others`, an array of objects, holds at some rows."""
    changed = jax.tree.map(np.array, obs)
    for row in np.flatnonzero(rows):
        for new, old in zip(
            jax.tree.leaves(_boxes(others[row])), jax.tree.leaves(changed), strict=True
        ):
            old[row] = new
    return changed


@dataclasses.dataclass(frozen=True)
class _ExternalStep(HostCall):
    """A step of all worlds of an environment, which to JAX are one."""

    worlds: ExternalWorlds

    @property
    def name(self) -> str:
        """The name of the environment."""
        return self.worlds._name

    @property
    def results(self) -> list[Spec]:
        """Shape and dtype of each result of `_step_on_host`."""
        return self.worlds._specs

    def run(self, *operands: NDArray) -> list[NDArray]:
        """Steps the environment, once."""
        turn, action = (x[0] for x in operands)
        return [x[None] for x in self.worlds._step_on_host(turn, action)]


#: A step has an effect, and takes its place in the order of steps by the number of the turn, which
#: each needs of the one before it.
_external = host_primitive("worldline_external", has_side_effect=True)
