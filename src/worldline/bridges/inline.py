"""Programs on the thread of their caller.

JAX hands each program of a CPU to a thread of its own, so that Python goes on meanwhile. Whoever
steps worlds from outside of JAX waits for every step: to him, two threads that wake each other are
a tenth of a millisecond lost, in which a few worlds could have taken a step.
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


def jit(worlds: Worlds, function: Callable[..., R]) -> Callable[..., R]:
    """A compiled function of worlds, whose results someone waits for.

    It runs on its caller's thread, and an exception in its physics, or `KeyboardInterrupt`, is
    raised as it is. What it returns is on a device of its own, `caller_device`. It is `jax.jit`'s
    where the worlds are on an accelerator, or on several devices.
    """
    device = caller_device()
    if worlds.mesh is not None or jax.default_backend() != "cpu" or device is None:
        return jax.jit(function)
    here = SingleDeviceSharding(device)
    return raised_as_it_is(jax.jit(function, in_shardings=here, out_shardings=here))


@functools.cache
def caller_device() -> jax.Device | None:
    """The CPU, by a client of our own that runs programs where they are called; None without one.

    JAX's own client has such a mode, but for all of a process and only before it begins
    (`jax_cpu_enable_async_dispatch`).
    """
    try:
        from jaxlib import xla_client

        client: Any = xla_client.make_cpu_client(asynchronous=False, num_devices=1)
    except (ImportError, AttributeError, TypeError):  # of a JAX to come
        return None
    device: jax.Device = client.local_devices()[0]
    return device
