"""rsl_rl's runner on a task of ours, through our `VecEnv`: `learn_rsl_rl.py JOB`.

It is evaluated in that interface too: whole episodes by its deterministic policy, with the task's
metrics averaged over their steps.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
from protocol import EPISODES, Job, Trial
from rsl_rl.runners import OnPolicyRunner

import worldline
from worldline.bridges.rsl_rl import VecEnv
from worldline.tuning import tune_process

WORLDS, UNROLL = 128, 32
#: Updates between two looks at the clock.
UPDATES = 4
EVALUATION_SEED = 10_000


def configuration(seed: int) -> dict[str, Any]:
    """The runner's: rsl_rl's usual settings, for fewer worlds."""
    network = {
        "class_name": "MLPModel",
        "hidden_dims": [128, 64],
        "activation": "elu",
        "obs_normalization": True,
    }
    gaussian = {"class_name": "GaussianDistribution", "init_std": 0.4, "std_type": "scalar"}
    return {
        "seed": seed,
        "num_steps_per_env": UNROLL,
        "save_interval": 10**9,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**network, "distribution_cfg": gaussian},
        "critic": network,
        "algorithm": {
            "class_name": "PPO",
            "learning_rate": 1e-3,
            "schedule": "adaptive",
            "desired_kl": 0.02,
            "num_learning_epochs": 5,
            "num_mini_batches": 8,
            "gamma": 0.97,
            "lam": 0.95,
            "entropy_coef": 0.0,
            "max_grad_norm": 1.0,
        },
    }


class Evaluation:
    """Whole episodes in worlds of their own."""

    def __init__(self, task: str, runner: OnPolicyRunner) -> None:
        self._vector = VecEnv(
            worldline.Worlds(worldline.make(task), EPISODES), seed=EVALUATION_SEED
        )
        self._runner = runner

    def __call__(self) -> dict[str, float]:
        """The mean return, and the task's metrics."""
        vector, act = self._vector, self._runner.get_inference_policy()
        running, total, sums = torch.ones(EPISODES), torch.zeros(EPISODES), dict[str, float]()
        steps = 0.0
        obs, _ = vector.reset()
        while running.any():
            with torch.inference_mode():
                obs, reward, done, extras = vector.step(act(obs))
            total += running * reward
            steps += float(running.sum())
            for name, values in extras["log"].items():
                now = float((running * values).sum())
                sums[name] = sums.get(name, 0.0) + now
            running *= 1.0 - done.float()
        means = {name.split("/")[-1]: value / steps for name, value in sums.items()}
        return {"eval_return": float(total.mean()), **means}


def main() -> None:
    """Trains until the trial is over."""
    job = Job.of_command_line()
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    vector = VecEnv(worldline.Worlds(worldline.make(job.task), WORLDS), seed=job.seed)
    with contextlib.redirect_stdout(sys.stderr):  # it prints there
        runner = OnPolicyRunner(vector, configuration(job.seed))
    trial = Trial(job, Evaluation(job.task, runner))
    steps = 0
    while trial.after_update(steps):
        with contextlib.redirect_stdout(sys.stderr):
            runner.learn(UPDATES, init_at_random_ep_len=steps == 0)
        steps += UPDATES * WORLDS * UNROLL


if __name__ == "__main__":
    tune_process()
    main()
