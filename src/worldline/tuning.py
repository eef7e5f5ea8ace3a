"""Compiled programs in the user's cache folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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
