"""EnvConfig: the configuration of an environment, which a file can store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Literal

from worldline.env.disturb import Disturbance
from worldline.rendering.camera import Camera
from worldline.settings import Range, check_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The arguments of an `Env` other than its task, as data; a run folder stores them.

    `Env.config` gives it, and `Env.from_config` makes the environment again.
    """

    physics: str = "native"
    """The name of the engine; empty if a function of the user's builds it."""
    action_repeat: Annotated[int, Range(1, 10_000)] = 1
    """Control steps of the task for which each action is taken."""
    last_action: bool = False
    """Whether the last action is part of the observation."""
    context: tuple[str, ...] = ()
    """The names of the context features."""
    visible: tuple[str, ...] = ()
    """The names of the context features that are part of the observation."""
    cameras: Mapping[str, Camera] = dataclasses.field(default_factory=dict)
    """Each camera by its name in the observation."""
    renderer: Literal["auto", "opengl", "warp"] = "auto"
    """The renderer of the cameras' images."""
    disturbances: tuple[Disturbance, ...] = ()
    """Delays, noise and pushes, in the order in which actions and observations pass through them.
    """
    history: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The number of latest measurements in the observation, for each part of the state that has
    more than one."""
    not_stored: tuple[str, ...] = ()
    """Descriptions of the arguments that no file can store, for example a user's function."""

    def __post_init__(self) -> None:
        check_settings(self)
