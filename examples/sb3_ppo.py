"""Stable-Baselines3's PPO on Worldline's worlds: `pip install 'worldline[sb3]'`."""

import argparse

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

import worldline
from worldline.bridges.sb3 import VecEnv

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--task", default="gym/inverted-pendulum")
parser.add_argument("--steps", type=int, default=100_000)
arguments = parser.parse_args()

torch.set_num_threads(1)  # small networks; the cores are the simulator's
env = worldline.make(arguments.task)
model = PPO(
    "MlpPolicy",
    VecMonitor(VecEnv(worldline.Worlds(env, num_worlds=16))),
    n_steps=128,
    batch_size=256,
    seed=0,
)
model.learn(arguments.steps)

evaluation = VecMonitor(VecEnv(worldline.Worlds(env, num_worlds=8, episode_length=200)))
evaluation.seed(1)
mean, spread = evaluate_policy(model, evaluation, n_eval_episodes=8)
print(f"return over 200 steps: {mean:.1f} (standard deviation {spread:.1f})")
