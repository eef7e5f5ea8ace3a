"""Settings of JAX and MuJoCo, for a whole process, that make Worldline faster.

The `worldline` command and the benchmarks call `tune_process` once, at their start. No import and
no step does: in a program of yours nothing is set unless you call it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

_tuned = contextlib.ExitStack()


def tune_process() -> None:
    """Sets up this process for Worldline alone; a second call changes nothing more.

    - Compiled programs are kept in the user's cache folder.
    - JAX's random numbers are drawn without a loop, with the same bits; see `worldline.threefry`.
    - MuJoCo does not time its own stages; see `worldline.mujoco_c.without_timers`.
    """
    from worldline.mujoco_c import without_timers
    from worldline.threefry import write_out

    use_compilation_cache()
    write_out()
    _tuned.enter_context(without_timers())


def use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder, for the next process."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = cache_folder() / "worldline" / "jax"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return  # everything works without
        jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def cache_folder() -> Path:
    """Where this platform has programs keep what they can make again."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
