"""The picture of the guide to randomising: `python docs/images/randomise.py`.

Above, the ways of 32 ants that all move their legs alike; below, what their torsos weigh.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import worldline
from worldline.train.config import find_domain

WORLDS, STEPS = 32, 16
GAIT = jnp.array([0, 1, 0, -1, 0, -1, 0, 1.0]), jnp.array([1, 0, -1, 0, -1, 0, 1, 0.0])

env = worldline.make("gym/ant")
start = {"qpos": jnp.asarray(env.model.qpos0), "qvel": jnp.zeros(env.model.nv)}


@jax.jit
def walk(variation):
    """Paths of worlds in the plane, `(worlds, steps, 2)`, all from the same pose."""

    def one(variation):
        state = env.reset_to(jax.random.key(0), variation=variation, **start)

        def step(state, time):
            phase = 2 * jnp.pi * 1.5 * time * env.task.control_timestep
            action = 0.8 * (GAIT[0] * jnp.sin(phase) + GAIT[1] * jnp.cos(phase))
            state = env.step(state, action)
            return state, state.physics.qpos[:2]

        return jax.lax.scan(step, state, jnp.arange(STEPS))[1]

    return jax.vmap(one)(variation)


figure, axes = plt.subplots(2, 4, figsize=(11, 5), sharex="row", sharey="row", layout="constrained")
torso = env.model.id("body", "torso")
nominal = {"body_mass": jnp.tile(env.model.constant("body_mass").astype(np.float32), (WORLDS, 1))}
for column, name in zip(axes.T, ("", "light", "medium", "hard"), strict=True):
    domain = find_domain(env.task, name)
    drawn = nominal
    if domain is not None:
        keys = jax.random.split(jax.random.key(1), WORLDS)
        drawn = jax.vmap(lambda key, domain=domain: domain(key, env.model, domain.ranges))(keys)
    paths = np.asarray(walk(drawn))
    column[0].plot(*paths.transpose(2, 1, 0), lw=0.8, alpha=0.7)
    column[0].plot(0, 0, "k+")
    column[0].set_title(f"--domain {name}" if name else "the model as it is")
    column[0].set_aspect("equal")
    column[1].hist(1e3 * np.asarray(drawn["body_mass"])[:, torso], bins=np.arange(140, 640, 20))
axes[0, 0].set_ylabel("y (m), in 0.8 s")
axes[1, 0].set_ylabel("worlds")
for axis in axes[1]:
    axis.set_xlabel("torso mass (g)")
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
