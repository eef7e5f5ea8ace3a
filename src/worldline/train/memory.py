"""Checks the memory that the data of an update needs, before anything is computed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from jax.sharding import Mesh

from worldline.env.env import Env
from worldline.errors import ConfigError


def check_memory(env: Env, algorithm: Any, mesh: Mesh | None) -> None:
    """Checks that the samples of an update fit into the memory of this machine.

    Args:
        env: the environment of the samples.
        algorithm: the configuration of the algorithm.
        mesh: the devices that share the worlds; None: one.

    Raises:
        ConfigError: they need more memory than this machine has; the error says how much.
    """
    space = env.observation_space
    parts = getattr(space, "spaces", {"state": space}).values()
    observed = sum(np.dtype(part.dtype).itemsize * int(np.prod(part.shape)) for part in parts)
    # An action, its log-probability, a reward, the ends of episodes, a value.
    sample = observed + 4 * env.action_low.size + 16
    shares = 1 if mesh is None else mesh.size // mesh.local_mesh.size
    samples = max(algorithm.steps_per_update, getattr(algorithm, "replay_capacity", 0)) // shares
    wanted, there = samples * sample, _memory()
    if wanted > there:
        setting = (
            "num_worlds" if samples == algorithm.steps_per_update // shares else "replay_capacity"
        )
        raise ConfigError(
            f"{setting} is {getattr(algorithm, setting)}: {samples:,} samples of {sample:,} bytes "
            f"take {wanted / 2**30:,.1f} GiB, but this machine has {there / 2**30:,.1f} GiB; give "
            "a smaller number"
        )


def _memory() -> int:
    """The memory of this machine, in bytes; without end where it is not known."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**63
