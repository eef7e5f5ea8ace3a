"""The algorithms by name: the configuration of each, and the function that makes its learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, did_you_mean
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.run import Learner
from worldline.learn.sac import SACConfig, sac
from worldline.learn.shac import SHACConfig, shac


class Algorithm(NamedTuple):
    """A way to learn."""

    config: type[Any]
    """A frozen dataclass with defaults for every field, `num_worlds` among them."""
    learner: Callable[[Worlds, Any], Learner[Any]]
    """Makes the learner from worlds and a configuration."""


_ALGORITHMS = {
    "ppo": Algorithm(PPOConfig, ppo),
    "sac": Algorithm(SACConfig, sac),
    "shac": Algorithm(SHACConfig, shac),
}


def list_algorithms() -> list[str]:
    """The names of all algorithms."""
    return sorted(_ALGORITHMS)


def find_algorithm(name: str) -> Algorithm:
    """The algorithm of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in _ALGORITHMS:
        hint = did_you_mean(name, _ALGORITHMS)
        raise ConfigError(f"there is no algorithm {name!r}{hint}")
    return _ALGORITHMS[name]


def name_of_algorithm(config: Any) -> str:
    """The name of the algorithm that this configuration configures.

    Raises:
        ConfigError: it configures none.
    """
    for name, algorithm in _ALGORITHMS.items():
        if isinstance(config, algorithm.config):
            return name
    known = ", ".join(algorithm.config.__name__ for algorithm in _ALGORITHMS.values())
    raise ConfigError(
        f"a {type(config).__name__} is not the configuration of an algorithm; give one of {known}"
    )
