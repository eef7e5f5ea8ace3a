"""The arguments of a reset of worlds: seeds, and Gymnasium's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import jax
import numpy as np

from worldline.env.worlds import Worlds
from worldline.errors import VariationError, did_you_mean
from worldline.types import Key, NDArray

#: The variation and the context of all worlds, `(B, ...)` a field; None where none is given.
Parameters: TypeAlias = tuple[dict[str, Any] | None, dict[str, Any] | None]


def seed_keys(seeds: Sequence[int]) -> Key:
    """The random keys of worlds from their seeds: `jax.random.key(seed)` each, `(B,)`.

    A bridge with a seed starts like `Worlds.reset(seed_keys([seed, seed + 1, ...]))`.
    """
    return jax.vmap(jax.random.key)(np.array([seed % 2**32 for seed in seeds], np.uint32))


def world_seeds(
    seed: int | Sequence[int | None] | None, num_worlds: int
) -> list[int | None] | None:
    """The seed of each world, or None for a world without a new seed; None if no world has one.

    Args:
        seed: an integer, from which world i gets `seed + i`; or one for each world.
        num_worlds: B.

    Raises:
        gymnasium.error.Error: a seed that is no integer, negative, or of more than 32 bits.
        ValueError: another number of seeds than of worlds.
    """
    if seed is None:
        return None
    if isinstance(seed, int | np.integer):
        return [_check_seed(seed) + i for i in range(num_worlds)]
    if len(seed) != num_worlds:
        raise ValueError(
            "If seeds are passed as a list the length must match "
            f"num_envs={num_worlds} but got length={len(seed)}."
        )
    return [None if each is None else _check_seed(each) for each in seed]


def reset_options(worlds: Worlds, options: Mapping[str, Any]) -> tuple[NDArray, Parameters]:
    """The worlds to reset, `(B,)` bool, and the parameters of all worlds.

    Args:
        worlds: the worlds.
        options: may hold `reset_mask`, `variation` and `context`; see `VectorEnv.reset`.

    Raises:
        TypeError: the mask is no NumPy array of bool.
        ValueError: the mask has a wrong shape, or no True.
        VariationError: an unknown field or feature, a wrong shape or value, or values for worlds
            that draw theirs.
    """
    for option in options.keys() - {"reset_mask", "variation", "context"}:
        hint = did_you_mean(option, ("reset_mask", "variation", "context"))
        gymnasium.logger.warn(f"reset has no option {option!r}, and ignores it{hint}")
    rows = np.ones(worlds.num_worlds, bool)
    if "reset_mask" in options:
        rows = _check_mask(options["reset_mask"], worlds.num_worlds)
    env, variation, context = worlds.env, options.get("variation"), options.get("context")
    if variation is not None and worlds.domain is not None:
        raise VariationError(
            "these worlds draw their variation from a domain; give a variation or a domain, not "
            "both"
        )
    if context is not None and worlds.context is not None:
        raise VariationError(
            "these worlds draw their context; give the context to `Worlds` or to the reset, not "
            "both"
        )
    fields = _check_values("variation", variation, worlds, lambda f: env.model.constant(f).shape)
    features = _check_values("context", context, worlds, lambda feature: ())
    env.context.complete(env.model, features or {})
    return rows, (fields, features)


def _check_seed(seed: Any) -> int:
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise gymnasium.error.Error(f"the seed is {seed!r}; give an integer, 0 to {2**32 - 1}")
    return int(seed)


def _check_mask(mask: Any, num_worlds: int) -> NDArray:
    """The mask, after the checks of Gymnasium's own environments, with their messages."""
    name = "`options['reset_mask']`"
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"{name} must be a numpy array, got {type(mask)}")
    if mask.shape != (num_worlds,):
        raise ValueError(f"{name} must have shape `({num_worlds},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"{name} must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(
            f"{name} must contain a boolean array with at least one True value, "
            f"got reset_mask={mask}"
        )
    return mask


def _check_values(
    what: str, values: Any, worlds: Worlds, shape_of: Callable[[str], tuple[int, ...]]
) -> dict[str, NDArray] | None:
    """Values of all worlds as float32 arrays, `(B, *shape_of(name))`; None for none."""
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise VariationError(f"the {what} is a {type(values).__name__}; give a dict of fields")
    checked = {}
    for name, value in values.items():
        array, shape = np.array(value, np.float32), (worlds.num_worlds, *shape_of(name))
        if array.shape != shape:
            raise VariationError(
                f"the {what} of {name!r} has shape {array.shape}; give {shape}, "
                "the whole field for each world"
            )
        checked[name] = array
    return checked
