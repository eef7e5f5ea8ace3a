"""Keys of random numbers as callers give them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from worldline.errors import ConfigError
from worldline.types import Key


def as_key(key: Any) -> Key:
    """A key, or an array of keys, from `jax.random.key` or from the older `jax.random.PRNGKey`.

    Args:
        key: keys of any shape; of the older kind, `uint32` words with an axis of their own behind.

    Raises:
        ConfigError: it is neither, such as a plain number.
    """
    if hasattr(key, "dtype") and is_key(key):
        return key
    width = jax.eval_shape(jax.random.PRNGKey, 0).shape
    if getattr(key, "dtype", None) == jnp.uint32 and key.shape[-1:] == width:
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise ConfigError(f"the key is {key!r}; give jax.random.key(seed)")


def is_key(leaf: Any) -> bool:
    """Whether an array, or the shape of one, holds keys of the newer kind."""
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))
