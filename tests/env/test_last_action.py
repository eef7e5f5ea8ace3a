"""The last action as a part of the observation: the one that led to it, and none at a start."""

import jax
import jax.numpy as jnp
import numpy as np

import toys
from worldline.env.check import check_env
from worldline.env.env import Env
from worldline.env.worlds import Worlds

B = 4
#: Episodes of 10 steps at most, some ended earlier by the wall.
TASK = toys.Puck(wall=0.8)


def test_each_observation_names_the_action_that_led_to_it():
    worlds = Worlds(Env(TASK, last_action=True), B)
    plain = Worlds(Env(TASK), B)
    state, other = (each.reset(jax.random.key(3)) for each in (worlds, plain))
    assert not np.asarray(state.obs["last_action"]).any()
    ends = 0
    for action in np.random.default_rng(1).uniform(-1, 1, (25, B, 2)).astype(np.float32):
        state, step = worlds.step(state, action)
        other, same = plain.step(other, action)
        ended = np.asarray(step.terminated | step.truncated)
        ends += ended.sum()
        np.testing.assert_array_equal(step.final_obs["last_action"], action)
        seen = np.where(ended[:, None], 0.0, action)
        np.testing.assert_array_equal(step.obs["last_action"], seen)
        np.testing.assert_array_equal(step.obs["state"], same.obs)  # all else stays as it is
        np.testing.assert_array_equal(step.reward, same.reward)
    assert ends > B


def test_it_stands_beside_a_context_that_changes():
    env = Env(TASK, context=["gravity"], last_action=True)
    assert set(env.observation_space) == {"state", "context", "last_action"}
    state = env.step(env.reset(jax.random.key(0)), jnp.array([0.5, -0.5]))
    varied = env.vary(state, {}, {"gravity": -3.0})
    np.testing.assert_array_equal(varied.obs["last_action"], [0.5, -0.5])


def test_an_environment_with_it_keeps_every_promise():
    check_env(Env(TASK, context=["gravity"], last_action=True))
    assert Env(TASK, last_action=True).but(action_repeat=2).last_action
