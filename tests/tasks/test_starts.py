"""Where episodes of the gym/* tasks begin: the same distributions as Gymnasium's."""

import functools

import jax
import numpy as np
import pytest
from gymnasium_peer import GYM_TASKS, gym_env, gym_options
from scipy import stats

from worldline.tasks.registry import load_task

STARTS = 1500

#: Chance of a false alarm of one comparison; the seeds are fixed, so it is met once, or never.
ALPHA = 1e-5


@functools.cache
def our_starts(task, **options) -> np.ndarray:
    """`qpos` and `qvel`, `(STARTS, nq + nv)`."""
    keys = jax.random.split(jax.random.key(11), STARTS)
    start = jax.jit(jax.vmap(load_task(task, **options).start))(keys)
    return np.concatenate([start.qpos, start.qvel], axis=1)


@functools.cache
def gym_starts(task, **options) -> np.ndarray:
    env = gym_env(task, **options)
    env.reset(seed=11)
    starts = np.empty((STARTS, env.model.nq + env.model.nv))
    for start in starts:
        env.reset()
        start[:] = np.concatenate([env.data.qpos, env.data.qvel])
    return starts


def assert_same_distribution(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Compares each column; those that are constant must be equal."""
    constant = np.ptp(theirs, axis=0) == 0
    np.testing.assert_array_equal(ours[:, constant], theirs[:, constant].astype(np.float32))
    for column in np.flatnonzero(~constant):
        assert stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > ALPHA, column


@pytest.mark.parametrize("task", GYM_TASKS)
def test_starts_are_distributed_as_gymnasiums(task):
    assert_same_distribution(our_starts(task), gym_starts(task))


@pytest.mark.parametrize("task", [t for t in GYM_TASKS if "reset_noise_scale" in gym_options(t)])
def test_the_noise_scale_scales_the_noise(task):
    scale = 3 * gym_options(task)["reset_noise_scale"]
    ours, theirs = (starts(task, reset_noise_scale=scale) for starts in (our_starts, gym_starts))
    assert_same_distribution(ours, theirs)


@pytest.mark.parametrize("task", GYM_TASKS)
def test_coordinates_of_a_start_are_independent(task):
    # One key used twice would make two of them the same function of it.
    starts = our_starts(task)
    correlation = np.corrcoef(starts[:, np.ptp(starts, axis=0) > 0], rowvar=False)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 5 / np.sqrt(STARTS)


def test_reachers_target_is_uniform_in_a_disc():
    ours, theirs = (starts("gym/reacher")[:, 2:4] for starts in (our_starts, gym_starts))
    radius, angle = np.hypot(*ours.T), np.arctan2(*ours.T)
    assert radius.max() < 0.2
    assert stats.kstest(radius**2, stats.uniform(0, 0.2**2).cdf).pvalue > ALPHA
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > ALPHA
    assert stats.ks_2samp(radius, np.hypot(*theirs.T)).pvalue > ALPHA


def test_pushers_object_is_uniform_away_from_the_goal():
    ours, theirs = (starts("gym/pusher")[:, 7:9] for starts in (our_starts, gym_starts))
    assert np.hypot(*ours.T).min() > 0.17
    assert (ours >= [-0.3, -0.2]).all()
    assert (ours <= [0.0, 0.2]).all()
    for direction in np.linspace(0, np.pi, 8):
        along = np.array([np.cos(direction), np.sin(direction)])
        assert stats.ks_2samp(ours @ along, theirs @ along).pvalue > ALPHA
    assert stats.ks_2samp(np.hypot(*ours.T), np.hypot(*theirs.T)).pvalue > ALPHA
