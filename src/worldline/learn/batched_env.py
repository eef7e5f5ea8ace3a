"""The protocols of worlds: the methods that rollouts and learners need, with any simulator.

`worldline.Worlds` and `worldline.bridges.gymnasium.ExternalWorlds` implement all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from worldline.env.worlds import Step
from worldline.types import Array, Key, Observation

if TYPE_CHECKING:
    import jax
    import numpy as np
    from gymnasium import spaces
    from jax.sharding import Mesh

    from worldline.variation.domain import Ranges


class BatchedEnvState(Protocol):
    """The state of worlds between two steps: a dataclass that is a pytree."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def obs(self) -> Observation:
        """The observation to act on next, `(B, ...)`."""

    @property
    def ranges(self) -> Ranges:
        """The ranges from which later episodes are drawn, by name."""


class EnvSpec(Protocol):
    """The environment; every world is a copy of it."""

    @property
    def action_low(self) -> np.ndarray[Any, Any]:
        """Lowest action, `(nact,)`."""

    @property
    def action_high(self) -> np.ndarray[Any, Any]:
        """Highest action, `(nact,)`."""

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """The observations of one world: a `Box`, or a flat `Dict` of boxes."""


StateT = TypeVar("StateT", bound=BatchedEnvState)


class Steppable(Protocol[StateT]):
    """Worlds that a policy can act in."""

    @property
    def num_worlds(self) -> int:
        """The number of worlds, B."""

    def step(self, state: StateT, action: Array, /) -> tuple[StateT, Step]:
        """The worlds one control step later, as `Worlds.step`; called inside `jit`."""


class BatchedEnv(Steppable[StateT], Protocol[StateT]):
    """Worlds that a learner trains in."""

    @property
    def env(self) -> EnvSpec:
        """The environment."""

    @property
    def device(self) -> jax.Device | None:
        """The device of the worlds; None: several devices share them."""

    @property
    def mesh(self) -> Mesh | None:
        """The devices that share the worlds; None: all are on one."""

    def reset(self, key: Key, /) -> StateT:
        """All worlds at the start of their first episode."""

    def stagger(self, state: StateT, /) -> StateT:
        """The worlds with shortened current episodes, so that they end one after the other, as in
        `Worlds.stagger`. If episodes cannot be shortened, the worlds do not change.
        """
