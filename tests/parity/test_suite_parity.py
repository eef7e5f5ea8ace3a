"""Each suite/* task is dm_control's: 300 steps agree, and starts are distributed alike."""

import functools

import jax
import numpy as np
import pytest
from dm_control_peer import SUITE_TASKS, dm_env, flat, put, warmstart_of
from scipy import stats

from worldline.env.env import Env
from worldline.tasks.registry import make

STEPS, STARTS, RTOL = 300, 200, 1e-5

#: Chance of a false alarm of one comparison; the seeds are fixed, so it is met once, or never.
ALPHA = 1e-5

#: A task's tests run in one worker, which knows its starts then.
every_task = pytest.mark.parametrize(
    "task", [pytest.param(task, marks=pytest.mark.xdist_group(task)) for task in SUITE_TASKS]
)


def test_every_task_of_these_domains_is_here():
    from dm_control import suite

    domains = {name.removeprefix("suite/").partition("-")[0] for name in SUITE_TASKS}
    theirs = {f"suite/{d}-{t}" for d, t in suite.ALL_TASKS if d in domains}
    assert set(SUITE_TASKS) == theirs
    assert len(domains) == 15


def keys():
    return jax.random.split(jax.random.key(3), STARTS)


@functools.cache
def our_starts(task: str):
    """The environment, and `STARTS` worlds at their starts; NumPy leaves."""
    env = make(task)
    return env, jax.device_get(jax.jit(jax.vmap(env.reset))(keys()))


def our_rollout(env: Env, start, actions: np.ndarray):
    """The states after each action, `(STEPS, ...)`."""

    def step(state, action):
        following = env.step(state, action)
        return following, following

    return jax.device_get(jax.jit(lambda s, a: jax.lax.scan(step, s, a)[1])(start, actions))


def prepared(task: str, env: Env, start):
    """dm_control's environment at a start of ours."""
    theirs = dm_env(task)
    constants = dict(start.variation)
    if task == "suite/quadruped-escape":
        (chosen,) = np.flatnonzero(env.task.start(keys()[0]).inputs["mocap_pos"][:, 2] == 0)
        constants["hfield_data"] = env.task.heights[chosen].ravel()
    warmstart = warmstart_of(env.model.mj, env.physics.integration_state(start.physics))
    put(theirs, start.physics.qpos, start.physics.qvel, constants, warmstart)
    return theirs


@every_task
def test_three_hundred_steps_agree(task):
    env, starts = our_starts(task)
    start = jax.tree.map(lambda x: x[0], starts)
    low, high = env.action_low, env.action_high
    actions = np.random.default_rng(7).uniform(low, high, (STEPS, low.size)).astype(np.float32)
    ours = our_rollout(env, start, actions)
    assert not ours.diverged.any()
    theirs = prepared(task, env, start)
    assert env.task.control_timestep == pytest.approx(theirs.control_timestep())
    assert env.task.episode_length == theirs._step_limit
    spec = theirs.action_spec()
    np.testing.assert_array_equal(env.action_space.low, spec.minimum.astype(np.float32))
    np.testing.assert_array_equal(env.action_space.high, spec.maximum.astype(np.float32))
    state = env.physics.integration_state(ours.physics)
    for number, action in enumerate(actions):
        step = theirs.step(action)
        qpos, qvel = theirs.physics.data.qpos, theirs.physics.data.qvel
        exact = state[number, 1 : 1 + qpos.size + qvel.size]
        # Among our terrains, MuJoCo meets the contacts in another order, and sums them so.
        atol = 1e-8 if "escape" in task else 0.0
        wanted = np.concatenate([qpos, qvel])
        np.testing.assert_allclose(exact, wanted, 0.0, atol, err_msg=str(number))
        wanted = flat(step.observation)
        # What is far from the origin, or turned often, is rounded to float32 where it is.
        rounding = np.finfo(np.float32).eps * max(2.0, np.abs(qpos).max())
        error = np.abs(ours.obs[number] - wanted) - RTOL * np.abs(wanted)
        assert (error <= rounding).all(), (number, np.argmax(error), error.max())
        np.testing.assert_allclose(ours.reward[number], step.reward, RTOL, 2e-6)
        assert step.discount == 1.0
        assert not ours.terminated[number]


@every_task
def test_a_start_is_observed_alike(task):
    env, starts = our_starts(task)
    start = jax.tree.map(lambda x: x[0], starts)
    theirs = prepared(task, env, start)
    wanted = theirs.task.get_observation(theirs.physics)
    # dm_control switches the motors off for a moment. Those of the quadruped hold its legs.
    felt = ("imu", "force_torque") if "quadruped" in task else ()
    names = np.concatenate([np.full(np.size(value), name) for name, value in wanted.items()])
    same = ~np.isin(names, felt)
    np.testing.assert_allclose(start.obs[same], flat(wanted)[same], RTOL, 2e-6)


@every_task
def test_starts_are_distributed_alike(task):
    _, starts = our_starts(task)
    theirs = dm_env(task)
    fields = [name for name in starts.variation if name != "light_pos"]
    columns = []
    for _ in range(STARTS):
        theirs.reset()
        data, model = theirs.physics.data, theirs.physics.model
        columns.append([data.qpos, data.qvel, *(getattr(model, name) for name in fields)])
        columns[-1] = np.concatenate([np.ravel(np.array(part)) for part in columns[-1]])
    wanted = np.stack(columns).astype(np.float32)
    parts = [starts.physics.qpos, starts.physics.qvel, *(starts.variation[n] for n in fields)]
    given = np.concatenate([part.reshape(STARTS, -1) for part in parts], axis=1)
    constant = np.ptp(wanted, axis=0) == 0
    np.testing.assert_allclose(given[:, constant], wanted[:, constant], atol=1e-6)
    for column in np.flatnonzero(~constant):
        assert stats.ks_2samp(given[:, column], wanted[:, column]).pvalue > ALPHA, column
