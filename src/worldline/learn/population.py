"""Population: several seeds, or several values of a hyperparameter, train in one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from worldline.learn.run import Learner
from worldline.types import Key, Metrics, PyTree

S = TypeVar("S")


def population(learner: Learner[S]) -> Learner[S]:
    """A learner of n members: every leaf of its state and policy has a first axis of members.

    Each member learns the same as `learner` with its key, except that XLA may sum numbers in
    another order. `init` takes keys, `(n,)`; metrics are `(n,)`; a step counts once for any n.

    ```
    members = population(learner)
    state = members.init(jax.random.split(jax.random.key(0), 4))
    state = jax.vmap(lambda state, clip: with_hyperparameters(state, clip=clip))(state, clips)
    state, metrics = members.update(state)
    ```
    """

    def init(keys: Key) -> S:
        return _stacked(*(learner.init(key) for key in keys))

    def of_all(update: Callable[[S], tuple[S, Metrics]]) -> Callable[[S], tuple[S, Metrics]]:
        def update_all(states: S) -> tuple[S, Metrics]:
            # Not inside one more `jit`: an update stays the learner's own programs, which JAX can
            # keep in its compilation cache. JAX's check for keys used twice does not follow keys
            # into a `vmap`, and would take all of them as used.
            with jax.debug_key_reuse(False):
                return jax.vmap(update)(states)

        return update_all

    in_place = learner.update_in_place
    return learner._replace(
        init=init,
        update=of_all(learner.update),
        policy=jax.vmap(learner.policy),
        update_in_place=in_place and of_all(in_place),
    )


@jax.jit
def _stacked(*trees: PyTree) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
