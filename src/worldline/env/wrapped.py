"""A task around another one, such as one with disturbances or on a terrain."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from worldline.env.task import Task
from worldline.types import PyTree
from worldline.variation.domain import Ranges


def of_task(name: str) -> Any:
    """A property that has the value of the inner task's."""
    return property(operator.attrgetter(f"task.{name}"), doc=f"`{name}` of the task.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WrappedTask(Task):
    """A task around another task, with the functions of the inner task; a subclass changes some."""

    task: Task
    """The inner task."""
    episode_length: int = -1
    """Control steps after which an episode is truncated; 0 for no limit; -1: the task's own."""

    def __post_init__(self) -> None:
        if self.episode_length == -1:
            object.__setattr__(self, "episode_length", self.task.episode_length)

    refresh = of_task("refresh")
    control_at_physics_rate = of_task("control_at_physics_rate")
    defaults = of_task("defaults")
    domains = of_task("domains")
    control_timestep = of_task("control_timestep")
    fields = of_task("fields")
    changes = of_task("changes")
    action_bounds = of_task("action_bounds")
    action_parts = of_task("action_parts")
    symmetry = of_task("symmetry")
    camera = of_task("camera")
    start_ranges = of_task("start_ranges")

    def adapt(self, ranges: Ranges, total: PyTree) -> Ranges:
        """The task's."""
        return self.task.adapt(ranges, total)
