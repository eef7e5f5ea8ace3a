"""check_domain: tells which terms of a domain change a simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.env import Env
from worldline.env.trial import finite_bounds
from worldline.model import Model
from worldline.parallel.devices import put, unless_default
from worldline.types import Array, Key, Variation
from worldline.variation.domain import AbstractDomain, Domain, as_domain


@dataclasses.dataclass(frozen=True)
class DomainReport:
    """The result of `check_domain`."""

    effects: Mapping[str, float]
    """The effect of each term on a world: the largest difference of any element of `qpos` or `qvel`
    from the same world without the term, in their own units."""
    warnings: tuple[str, ...]
    """One line for each term that has no effect."""


def check_domain(
    env: Env,
    domain: AbstractDomain | Callable[[Key, Model, Any], Variation],
    *,
    steps: int = 50,
    num_worlds: int = 16,
    seed: int = 0,
) -> DomainReport:
    """Tries each term of a domain alone, and compares worlds with its draws and worlds without.

    Both begin in the same states and take the same random actions.

    Args:
        env: the task on an engine.
        domain: the domain, or a function as in `Worlds`, which counts as one term.
        steps: control steps to run.
        num_worlds: worlds for each term.
        seed: the random seed of the draws, the starts and the actions.

    Returns:
        A report. A term without an effect may need states that random actions do not reach, for
        example a joint at its limit.

    Raises:
        VariationError: the domain does not fit the model, or a term cannot change anything.
    """
    domain = as_domain(domain)
    domain.check(env.model)
    parts: dict[str, AbstractDomain] = {"domain": domain}
    if isinstance(domain, Domain):
        parts = {term.name: Domain(term) for term in domain.terms}
    names = sorted(domain.fields(env.model))
    stored = {name: np.asarray(env.model.constant(name), np.float32) for name in names}
    low, high = finite_bounds(env)
    random = np.random.default_rng(seed)
    actions = random.uniform(low, high, (steps, num_worlds, low.size)).astype(np.float32)

    @jax.jit
    def run(variation: Variation) -> Array:
        """Positions and velocities of all steps, `(T, B, nq + nv)`."""
        starts = jax.random.split(jax.random.key(seed), num_worlds)
        states = jax.vmap(env.reset)(starts, variation)

        def step(states: Any, actions: Array) -> Any:
            states = jax.vmap(env.step)(states, actions)
            return states, jnp.concatenate([states.physics.qpos, states.physics.qvel], axis=-1)

        seen: Array = jax.lax.scan(step, states, jnp.asarray(actions))[1]
        return seen

    plain = {name: np.broadcast_to(x, (num_worlds, *x.shape)) for name, x in stored.items()}
    there = unless_default(env.device)
    alone, effects, warnings = np.asarray(run(put(plain, there))), {}, []
    for name, part in parts.items():
        keys = jax.random.split(jax.random.key(seed), num_worlds)
        drawn = jax.vmap(lambda key, part=part: part(key, env.model, part.ranges))(keys)
        moved = np.asarray(run(put({**plain, **drawn}, there)))
        apart = np.abs(moved - alone)
        effects[name] = float(np.nanmax(apart, initial=0.0))
        if not (apart > 1e-6 * (1 + np.abs(alone))).any():
            warnings.append(
                f"the term {name!r} moves none of {num_worlds} worlds in {steps} steps of random "
                "actions"
            )
    return DomainReport(effects, tuple(warnings))
