"""Environments of Brax and MuJoCo Playground as worlds, and our environments for Brax.

`BraxWorlds` are `Worlds` with all their properties: newly drawn starts, the true final observation,
separate `terminated` and `truncated`, and no effect of one bad world on others. The environment's
system is data: its fields, named by paths, are drawn for each episode, and nothing recompiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from worldline.env.env import Env, EnvState
from worldline.env.worlds import DomainLike, Worlds
from worldline.keys import as_key
from worldline.tasks.brax import brax_env, import_brax
from worldline.types import Array
from worldline.variation.domain import as_domain

_base = import_brax("brax.envs.base")


class BraxWorlds(Worlds):
    """Worlds of an environment of Brax or MuJoCo Playground.

    Numbers that an environment computed from its system when it was made (a torso's mass, for
    example) do not change. Constants that MuJoCo derives from a field are not computed again.

    Args:
        env: a `brax.envs.Env` or a Playground `MjxEnv`, not wrapped for training; or `brax_env`
            of one.
        num_worlds: B.
        episode_length: steps after which an episode is truncated; 0 for no limit.
        domain: draws fields of the system for each episode: a `Domain` whose targets are paths
            (`scale("link.inertia.mass", Uniform(0.5, 2.0))`), or a function `(key, model, ranges)
            -> {path: value}`, in which `model.system` is the system.
        resample_every: as in `Worlds`.
        mesh: as in `Worlds`.

    Raises:
        ConfigError: the environment is wrapped for training, or as in `Worlds`.
        VariationError: the system has no such field, or the environment does not read it; or as in
            `Worlds`.
    """

    def __init__(
        self,
        env: Any,
        num_worlds: int,
        episode_length: int = 1000,
        domain: DomainLike | None = None,
        resample_every: int = 0,
        mesh: Mesh | None = None,
    ) -> None:
        own = env if isinstance(env, Env) else brax_env(env, max(episode_length, 0))
        super().__init__(
            own, num_worlds, episode_length, domain, resample_every=resample_every, mesh=mesh
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it is made of."""
        made_of = (self.env, self.num_worlds, self.episode_length, self.domain)
        return type(self), (*made_of, self.resample_every, self.mesh)


class WorldlineBraxEnv(_base.Env):  # type: ignore[misc, name-defined] # as in sb3.py
    """An environment of Worldline with Brax's interface; `as_brax_env` makes it."""

    def __init__(self, env: Env, domain: DomainLike | None = None) -> None:
        self._env, self._domain = env, None if domain is None else as_domain(domain)
        if self._domain is not None:
            self._domain.check(env.model)

    def reset(self, rng: Array) -> Any:
        """A world at the start of an episode; its constants are drawn from the domain."""
        start_key, draw_key = jax.random.split(as_key(rng))
        variation = {}
        if self._domain is not None:
            variation = dict(self._domain(draw_key, self._env.model, self._domain.ranges))
        return self._state(self._env.reset(start_key, variation), {}, {})

    def step(self, state: Any, action: Array) -> Any:
        """The world after an action between -1 and 1."""
        low, high = self._env.action_low, self._env.action_high
        bounded = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(bounded, low, -1), np.where(bounded, high, 1)
        scaled = jnp.where(bounded, low + 0.5 * (action + 1) * (high - low), action)
        stepped = self._env.step(state.pipeline_state, scaled)
        return self._state(stepped, state.metrics, state.info)

    def _state(self, state: EnvState, metrics: Mapping[str, Array], info: Any) -> Any:
        """A state of Brax's; what its wrappers have put into the one before stays."""
        done = (state.terminated | state.diverged).astype(jnp.float32)
        metrics = {**metrics, **state.metrics}
        return _base.State(state, state.obs, state.reward, done, metrics, info)

    @property
    def observation_size(self) -> Any:
        """The numbers of an observation, or the shape of each of its parts."""
        space: Any = self._env.observation_space
        if hasattr(space, "spaces"):
            return {name: part.shape for name, part in space.items()}
        return space.shape[-1]

    @property
    def action_size(self) -> int:
        """The numbers of an action."""
        return self._env.action_low.size

    @property
    def backend(self) -> str:
        """The name of the engine."""
        return self._env.physics.name


def as_brax_env(env: Env, domain: DomainLike | None = None) -> WorldlineBraxEnv:
    """An environment as a `brax.envs.Env`, for Brax's learners and wrappers.

    Actions are between -1 and 1, and are scaled to the environment's bounds. The world is in
    `state.pipeline_state`, with its constants. It is `done` if the task ends the episode or the
    simulation diverges. Brax's `EpisodeWrapper` has the time limit.

    Args:
        env: the environment.
        domain: draws the constants in `reset`. Brax's own `AutoResetWrapper` calls `reset` only
            once.

    Raises:
        VariationError: the domain does not fit the model.
    """
    return WorldlineBraxEnv(env, domain)
