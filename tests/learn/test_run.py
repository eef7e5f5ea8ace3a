"""run: the loop around a learner, with a learner of two lines."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.errors import TaskError, TrainingDivergedError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.run import Learner, run


def counting(metric):
    """A learner whose state is the number of updates, and whose metric follows from it."""
    return Learner(
        init=lambda key: 0,
        update=lambda state: (state + 1, {"loss": jnp.float32(metric(state + 1))}),
        policy=lambda state: None,
        steps_per_update=10,
    )


@pytest.mark.parametrize(("steps", "updates"), [(1, 1), (10, 1), (11, 2), (30, 3), (0, 0)])
def test_it_takes_at_least_the_steps_it_is_given(steps, updates):
    yielded = list(run(counting(float), 0, steps))
    assert [progress.step for progress in yielded] == [10 * (i + 1) for i in range(updates)]
    assert [progress.state for progress in yielded] == list(range(1, updates + 1))
    assert [progress.metrics["loss"] for progress in yielded] == list(range(1, updates + 1))


def test_the_caller_may_stop_whenever_it_likes():
    for progress in run(counting(float), 0, 10**9):
        if progress.step == 30:
            break
    assert progress.state == 3


def test_the_clock_runs():
    first, second = run(counting(float), 0, 20)
    assert 0 < first.seconds < second.seconds
    assert 0 < second.update_seconds <= second.seconds


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_a_number_stops_training_after_the_last_good_state(bad, nans_allowed):
    progress = None
    learner = counting(lambda update: bad if update == 3 else 0.0)
    with pytest.raises(TrainingDivergedError, match=rf"after 30 steps: loss is {bad}; lower the"):
        for progress in run(learner, 0, 100):  # noqa: B007
            pass
    assert progress.state == 2


def test_what_a_task_reports_does_not_end_training():
    def update(state):
        return state + 1, {"loss": jnp.float32(0.0), "train/speed": jnp.float32(jnp.nan)}

    assert len(list(run(counting(float)._replace(update=update), 0, 30))) == 3


def test_a_run_that_goes_on_counts_from_where_it_was():
    later = list(run(counting(float), 3, 50, start=30))
    assert [(progress.step, progress.state) for progress in later] == [(40, 4), (50, 5)]
    assert list(run(counting(float), 5, 50, start=50)) == []


def test_the_metrics_of_a_population_are_arrays():
    learner = counting(lambda update: [update, 10.0 * update])
    (progress,) = run(learner, 0, 10)
    assert progress.metrics["loss"].tolist() == [1.0, 10.0]


@pytest.mark.parametrize(("diverged", "stops"), [(10, True), (9, False), (np.array([0, 10]), True)])
def test_training_ends_where_every_simulation_diverges(diverged, stops):
    def update(state):
        return state + 1, {"loss": jnp.float32(0.0), "train/diverged": diverged}

    going = run(counting(float)._replace(update=update), 0, 30)
    if stops:
        with pytest.raises(TrainingDivergedError, match=r"at each of 10 steps.*check_env"):
            next(going)
    else:
        assert len(list(going)) == 3


class Falling(toys.Swing):
    """No episode gets beyond its start."""

    def start(self, key):
        return dataclasses.replace(super().start(key), qvel=jnp.full(1, jnp.nan))


def test_so_does_that_of_ppo(nans_allowed):
    config = PPOConfig(num_worlds=4, unroll_length=4, minibatches=2, actor_hidden=(8,))
    learner = ppo(worldline.Worlds(worldline.Env(Falling()), 4), config)
    with (
        jax.numpy_dtype_promotion("standard"),
        pytest.raises(TrainingDivergedError, match="every simulation diverged at each of 16 steps"),
    ):
        next(run(learner, learner.init(jax.random.key(0)), 100))
    with pytest.raises(TaskError, match=r"qvel|start"):
        worldline.check_env(worldline.Env(Falling()))
