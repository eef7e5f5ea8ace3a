"""Steps MuJoCo Playground's cheetah, varied or not: `variation_playground.py HOW WORLDS STEPS`.

HOW is `plain`, or `once`: by Playground's `BraxDomainRandomizationVmapWrapper`, which draws when it
is made. Both in its wrappers for training.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
from mujoco_playground import wrapper
from mujoco_playground._src.dm_control_suite import cheetah
from protocol import serve_steps

EPISODE = 1000


def drawn_once(num_worlds: int) -> Any:
    """A function for its wrapper: a model with varied leaves, and their axes."""

    def draw(model: Any, key: jax.Array) -> dict[str, jax.Array]:
        names = ("body_mass", "body_inertia", "geom_friction", "dof_damping")
        keys = jax.random.split(key, 3)[jax.numpy.array([0, 0, 1, 2])]  # mass with its inertia
        return {
            name: getattr(model, name)
            * jax.random.uniform(
                key,
                (len(getattr(model, name)), *[1] * (getattr(model, name).ndim - 1)),
                minval=0.9,
                maxval=1.1,
            )
            for name, key in zip(names, keys, strict=True)
        }

    def randomise(model: Any) -> tuple[Any, Any]:
        keys = jax.random.split(jax.random.key(2), num_worlds)
        drawn = jax.vmap(lambda key: draw(model, key))(keys)
        axes = jax.tree.map(lambda _: None, model).tree_replace(dict.fromkeys(drawn, 0))
        return model.tree_replace(drawn), axes

    return randomise


def main() -> None:
    """Serves scans of steps under random actions."""
    how, num_worlds, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    config = cheetah.default_config()
    config.impl = "jax"
    randomise = drawn_once(num_worlds) if how == "once" else None
    env = wrapper.wrap_for_brax_training(cheetah.Run(config), EPISODE, randomization_fn=randomise)

    @jax.jit
    def run(state: Any, key: jax.Array) -> Any:
        actions = jax.random.uniform(key, (steps, num_worlds, env.action_size), minval=-1.0)
        return jax.lax.scan(lambda s, a: (env.step(s, a), None), state, actions)[0]

    state = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), num_worlds))
    key = jax.random.key(1)
    serve_steps(lambda: jax.block_until_ready(run(state, key)))


if __name__ == "__main__":
    main()
