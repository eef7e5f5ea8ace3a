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
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return key
    width = jax.eval_shape(jax.random.PRNGKey, 0).shape
    if dtype == jnp.uint32 and key.shape[-1:] == width:
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise ConfigError(f"the key is {key!r}; give jax.random.key(seed)")
