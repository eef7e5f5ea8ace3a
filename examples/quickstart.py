"""Train a policy, look at its return, and take it away. Seconds; `--steps` trains for longer."""

import argparse

import numpy as np

import worldline
from worldline.learn.ppo import PPOConfig
from worldline.train import TrainConfig, train

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=100_000)
steps = parser.parse_args().steps

env = worldline.make("gym/inverted-pendulum")
config = PPOConfig(**env.task.defaults.get("ppo", {}))
result = train("gym/inverted-pendulum", env, TrainConfig(steps=steps), config)
print(f"return {result.evaluation.episode_return.mean():.0f}, files in {result.folder}")

policy = worldline.load_policy(result.folder)
print("push of the cart where the pole leans by 0.1 rad:", policy(np.array([0.0, 0.1, 0.0, 0.0])))
