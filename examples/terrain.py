"""A quadruped learns to climb stairs: the levels get harder as it does well.

python examples/terrain.py --steps 6000000    # about 20 minutes on two cores
worldline eval runs/terrain --context terrain_level=0:5:6
"""

import argparse
import functools
from pathlib import Path

import worldline
from worldline.learn.curriculum import automatic
from worldline.learn.ppo import PPOConfig, ppo
from worldline.tasks.terrain import Terrain
from worldline.train.config import TrainConfig
from worldline.train.run import train
from worldline.variation import Context, Uniform

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6_000_000)
parser.add_argument("--out", type=Path, default=Path("runs/terrain"))
arguments = parser.parse_args()

# Levels 0 to 5 have steps of 2 to 12 cm. The feet should swing higher than that.
stairs = Terrain(kinds=("stairs_up",), levels=6, tile=6.0, step_height=(0.02, 0.12))
task = worldline.make("robot/quadruped-joystick", terrain=stairs, step_height=0.15).task
env = worldline.Env(task, context=Context(["terrain_level"], visible=()))

easy, all_levels = {"terrain_level": Uniform(0.0, 1.0)}, {"terrain_level": Uniform(0.0, 6.0)}
harder = automatic(easy, all_levels, widen_at=900.0, narrow_at=600.0, updates=200)

run = TrainConfig(steps=arguments.steps, out=arguments.out, context=("terrain_level=0:1",))
config = PPOConfig(**task.defaults["ppo"])
result = train(
    "robot/quadruped-joystick",
    env,
    run,
    config,
    make_learner=functools.partial(ppo, curriculum=harder),
)
print(result.folder)
