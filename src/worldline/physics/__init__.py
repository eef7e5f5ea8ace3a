"""Engines: what happens to a world in a control step."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeAlias, cast

from worldline.errors import ConfigError, did_you_mean
from worldline.model import Model
from worldline.physics.base import Physics, Reads

#: An engine: its name, or a function that builds one (`functools.partial(NativePhysics, ...)`).
Engine: TypeAlias = str | Callable[[Model, Reads], Physics]

_ENGINES = {
    "native": "worldline.physics.native:NativePhysics",
    "mjx": "worldline.physics.mjx:MjxPhysics",
    "warp": "worldline.physics.warp:WarpPhysics",
    "fake": "worldline.physics.fake:FakePhysics",
}

#: Engines that run no MuJoCo model, but what brings its own physics.
_OF_OTHERS = {"brax": "worldline.physics.brax:BraxPhysics"}


def engines() -> tuple[str, ...]:
    """The names of the engines that run MuJoCo models."""
    return tuple(_ENGINES)


def refusal(engine: str, model: Model, reads: Reads) -> str:
    """Why `mjx` or `warp` cannot run a model, in one line; empty where it can. Builds no engine.

    Raises:
        MissingExtraError: the engine is not installed.
    """
    module = importlib.import_module(f"worldline.physics.{engine}.engine")
    return cast(str, module.refusal(model, reads))


def make_physics(engine: Engine, model: Model, reads: Reads) -> Physics:
    """Builds an engine for a model.

    Raises:
        ConfigError: there is no engine of that name.
        ModelError: the engine cannot run the model.
    """
    if not isinstance(engine, str):
        return engine(model, reads)
    places = _ENGINES | _OF_OTHERS
    if engine not in places:
        hint = did_you_mean(engine, _ENGINES)
        raise ConfigError(f"there is no physics engine {engine!r}{hint}")
    module, name = places[engine].split(":")
    build = cast(Callable[[Model, Reads], Physics], getattr(importlib.import_module(module), name))
    return build(model, reads)
