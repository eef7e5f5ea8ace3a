"""The PPO of `train_envpool.py` on EnvPool's task of a named robot: `robots_envpool.py JOB`.

It keeps a policy now and then, as plain arrays: their worth is measured where ours are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import Job, Trial
from train_envpool import Trainer, trainer_of


def save(file: Path, trainer: Trainer) -> None:
    """Writes the policy: layers, mean and variance of what it reads, and its deviation."""
    policy = trainer.policy
    layers = [layer for layer in policy.actor if isinstance(layer, torch.nn.Linear)]
    arrays: dict[str, Any] = {}
    for index, layer in enumerate(layers):
        arrays[f"weight{index}"] = layer.weight.detach().numpy().T
        arrays[f"bias{index}"] = layer.bias.detach().numpy()
    moments = trainer.obs_moments
    np.savez(
        file,
        **arrays,
        mean=moments.mean[: policy.reads],
        variance=moments.var[: policy.reads],
        log_std=policy.log_std.detach().numpy(),
        activation=np.array(trainer.settings.activation),
        squash=np.array(trainer.settings.squash),
    )


def main() -> None:
    """Trains until the trial is over."""
    job = Job.of_command_line()
    trainer = trainer_of(job)

    def keep() -> dict[str, str]:
        """Writes the policy of now."""
        file = Path(job.folder) / f"{trainer.steps}.npz"
        save(file, trainer)
        return {"policy": str(file)}

    trial = Trial(job, keep)
    go_on = True
    while go_on:
        batch = trainer.rollout()
        trainer.learn(batch, trial.left)
        go_on = trial.after_update(trainer.steps)


if __name__ == "__main__":
    main()
