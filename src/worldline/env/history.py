"""History: several latest measurements of parts of an observation, not only the last one."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from worldline.env.parts import STATE, part_named, placed
from worldline.env.task import Task
from worldline.errors import ConfigError
from worldline.types import Array

#: The most measurements of a part.
LONGEST = 1000


def frames_by_part(task: Task, history: int | Mapping[str, int]) -> dict[str, int]:
    """The number of measurements of each part of a task's `state`, for parts with more than one.

    Args:
        task: names the parts.
        history: one number for all parts, or numbers by the parts' names.

    Raises:
        ConfigError: a number is not 1 to 1000.
        TaskError: the task names no such part, or none.
    """
    given = history if isinstance(history, Mapping) else {"": history}
    for name, number in given.items():
        whole = isinstance(number, int) and not isinstance(number, bool)
        if not whole or not 1 <= number <= LONGEST:
            of = f" of {name!r}" if name else ""
            raise ConfigError(f"history{of} is {number!r}; give 1 to {LONGEST} control steps")
    if isinstance(history, Mapping):
        for name in history:
            part_named(task, name)
        return {name: number for name, number in history.items() if number > 1}
    if history == 1:
        return {}
    parts = task.observation_parts.get(STATE, ())
    if not parts:
        part_named(task, "history")
    return {part.name: history for part in parts}


class History:
    """Makes a `state` in which some parts have several measurements, oldest first.

    It has no state of its own: earlier measurements are taken from the previous observation. At the
    start of an episode, the first measurement fills the history, as in Isaac Lab and mjlab.

    Args:
        task: names the parts of the state.
        frames: the number of measurements by part, from `frames_by_part`.
    """

    def __init__(self, task: Task, frames: Mapping[str, int]) -> None:
        parts = task.observation_parts[STATE]
        short, long = placed(parts), placed(parts, frames)
        #: The length of the state.
        self.size = long[-1].stop
        first, following = [], []
        for now, all_ in zip(short, long, strict=True):
            numbers = np.arange(now.start, now.stop)
            first += [numbers] * all_.frames
            # Of the state before and the one measured now, one behind the other.
            following += [np.arange(all_.start + now.part.size, all_.stop), self.size + numbers]
        self._first, self._following = (np.concatenate(x) for x in (first, following))

    def longer(self, state: Array, before: Array | None) -> Array:
        """The state with earlier measurements, `(size,)`.

        Args:
            state: the measured state, `(n,)`.
            before: the state of the previous step, `(size,)`; None at the start of an episode.
        """
        if before is None:
            return state[self._first]
        return jnp.concatenate([before, state])[self._following]
