"""A quadruped learns to climb stairs and cross rough ground; levels get harder as it does well.

python examples/terrain.py          # about 20 minutes on two cores
python examples/terrain.py --flat   # the same on even ground, to compare with
python examples/terrain.py --robot go1 --out runs/go1   # a Unitree Go1 (extra `robots`)
worldline bench crossing            # in a clone: how many robots cross each level, of both runs
worldline eval runs/terrain --context terrain_level=0:5:6
"""

import argparse
import math
from pathlib import Path

import worldline
from worldline.learn.curriculum import automatic
from worldline.learn.ppo import PPOConfig, ppo
from worldline.tasks.terrain import Terrain
from worldline.train.config import TrainConfig
from worldline.train.run import train
from worldline.tuning import tune_process
from worldline.variation import Context, Uniform

tune_process()

#: The lowest level, and the end of the range of levels.
Levels = tuple[float, float]

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=15_000_000, help="of all trainings together")
parser.add_argument("--flat", action="store_true", help="train on even ground")
parser.add_argument("--robot", default="quadruped", help="quadruped or go1")
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
# It is told to walk ahead and to keep its heading, so that it meets the stairs. It earns by its
# progress, so that it does not stand before them, and pays when its torso is at the ground, so that
# it does not rest on them. Its joints may move further than on even ground, and its feet should
# swing high above a step. Its torso may tilt and rise with the ground, and be near the edge of a
# step.
walk = {
    "robot": arguments.robot,
    "terrain": ground,
    "slowest": (0.3, -0.1, -0.5),
    "fastest": (0.8, 0.1, 0.5),
    "command_time": 10.0,
    "stand_probability": 0.05,
    "heading_gain": 1.0,
    "progress": True,
    "linear_reward": 1.5,
    "action_scale": 1.0,
    "step_height": 0.2,
    "fallen_height": 0.06,
    "tilt_cost": 0.5,
    "bounce_cost": 0.1,
    "clearance_cost": 1.0,
}
# Four of five episodes are on stairs, which are harder than rough ground.
kinds = Uniform(0.0, 1.0 if arguments.flat else 1.25)


def learn(out, steps, walk, settings, levels: tuple[Levels, Levels], seeds=1, before=None):
    """Trains on levels that change from the first to the last ones, and evaluates on the last ones.
    Begins with the networks of the run `before`; of several seeds, with those of the best one.
    """
    task = worldline.make("robot/quadruped-joystick", **walk).task
    env = worldline.Env(task, context=Context(["terrain_level", "terrain_kind"], visible=()))
    easy, difficult = ({"terrain_level": Uniform(*ends), "terrain_kind": kinds} for ends in levels)
    harder = automatic(easy, difficult, widen_at=800.0, narrow_at=600.0, updates=100)

    def make_learner(_, config):
        # The worlds that `train` would give it draw from the last levels, as evaluations do.
        worlds = worldline.Worlds(env, config.num_worlds, context=easy)
        return ppo(worlds, config, curriculum=harder)

    run = TrainConfig(
        steps=math.ceil(steps),
        seeds=seeds,
        out=out,
        context=("terrain_level={}:{}".format(*levels[1]), f"terrain_kind=0:{kinds.high}"),
        eval_episodes=64,
        init_from=before,
    )
    config = PPOConfig(**{**task.defaults["ppo"], **settings}, symmetry=True)
    return train("robot/quadruped-joystick", env, run, config, make_learner=make_learner).folder


out = arguments.out or Path("runs/flat" if arguments.flat else "runs/terrain")
before = out.with_name(f"{out.name}-exploring")
# From the easiest level to steps of 6 to 10 cm, with a reward for exploring: without it, a robot
# settles on a gait for low steps before it meets high ones. Some seeds find how to climb and others
# do not, so two learn at the same time.
learn(
    before,
    arguments.steps / 5,
    walk,
    settings={"entropy_weight": 0.005, "initial_log_std": -1.5},
    levels=((0.0, 1.0), (2.0, 5.0)),
    seeds=2,
)
# The better one goes on with steps of 8 and 10 cm. Larger batches and a lower learning rate make
# its movements exact. Tilting costs more now, so that it tips forward less often when a front foot
# meets a step.
folder = learn(
    out,
    arguments.steps * 3 / 5,
    {**walk, "tilt_cost": 1.5},
    settings={
        "entropy_weight": 0.004,
        "learning_rate": 2e-4,
        "num_worlds": 512,
        "unroll_length": 24,
        "minibatches": 16,
    },
    levels=((2.0, 5.0), (3.0, 5.0)),
    before=before,
)
print(folder)
