"""Traces: the last seconds of each world's numbers, for live plots."""

from __future__ import annotations

import collections
from typing import Any, TypeAlias

import numpy as np

from worldline.watch.session import Seen

NDArray: TypeAlias = np.ndarray[Any, Any]

#: Points of a curve at most; more would take longer to send than to see.
_POINTS = 120


class Traces:
    """Keeps reward, return, metrics and actions of all worlds for some seconds.

    Args:
        timestep: seconds between two steps.
        seconds: how much to keep.
    """

    def __init__(self, timestep: float, seconds: float = 10.0) -> None:
        self._timestep = timestep
        self._kept: collections.deque[tuple[int, Seen]] = collections.deque(
            maxlen=max(2, round(seconds / timestep))
        )

    def add(self, taken: int, seen: Seen) -> None:
        """Adds a step; `taken` is its number."""
        self._kept.append((taken, seen))

    def clear(self) -> None:
        """Forgets everything."""
        self._kept.clear()

    def curves(self, world: int) -> dict[str, tuple[NDArray, ...]]:
        """The curves of a world: time in seconds first, then one array for each curve.

        Their names are `reward`, `return`, `metrics` (those of the task in their order) and
        `action`.
        """
        kept = list(self._kept)
        kept = kept[:: max(1, len(kept) // _POINTS)]
        if len(kept) < 2:
            return {}
        time = np.array([taken for taken, _ in kept]) * self._timestep

        def of(values: list[Any]) -> tuple[NDArray, ...]:
            table = np.asarray(values, np.float64).reshape(len(kept), -1)
            return (time, *table.T)

        rows = [seen for _, seen in kept]
        found = {
            "reward": of([seen.reward[world] for seen in rows]),
            "return": of([seen.episode_return[world] for seen in rows]),
        }
        if rows[0].metrics:
            found["metrics"] = of([[x[world] for x in seen.metrics.values()] for seen in rows])
        if rows[0].action.shape[1]:
            found["action"] = of([seen.action[world] for seen in rows])
        return found
