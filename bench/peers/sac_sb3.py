"""SAC of Stable-Baselines3 or of SBX on Gymnasium's tasks: `sac_sb3.py JOB`.

The libraries' own defaults, with the one setting that their authors publish for MuJoCo's tasks (RL
Baselines3 Zoo): learning starts after 10,000 random steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from protocol import EPISODES, GYMNASIUM
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from steps_job import Job, Trial

#: Seeds of the evaluation's episodes start here, far from training's.
EVALUATION_SEED = 10_000


class Schedule(BaseCallback):
    """Evaluates between two steps."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self._trial = trial

    def _on_step(self) -> bool:
        return self._trial.after_steps(self.num_timesteps)


def evaluator(name: str, model: Any) -> Callable[[], float]:
    """A function that gives the policy's mean return over `EPISODES` deterministic episodes."""
    envs = DummyVecEnv([lambda: gymnasium.make(name, disable_env_checker=True)] * EPISODES)

    def evaluate() -> float:
        envs.seed(EVALUATION_SEED)  # each time the same episodes
        returns, running = np.zeros(EPISODES), np.ones(EPISODES, bool)
        obs = envs.reset()
        while running.any():
            action, _ = model.predict(obs, deterministic=True)
            obs, rewards, dones, _ = envs.step(action)
            returns += np.where(running, rewards, 0.0)
            running &= ~dones
        return float(returns.mean())

    return evaluate


def main() -> None:
    """Trains until the trial is over."""
    warnings.filterwarnings("ignore")
    job = Job.of_command_line()
    torch.set_num_threads(job.threads)
    if job.library == "sbx":
        from sbx import SAC
    else:
        from stable_baselines3 import SAC
    name = GYMNASIUM[job.task]
    starts = min(10_000, job.steps // 2)
    env = gymnasium.make(name, disable_env_checker=True)
    model = SAC("MlpPolicy", env, learning_starts=starts, seed=job.seed, device="cpu")
    model.learn(job.steps, callback=Schedule(Trial(job, evaluator(name, model))))


if __name__ == "__main__":
    main()
