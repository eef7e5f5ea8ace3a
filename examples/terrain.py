"""A quadruped learns to climb stairs and cross rough ground; levels get harder as it does well.

python examples/terrain.py          # about 10 minutes on two cores
python examples/terrain.py --flat   # the same on even ground, to compare with
worldline bench crossing            # in a clone: how many robots cross each level, of both runs
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
parser.add_argument("--steps", type=int, default=7_000_000)
parser.add_argument("--flat", action="store_true", help="train on even ground")
parser.add_argument("--out", type=Path)
arguments = parser.parse_args()

# Levels 0 to 5 have steps of 2 to 12 cm, and rough ground of as many.
ground = Terrain(
    kinds=("flat",) if arguments.flat else ("stairs_up", "rough"),
    levels=6,
    tile=6.0,
    platform=1.0,
    step_height=(0.02, 0.12),
    roughness=(0.02, 0.12),
)
# It is told to walk ahead, so that it meets the stairs. Its joints may move further than on even
# ground, and its feet should swing over a step. Its torso may tilt and rise with the ground, and be
# near the edge of a step.
task = worldline.make(
    "robot/quadruped-joystick",
    terrain=ground,
    slowest=(0.3, -0.1, -0.3),
    fastest=(0.8, 0.1, 0.3),
    command_time=10.0,
    stand_probability=0.05,
    action_scale=1.0,
    step_height=0.12,
    fallen_height=0.06,
    tilt_cost=0.5,
    bounce_cost=0.1,
).task
env = worldline.Env(task, context=Context(["terrain_level"], visible=()))

# From the easiest level to the upper four.
easy, difficult = {"terrain_level": Uniform(0.0, 1.0)}, {"terrain_level": Uniform(2.0, 6.0)}
harder = automatic(easy, difficult, widen_at=800.0, narrow_at=600.0, updates=100)

out = arguments.out or Path("runs/flat" if arguments.flat else "runs/terrain")
run = TrainConfig(steps=arguments.steps, out=out, context=("terrain_level=0:1",))
# Without a reward for exploring, it settles on a gait for low steps before it meets high ones.
config = PPOConfig(**task.defaults["ppo"], symmetry=True, entropy_weight=0.005)
result = train(
    "robot/quadruped-joystick",
    env,
    run,
    config,
    make_learner=functools.partial(ppo, curriculum=harder),
)
print(result.folder)
