"""MJX's own code, imported without its notices, and how a part of it is replaced.

Where one of MJX's functions must call ours instead of another of its own, a copy of it gets other
globals; MJX itself stays as it is for everyone else.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import inspect
import io
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax

from worldline.errors import ConfigError, MissingExtraError, install_command

#: The version whose private parts are used here.
TESTED = "3.17"


def check_installed() -> None:
    """Refuses a machine without MJX, or with a version whose private parts may be others.

    Raises:
        MissingExtraError: MJX is not installed.
        ConfigError: it is of another version than the one that is tested.
    """
    if importlib.util.find_spec("mujoco.mjx") is None:
        raise MissingExtraError("the engine 'mjx'", "mjx")
    version = importlib.metadata.version("mujoco-mjx")
    if not version.startswith(f"{TESTED}."):
        raise ConfigError(
            f"the engine 'mjx' needs mujoco-mjx {TESTED}, but {version} is installed: "
            f"{install_command('mjx')}"
        )


check_installed()

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    from mujoco import mjx as mjx  # prints which optional parts are absent
    from mujoco.mjx._src import collision_driver as mjx_collision
    from mujoco.mjx._src import constraint as mjx_constraint
    from mujoco.mjx._src import derivative as mjx_derivative
    from mujoco.mjx._src import forward as mjx_forward
    from mujoco.mjx._src import io as mjx_io
    from mujoco.mjx._src import math as mjx_math
    from mujoco.mjx._src import passive as mjx_passive
    from mujoco.mjx._src import scan as mjx_scan
    from mujoco.mjx._src import smooth as mjx_smooth
    from mujoco.mjx._src import solver as mjx_solver
    from mujoco.mjx._src import support as mjx_support
    from mujoco.mjx._src.types import DataJAX as DataJAX

__all__ = [
    "DataJAX",
    "lenient",
    "mjx",
    "mjx_collision",
    "mjx_constraint",
    "mjx_derivative",
    "mjx_forward",
    "mjx_io",
    "mjx_math",
    "mjx_passive",
    "mjx_scan",
    "mjx_smooth",
    "mjx_solver",
    "mjx_support",
    "with_globals",
    "with_names",
]


def with_globals(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """A copy of a function of MJX to which some global names mean other things."""
    plain: Any = inspect.unwrap(function)
    return types.FunctionType(
        plain.__code__, _replaced(plain.__globals__, names), plain.__name__, plain.__defaults__
    )


def with_names(module: types.ModuleType, **names: Any) -> types.SimpleNamespace:
    """The content of a module of MJX, with other things under some of its names."""
    return types.SimpleNamespace(**_replaced(vars(module), names))


def _replaced(everything: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """All names, some of them with another meaning.

    Raises:
        ImportError: MJX does not have one of these names.
    """
    missing = names.keys() - everything.keys()
    if missing:
        raise ImportError(f"this version of mujoco-mjx has no {min(missing)}; use {TESTED}")
    return {**everything, **names}


def lenient() -> contextlib.AbstractContextManager[Any]:
    """JAX's usual promotion of types, on which MJX relies, whatever its user has chosen."""
    return jax.numpy_dtype_promotion("standard")
