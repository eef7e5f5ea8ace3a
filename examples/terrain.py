"""A quadruped learns to climb stairs and cross rough ground; levels get harder as it does well.

python examples/terrain.py          # about 20 minutes on two cores
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

#: The lowest level, and the end of the range of levels.
Levels = tuple[float, float]

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=15_000_000)
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
# ground, and its feet should swing high above a step. Its torso may tilt and rise with the ground,
# and be near the edge of a step.
walk = {
    "terrain": ground,
    "slowest": (0.3, -0.1, -0.3),
    "fastest": (0.8, 0.1, 0.3),
    "command_time": 10.0,
    "stand_probability": 0.05,
    "action_scale": 1.0,
    "step_height": 0.2,
    "fallen_height": 0.06,
    "tilt_cost": 0.5,
    "bounce_cost": 0.1,
}


def learn(out, steps, task_options, settings, levels: tuple[Levels, Levels], before=None):
    """Trains on levels that change from the first to the last ones, and begins with the networks of
    the run `before`.
    """
    task = worldline.make("robot/quadruped-joystick", **task_options).task
    env = worldline.Env(task, context=Context(["terrain_level"], visible=()))
    easy, difficult = ({"terrain_level": Uniform(*ends)} for ends in levels)
    harder = automatic(easy, difficult, widen_at=800.0, narrow_at=600.0, updates=100)
    context = "terrain_level={}:{}".format(*levels[0])
    run = TrainConfig(steps=int(steps), out=out, context=(context,), init_from=before)
    config = PPOConfig(**{**task.defaults["ppo"], **settings}, symmetry=True)
    make_learner = functools.partial(ppo, curriculum=harder)
    return train("robot/quadruped-joystick", env, run, config, make_learner=make_learner).folder


out = arguments.out or Path("runs/flat" if arguments.flat else "runs/terrain")
before = out.with_name(f"{out.name}-exploring")
# From the easiest level to steps of 6 to 10 cm. Without a reward for exploring, it settles on a
# gait for low steps before it meets high ones.
learn(
    before,
    0.64 * arguments.steps,
    walk,
    settings={"entropy_weight": 0.01},
    levels=((0.0, 1.0), (2.0, 5.0)),
)
# Then steps of 8 and 10 cm, with larger batches and less exploring, so that its steps become exact.
# Now it has fallen, too, when its torso meets a step.
folder = learn(
    out,
    0.36 * arguments.steps,
    {**walk, "clearance": 0.0},
    settings={
        "entropy_weight": 0.002,
        "learning_rate": 2e-4,
        "num_worlds": 512,
        "unroll_length": 24,
        "minibatches": 16,
    },
    levels=((2.0, 5.0), (3.0, 5.0)),
    before=before,
)
print(folder)
