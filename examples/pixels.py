"""Balance a pole from images alone. Minutes; `--steps` trains for longer or shorter."""

import argparse

import worldline
from worldline.learn.ppo import PPOConfig
from worldline.rendering.camera import Camera
from worldline.train import TrainConfig, train

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200_000)
steps = parser.parse_args().steps

task = worldline.make("suite/cartpole-balance").task
env = worldline.Env(task, cameras={"fixed": Camera("fixed", 64, 64, stack=3)})
config = PPOConfig(
    num_worlds=32,
    unroll_length=32,
    epochs=3,
    minibatches=8,
    actor_obs=("pixels/fixed",),
    random_shift=4,
)
result = train("suite/cartpole-balance", env, TrainConfig(steps=steps, eval_episodes=4), config)
print(f"return {result.evaluation.episode_return.mean():.0f}, files in {result.folder}")

policy = worldline.load_policy(result.folder)
image = {"pixels/fixed": env.observation_space["pixels/fixed"].sample()}
print("force that an image asks for:", policy(image))
