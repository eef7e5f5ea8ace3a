"""rejax's PPO on a task of ours, through `as_gymnax`: `learn_rejax.py JOB`.

It is evaluated by its own function, whose policy draws its actions.
"""

from __future__ import annotations

import jax
import rejax
from protocol import EPISODES, Job, Trial
from rejax.evaluate import evaluate

import worldline
from worldline.bridges.gymnax import as_gymnax
from worldline.tuning import tune_process

WORLDS, UNROLL = 16, 64
#: Updates in a call of its `train`.
UPDATES = 8


def main() -> None:
    """Trains until the trial is over."""
    job = Job.of_command_line()
    env = as_gymnax(worldline.make(job.task), legacy_step=True)
    steps = UPDATES * WORLDS * UNROLL
    learner = rejax.PPO.create(
        env=env,
        num_envs=WORLDS,
        num_steps=UNROLL,
        num_minibatches=8,
        num_epochs=4,
        learning_rate=1e-3,
        ent_coef=0.0,
        normalize_observations=True,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda *_: ())  # the trial evaluates

    params = env.default_params

    @jax.jit
    def returns(state, key):
        act = learner.make_act(state)
        return evaluate(act, key, env, params, EPISODES, params.max_steps_in_episode)[1]

    key = jax.random.key(10_000)
    trial = Trial(job, lambda: float(returns(state, key).mean()))
    train = jax.jit(lambda state: learner.train(train_state=state)[0])
    state = jax.jit(learner.init_state)(jax.random.key(job.seed))
    while trial.after_update(int(state.global_step)):
        state = train(state)


if __name__ == "__main__":
    tune_process()
    main()
