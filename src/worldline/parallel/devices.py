"""Which device a program runs on: worlds where they live, a learner where it learns.

A program of JAX runs where the arrays are that it is given; arrays that nobody has placed are on
JAX's default device. So a device is chosen by placing arrays, and by nothing else.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, TypeVar

import jax

from worldline.errors import ConfigError

T = TypeVar("T")


def default_device() -> jax.Device:
    """JAX's default device in this process: that of `jax.default_device`, or else its first one."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    return chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]


@functools.cache
def cpu_device() -> jax.Device:
    """The CPU, which JAX has beside any accelerator.

    Raises:
        ConfigError: JAX was told not to use it.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
        raise ConfigError(
            f"JAX_PLATFORMS is {platforms!r}, but these worlds are simulated on a CPU; set it to "
            f"'{platforms},cpu', or unset it"
        ) from error


def put(tree: T, device: jax.Device | None) -> T:
    """The arrays of a tree on a device; None: the tree as it is.

    Within a compiled program, which runs on one device, nothing moves.
    """
    # Leaf by leaf: under `vmap` JAX's own way through a tree needs all leaves mapped alike.
    return tree if device is None else jax.tree.map(lambda x: jax.device_put(x, device), tree)


def computing_on(device: jax.Device) -> contextlib.AbstractContextManager[Any]:
    """A context in which this device is JAX's default one."""
    same = unless_default(device) is None
    return contextlib.nullcontext() if same else jax.default_device(device)


def unless_default(device: jax.Device | None) -> jax.Device | None:
    """The device; None if JAX computes there anyway, so that nothing need be placed."""
    return None if device == default_device() else device


def apart(worlds: jax.Device | None) -> tuple[jax.Device | None, jax.Device | None]:
    """Where a learner acts and where it learns, to `put` arrays there.

    It learns on JAX's default device, as of now.

    Args:
        worlds: the device of the worlds; None: several devices.

    Returns:
        Two devices; None twice where both are the same, so that nothing need be placed.
    """
    here = unless_default(worlds)
    return here, None if here is None else default_device()
