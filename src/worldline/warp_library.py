"""NVIDIA's Warp and MuJoCo Warp, which are optional: imported when they are first needed."""

from __future__ import annotations

import contextlib
import ctypes.util
import functools
import importlib.util
import os
from collections.abc import Iterator
from typing import Any


def installed() -> bool:
    """Whether MuJoCo Warp can be imported."""
    return importlib.util.find_spec("mujoco_warp") is not None


def has_nvidia() -> bool:
    """Whether Warp has an NVIDIA card to run on."""
    return _has_driver() and bool(warp().is_cuda_available())


@functools.cache
def warp() -> Any:
    """Warp, without its greeting, and without a word of cards on a machine that has none."""
    import warp

    warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)
    with contextlib.nullcontext() if _has_driver() else _silent():
        warp.init()
    return warp


def mujoco_warp() -> Any:
    """MuJoCo Warp."""
    warp()
    import mujoco_warp

    return mujoco_warp


def _has_driver() -> bool:
    return any(map(ctypes.util.find_library, ("cuda", "nvcuda")))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keeps what a library in C writes to standard error from the terminal."""
    terminal = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)
