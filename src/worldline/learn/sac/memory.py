"""The replay buffer of SAC before training: what it keeps of observations, and whether it fits."""

from __future__ import annotations

import os

import jax
from jax.sharding import Mesh

from worldline.errors import ConfigError
from worldline.learn.replay import Replay
from worldline.learn.sac.config import SACConfig
from worldline.parallel.devices import default_device
from worldline.parallel.mesh import BY_WORLD, shared
from worldline.types import Observation


def kept(config: SACConfig, obs: Observation) -> Observation:
    """The parts of an observation that a network reads: the replay buffer keeps no others."""
    if not isinstance(obs, dict):
        return obs
    return {key: obs[key] for key in sorted({*config.actor_obs, *config.critic_keys(obs)})}


def empty_replay(config: SACConfig, obs: Observation, nact: int, mesh: Mesh | None) -> Replay:
    """A replay buffer without transitions, of which each device makes the share of its worlds.

    Args:
        config: says how large it is.
        obs: observations of all worlds.
        nact: the size of an action.
        mesh: the devices; None: one has all worlds.
    """
    shares, groups = 1 if mesh is None else mesh.size, config.groups()
    capacity = config.replay_capacity // groups * groups

    def share(obs: Observation) -> Replay:
        return Replay.empty(capacity // shares, obs, nact, groups // shares)

    return shared(mesh, share, (BY_WORLD,), BY_WORLD)(kept(config, obs))


def check_memory(config: SACConfig, obs: Observation, nact: int, mesh: Mesh | None) -> None:
    """Raises an error if a device cannot hold its share of the replay buffer in its memory.

    A run holds the buffer once. On a CPU, a checkpoint holds a second copy in the same memory, of
    the share that the process has: each is taken to have a machine's memory of its own.

    Raises:
        ConfigError: it does not fit.
    """
    kept_obs, groups = kept(config, obs), config.groups()

    def size(capacity: int) -> int:
        shapes = jax.eval_shape(lambda: Replay.empty(capacity, kept_obs, nact, groups))
        return sum(x.dtype.itemsize * x.size for x in jax.tree.leaves(shapes))

    shares = 1 if mesh is None else mesh.size
    times, room = 1, (default_device().memory_stats() or {}).get("bytes_limit", 0)
    if not room and hasattr(os, "sysconf"):  # a CPU, not on Windows
        shares = 1 if mesh is None else mesh.size // mesh.local_mesh.size
        times, room = 2, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = times * size(config.replay_capacity) // shares
    if room and needed > room:
        rows = (room * shares // times - size(0)) // (size(groups) - size(0))
        most = rows * groups
        raise ConfigError(
            f"training with a replay_capacity of {config.replay_capacity} needs "
            f"{needed / 1e9:.3g} GB, but there are {room / 1e9:.3g} GB of memory; lower "
            f"replay_capacity, to {most} or less"
        )
