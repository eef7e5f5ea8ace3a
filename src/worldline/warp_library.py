"""NVIDIA's Warp and MuJoCo Warp, which are optional: imported when they are first needed."""

from __future__ import annotations

import ctypes.util
import functools
import importlib.util
from typing import Any


def installed() -> bool:
    """Whether MuJoCo Warp can be imported."""
    return importlib.util.find_spec("mujoco_warp") is not None


def has_nvidia() -> bool:
    """Whether Warp has an NVIDIA card to run on."""
    driver = any(map(ctypes.util.find_library, ("cuda", "nvcuda")))
    return driver and bool(warp().is_cuda_available())


@functools.cache
def warp() -> Any:
    """Warp, without its greeting."""
    import warp

    warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)
    warp.init()
    return warp


def mujoco_warp() -> Any:
    """MuJoCo Warp."""
    warp()
    import mujoco_warp

    return mujoco_warp
