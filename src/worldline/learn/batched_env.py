"""Where policies act: what unrolling and learning ask of worlds, whoever simulates them.

`worldline.Worlds` has it all, and `worldline.bridges.gymnasium.ExternalWorlds` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from worldline.env.worlds import Step
from worldline.types import Array, Key, Observation

if TYPE_CHECKING:
    import numpy as np
    from gymnasium import spaces
    from jax.sharding import Mesh

    from worldline.variation.domain import Ranges


class BatchedEnvState(Protocol):
    """Worlds between two steps: a dataclass that is a pytree."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def obs(self) -> Observation:
        """What to act on next, `(B, ...)`."""

    @property
    def ranges(self) -> Ranges:
        """The numbers that later episodes are drawn from, by name."""


class EnvSpec(Protocol):
    """The environment that all of the worlds are of."""

    @property
    def action_low(self) -> np.ndarray[Any, Any]:
        """Lowest action, `(nact,)`."""

    @property
    def action_high(self) -> np.ndarray[Any, Any]:
        """Highest action, `(nact,)`."""

    @property
    def action_space(self) -> spaces.Box:
        """Actions of one world."""

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Observations of one world: a `Box`, or a flat `Dict` of them."""


StateT = TypeVar("StateT", bound=BatchedEnvState)


class Steppable(Protocol[StateT]):
    """Worlds that can be unrolled."""

    @property
    def num_worlds(self) -> int:
        """B."""

    def step(self, state: StateT, action: Array, /) -> tuple[StateT, Step]:
        """All worlds one control step later, as `Worlds.step`; it is called inside `jit`."""


class BatchedEnv(Steppable[StateT], Protocol[StateT]):
    """Worlds that a learner trains in."""

    @property
    def env(self) -> EnvSpec:
        """The environment."""

    @property
    def mesh(self) -> Mesh | None:
        """The devices that share the worlds; None: all are on one."""

    def reset(self, key: Key, /) -> StateT:
        """All worlds at the start of their first episode."""

    def stagger(self, state: StateT, /) -> StateT:
        """The worlds with their present episodes cut so that they end in turn, as
        `Worlds.stagger`; or as they are, where they cannot be.
        """
