"""Two phases: first fast, then careful. Hyperparameters are data, so nothing recompiles."""

import jax

import worldline
from worldline.learn.ppo import PPOConfig, ppo, with_hyperparameters
from worldline.learn.run import run

env = worldline.make("gym/inverted-pendulum")
config = PPOConfig(num_worlds=32, minibatches=8, target_kl=0.0, entropy_weight=0.01)
learner = ppo(worldline.Worlds(env, config.num_worlds), config)

state = learner.init(jax.random.key(0))
for first in run(learner, state, steps=100_000):
    state = first.state

state = with_hyperparameters(state, learning_rate=1e-4, clip=0.1, entropy_weight=0.0)
for second in run(learner, state, steps=100_000):
    state = second.state
print(first.metrics["train/return"], second.metrics["train/return"])
