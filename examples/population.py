"""A population: eight values of the clip, each with its own seed, in one program."""

import jax
import jax.numpy as jnp

import worldline
from worldline.learn.population import population
from worldline.learn.ppo import PPOConfig, ppo, with_hyperparameters
from worldline.learn.run import run

env = worldline.make("gym/inverted-pendulum")
config = PPOConfig(num_worlds=16, minibatches=8)
members = population(ppo(worldline.Worlds(env, config.num_worlds), config))

clips = jnp.geomspace(0.05, 0.5, 8)
state = members.init(jax.random.split(jax.random.key(0), len(clips)))
state = jax.vmap(lambda state, clip: with_hyperparameters(state, clip=clip))(state, clips)
returns = jnp.full(len(clips), jnp.nan)
for progress in run(members, state, steps=50_000):  # of each member
    ended = progress.metrics["train/return"]  # NaN where no episode ended in the update
    returns = jnp.where(jnp.isnan(ended), returns, ended)
for clip, value in zip(clips, returns, strict=True):
    print(f"clip {clip:.2f}: return {value:.0f}")
