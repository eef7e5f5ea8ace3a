"""Curricula of ranges: pure functions `(metrics, ranges) -> ranges`, part of the compiled update.

Episodes are drawn from ranges, which are data in the training state (`WorldsState.ranges`). So
changing them recompiles nothing, and a resumed run continues with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from worldline.errors import ConfigError, did_you_mean
from worldline.types import Array, Metrics, PyTree
from worldline.variation.domain import Ranges

#: Ranges after an update, from its metrics and the ranges before.
Curriculum = Callable[[Metrics, Ranges], Ranges]


def moved(curriculum: Curriculum | None, metrics: Metrics, ranges: Ranges) -> Ranges:
    """The ranges after an update, in the same dtypes; without a curriculum, the same ranges.

    If the curriculum returns a number that is not finite (for example because no episode ended in
    the update), the ranges do not change.

    Raises:
        ConfigError: the curriculum returned other names or shapes.
    """
    if curriculum is None:
        return ranges
    after = curriculum(metrics, ranges)
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (ranges, after)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"the curriculum turned ranges of shapes {shapes[0]} into {shapes[1]}; "
            "it must keep their names and shapes"
        )

    def taken(old: Array, new: Array) -> Array:
        return jnp.where(jnp.isfinite(new), jnp.asarray(new, old.dtype), old)

    return jax.tree.map(taken, ranges, after)


def schedule(start: Ranges, end: Ranges, updates: int) -> Curriculum:
    """Moves ranges linearly from `start` to `end`, independent of the policy.

    Args:
        start: the ranges after the first update, by name; other ranges do not change.
        end: the same ranges after `updates` updates and from then on.
        updates: the number of updates.

    Raises:
        ConfigError: `updates` is not positive, or the two have different names or shapes.
    """
    _check(start, end, updates)

    def curriculum(metrics: Metrics, ranges: Ranges) -> Ranges:
        share = jnp.clip(metrics["train/updates"].astype(jnp.float32) / updates, 0.0, 1.0)
        now = jax.tree.map(lambda a, b: a + share * (b - a), dict(start), dict(end))
        return {**_known(ranges, start), **now}

    return curriculum


def automatic(
    start: Ranges,
    limits: Ranges,
    *,
    widen_at: float,
    narrow_at: float,
    updates: int = 50,
) -> Curriculum:
    """Widens ranges while the return is high, and narrows them while it is low.

    After automatic domain randomization: Akkaya et al. (2019), "Solving Rubik's Cube with a robot
    hand", section 5, but with one measure of performance for all ranges (the mean return of the
    episodes that ended in the update), not one for each end of each range.

    Args:
        start: the narrowest ranges, by name, with which training begins.
        limits: the widest ranges, by the same names.
        widen_at: mean return from which the ranges widen by a step.
        narrow_at: mean return below which they narrow by a step.
        updates: steps from the narrowest to the widest.

    Raises:
        ConfigError: `updates` is not positive, `narrow_at` is above `widen_at`, or `start` and
            `limits` have different names or shapes.
    """
    if narrow_at > widen_at:
        raise ConfigError(
            f"narrow_at is {narrow_at:g}, above widen_at, which is {widen_at:g}; give a smaller "
            "narrow_at"
        )
    _check(start, limits, updates)

    def curriculum(metrics: Metrics, ranges: Ranges) -> Ranges:
        level = metrics["train/return"]
        step = jnp.where(level >= widen_at, 1.0, jnp.where(level < narrow_at, -1.0, 0.0)) / updates
        step = jnp.where(metrics["train/episodes"] > 0, step, 0.0)

        def stepped(now: Array, narrow: Array, wide: Array) -> Array:
            ends = jnp.minimum(narrow, wide), jnp.maximum(narrow, wide)
            return jnp.clip(now + step * (wide - narrow), *ends)

        now = {name: _known(ranges, start)[name] for name in start}
        return {**ranges, **jax.tree.map(stepped, now, dict(start), dict(limits))}

    return curriculum


def _known(ranges: Ranges, named: Mapping[str, PyTree]) -> Ranges:
    """The ranges themselves, if all of these names are among them."""
    for name in named:
        if name not in ranges:
            raise ConfigError(f"the worlds draw from no range {name!r}{did_you_mean(name, ranges)}")
    return ranges


def _check(start: Ranges, end: Ranges, updates: int) -> None:
    if updates < 1:
        raise ConfigError(f"updates is {updates}; give 1 or more")
    structures = [jax.tree.map(jnp.shape, dict(ranges)) for ranges in (start, end)]
    if structures[0] != structures[1]:
        raise ConfigError(
            f"the curriculum has {structures[0]} at its start and {structures[1]} at its end; give "
            "the same names and distributions"
        )
