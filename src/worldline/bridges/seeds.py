"""What a seed means to every bridge."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from worldline.types import Key


def seed_keys(seeds: Sequence[int]) -> Key:
    """The keys that stand for seeds, `(B,)`: `jax.random.key(seed)` each.

    A bridge with a seed begins as `Worlds.reset(seed_keys([seed, seed + 1, ...]))` does.
    """
    return jax.vmap(jax.random.key)(np.array([seed % 2**32 for seed in seeds], np.uint32))
