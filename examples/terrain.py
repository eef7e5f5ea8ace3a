"""A quadruped learns to climb stairs of 12 cm: the levels get harder as it does well.

python examples/terrain.py --steps 6000000    # about 20 minutes on two cores
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import worldline
from worldline.learn.curriculum import automatic
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import evaluator
from worldline.learn.run import run
from worldline.tasks.terrain import Terrain
from worldline.variation import Context, Uniform

LEVELS, EPISODES, STEPS = 6, 32, 500
STAIRS = Terrain(kinds=("stairs_up",), levels=LEVELS, tile=6.0, step_height=(0.02, 0.12))
EASY = {"terrain_level": Uniform(0.0, 1.0)}
ALL = {"terrain_level": Uniform(0.0, LEVELS)}


def main() -> None:
    """Trains, and then tries each level."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6_000_000)
    steps = parser.parse_args().steps
    task = worldline.make(
        "robot/quadruped-joystick", terrain=STAIRS, step_height=0.15, stand_probability=0.0
    ).task
    env = worldline.Env(task, context=Context(EASY, visible=()))
    config = PPOConfig(**task.defaults["ppo"])
    worlds = worldline.Worlds(env, config.num_worlds, context=EASY)
    harder = automatic(EASY, ALL, widen_at=1000.0, narrow_at=700.0, updates=200)
    learner = ppo(worlds, config, curriculum=harder)
    state = learner.init(jax.random.key(0))
    for updates, progress in enumerate(run(learner, state, steps)):
        state = progress.state
        if updates % 50 == 0:
            mean, level = (progress.metrics[f"train/{n}"] for n in ("return", "terrain_level"))
            print(f"{progress.step:9,} steps: return {mean:6.1f}, mean level {level:4.2f}")
    evaluate = evaluator(env, EPISODES, episode_length=STEPS)
    for level in range(LEVELS):
        where = {"terrain_level": jnp.full(EPISODES, float(level))}
        tried = evaluate(learner.policy(state), jax.random.key(level), where)
        upright = np.mean(np.asarray(tried.episode_length) == STEPS)
        mean = np.mean(np.asarray(tried.episode_return))
        print(f"level {level}: {upright:.0%} without a fall, return {mean:.0f}")


if __name__ == "__main__":
    main()
