"""Sampling: where in a motion episodes begin, more often before the places where they fail.

The adaptive sampling of Liao et al. (2025), "BeyondMimic: from motion tracking to versatile
humanoid control via guided diffusion", section III: the motion is cut into bins; failures are
counted in the bin where they happen, with exponential forgetting; starts are drawn from these
counts, smoothed towards earlier bins, and a share of even draws.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from worldline.types import Array, Key


def number_of_bins(frames: int, timestep: float) -> int:
    """Bins of about a second, of a motion of so many frames."""
    return int(frames * timestep + 1e-6) + 1


def chances(failures: Array, even: float, look_back: float, reach: int) -> Array:
    """The probability of each bin, `(n,)`.

    Args:
        failures: counts, `(n,)`.
        even: what is added to all counts together, in equal shares.
        look_back: the factor by which a failure weighs less for each bin that is earlier.
        reach: how many bins a failure counts for: its own, and so many less one before it.
    """
    weights = failures + even / len(failures)
    kernel = look_back ** np.arange(reach)
    later = jnp.minimum(jnp.arange(len(failures))[:, None] + np.arange(reach), len(failures) - 1)
    smoothed = weights[later] @ jnp.asarray(kernel / kernel.sum(), jnp.float32)
    return smoothed / jnp.sum(smoothed)


def drawn_frame(key: Key, probabilities: Array, frames: int) -> Array:
    """A frame, `()` int32: a bin by its probability, and anywhere in it."""
    bin_key, place_key = jax.random.split(key)
    index = jnp.float32(jax.random.categorical(bin_key, jnp.log(probabilities)))
    place = (index + jax.random.uniform(place_key, (), jnp.float32)) / len(probabilities)
    return jnp.minimum(jnp.int32(place * (frames - 1)), frames - 2)


def failed_bin(frame: Array, failed: Array, frames: int, bins: int) -> Array:
    """One failure in the bin of a frame, zeros elsewhere and without a failure: `(bins,)`."""
    index = jnp.clip(frame * bins // frames, 0, bins - 1)
    return jnp.where(failed, jax.nn.one_hot(index, bins, dtype=jnp.float32), 0.0)


def counted(failures: Array, new: Array, rate: float) -> Array:
    """The counts after a step of all worlds, `(n,)`: a moving average of the failures in a step."""
    return (1 - rate) * failures + rate * new
