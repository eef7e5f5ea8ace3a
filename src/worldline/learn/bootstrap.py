"""The truncation bootstrap: the critic's value of the observation at which an episode was cut.

If a time limit (or a diverged simulation) cuts an episode, more reward would have followed, so its
last step uses the value of its last observation. A rollout with every last observation would store
its images twice. `TruncationBootstrap` stores their values instead. The values are the same, and
save `T B height width channels` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import jax
import jax.numpy as jnp

from worldline.env.worlds import Step
from worldline.learn.batched_env import StateT, Steppable
from worldline.rendering.camera import is_image
from worldline.types import Array, Observation

#: The name of those values in `final_obs`.
BOOTSTRAP_VALUE = "bootstrap_value"


class TruncationBootstrap(Generic[StateT]):
    """Worlds for `unroll`: their `final_obs` has `bootstrap_value` `(B,)` in place of images.

    If the step truncated an episode, this is the value of the last observation, otherwise 0.

    Args:
        worlds: worlds with images in their observations.
        value_of: the critic, from observations `(n, ...)` to values `(n,)`.
    """

    def __init__(self, worlds: Steppable[StateT], value_of: Callable[[Observation], Array]) -> None:
        self.worlds, self.value_of = worlds, value_of
        self.num_worlds = worlds.num_worlds

    def step(self, state: StateT, action: Array) -> tuple[StateT, Step]:
        """As `Worlds.step`."""
        state, step = self.worlds.step(state, action)
        final_obs = dict(step.final_obs)
        value = values_where(step.truncated, self.value_of, final_obs)
        numbers = {name: part for name, part in final_obs.items() if not is_image(name)}
        return state, step._replace(final_obs={**numbers, BOOTSTRAP_VALUE: value})


def values_where(
    chosen: Array, value_of: Callable[[Observation], Array], obs: Observation
) -> Array:
    """The values of the chosen worlds' observations, and 0 for the other worlds, `(B,)`.

    Only the chosen observations are evaluated, a few at a time.

    Args:
        chosen: `(B,)` bool.
        value_of: from observations `(n, ...)` to values `(n,)`.
        obs: of all worlds, `(B, ...)` a leaf.
    """
    num_worlds = chosen.shape[0]
    size = min(num_worlds, max(4, num_worlds // 64))  # few at a time: few end with most steps
    order = jnp.argsort(~chosen, stable=True)  # the chosen go first

    def evaluate(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        begin, values = carry
        place = begin + jnp.arange(size)
        rows = order.at[place].get(mode="fill", fill_value=0)
        taken: Any = jax.tree.map(lambda x: x[rows], obs)
        where = jnp.where((place < num_worlds) & chosen[rows], rows, num_worlds)
        return begin + size, values.at[where].set(value_of(taken), mode="drop")

    number = chosen.sum()
    start = jnp.int32(0), jnp.zeros(num_worlds)
    return jax.lax.while_loop(lambda carry: carry[0] < number, evaluate, start)[1]


def next_values(value: Array, last_value: Array, bootstrap_value: Array, ended: Array) -> Array:
    """The value of each step's true successor, `(T, B)`, for `generalized_advantage`.

    Args:
        value: of the observation that was acted on, `(T, B)`.
        last_value: of the observation to act on after the rollout, `(B,)`.
        bootstrap_value: of the last observation of each truncated episode, `(T, B)`; 0 elsewhere.
        ended: whether an episode ended with the step, `(T, B)` bool.
    """
    following = jnp.concatenate([value[1:], last_value[None]])
    return jnp.where(ended, bootstrap_value, following)
