"""Worlds as a Gymnasium vector environment, in each of the three reset modes.

`Worlds.step` returns the true successor of every step *and* the first observation of the episode
that follows. The reset mode determines which of the two an environment returns, and when:

| mode | on the step that ends an episode | after it |
|---|---|---|
| NEXT_STEP | the true successor | one step, with its action ignored, shows the new episode |
| SAME_STEP | the new episode; the true successor is `info["final_obs"]` | |
| DISABLED | the true successor | `reset` with a `reset_mask` shows the new episode |

So the three return the same transitions, bit for bit.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import functools
import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from worldline.bridges.render import RENDER_SIZE, LastStep, WorldsRenderer
from worldline.bridges.resets import Parameters, reset_options, seed_keys, world_seeds
from worldline.bridges.stepper import Stepper
from worldline.env.env import Env as WorldlineEnv
from worldline.env.episodes import WorldsState
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, VariationError, WorldlineError, did_you_mean
from worldline.host.calls import raised_as_it_is
from worldline.host.fork import check_not_forked
from worldline.physics.objects import as_mujoco
from worldline.types import Array, Key, NDArray

#: NumPy arrays in the structure of an observation space.
HostObservation: TypeAlias = Any
Info: TypeAlias = dict[str, Any]

RENDER_MODES = ["rgb_array"]


class EpisodeOverError(WorldlineError, AssertionError):
    """A step of a world after its episode ended; an AssertionError, as in Gymnasium's vectors."""


