"""Worldline: many worlds, one pure function.

Batched MuJoCo reinforcement learning in which the physics of every world is data.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from worldline.env.check import check_env as check_env
    from worldline.env.check_domain import check_domain as check_domain
    from worldline.env.env import Env as Env
    from worldline.env.env import EnvState as EnvState
    from worldline.env.episodes import WorldsState as WorldsState
    from worldline.env.task import Outcome as Outcome
    from worldline.env.task import Start as Start
    from worldline.env.task import Task as Task
    from worldline.env.worlds import Step as Step
    from worldline.env.worlds import Worlds as Worlds
    from worldline.errors import WorldlineError as WorldlineError
    from worldline.export.policy_file import load_policy as load_policy
    from worldline.learn.policy import Policy as Policy
    from worldline.model import Model as Model
    from worldline.rendering.camera import Camera as Camera
    from worldline.tasks.registry import list_tasks as list_tasks
    from worldline.tasks.registry import make as make
    from worldline.tasks.registry import register as register
    from worldline.watch.saved import load_state as load_state
    from worldline.watch.show import show as show

#: Public name to the module that defines it; imported when first asked for.
_PUBLIC = {
    "Camera": "worldline.rendering.camera",
    "Env": "worldline.env.env",
    "EnvState": "worldline.env.env",
    "Model": "worldline.model",
    "Outcome": "worldline.env.task",
    "Policy": "worldline.learn.policy",
    "Start": "worldline.env.task",
    "Step": "worldline.env.worlds",
    "Task": "worldline.env.task",
    "WorldlineError": "worldline.errors",
    "Worlds": "worldline.env.worlds",
    "WorldsState": "worldline.env.episodes",
    "check_domain": "worldline.env.check_domain",
    "check_env": "worldline.env.check",
    "list_tasks": "worldline.tasks.registry",
    "load_policy": "worldline.export.policy_file",
    "load_state": "worldline.watch.saved",
    "make": "worldline.tasks.registry",
    "register": "worldline.tasks.registry",
    "show": "worldline.watch.show",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name == "robots":
        return importlib.import_module("worldline.robots")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'worldline' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if "gymnasium" in sys.modules:
    from worldline.bridges.registration import register_built_in

    register_built_in()
