"""Worlds as a Gymnasium vector environment, in each of the three reset modes.

`Worlds.step` gives the true successor of every step *and* the first observation of the episode that
follows, and a mode is which of the two is shown, and when:

| mode | on the step that ends an episode | after it |
|---|---|---|
| NEXT_STEP | the true successor | one step, with its action ignored, shows the new episode |
| SAME_STEP | the new episode; the true successor is `info["final_obs"]` | |
| DISABLED | the true successor | `reset` with a `reset_mask` shows the new episode |

So the three give the same transitions, bit for bit.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from worldline.bridges.frames import RENDER_SIZE, LastStep, WorldsPainter
from worldline.bridges.seeds import seed_keys
from worldline.bridges.stepper import Stepper
from worldline.env.env import Env as WorldlineEnv
from worldline.env.worlds import Worlds, WorldsState
from worldline.errors import ConfigError, VariationError, WorldlineError, did_you_mean
from worldline.host.calls import raised_as_it_is
from worldline.types import Array, Key

NDArray: TypeAlias = np.ndarray[Any, Any]

#: NumPy arrays in the structure of an observation space.
HostObservation: TypeAlias = Any
Info: TypeAlias = dict[str, Any]

#: The variation and the context that a reset was given; None where it was given none.
_Given: TypeAlias = tuple[dict[str, Any] | None, dict[str, Any] | None]

RENDER_MODES = ["rgb_array"]


class EpisodeOverError(WorldlineError, AssertionError):
    """A step of a world whose episode is over; Gymnasium's own environments assert there."""