class VectorEnv(gymnasium.vector.VectorEnv[HostObservation, NDArray, NDArray]):
    """Worlds as a Gymnasium vector environment, which behaves like Gymnasium's `SyncVectorEnv`.

    World i is seeded with `seed + i`. A step's `info` holds the task's metrics, `episode_return`,
    `episode_length` and `diverged`. It returns new NumPy arrays, which the caller may change.

    Args:
        worlds: the worlds.
        autoreset_mode: what happens when an episode ends; see this module.
        render_mode: `"rgb_array"`, for `render`, or None.
        render_size: height and width of a picture, in pixels.

    Raises:
        ConfigError: there is no such mode.
    """

    def __init__(
        self,
        worlds: Worlds,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        render_size: tuple[int, int] = RENDER_SIZE,
    ) -> None:
        env = worlds.env
        self.worlds = worlds
        self.num_envs = worlds.num_worlds
        modes = [mode.value for mode in AutoresetMode]
        if autoreset_mode not in (*AutoresetMode, *modes):
            hint = did_you_mean(str(autoreset_mode), modes)
            raise ConfigError(f"there is no autoreset mode {autoreset_mode!r}{hint}")
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if render_mode not in (None, *RENDER_MODES):
            raise ConfigError(f"there is no render mode {render_mode!r}; give 'rgb_array', or None")
        self.render_mode = render_mode
        self.render_size = render_size
        self.metadata = {**metadata(env), "autoreset_mode": self.autoreset_mode}
        # Copies, since a space has a random number generator of its own.
        self.single_action_space = copy.deepcopy(env.action_space)
        self.single_observation_space = copy.deepcopy(env.observation_space)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._seeds: tuple[int, ...] | None = None
        # The packed worlds and what steps them; None before the first reset. Each structure of a
        # state, such as another set of varied constants, has a stepper of its own.
        self._current: tuple[Stepper, Array] | None = None
        self._steppers: dict[Any, Stepper] = {}
        # The observation that was shown last. Callers get copies of it.
        self._shown: HostObservation = None
        # The worlds whose new episode has begun, but has not been shown yet, `(B,)` bool.
        self._waiting = np.zeros(self.num_envs, bool)
        self._last: LastStep | None = None
        self._renderer: WorldsRenderer | None = None

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override] # as in SyncVectorEnv
        """The seed that each world was last given."""
        if self._seeds is None:
            self._seeds = tuple(self.np_random.integers(2**32, size=self.num_envs).tolist())
        return self._seeds

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[HostObservation, Info]:
        """Begins an episode in all worlds, or in those of a mask.

        Args:
            seed: an integer, from which world i gets `seed + i`; or one for each world. None
                continues with a world's own random numbers.
            options: may hold `reset_mask`, `(num_envs,)` bool, the worlds to reset; `variation`,
                the constants of each world, MjModel field name to `(num_envs, *shape)`; and
                `context`, the values of context features, each `(num_envs,)`. The last two stay
                until others are given; `{}` restores the values of the model, or the defaults of
                the features.

        Returns:
            The observation of every world, and an empty dict.

        Raises:
            ResetNeeded: the mask of the first reset does not contain all worlds.
            VariationError: an unknown field or feature, a wrong shape or value, other fields than
                before in a reset of some worlds, or values for worlds that draw theirs.
        """
        self._check_open()
        seeds = world_seeds(seed, self.num_envs)
        rows, given = reset_options(self.worlds, options or {})
        self._begin(rows, seeds, given)
        self._waiting[rows] = False
        obs = jax.device_get(self._state().obs)
        if not rows.all():
            obs = jax.tree.map(functools.partial(_where_rows, rows), obs, self._shown)
        self._shown = obs
        return jax.tree.map(np.array, obs), {}

    def step(self, actions: NDArray) -> tuple[HostObservation, NDArray, NDArray, NDArray, Info]:
        """Steps the worlds; in NEXT_STEP, worlds with ended episodes return their new ones instead.

        Args:
            actions: `(num_envs, nact)`.

        Returns:
            Observations, rewards `(num_envs,)` float64, `terminated` and `truncated`
            `(num_envs,)` bool, and the info.

        Raises:
            ActionError: a wrong shape or dtype, or a number that is not finite.
            EpisodeOverError: in DISABLED, a world's episode is over.
            ResetNeeded: before the first reset.
        """
        stepper, before = self._begun()
        mode, mask = self.autoreset_mode, None
        if np.ndim(actions) == 0:
            raise TypeError(f"the actions are {actions!r}; give an array {self.action_space.shape}")
        if mode is AutoresetMode.DISABLED and self._waiting.any():
            over = np.flatnonzero(self._waiting)
            raise EpisodeOverError(
                f"the episodes of {len(over)} worlds are over (the first is world {over[0]}); "
                "call reset(options={'reset_mask': terminated | truncated})"
            )
        if mode is AutoresetMode.NEXT_STEP and self._waiting.any():
            mask = ~self._waiting
            if np.shape(actions) == self.action_space.shape:
                actions = np.where(mask[:, None], actions, 0)
        after, step, final_obs = stepper.step(before, actions, mask)
        self._current = stepper, after
        self._shown = jax.tree.map(np.array, step.obs)
        ended = step.terminated | step.truncated
        if mode is not AutoresetMode.SAME_STEP:
            self._waiting = ended
            info = _info(step.metrics, np.ones(self.num_envs, bool) if mask is None else mask)
        else:
            info = _info(step.metrics, ~ended)
            if ended.any():
                info |= _final(jax.device_get(final_obs), step.metrics, ended)
        if self.render_mode is not None:
            self._last = LastStep(stepper.unpack(before), np.array(actions), ended)
        return step.obs, step.reward.astype(np.float64), step.terminated, step.truncated, info

    def render(self) -> tuple[NDArray, ...] | None:
        """A picture of each world, `(height, width, 3)` uint8; None without a `render_mode`."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render needs a mode; make the environment with render_mode='rgb_array'"
            )
            return None
        state = self._state()
        if self._renderer is None:
            self._renderer = WorldsRenderer(self.worlds, self.render_size)
        last = self._last
        return self._renderer.render(state, last and last._replace(ended=self._waiting))

    def mujoco(self, world: int = 0) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """A world's MuJoCo model, with its own constants, and its data, at its present state.

        Both are copies: use them to look, or with MuJoCo's own functions. What is written into them
        changes no world; give `reset` a `variation` for that.

        Args:
            world: its number.

        Raises:
            IndexError: there is no such world.
            ResetNeeded: before the first reset.
        """
        if not 0 <= world < self.num_envs:
            raise IndexError(f"there is no world {world}; give 0 to {self.num_envs - 1}")
        physics = self._state().env.physics
        shown = dataclasses.replace(physics, engine=())
        return as_mujoco(self.worlds.env.model, jax.tree.map(operator.itemgetter(world), shown))

    def close_extras(self, **kwargs: Any) -> None:
        """Frees the worlds and the renderer."""
        self._current = self._shown = self._last = None
        self._steppers.clear()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        _return_freed_memory()

    def _begin(self, rows: NDArray, seeds: list[int | None] | None, given: Parameters) -> None:
        """Begins new episodes in some worlds.

        A world whose new episode waits to be shown keeps it, unless it gets a seed or parameters.

        Args:
            rows: the worlds, `(B,)` bool.
            seeds: each world's seed, or None; None for no seeds at all.
            given: the variation and the context of all worlds; None keeps the present ones.
        """
        if self._current is None and not rows.all():
            raise ResetNeeded("the worlds have not been reset yet; first call reset without a mask")
        seeded = np.zeros_like(rows)
        if seeds is not None:
            seeded = rows & np.array([seed is not None for seed in seeds])
            new, old = np.array(seeds, object), np.array(self.np_random_seed, object)
            self._seeds = tuple(np.where(seeded, new, old).tolist())
        if self._current is None:
            self._pack(self.worlds.reset(seed_keys(self.np_random_seed), *given))
            return
        state, drawn = self._state(), rows & (seeded | ~self._waiting)
        if seeded.any():
            state = _put_keys(state, seeded, seed_keys(self.np_random_seed))
        if given != (None, None):
            state, drawn = _put_given(state, rows, given), rows
        if drawn.all():
            state = self.worlds.reset(state.key, *state.fixed)
        elif drawn.any():
            state = raised_as_it_is(self.worlds.reset_where)(state, drawn)
        self._pack(state)

    def _pack(self, state: WorldsState) -> None:
        kind = jax.tree.structure(state)
        if kind not in self._steppers:
            same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
            self._steppers[kind] = Stepper(self.worlds, state, same_step)
        stepper = self._steppers[kind]
        self._current = stepper, stepper.pack(state)

    def _state(self) -> WorldsState:
        """The state of the worlds, once a reset has begun their episodes."""
        stepper, packed = self._begun()
        return stepper.unpack(packed)

    def _begun(self) -> tuple[Stepper, Array]:
        """The packed worlds and their stepper, once a reset has begun their episodes."""
        self._check_open()
        if self._current is None:
            raise ResetNeeded("the worlds have not been reset yet; call reset first")
        return self._current

    def _check_open(self) -> None:
        check_not_forked()
        if self.closed:
            raise ClosedEnvironmentError("the environment is closed; make a new one")

    def __getstate__(self) -> dict[str, Any]:
        # Compiled programs and engines are not pickled, but built again.
        left: dict[str, Any] = {"_renderer": None, "_steppers": {}, "_current": None}
        state = None if self._current is None else self._state()
        return {**vars(self), **left, "_copied": state}

    def __setstate__(self, values: dict[str, Any]) -> None:
        state = values.pop("_copied")
        vars(self).update(values)
        if state is not None:
            self._pack(state)


def metadata(env: WorldlineEnv) -> dict[str, Any]:
    """Gymnasium's metadata of an environment: its render modes, and frames per second."""
    fps = max(1, round(1 / env.control_timestep))
    return {"render_modes": list(RENDER_MODES), "render_fps": fps}


