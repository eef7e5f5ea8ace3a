"""Compiled programs that run on the thread of their caller.

JAX hands each program of a CPU to another thread, so that Python goes on meanwhile. A caller who
waits for each result gains nothing from that, and loses about 0.1 ms while the two threads wake
each other: half the time of a step of one world. Without this module, `jax.jit` would do.
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
    """Compiles a function of worlds, for a caller who waits for its results.

    The program runs on its caller's thread; parts of it may run beside it on XLA's own threads
    where arrays have more than some hundred bytes. An exception in its physics, or
    `KeyboardInterrupt`, is raised as it is. The results are on `caller_device()`. Where the worlds
    are on an accelerator, or on several devices, this is `jax.jit`.
    """
    device = caller_device()
    if worlds.device is None or worlds.device.platform != "cpu" or device is None:
        return jax.jit(function)
    here = SingleDeviceSharding(device)
    return raised_as_it_is(jax.jit(function, in_shardings=here, out_shardings=here))


@functools.cache
def caller_device() -> jax.Device | None:
    """The CPU as a device that runs programs on their caller's thread; None where JAX has none.

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
