"""Your own networks and optimiser: a wide critic, and weight decay."""

import jax
import jax.numpy as jnp
import optax

import worldline
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.ppo import ActorCritic, PPOConfig, ppo
from worldline.learn.run import run


def networks(key, nobs, ncritic, nact):
    """You can use any `Network`; its leaves are arrays."""
    actor_key, critic_key = jax.random.split(key)
    mean = MLP.initial(actor_key, (nobs, 32, nact), "swish", last_gain=0.01)
    critic = MLP.initial(critic_key, (ncritic, 256, 1), "swish", last_gain=1.0, layer_norm=True)
    return ActorCritic(Actor(mean, jnp.full(nact, -0.5)), critic)


# The direction of a step; its length is the learning rate of the state.
optimizer = optax.chain(optax.scale_by_adam(b2=0.99), optax.add_decayed_weights(1e-3))
env = worldline.make("gym/inverted-pendulum")
config = PPOConfig(num_worlds=32, minibatches=8)
worlds = worldline.Worlds(env, config.num_worlds)
learner = ppo(worlds, config, networks=networks, optimizer=optimizer)
for progress in run(learner, learner.init(jax.random.key(0)), steps=200_000):
    print(f"{progress.step:7} steps: return {progress.metrics['train/return']:.0f}")
