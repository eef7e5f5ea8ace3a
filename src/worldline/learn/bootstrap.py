"""Values of what follows each step of a rollout, without a second copy of its images.

What followed a step is what was acted on in the next one, unless an episode ended in between. Then
it is worth nothing after a termination, and where the episode was cut (by the time limit, or a
diverged simulation) its value can be had at once, from the critic that will learn from the rollout.
So a rollout need not hold what images followed: `T B height width channels` bytes in place of twice
as many, and the values are the same.
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

#: Where, in `final_obs`, the value of a cut episode's last observation stands.
CUT_VALUE = "cut_value"


class LeanWorlds(Generic[StateT]):
    """Worlds, for `unroll`, that report no final images but what those of a cut episode are worth.

    `final_obs` has the value in their place, as `cut_value`, `(B,)`: 0 where no episode was cut.

    Args:
        worlds: whose observations have images.
        value_of: the critic, from observations `(n, ...)` to values `(n,)`.
    """

    def __init__(self, worlds: Steppable[StateT], value_of: Callable[[Observation], Array]) -> None:
        self.worlds, self.value_of = worlds, value_of
        self.num_worlds = worlds.num_worlds

    def step(self, state: StateT, action: Array) -> tuple[StateT, Step]:
        """As `Worlds.step`."""
        state, step = self.worlds.step(state, action)
        final_obs = dict(step.final_obs)
        value = cut_value(self.value_of, final_obs, step.truncated)
        numbers = {name: part for name, part in final_obs.items() if not is_image(name)}
        return state, step._replace(final_obs={**numbers, CUT_VALUE: value})


def cut_value(
    value_of: Callable[[Observation], Array], final_obs: Observation, cut: Array
) -> Array:
    """The values of some worlds' observations, `(B,)`, and 0 for the others.

    What it costs follows the number of those worlds, not B.

    Args:
        value_of: from observations `(n, ...)` to values `(n,)`.
        final_obs: of all worlds, `(B, ...)` a leaf.
        cut: which to evaluate, `(B,)` bool.
    """
    num_worlds = cut.shape[0]
    size = min(num_worlds, max(4, num_worlds // 64))  # few at a time: few end with most steps
    order = jnp.argsort(~cut, stable=True)  # those to evaluate go first

    def evaluate(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        begin, values = carry
        place = begin + jnp.arange(size)
        rows = order.at[place].get(mode="fill", fill_value=0)
        taken: Any = jax.tree.map(lambda x: x[rows], final_obs)
        where = jnp.where((place < num_worlds) & cut[rows], rows, num_worlds)
        return begin + size, values.at[where].set(value_of(taken), mode="drop")

    number = cut.sum()
    start = jnp.int32(0), jnp.zeros(num_worlds)
    return jax.lax.while_loop(lambda carry: carry[0] < number, evaluate, start)[1]


def next_values(value: Array, last_value: Array, cut_value: Array, ended: Array) -> Array:
    """The value of each step's true successor, `(T, B)`, for `generalized_advantage`.

    Args:
        value: of what was acted on, `(T, B)`.
        last_value: of what is to be acted on after the rollout, `(B,)`.
        cut_value: of the last observations of cut episodes, `(T, B)`; 0 where none was cut.
        ended: whether an episode ended with the step, `(T, B)` bool.
    """
    following = jnp.concatenate([value[1:], last_value[None]])
    return jnp.where(ended, cut_value, following)
