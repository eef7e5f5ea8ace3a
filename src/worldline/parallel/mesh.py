"""Several devices, of one process or of many, that share the worlds of a training.

They are a mesh of one axis. What belongs to a world lies on the device that has it; all else, such
as networks, is the same on every device. Programs are written as for one device: where a mean over
worlds is taken, XLA adds up the devices' shares. So the numbers are those of one device up to the
order in which they are summed, and the worlds are the same bit for bit; with an engine of XLA's
(MJX, Brax) up to rounding, since XLA may round otherwise in programs for fewer worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from worldline.errors import ConfigError
from worldline.types import PyTree

F = TypeVar("F", bound=Callable[..., Any])

_AXIS = "worlds"

#: How an array lies on the devices: each has its share of the first axis, of the second, or all.
BY_WORLD, STEPS_BY_WORLD, EVERYWHERE = P(_AXIS), P(None, _AXIS), P()


def world_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh | None:
    """A mesh for `Worlds`; None where there is one device alone, which shares with nobody.

    Args:
        devices: by default all, of all processes.
    """
    devices = jax.devices() if devices is None else devices
    return None if len(devices) == 1 and jax.process_count() == 1 else mesh_of(devices)


def mesh_of(devices: Sequence[jax.Device]) -> Mesh:
    """A mesh of these devices, also of one."""
    return Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))


def check_shares(num_worlds: int, mesh: Mesh | None) -> None:
    """Refuses worlds that cannot be shared evenly.

    Raises:
        ConfigError: the devices of the mesh do not divide their number.
    """
    devices = 1 if mesh is None else mesh.size
    if num_worlds % devices:
        near = max(num_worlds // devices, 1) * devices
        raise ConfigError(
            f"{num_worlds} worlds do not divide over {devices} devices; give {near} or "
            f"{near + devices} worlds"
        )


def shared(mesh: Mesh | None, function: F, takes: PyTree, gives: PyTree) -> F:
    """The function of worlds as every device of the mesh runs it on its own share of them.

    Args:
        mesh: the devices; None: the function as it is.
        function: of worlds that do not depend on each other; no device waits for another, except in
            `sum_over_shares`.
        takes: `BY_WORLD` or `EVERYWHERE` for each of its arguments, or for parts of them.
        gives: the same of what it returns.
    """
    if mesh is None:
        return function
    return jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives, check_vma=False)


def sum_over_shares(mesh: Mesh | None, mine: PyTree) -> PyTree:
    """Inside of a `shared` function: the sum of what the devices have, which wait for each other.

    Args:
        mesh: the devices; None: there is one, and nothing to add.
        mine: arrays of this device's share.
    """
    return mine if mesh is None else jax.lax.psum(mine, _AXIS)


def mean_over_shares(mesh: Mesh | None, function: F, takes: PyTree, samples: int) -> F:
    """The function of a minibatch, such as a mean loss with its gradient, as the mean of what it
    gives for the devices' shares.

    All of a result travels as one vector. Left to itself, XLA sends a message for each array, and
    between processes every message is waited for.

    Args:
        mesh: the devices; None: the function as it is.
        function: gives means over its samples, in floating point.
        takes: `BY_WORLD` or `EVERYWHERE` for each of its arguments, or for parts of them.
        samples: in the minibatch. Where they do not divide, every device works on all of them.
    """
    if mesh is None or samples % mesh.size:
        return function

    def mean(*arguments: Any) -> Any:
        mine, as_before = ravel_pytree(function(*arguments))
        return as_before(jax.lax.pmean(mine, _AXIS))

    return shared(mesh, cast(F, mean), takes, EVERYWHERE)
