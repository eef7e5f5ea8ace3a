"""Compiled programs that run on the thread of their caller.

On a CPU, JAX runs each program on another thread, so that Python continues in the meantime. A
caller that waits for each result gains nothing from this, and loses about 0.1 ms while the two
threads wake each other, which is half the time of a step of one world. Without this module,
`jax.jit` would give the same results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import SingleDeviceSharding

from worldline.env.worlds import Worlds
from worldline.host.calls import raised_as_it_is

R = TypeVar("R")


def jit_on_caller_thread(worlds: Worlds, function: Callable[..., R]) -> Callable[..., R]:
    """Compiles a function of worlds for a caller that waits for its results.

    The program runs on its caller's thread; with arrays of more than some hundred bytes, parts of
    it may run on XLA's own threads. An exception in its physics, or `KeyboardInterrupt`, is raised
    unchanged. The results are on `caller_device()`. If the worlds are on an accelerator or on
    several devices, this is `jax.jit`.
    """
    here = device_for_caller(worlds)
    if here is None:
        return jax.jit(function)
    return raised_as_it_is(jax.jit(function, in_shardings=here, out_shardings=here))


def device_for_caller(worlds: Worlds) -> SingleDeviceSharding | None:
    """Where programs of worlds run on their caller's thread; None: they do not."""
    device = caller_device()
    if worlds.device is None or worlds.device.platform != "cpu" or device is None:
        return None
    return SingleDeviceSharding(device)


@functools.cache
def caller_device() -> jax.Device | None:
    """The CPU as a device that runs programs on their caller's thread; None if JAX has none.

    JAX's own CPU client has such a mode, but for all of a process and only before it begins
    (`jax_cpu_enable_async_dispatch`). This device belongs to a second client.
    """
    try:
        from jaxlib import xla_client

        client: Any = xla_client.make_cpu_client(asynchronous=False, num_devices=1)
    except (ImportError, AttributeError, TypeError):  # another version of JAX
        return None
    device: jax.Device = client.local_devices()[0]
    return device
