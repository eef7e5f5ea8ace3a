"""Worldline's own PPO on a named robot, which keeps a policy now and then: `... JOB`."""

from __future__ import annotations

from pathlib import Path

import jax
from protocol import Job, Trial

import worldline
from worldline.export.policy_file import save_policy
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.run import run
from worldline.tuning import tune_process

#: More than any budget of time allows.
STEPS = 10**12


def main() -> None:
    """Trains until the trial is over."""
    job = Job.of_command_line()
    env = worldline.make(job.task, **job.task_options)
    config = PPOConfig(**{**env.task.defaults.get("ppo", {}), **_tuples(job.ppo)})
    domain = env.task.domains[job.domain] if job.domain else None
    learner = ppo(worldline.Worlds(env, config.num_worlds, domain=domain), config)

    def keep() -> dict[str, str]:
        """Writes the policy of now."""
        policy = learner.policy(progress.state)
        return {"policy": str(save_policy(Path(job.folder), policy, name=f"{progress.step}.npz"))}

    trial = Trial(job, keep)
    for progress in run(learner, learner.init(jax.random.key(job.seed)), STEPS):
        if not trial.after_update(progress.step):
            return


def _tuples(settings: dict[str, object]) -> dict[str, object]:
    """Settings that came as JSON, which has lists in place of tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}


if __name__ == "__main__":
    tune_process()
    main()
