"""Worldline's own PPO with the task's own settings, as `worldline train` runs it: `... JOB`."""

from __future__ import annotations

import jax
from protocol import EPISODES, Job, Trial

import worldline
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import evaluator
from worldline.learn.run import run
from worldline.tuning import tune_process

#: More than any budget of time allows.
STEPS = 10**12


def main() -> None:
    """Trains until the trial is over."""
    job = Job.of_command_line()
    env = worldline.make(job.task)
    config = PPOConfig(**env.task.defaults.get("ppo", {}))
    learner = ppo(worldline.Worlds(env, config.num_worlds), config)
    evaluate = evaluator(env, EPISODES)
    init_key, eval_key = jax.random.split(jax.random.key(job.seed))

    def mean_return() -> float:
        return float(evaluate(learner.policy(progress.state), eval_key).episode_return.mean())

    trial = Trial(job, mean_return)
    for progress in run(learner, learner.init(init_key), STEPS):
        if not trial.after_update(progress.step):
            return


if __name__ == "__main__":
    tune_process()
    main()
