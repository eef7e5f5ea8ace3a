"""A learner is a few pure functions; `run` is the loop around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np

from worldline.errors import TrainingDivergedError
from worldline.learn.policy import Policy
from worldline.types import Key, Metrics, PyTree

S = TypeVar("S")


class Halves(NamedTuple):
    """The two halves of an update, which different devices or processes can run at the same time.

    Their states are those of a training state: `acting`, the worlds, and `learning`, which has a
    method `that_acts` that leaves out what acting does not read.
    """

    act: Callable[[Any, Any], tuple[Any, Any]]
    """From `acting` and `learning` to `acting` after a rollout, and the rollout."""
    learn: Callable[[Any, Any], tuple[Any, Metrics]]
    """From `learning` and a rollout to `learning` after it, and metrics."""
    move: Callable[[Any, Metrics], Any]
    """From `acting` and those metrics to `acting` with the ranges that a curriculum has moved."""
    policy: Callable[[Any], Policy]
    """The policy of `learning`."""


class Learner(NamedTuple, Generic[S]):
    """An algorithm on a task: pure functions of the training state, a pytree."""

    init: Callable[[Key], S]
    """The state before any training."""
    update: Callable[[S], tuple[S, Metrics]]
    """The state after one round of acting and learning, and its metrics."""
    policy: Callable[[S], Policy]
    """The trained policy, on the device of the worlds."""
    steps_per_update: int
    """Environment steps that `update` takes, over all worlds."""
    parts: Mapping[str, Callable[[S], PyTree]] = {}
    """Parts of the state with which another run can begin, for example `actor`, `critic` and
    `statistics`: each name with the function that gets the part from a state."""
    update_in_place: Callable[[S], tuple[S, Metrics]] | None = None
    """The same as `update` with less memory: it may reuse, and so delete, the arrays of its
    argument. `run` calls it; None: `run` calls `update`. If you replace one of the two, replace
    both."""
    halves: Halves | None = None
    """The two halves of an update, if acting and learning can run apart."""


class Progress(NamedTuple, Generic[S]):
    """The progress of a run after an update."""

    step: int
    """Environment steps taken since the run began, over all worlds."""
    state: S
    metrics: dict[str, Any]
    """Numbers by name; for a population, arrays with a number for each member. A mean over episodes
    is NaN if none ended in the update."""
    seconds: float
    """Wall-clock time since the run began, compilation included."""
    update_seconds: float
    """Wall-clock time of this update alone."""


def run(learner: Learner[S], state: S, steps: int, start: int = 0) -> Iterator[Progress[S]]:
    """Trains for at least `steps` environment steps, and yields after every update.

    Everything else (evaluation, checkpoints, reports, early stopping) is the body of your loop.

    The state of a `Progress` is valid until the next iteration: the next update may reuse and
    delete its arrays. The last state stays valid after the loop. To keep a part longer, copy it,
    for example with `jax.tree.map(jnp.copy, learner.policy(progress.state))`.

    Args:
        learner: the algorithm.
        state: the initial state, or the state to continue from. The first update may reuse its
            arrays.
        steps: environment steps of the whole run, over all worlds.
        start: the steps that were taken before `state`.

    Raises:
        TrainingDivergedError: a metric of learning is no longer finite (metrics that begin with
            `train/` describe episodes and may be), or every simulation diverged at every step of an
            update. The last yielded state was good but is no longer valid; a copy of its policy is.
    """
    began = time.perf_counter()
    update = learner.update_in_place or learner.update
    step = start
    while step < steps:
        update_began = time.perf_counter()
        state, metrics = update(state)
        step += learner.steps_per_update
        numbers = {name: np.asarray(value)[()] for name, value in jax.device_get(metrics).items()}
        numbers = {n: v if isinstance(v, np.ndarray) else float(v) for n, v in numbers.items()}
        for name in ("train/return", "train/episode_length"):  # unknown, under JAX's NaN alarm too
            if name in numbers:
                numbers[name] = np.where(np.isneginf(numbers[name]), np.nan, numbers[name])[()]
        _check_finite(numbers, step)
        _check_simulations(numbers, learner.steps_per_update)
        now = time.perf_counter()
        yield Progress(step, state, numbers, now - began, now - update_began)


def _check_finite(metrics: dict[str, Any], step: int) -> None:
    for name, value in metrics.items():
        if name.startswith("train/"):
            continue
        bad = np.ravel(value)[~np.isfinite(np.ravel(value))]
        if bad.size:
            raise TrainingDivergedError(
                f"training diverged after {step} steps: {name} is {bad[0]}; lower the learning rate"
            )


def _check_simulations(metrics: dict[str, Any], steps: int) -> None:
    if np.any(np.asarray(metrics.get("train/diverged", 0)) >= steps):
        raise TrainingDivergedError(
            f"every simulation diverged at each of {steps} steps, so no episode gets beyond its "
            "start; worldline.check_env(env) says what diverges"
        )