class VectorEnv(gymnasium.vector.VectorEnv[HostObservation, NDArray, NDArray]):
    """Worlds as a Gymnasium vector environment, which behaves as Gymnasium's `SyncVectorEnv` does.

    World i is seeded with `seed + i`. A step's `info` holds the task's metrics, `episode_return`,
    `episode_length` and `diverged`. What it returns are fresh NumPy arrays, the caller's to change.

    Args:
        worlds: the worlds.
        autoreset_mode: what happens where an episode ends; see this module.
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
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.render_mode = _check_render_mode(render_mode)
        self.render_size = render_size
        self.metadata = {**metadata(env), "autoreset_mode": self.autoreset_mode}
        # Copies, since a space has a random number generator of its own.
        self.single_action_space = copy.deepcopy(env.action_space)
        self.single_observation_space = copy.deepcopy(env.observation_space)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._seeds: tuple[int, ...] | None = None
        # The worlds, packed by a stepper; None before the first reset. Each structure of a state,
        # such as another set of varied constants, has a stepper of its own.
        self._packed: Array | None = None
        self._stepper: Stepper | None = None
        self._steppers: dict[Any, Stepper] = {}
        # The observation that was shown last. Callers get copies of it.
        self._shown: HostObservation = None
        self._everyone = np.ones(self.num_envs, bool)
        # The worlds whose new episode has begun, but has not been shown yet.
        self._waiting = np.zeros(self.num_envs, bool)
        self._last: LastStep | None = None
        self._painter: WorldsPainter | None = None

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
            seed: an integer, from which world i gets `seed + i`; or one for each world. None goes
                on with a world's own random numbers.
            options: may hold `reset_mask`, `(num_envs,)` bool, the worlds to reset; `variation`,
                the constants of each world, MjModel field name to `(num_envs, *shape)`; and
                `context`, the values of context features, each `(num_envs,)`. The last two stay
                until others are given; `{}` brings the model's, or the features', own back.

        Returns:
            What to act on, in every world, and an empty dict.

        Raises:
            ResetNeeded: a mask in the first reset leaves worlds out.
            VariationError: an unknown field or feature, a wrong shape or value, other fields than
                before in a reset of some worlds, or values for worlds that draw theirs.
        """
        self._check_open()
        seeds = self._row_seeds(seed)
        given = {} if options is None else dict(options)
        rows = np.ones(self.num_envs, bool)
        if "reset_mask" in given:
            rows = self._check_reset_mask(given.pop("reset_mask"))
        variation = self._check_variation(given.pop("variation", None))
        context = self._check_context(given.pop("context", None))
        for option in given:
            hint = did_you_mean(option, ("reset_mask", "variation", "context"))
            gymnasium.logger.warn(f"reset has no option {option!r}, and ignores it{hint}")
        self._begin(rows, seeds, (variation, context))
        self._waiting[rows] = False
        obs = jax.device_get(self._state().obs)
        if not rows.all():
            obs = jax.tree.map(functools.partial(_where_rows, rows), obs, self._shown)
        self._shown = obs
        return jax.tree.map(np.array, obs), {}

    def step(self, actions: NDArray) -> tuple[HostObservation, NDArray, NDArray, NDArray, Info]:
        """Steps the worlds; in NEXT_STEP, those whose episode is over show their new one instead.

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
        stepper, packed = self._begun()
        mask = None
        if np.ndim(actions) == 0:
            raise TypeError(f"the actions are {actions!r}; give an array {self.action_space.shape}")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._waiting.any():
            over = np.flatnonzero(self._waiting)
            raise EpisodeOverError(
                f"the episodes of {len(over)} worlds are over, that of world {over[0]} first; "
                "call reset(options={'reset_mask': terminated | truncated})"
            )
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and self._waiting.any():
            mask = ~self._waiting
            if np.shape(actions) == self.action_space.shape:
                actions = np.where(mask[:, None], actions, 0)
        self._packed, seen, final_obs = stepper.step(packed, actions, mask)
        self._shown = jax.tree.map(np.array, seen.obs)
        ended = seen.terminated | seen.truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            final = _final(jax.device_get(final_obs), seen.metrics, ended)
            info = _info(seen.metrics, ~ended) | final
        else:
            info = _info(seen.metrics, self._everyone if mask is None else mask)
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._waiting = ended
        if self.render_mode is not None:
            self._last = LastStep(stepper.unpack(packed), np.array(actions), ended)
        return seen.obs, seen.reward.astype(np.float64), seen.terminated, seen.truncated, info

    def render(self) -> tuple[NDArray, ...] | None:
        """A picture of each world, `(height, width, 3)` uint8; None without a `render_mode`."""
        if self.render_mode is None:
            gymnasium.logger.warn("render needs a mode: make the environment with 'rgb_array'")
            return None
        state = self._state()
        if self._painter is None:
            self._painter = WorldsPainter(self.worlds, self.render_size)
        last = self._last
        return self._painter.paint(state, last and last._replace(ended=self._waiting))

    def close_extras(self, **kwargs: Any) -> None:
        """Lets the worlds go, and what draws them."""
        self._packed = self._stepper = self._shown = self._last = None
        self._steppers.clear()
        if self._painter is not None:
            self._painter.close()
            self._painter = None

    def _begin(self, rows: NDArray, seeds: Sequence[int | None] | None, given: _Given) -> None:
        """Begins new episodes where `rows`, unless one has just begun there and nothing is new."""
        if self._packed is None and not rows.all():
            raise ResetNeeded("no world has begun yet; reset all of them first, without a mask")
        seeded = np.zeros_like(rows)
        if seeds is not None:
            seeded = rows & np.array([seed is not None for seed in seeds])
            new, old = np.array(seeds, object), np.array(self.np_random_seed, object)
            self._seeds = tuple(np.where(seeded, new, old).tolist())
        if self._packed is None:
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
        """Puts the worlds into a state."""
        kind = jax.tree.structure(state)
        if kind not in self._steppers:
            same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
            self._steppers[kind] = Stepper(self.worlds, state, same_step)
        self._stepper = self._steppers[kind]
        self._packed = self._stepper.pack(state)

    def _state(self) -> WorldsState:
        """The state of the worlds, once a reset has begun their episodes."""
        stepper, packed = self._begun()
        return stepper.unpack(packed)

    def _begun(self) -> tuple[Stepper, Array]:
        """The packed worlds and their stepper, once a reset has begun their episodes."""
        self._check_open()
        if self._stepper is None or self._packed is None:
            raise ResetNeeded("no world has begun yet; call reset first")
        return self._stepper, self._packed

    def _row_seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None] | None:
        """A seed, or None, for each world; or None for all."""
        if seed is None:
            return None
        if isinstance(seed, int | np.integer):
            _check_seed(seed)
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                "If seeds are passed as a list the length must match "
                f"num_envs={self.num_envs} but got length={len(seed)}."
            )
        return [None if row is None else _check_seed(row) for row in seed]

    def _check_reset_mask(self, mask: Any) -> NDArray:
        """The mask, after Gymnasium's own checks, with its messages."""
        name = "`options['reset_mask']`"
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"{name} must be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"{name} must have shape `({self.num_envs},)`, got {mask.shape}")
        if mask.dtype != np.bool_:
            raise TypeError(f"{name} must have `dtype=np.bool_`, got {mask.dtype}")
        if not mask.any():
            raise ValueError(
                f"{name} must contain a boolean array with at least one True value, "
                f"got reset_mask={mask}"
            )
        return mask

    def _check_variation(self, variation: Any) -> dict[str, NDArray] | None:
        """The variation of all worlds as float32 arrays."""
        if variation is not None and self.worlds.domain is not None:
            raise VariationError(
                "these worlds draw their variation from a domain; give one or the other"
            )
        constant = self.worlds.env.model.constant
        return self._check_rows("variation", variation, lambda field: constant(field).shape)

    def _check_context(self, context: Any) -> dict[str, NDArray] | None:
        """The context of all worlds as float32 arrays."""
        if context is not None and self.worlds.context is not None:
            raise VariationError("these worlds draw their context; give one or the other")
        checked = self._check_rows("context", context, lambda feature: ())
        self.worlds.env.context.complete(self.worlds.env.model, checked or {})
        return checked

    def _check_rows(
        self, what: str, values: Any, shape_of: Callable[[str], tuple[int, ...]]
    ) -> dict[str, NDArray] | None:
        """Values of each world as float32 arrays; None for none."""
        if values is None:
            return None
        if not isinstance(values, Mapping):
            raise VariationError(f"the {what} is a {type(values).__name__}; give a dict of fields")
        checked = {}
        for field, value in values.items():
            array, shape = np.array(value, np.float32), (self.num_envs, *shape_of(field))
            if array.shape != shape:
                raise VariationError(
                    f"the {what} of {field!r} has shape {array.shape}; give {shape}, "
                    "the whole field for each world"
                )
            checked[field] = array
        return checked

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the environment is closed; make a new one")

    def __getstate__(self) -> dict[str, Any]:
        # Compiled programs and engines are not pickled, but built again.
        left: dict[str, Any] = {
            "worlds": None,
            "_painter": None,
            "_steppers": {},
            "_stepper": None,
            "_packed": None,
        }
        state = None if self._packed is None else self._state()
        return {**vars(self), **left, "_made_of": (_recipe(self.worlds), state)}

    def __setstate__(self, values: dict[str, Any]) -> None:
        (env, worlds), state = values.pop("_made_of")
        vars(self).update(values)
        self.worlds = Worlds(WorldlineEnv(*env), *worlds)
        if state is not None:
            self._pack(state)