def _put_given(state: WorldsState, rows: NDArray, given: Parameters) -> WorldsState:
    """The state with other constants and context in the worlds of a mask."""
    present = jax.device_get(state.fixed)
    variation, context = (y if x is None else x for x, y in zip(given, present, strict=True))
    new = (variation, context)
    if not rows.all():
        for value, old in zip(new, present, strict=True):
            if old.keys() != value.keys():
                raise VariationError(
                    f"a reset of some worlds cannot change the fields that vary from {sorted(old)} "
                    f"to {sorted(value)}; give the same fields, or reset all worlds"
                )
        new = jax.tree.map(functools.partial(_where_rows, rows), new, present)
    return dataclasses.replace(state, fixed=new)


def _put_keys(state: WorldsState, rows: NDArray, keys: Key) -> WorldsState:
    """The state with other random keys in the worlds of a mask."""
    new, old = (np.asarray(jax.random.key_data(key)) for key in (keys, state.key))
    words = jnp.asarray(_where_rows(rows, new, old))
    key = jax.random.wrap_key_data(words, impl=jax.random.key_impl(state.key))
    return eqx.tree_at(lambda s: s.key, state, key)


def _where_rows(rows: NDArray, new: NDArray, old: NDArray) -> NDArray:
    """The rows of `new` where `rows`, `(B,)` bool, is True, and of `old` elsewhere."""
    return np.where(rows.reshape(rows.shape + (1,) * (np.ndim(new) - 1)), new, old)


def _info(metrics: Mapping[str, NDArray], rows: NDArray) -> Info:
    """Metrics in Gymnasium's layout: zero where `rows` is False, and a mask beside each."""
    info: Info = {}
    if rows.any():
        everywhere = rows.all()
        for name, value in metrics.items():
            info[name] = value if everywhere else _where_rows(rows, value, value.dtype.type(0))
            info[f"_{name}"] = rows.copy()
    return info


def _final(obs: HostObservation, metrics: Mapping[str, NDArray], ended: NDArray) -> Info:
    """The last observations and metrics of the worlds of a mask, in Gymnasium's layout."""
    final = np.full(len(ended), None, object)
    for row in np.flatnonzero(ended):
        final[row] = jax.tree.map(lambda leaf, row=row: leaf[row].copy(), obs)
    return {
        "final_obs": final,
        "_final_obs": ended.copy(),
        "final_info": _info(metrics, ended),
        "_final_info": ended.copy(),
    }


def _return_freed_memory() -> None:
    """Gives what this process has freed back to the system; glibc alone keeps much of it."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
