"""Worldline, by the algorithm that the job's library names: `steps_worldline.py JOB`."""

from __future__ import annotations

import jax
from protocol import EPISODES
from steps_job import Job, Trial

import worldline
from worldline.learn.algorithms import find_algorithm
from worldline.learn.rollout import evaluator
from worldline.learn.run import run
from worldline.tuning import tune_process


def main() -> None:
    """Trains with the task's own settings until the trial is over."""
    job = Job.of_command_line()
    env = worldline.make(job.task)
    make_config, make_learner = find_algorithm(job.library)
    config = make_config(**env.task.defaults.get(job.library, {}))
    learner = make_learner(worldline.Worlds(env, config.num_worlds), config)
    evaluate = evaluator(env, EPISODES)
    init_key, eval_key = jax.random.split(jax.random.key(job.seed))

    def mean_return() -> float:
        return float(evaluate(learner.policy(progress.state), eval_key).episode_return.mean())

    trial = Trial(job, mean_return)
    for progress in run(learner, learner.init(init_key), job.steps):
        trial.after_steps(progress.step)


if __name__ == "__main__":
    tune_process()
    main()
