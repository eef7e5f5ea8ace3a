"""Disturbances by hand: late actions, noise of the stated law, pushes of the stated impulse."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import toys
import worldline
from worldline.env.check import check_env
from worldline.env.disturb import ActionDelay, ActionNoise, Disturbed, ObservationNoise, Pushes
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ModelError, TaskError
from worldline.variation import Choice, Uniform

PUCK = toys.Puck(episode_length=1000)


def disturbed(*disturbances: Any, task: Any = PUCK) -> Disturbed:
    return Disturbed(task=task, disturbances=disturbances)


def roll(env: Env, actions: np.ndarray, key: int = 0) -> Any:
    """The states of one world under actions `(T, nact)`, the start's first."""

    @jax.jit
    def run(actions: Any) -> Any:
        state = env.reset(jax.random.key(key))
        last, states = jax.lax.scan(
            lambda state, action: (env.step(state, action), state), state, actions
        )
        return jax.tree.map(lambda s, x: jnp.concatenate([s, x[None]]), states, last)

    return jax.device_get(run(actions))


def noise(steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 2)).astype(np.float32)


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_a_delayed_action_is_the_one_chosen_before(delay):
    actions = noise(12)
    late = np.concatenate([np.zeros((delay, 2), np.float32), actions])[:12]
    ours = roll(Env(disturbed(ActionDelay(steps=delay)), "fake"), actions)
    start = ours.physics.qpos[0], ours.physics.qvel[0]
    plain = Env(PUCK, "fake")
    state = plain.reset_to(jax.random.key(0), qpos=start[0], qvel=start[1])
    for step, action in enumerate(late):
        state = plain.step(state, action)
        np.testing.assert_allclose(ours.physics.qpos[step + 1], state.physics.qpos, atol=1e-6)


def test_a_delay_is_drawn_for_each_episode_and_kept():
    task = disturbed(ActionDelay(steps=Choice([0, 1, 2])))
    worlds = Worlds(Env(task, "fake"), 300, 5)
    state = worlds.reset(jax.random.key(0))
    drawn = np.asarray(state.env.memory[1][0].delay)
    assert stats.chisquare(np.unique(drawn, return_counts=True)[1]).pvalue > 0.001
    for step in range(5):
        np.testing.assert_array_equal(drawn, state.env.memory[1][0].delay)
        state, _ = worlds.step(state, np.zeros((300, 2), np.float32))
        del step
    assert (drawn != np.asarray(state.env.memory[1][0].delay)).mean() > 0.4


def test_observation_noise_has_its_law_and_changes_nothing_else():
    ours = roll(Env(disturbed(ObservationNoise(std=0.3)), "fake"), noise(400))
    exact = np.concatenate([ours.physics.qpos, ours.physics.qvel], axis=1)
    error = ours.obs - exact
    assert stats.kstest(error.ravel() / 0.3, stats.norm.cdf).pvalue > 0.001
    assert abs(stats.pearsonr(error[:-1].ravel(), error[1:].ravel()).statistic) < 0.1
    np.testing.assert_allclose(ours.reward[1:], ours.physics.qpos[1:].sum(axis=1), atol=1e-5)


class _Parts(toys.Puck):
    def observe(self, physics: Any, memory: Any) -> Any:
        return {"state": physics.qpos, "clock": physics.time[None]}


def test_noise_reaches_only_the_parts_it_is_given_for():
    env = Env(disturbed(ObservationNoise(std={"state": 0.5}), task=_Parts()), "fake")
    state = env.reset(jax.random.key(0))
    assert (np.asarray(state.obs["state"]) != np.asarray(state.physics.qpos)).all()
    np.testing.assert_array_equal(state.obs["clock"], [0.0])
    for std, task in (({"stat": 1.0}, _Parts()), ({"state": 1.0}, PUCK)):
        with pytest.raises(
            TaskError, match=r"did you mean 'state'|give ObservationNoise one number"
        ):
            Env(disturbed(ObservationNoise(std=std), task=task), "fake")


