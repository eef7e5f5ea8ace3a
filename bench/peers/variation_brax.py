"""Steps Brax's ant with and without varied physics: `variation_brax.py HOW NUM_WORLDS STEPS`.

HOW is `plain`; `once`, with Brax's own `DomainRandomizationVmapWrapper`, which draws when it is
made; or `fresh`, with what users write for themselves to draw at every reset (Brax issue 446): the
system in the state, and a reset of every world in every step, of which the ended ones take theirs.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
from brax import envs
from brax.envs.wrappers.training import (
    AutoResetWrapper,
    DomainRandomizationVmapWrapper,
    EpisodeWrapper,
    VmapWrapper,
)
from protocol import serve_steps

EPISODE = 1000


def draw(system: Any, key: jax.Array) -> dict[str, jax.Array]:
    """Masses, friction and damping of one world, as `bench/variation.py` draws them for ours."""
    keys = jax.random.split(key, 3)
    names = ("body_mass", "geom_friction", "dof_damping")
    old = {name: jnp.asarray(getattr(system, name)) for name in names}
    return {
        name: value
        * jax.random.uniform(k, (len(value), *[1] * (value.ndim - 1)), minval=0.9, maxval=1.1)
        for (name, value), k in zip(old.items(), keys, strict=True)
    }


class FreshDraws(envs.Wrapper):
    """Worlds that draw their physics anew in every episode, the way that it can be done in Brax."""

    def reset(self, rng: jax.Array) -> envs.State:
        """Worlds with systems of their own, `(B,)` keys."""
        return jax.vmap(self._begin)(rng)

    def step(self, state: envs.State, action: jax.Array) -> envs.State:
        """All worlds a step on; those that end begin again with another system."""

        def one(state: envs.State, action: jax.Array) -> envs.State:
            drawn, key, steps = (state.info[name] for name in ("drawn", "key", "steps"))
            after = self._with(drawn).step(state.replace(info={}), action)
            done = jnp.maximum(after.done, (steps + 1 >= EPISODE).astype(jnp.float32))
            after = after.replace(info={"drawn": drawn, "key": key, "steps": steps + 1}, done=done)
            fresh = self._begin(key).replace(reward=after.reward, done=done, metrics=after.metrics)
            return jax.tree.map(lambda new, old: jnp.where(done > 0, new, old), fresh, after)

        return jax.vmap(one)(state, action)

    def _begin(self, key: jax.Array) -> envs.State:
        draw_key, reset_key, next_key = jax.random.split(key, 3)
        drawn = draw(self.env.sys, draw_key)
        state = self._with(drawn).reset(reset_key)
        return state.replace(info={"drawn": drawn, "key": next_key, "steps": jnp.int32(0)})

    def _with(self, drawn: dict[str, jax.Array]) -> envs.Env:
        env = envs.get_environment("ant", backend="mjx")
        env.sys = self.env.sys.tree_replace(drawn)
        return env


def drawn_once(num_worlds: int) -> Any:
    """A function for Brax's wrapper: a system with varied leaves, and their axes."""

    def randomise(system: Any) -> tuple[Any, Any]:
        keys = jax.random.split(jax.random.PRNGKey(2), num_worlds)
        drawn = jax.vmap(lambda key: draw(system, key))(keys)
        axes = jax.tree.map(lambda _: None, system).tree_replace(dict.fromkeys(drawn, 0))
        return system.tree_replace(drawn), axes

    return randomise


def main() -> None:
    """Serves scans of steps under random actions."""
    how, num_worlds, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    env = envs.get_environment("ant", backend="mjx")
    if how == "fresh":
        env = FreshDraws(env)
    else:
        env = EpisodeWrapper(env, EPISODE, 1)
        wrap = {
            "plain": VmapWrapper,
            "once": lambda env: DomainRandomizationVmapWrapper(env, drawn_once(num_worlds)),
        }[how]
        env = AutoResetWrapper(wrap(env))

    @jax.jit
    def run(state: Any, key: jax.Array) -> Any:
        actions = jax.random.uniform(key, (steps, num_worlds, env.action_size), minval=-1.0)

        def step(state: Any, action: jax.Array) -> tuple[Any, jax.Array]:
            state = env.step(state, action)
            return state, state.reward

        return jax.lax.scan(step, state, actions)[0]

    keys = jax.random.split(jax.random.PRNGKey(0), num_worlds)
    state = jax.jit(env.reset)(keys)
    key = jax.random.PRNGKey(1)
    serve_steps(lambda: jax.block_until_ready(run(state, key)))


if __name__ == "__main__":
    main()
