"""Balance a pole with hidden velocities: this needs a policy with a memory."""

import argparse

import jax
import numpy as np

import worldline
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import evaluator
from worldline.learn.run import run
from worldline.tasks.gym.pendulums import InvertedPendulum

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=80_000)
steps = parser.parse_args().steps


class Unsteady(InvertedPendulum):
    """The pole on a cart; the policy sees where they are, not how they move."""

    def observe(self, physics, memory):
        return physics.qpos


env = worldline.Env(Unsteady(), "native")
evaluate = evaluator(env, num_episodes=16)
for size in (0, 32):
    config = PPOConfig(num_worlds=32, minibatches=8, recurrent_size=size)
    learner = ppo(worldline.Worlds(env, config.num_worlds), config)
    state = learner.init(jax.random.key(0))
    for progress in run(learner, state, steps=steps):
        state = progress.state
    policy = learner.policy(state)
    returns = evaluate(policy, jax.random.key(1)).episode_return
    print(f"{size:2} units of memory: return {returns.mean():.0f} of 1000")

memory = policy.start()
for angle in (0.01, 0.02):
    force, memory = policy.step(np.array([0.0, angle], np.float32), memory)
    print(f"at an angle of {angle} rad: {100 * force[0]:.1f} N")
