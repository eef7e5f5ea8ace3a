"""Stable-Baselines3's PPO of a Gymnasium task: `train_vecenv.py worldline|subproc JOB`.

The first argument says on which vector: ours, or the library's own with a process for each
environment. Both are evaluated on Gymnasium's environments.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import gymnasium
import torch
from protocol import GYMNASIUM, Job, LearningRate, Trial
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize
from train_sb3 import STEPS, Schedule, evaluator, ppo


def vector(kind: str, task: str, num_envs: int) -> Any:
    """The environments to train in."""
    if kind == "subproc":
        make = [lambda: gymnasium.make(GYMNASIUM[task], disable_env_checker=True)] * num_envs
        return SubprocVecEnv(make)
    import worldline
    from worldline.bridges.sb3 import VecEnv
    from worldline.tuning import tune_process

    tune_process()

    return VecEnv(worldline.Worlds(worldline.make(task), num_envs))


def main() -> None:
    """Trains until the trial is over."""
    warnings.filterwarnings("ignore")
    kind = sys.argv.pop(1)
    job = Job.of_command_line()
    settings = job.settings
    if settings is None:
        raise SystemExit("error: the job has no settings")
    torch.set_num_threads(job.threads)
    training = vector(kind, job.task, settings.num_envs)
    training.seed(job.seed)
    envs, rate = VecNormalize(training, gamma=settings.discount), LearningRate(settings)
    trial = Trial(job, lambda: evaluate())
    model = ppo(job, settings, envs, lambda left: rate.at(round((1.0 - left) * STEPS), trial.left))
    evaluate = evaluator(GYMNASIUM[job.task], False, model, envs)
    model.learn(STEPS, callback=Schedule(trial, rate), log_interval=STEPS)
    envs.close()


if __name__ == "__main__":
    main()
