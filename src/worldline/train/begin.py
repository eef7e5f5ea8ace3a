"""What a new run takes from an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.errors import ConfigError, did_you_mean
from worldline.learn.run import Learner
from worldline.report import RunFolder
from worldline.train.checkpoint import restore_part
from worldline.train.records import best_seed
from worldline.types import Key, PyTree

S = TypeVar("S")


def begin_from(path: Path | None, learner: Learner[S], parts: Sequence[str]) -> Learner[S]:
    """The learner with an `init` that loads parts from the last checkpoint of another run.

    Args:
        path: the run folder of that run; of a run of several seeds, its best seed counts. None: the
            unchanged learner.
        learner: the learner of one seed.
        parts: names from `learner.parts`.

    Raises:
        ConfigError: the algorithm has no such part.
        RunError: the run has no checkpoint, or the part has another shape in it.
    """
    if path is None:
        return learner
    for name in parts:
        if name not in learner.parts:
            hint = did_you_mean(name, learner.parts)
            raise ConfigError(f"there is no part {name!r} to begin with{hint}")
    folder = RunFolder.open(path)
    seeds = int(folder.config["seeds"])
    best = best_seed(folder) if seeds > 1 else None

    def part(name: str, like: PyTree) -> PyTree:
        if best is None:
            return restore_part(folder.path, name, like)
        of_all = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), like)
        return jax.tree.map(lambda x: x[best], restore_part(folder.path, name, of_all))

    def init(key: Key) -> S:
        state = learner.init(key)
        for name in parts:
            where = learner.parts[name]
            state = eqx.tree_at(where, state, part(name, where(state)))
        return state

    return learner._replace(init=init)
