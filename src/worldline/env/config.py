"""EnvConfig: how an environment is made, as data that a file can hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from worldline.rendering.camera import Camera


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """What an `Env` is made of beside its task.

    `Env.config` gives it, `Env.from_config` makes the environment again; a run folder stores it.
    """

    physics: str = "native"
    """The name of the engine; empty where a function of the user's builds it."""
    action_repeat: int = 1
    """Control steps of the task for which each action is taken."""
    last_action: bool = False
    """Whether the last action is part of the observation."""
    context: tuple[str, ...] = ()
    """The names of the context features."""
    visible: tuple[str, ...] = ()
    """Those that are part of the observation."""
    cameras: Mapping[str, Camera] = dataclasses.field(default_factory=dict)
    """Each camera by its name in the observation."""
    renderer: str = "auto"
    """What draws the images of the cameras."""
    not_stored: tuple[str, ...] = ()
    """What the environment is made of and no file can hold, in words; empty: nothing."""