def test_action_noise_has_its_law_and_keeps_the_bounds():
    env = Env(disturbed(ActionNoise(std=0.2)), "fake")
    ours = roll(env, np.zeros((400, 2), np.float32))
    felt = np.diff(ours.physics.qvel, axis=0) / 0.02  # 1 kg, 0.02 s
    assert stats.kstest(felt.ravel() / 0.2, stats.norm.cdf).pvalue > 0.001
    ours = roll(env, np.ones((400, 2), np.float32))
    felt = np.diff(ours.physics.qvel, axis=0) / 0.02
    assert felt.max() < 1 + 1e-3
    assert (felt < 0.95).mean() > 0.3


def test_a_push_gives_its_impulse_and_comes_when_it_should():
    pushes = Pushes(body="puck", force=Uniform(10.0, 20.0), every=Uniform(0.5, 1.0), duration=0.1)
    ours = roll(Env(disturbed(pushes), "native"), np.zeros((1000, 2), np.float32))
    gained = np.diff(ours.physics.qvel, axis=0) / 0.02
    pushed = np.linalg.norm(gained, axis=1)  # N on 1 kg
    starts = np.flatnonzero((pushed[1:] > 1) & (pushed[:-1] < 1)) + 1
    assert 15 < len(starts) < 40  # 20 s, a push every 0.6 to 1.1 s
    angles = []
    for start in starts[:-1]:
        during = pushed[start : start + 5]
        assert 10 - 1e-2 <= during[0] <= 20 + 1e-2
        np.testing.assert_allclose(during, during[0], rtol=1e-3)
        assert pushed[start + 5] < 1e-3
        angles.append(np.arctan2(*gained[start]))
    waits = np.diff(starts) * 0.02 - 0.1
    assert ((waits > 0.5 - 0.03) & (waits < 1.0 + 0.03)).all()
    assert stats.kstest(angles, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 0.001


def test_disturbances_compose_and_the_task_stays_sound():
    task = disturbed(
        ActionDelay(steps=Choice([1, 2])),
        ActionNoise(std=0.05),
        Pushes(body="puck", force=Uniform(1.0, 2.0)),
        ObservationNoise(std=0.01),
    )
    assert (task.episode_length, task.control_timestep) == (1000, 0.02)
    check_env(Env(task, "native"))
    assert Disturbed(task=task, disturbances=(), episode_length=7).episode_length == 7


def test_a_disturbed_ant_is_ant():
    plain = worldline.make("gym/ant").task
    ours = Env(Disturbed(task=plain, disturbances=()))
    theirs = Env(plain)
    key = jax.random.key(0)
    # Without disturbances the start's key is the first of one: the state can be given.
    state = theirs.reset(jax.random.clone(key))
    other = ours.reset_to(key, qpos=state.physics.qpos, qvel=state.physics.qvel)
    np.testing.assert_array_equal(state.obs, other.obs)
    after = [
        env.step(s, np.full(8, 0.3, np.float32)) for env, s in ((theirs, state), (ours, other))
    ]
    np.testing.assert_array_equal(after[0].obs, after[1].obs)
    np.testing.assert_array_equal(after[0].reward, after[1].reward)


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (functools.partial(ActionDelay, steps=-1), TaskError, "ActionDelay of -1 to -1 steps"),
        (functools.partial(ActionNoise, std=-0.1), TaskError, "give 0 or more"),
        (functools.partial(ObservationNoise, std=np.nan), TaskError, "give 0 or more"),
        (
            lambda: Pushes(body="puck", force=Uniform(0, 1), duration=0.0),
            TaskError,
            "give a duration above 0",
        ),
        (lambda: disturbed(Pushes(body="pock", force=Uniform(0, 1))), ModelError, "mean 'puck'"),
    ],
)
def test_what_cannot_happen_is_refused(make, error, complaint):
    with pytest.raises(error, match=complaint):
        make()
