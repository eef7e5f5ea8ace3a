"""An action taken several times: what a loop over single steps gives, to the true end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.env.check import check_env
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError

B, REPEAT = 6, 4
#: Its time limit of 10 is no multiple of 4, and its wall stops some pucks within a step.
TASK = toys.Puck(wall=0.8)


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("physics", ["native", "fake"])
def test_it_is_a_loop_over_single_steps(physics):
    single = Worlds(Env(TASK, physics), B)
    worlds = Worlds(Env(TASK, physics, action_repeat=REPEAT), B)
    state, other = (each.reset(jax.random.key(5)) for each in (worlds, single))
    lengths = {"terminated": set(), "truncated": set()}
    for action in np.random.default_rng(0).uniform(-1, 1, (20, B, 2)).astype(np.float32):
        state, step = worlds.step(state, action)
        reward, over = np.zeros(B), np.zeros(B, bool)
        last = {}
        for _ in range(REPEAT):
            other, one = single.step(other, action, ~over)
            now = {"obs": one.final_obs, "terminated": one.terminated, "truncated": one.truncated}
            for name, value in (now | one.metrics).items():
                value = np.asarray(value)
                kept = over.reshape(-1, *[1] * (value.ndim - 1))
                last[name] = np.where(kept, last.get(name, value), value)
            reward += np.asarray(one.reward)
            over |= np.asarray(one.terminated | one.truncated)
        close(step.reward, reward)
        close(step.obs, other.obs)
        close(step.final_obs, last.pop("obs"))
        given = {"terminated": step.terminated, "truncated": step.truncated, **step.metrics}
        for name, value in last.items():
            close(given[name], value)
        for why, seen in lengths.items():
            ended = np.asarray(given[why])
            seen.update(np.asarray(step.metrics["episode_length"])[ended].tolist())
    assert lengths["truncated"] == {10}
    assert any(length % REPEAT for length in lengths["terminated"])


def test_gradients_go_through_every_control_step():
    once, thrice = Env(toys.Swing()), Env(toys.Swing(), action_repeat=3)
    start = once.reset(jax.random.key(1))

    def reward(action, repeats):
        if repeats == 1:
            after = thrice.step(start, action)
            return after.reward + after.obs.sum()
        total, state = 0.0, start
        for _ in range(repeats):
            state = once.step(state, action)
            total += state.reward
        return total + state.obs.sum()

    action = jnp.full(1, 0.3)
    ours, theirs = (jax.grad(reward)(action, repeats) for repeats in (1, 3))
    assert abs(float(theirs[0])) > 1e-3
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_world_that_fails_on_the_way_stays_where_it_failed(nans_allowed):
    env = Env(TASK, action_repeat=3)
    worlds = Worlds(env, 2)
    state = worlds.reset(jax.random.key(0))
    _, step = jax.jit(worlds.step)(state, jnp.array([[jnp.nan, 0.0], [0.1, 0.0]]))
    assert step.metrics["diverged"].tolist() == [True, False]
    assert step.truncated.tolist() == [True, False]
    assert float(step.reward[0]) == 0
    assert np.isfinite(np.asarray(step.final_obs)).all()


def test_what_is_said_of_time():
    env = Env(TASK, action_repeat=REPEAT)
    assert env.control_timestep == pytest.approx(0.08)
    assert env.but().action_repeat == REPEAT
    assert Worlds(env, 2).episode_length == 10
    assert Worlds(env, 2).repeating(2).env.action_repeat == 8
    assert not any("action" in warning for warning in check_env(env).warnings)
    with pytest.raises(ConfigError, match="action_repeat is 0; give 1 to 10000"):
        Env(TASK, action_repeat=0)
