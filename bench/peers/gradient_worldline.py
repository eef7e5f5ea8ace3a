"""Takes gradients through our ants: `gradient_worldline.py WORLDS STEPS ENGINE INTEGRATOR`.

The engine `unrolled` is MJX's own step with a single iteration of its solver, which is all that JAX
can differentiate backwards as it stands.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from protocol import serve_steps

import worldline
from worldline.physics import mjx as engine
from worldline.tuning import tune_process


def main() -> None:
    """Serves gradients of the mean reward in a linear policy's weights."""
    worlds, steps = int(sys.argv[1]), int(sys.argv[2])
    env = _env(sys.argv[3], sys.argv[4])
    weights = jnp.zeros((env.observation_space.shape[0], env.action_space.shape[0]))

    def total(weights: Any, state: Any) -> Any:
        def step(state: Any, _: None) -> tuple[Any, Any]:
            obs = jnp.clip(state.obs, -10.0, 10.0)
            after = jax.vmap(env.step)(state, jnp.tanh(obs @ weights))
            return after, after.reward

        return jax.lax.scan(step, state, None, length=steps)[1].mean()

    start = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), worlds))
    gradient = jax.jit(jax.grad(total))
    serve_steps(lambda: jax.block_until_ready(gradient(weights, start)))


def _env(name: str, integrator: str) -> worldline.Env:
    task = worldline.make("gym/ant").task
    task.model.mj.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    if name == "unrolled":
        task.model.mj.opt.iterations = 1
        engine.step = engine.mjx.step
        # Plain, as MJX has it: JAX transposes no batch of its line search's branches otherwise.
        engine._where_healthy = lambda function, *arguments: function(*arguments)
        name = "mjx"
    return worldline.Env(task, name)


if __name__ == "__main__":
    tune_process()
    main()
