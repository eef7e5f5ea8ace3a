"""A loss of your own: a penalty on the divergence from the old policy, in place of PPO's clip."""

import jax
import jax.numpy as jnp

import worldline
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.run import run


def penalized_loss(networks, batch, hyperparameters):
    distribution, value = networks.evaluate(batch.segments)
    ratio = jnp.exp(distribution.log_prob(batch.action) - batch.log_prob)
    kl = distribution.kl_from(batch.distribution).mean()
    value_loss = 0.5 * ((value - batch.target) ** 2).mean()
    loss = -(ratio * batch.advantage).mean() + 3.0 * kl + hyperparameters.value_weight * value_loss
    return loss, {"ppo/kl": kl, "loss/value": value_loss}


env = worldline.make("gym/inverted-pendulum")
config = PPOConfig(num_worlds=32, minibatches=8)
learner = ppo(worldline.Worlds(env, config.num_worlds), config, loss=penalized_loss)
for progress in run(learner, learner.init(jax.random.key(0)), steps=200_000):
    print(f"{progress.step:7} steps: return {progress.metrics['train/return']:.0f}")
