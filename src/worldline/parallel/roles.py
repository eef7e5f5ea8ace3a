"""Processes of which some act and others learn.

It is the layout that Hessel et al. (2021), "Podracer architectures for scalable Reinforcement
Learning", section 4, call Sebulba. Processes 0 to L - 1 learn, as the devices of a mesh of their
own; the others act, as the devices of another mesh. A learner has equally many actors, those of its
share of the worlds, and exchanges one message with each of them: a rollout one way, a policy the
other way. Messages travel between CPUs by JAX's own collectives, whatever device learns.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from worldline.errors import ConfigError
from worldline.parallel.config import ClusterConfig
from worldline.parallel.mesh import mesh_of
from worldline.types import Array

_AXIS = "pair"


@dataclasses.dataclass(frozen=True)
class Roles:
    """What each process does."""

    learners: int
    """The first L processes, which learn."""
    actors: int
    """The others, which act."""
    process: int
    """The number of this process."""

    @property
    def acts(self) -> bool:
        """Whether this process acts."""
        return self.process >= self.learners

    @property
    def actor_mesh(self) -> Mesh:
        """The CPUs of the processes that act."""
        return mesh_of(cpus()[self.learners :])

    @property
    def learner_mesh(self) -> Mesh | None:
        """The devices of the processes that learn; None: one learns, on a device of its own."""
        if self.learners == 1:
            return None
        of = {device.process_index: device for device in reversed(jax.devices())}
        return mesh_of([of[process] for process in range(self.learners)])

    @property
    def mesh(self) -> Mesh | None:
        """The devices of this process and of those with the same role."""
        return self.actor_mesh if self.acts else self.learner_mesh

    @property
    def partners(self) -> list[Mesh]:
        """The pairs of this process, each of a learner and an actor, in the actors' order."""
        each, devices = self.actors // self.learners, cpus()
        pairs = [(actor // each, self.learners + actor) for actor in range(self.actors)]
        mine = [pair for pair in pairs if self.process in pair]
        return [Mesh(np.array([devices[index] for index in pair]), (_AXIS,)) for pair in mine]


def swap(pair: Mesh, mine: Array, words: int) -> Array:
    """Sends this process's message to the other process of a pair, and gives the other's.

    Both must call it.

    Args:
        pair: of `Roles.partners`.
        mine: the message, `(n,)` uint32.
        words: the length of the other's.

    Returns:
        `(words,)` uint32, on this process's CPU.
    """
    first = int(pair.devices.flat[0].process_index != jax.process_index("cpu"))
    cpu = pair.devices.flat[first]
    row, blank = jax.device_put(mine, cpu)[None], _blank(words, cpu)
    rows = (blank, row) if first else (row, blank)
    sharding = NamedSharding(pair, P(_AXIS))
    both = (
        jax.make_array_from_single_device_arrays((2, *each.shape[1:]), sharding, [each])
        for each in rows
    )
    from_learner, from_actor = _swapping(pair)(*both)
    return (from_learner if first else from_actor).addressable_data(0)[0]


@functools.lru_cache
def _swapping(pair: Mesh) -> Callable[[Array, Array], tuple[Array, Array]]:
    """A program that sends the first's row of one array to the second, and the second's row of
    another one to the first.
    """

    def send(of_first: Array, of_second: Array) -> tuple[Array, Array]:
        return (
            jax.lax.ppermute(of_first, _AXIS, [(0, 1)]),
            jax.lax.ppermute(of_second, _AXIS, [(1, 0)]),
        )

    return jax.jit(
        jax.shard_map(send, mesh=pair, in_specs=P(_AXIS), out_specs=P(_AXIS), check_vma=False)
    )


@functools.lru_cache
def _blank(words: int, device: jax.Device) -> Array:
    """What this process has in the place of the other's message."""
    return jax.device_put(jnp.zeros((1, words), jnp.uint32), device)


def cpus() -> Sequence[jax.Device]:
    """One device of each process, in their order: a CPU, or else what there is."""
    try:
        devices = jax.devices("cpu")
    except RuntimeError:  # JAX was told not to use it
        devices = jax.devices()
    of = {device.process_index: device for device in reversed(devices)}
    return [of[process] for process in sorted(of)]


def take_role(config: ClusterConfig) -> Roles:
    """The roles of the processes, once they have joined and before anything else of JAX.

    Accelerators are for learning. Those of the learners know of each other alone: JAX would wait
    for those of all processes.

    Raises:
        ConfigError: there are not so many processes.
    """
    from jax._src.distributed import global_state  # the only place that says it before devices do

    learners, process = config.learners or 1, int(global_state.process_id or 0)
    if process >= learners:
        jax.config.update("jax_platforms", "cpu")
    else:
        among_learners = {"num_nodes": learners, "node_id": process}
        jax.config.update("jax_pjrt_client_create_options", among_learners)
    there = jax.process_count("cpu")
    if there != learners + config.actors:
        raise ConfigError(
            f"{learners} learners and {config.actors} actors are {learners + config.actors} "
            f"processes, and {there} were started"
        )
    return Roles(learners, config.actors, process)
