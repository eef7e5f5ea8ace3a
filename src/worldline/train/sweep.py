"""Sweep: evaluates a policy over a grid of contexts, for example gravities."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.env import Env
from worldline.env.worlds import DomainLike
from worldline.errors import ConfigError
from worldline.learn.policy import Policy
from worldline.learn.rollout import evaluator
from worldline.types import Key
from worldline.variation.context import Context

NDArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

#: About how many worlds one compiled evaluation has.
_WORLDS = 256


def sweep(
    env: Env,
    policy: Policy,
    axes: Mapping[str, NDArray],
    episodes: int,
    key: Key,
    progress: Callable[[float], None] = lambda share: None,
    domain: DomainLike | None = None,
) -> NDArray:
    """Evaluates a policy at every point of a grid, with the most likely actions.

    Points are evaluated in batches, and every batch has the same starts.

    Args:
        env: the environment in which the policy was trained; missing context features are added,
            and the policy does not observe them.
        policy: the policy.
        axes: the values of each feature, `(n,)`.
        episodes: the number of episodes at each point.
        key: the random key of the starts.
        progress: is called with the finished share of the work, from 0 to 1.
        domain: as in `Worlds`; the context sets its fields after the domain's draw.

    Returns:
        The return of each episode, `(*axes, episodes)`.

    Raises:
        VariationError: the model offers no such feature, or a value is outside its bounds.
        ConfigError: there is no axis, or an episode has no time limit.
    """
    if not axes:
        raise ConfigError(
            "context is empty; give features to evaluate over, for example gravity=-15:-5:11"
        )
    if added := [name for name in axes if name not in env.context.names]:
        shown = env.context.visible
        env = env.but(context=Context((*env.context.requested, *added), visible=shown))
    env.context.complete(env.model, axes)
    points = np.array(list(itertools.product(*axes.values())), np.float32)
    at_once = min(len(points), max(1, _WORLDS // episodes))
    evaluate = evaluator(env, at_once * episodes, domain=domain)
    returns = []
    for begin in range(0, len(points), at_once):
        # The last point fills up the last batch.
        chosen = points[np.minimum(np.arange(begin, begin + at_once), len(points) - 1)]
        worlds = np.repeat(chosen, episodes, axis=0)
        context = {name: jnp.asarray(worlds[:, i]) for i, name in enumerate(axes)}
        result = jax.device_get(evaluate(policy, jax.random.clone(key), context))
        returns.append(result.episode_return.reshape(at_once, episodes))
        progress(min(1.0, (begin + at_once) / len(points)))
    shape = (*(len(values) for values in axes.values()), episodes)
    return np.concatenate(returns)[: len(points)].reshape(shape).astype(float)
