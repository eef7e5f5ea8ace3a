"""Algorithms by name: for each its configuration and the function that makes a learner of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, did_you_mean
from worldline.learn.run import Learner


class Algorithm(NamedTuple):
    """A way to learn."""

    config: type[Any]
    """A frozen dataclass with defaults for every field, `num_worlds` among them."""
    learner: Callable[[Worlds, Any], Learner[Any]]
    """Makes the learner from worlds and a configuration."""


def _ppo() -> Algorithm:
    from worldline.learn.ppo import PPOConfig, ppo

    return Algorithm(PPOConfig, ppo)


def _sac() -> Algorithm:
    from worldline.learn.sac import SACConfig, sac

    return Algorithm(SACConfig, sac)


def _shac() -> Algorithm:
    from worldline.learn.shac import SHACConfig, shac

    return Algorithm(SHACConfig, shac)


# Each is imported when it is asked for: what one needs, the others do not wait for.
_ALGORITHMS: dict[str, Callable[[], Algorithm]] = {"ppo": _ppo, "sac": _sac, "shac": _shac}


def list_algorithms() -> list[str]:
    """The names of all algorithms."""
    return sorted(_ALGORITHMS)


@functools.cache
def find_algorithm(name: str) -> Algorithm:
    """The algorithm of a name.

    Raises:
        ConfigError: there is none.
    """
    if name not in _ALGORITHMS:
        hint = did_you_mean(name, _ALGORITHMS)
        raise ConfigError(f"there is no algorithm {name!r}{hint}")
    return _ALGORITHMS[name]()


def name_of_algorithm(config: Any) -> str:
    """The name of the algorithm that a configuration is one of.

    Raises:
        ConfigError: of none.
    """
    for name in _ALGORITHMS:
        if isinstance(config, find_algorithm(name).config):
            return name
    known = ", ".join(find_algorithm(name).config.__name__ for name in _ALGORITHMS)
    raise ConfigError(f"a {type(config).__name__} configures no algorithm; give one of {known}")
