"""Robots by name: the models of the MuJoCo Menagerie, which are downloaded on first use.

The package `mujoco-menagerie` knows their names, downloads a robot when it is first asked for, and
keeps it. Where the environment variable `MENAGERIE_ROOT` names a folder with robots, those are used
and nothing is downloaded. Each robot has its own licence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worldline.errors import MissingExtraError, ModelError, did_you_mean
from worldline.model import Model

#: What a robot of the Menagerie begins with where a file may be given as well.
MENAGERIE = "menagerie:"


def find(robot: str) -> Path:
    """The MJCF file of a robot: a file, or one of the Menagerie, as `menagerie:unitree_go2`."""
    return path(robot.removeprefix(MENAGERIE)) if robot.startswith(MENAGERIE) else Path(robot)


def load(name: str) -> Model:
    """A robot's model, in a scene with a floor and light where the Menagerie has one.

    Args:
        name: such as `unitree_go2`; one of `names()`.

    Raises:
        ModelError: there is no such robot, or it cannot be downloaded.
        MissingExtraError: the extra `robots` is not installed.
    """
    return Model(path(name))


def path(name: str) -> Path:
    """The MJCF file of that model; arguments and errors as of `load`."""
    menagerie = _menagerie()
    if name not in menagerie.names():
        hint = did_you_mean(name, menagerie.names())
        raise ModelError(f"the Menagerie has no robot {name!r}{hint}")
    try:
        return Path(menagerie.get(name).xml())
    except (menagerie.MenagerieError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"cannot get the robot {name!r}: {reason}; or give a folder that has it with "
            "MENAGERIE_ROOT"
        ) from error


def names() -> list[str]:
    """The names of all robots; nothing is downloaded.

    Raises:
        MissingExtraError: the extra `robots` is not installed.
    """
    return list(_menagerie().names())


def _menagerie() -> Any:
    try:
        import mujoco_menagerie
    except ImportError as error:
        raise MissingExtraError("a robot of the Menagerie", "robots") from error
    return mujoco_menagerie