def metadata(env: WorldlineEnv) -> dict[str, Any]:
    """What Gymnasium wants to know of an environment: how to draw it, and how fast."""
    fps = max(1, round(1 / env.control_timestep))
    return {"render_modes": list(RENDER_MODES), "render_fps": fps}


def _autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    names = [each.value for each in AutoresetMode]
    if mode not in names:
        raise ConfigError(f"there is no autoreset mode {mode!r}{did_you_mean(mode, names)}")
    return AutoresetMode(mode)


def _check_render_mode(mode: str | None) -> str | None:
    if mode is not None and mode not in RENDER_MODES:
        raise ConfigError(f"there is no render mode {mode!r}; give 'rgb_array', or None")
    return mode


def _check_seed(seed: Any) -> int:
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise gymnasium.error.Error(f"the seed is {seed!r}; give an integer that is 0 or more")
    return int(seed)


def _put_given(state: WorldsState, rows: NDArray, given: _Given) -> WorldsState:
    """The state with other constants and context where `rows`."""
    held = jax.device_get(state.fixed)
    variation, context = (old if new is None else new for new, old in zip(given, held, strict=True))
    new = (variation, context)
    if not rows.all():
        for value, old in zip(new, held, strict=True):
            if old.keys() != value.keys():
                raise VariationError(
                    f"a reset of some worlds cannot change what varies, now {sorted(old)}, to "
                    f"{sorted(value)}; give the same fields, or reset all worlds"
                )
        new = jax.tree.map(functools.partial(_where_rows, rows), new, held)
    return dataclasses.replace(state, fixed=new)


def _put_keys(state: WorldsState, rows: NDArray, keys: Key) -> WorldsState:
    """The state with other random numbers where `rows`."""
    new, old = (np.asarray(jax.random.key_data(key)) for key in (keys, state.key))
    words = jnp.asarray(_where_rows(rows, new, old))
    key = jax.random.wrap_key_data(words, impl=jax.random.key_impl(state.key))
    return eqx.tree_at(lambda s: s.key, state, key)


def _where_rows(rows: NDArray, new: NDArray, old: NDArray) -> NDArray:
    """The rows of `new` where `rows`, `(B,)` bool, is True, and of `old` elsewhere."""
    return np.where(rows.reshape(rows.shape + (1,) * (np.ndim(new) - 1)), new, old)


def _info(metrics: Mapping[str, NDArray], rows: NDArray) -> Info:
    """Metrics in Gymnasium's layout: zero outside of `rows`, and a mask beside each."""
    info: Info = {}
    if rows.any():
        everywhere = rows.all()
        for name, value in metrics.items():
            info[name] = value if everywhere else _where_rows(rows, value, value.dtype.type(0))
            info[f"_{name}"] = rows.copy()
    return info


def _final(obs: HostObservation, metrics: Mapping[str, NDArray], ended: NDArray) -> Info:
    """The true ends of episodes, in Gymnasium's layout."""
    final = np.full(len(ended), None, object)
    for row in np.flatnonzero(ended):
        final[row] = jax.tree.map(lambda leaf, row=row: leaf[row].copy(), obs)
    return {
        "final_obs": final,
        "_final_obs": ended.copy(),
        "final_info": _info(metrics, ended),
        "_final_info": ended.copy(),
    }


def _recipe(worlds: Worlds) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What an environment and worlds of it are built from."""
    env, drawn = worlds.env, (worlds.domain, worlds.context, worlds.resample_every)
    made_of = (env.task, env.engine, env.context, env.cameras, env.action_repeat, env.last_action)
    return made_of, (worlds.num_worlds, worlds.episode_length, *drawn)
