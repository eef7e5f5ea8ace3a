"""Environments of gymnax as worlds: its own steps, and its params as constants."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline.errors import ConfigError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.variation import Domain, Uniform, scale

pytest.importorskip("gymnax")

import gymnax

from worldline.bridges.gymnax_in import from_gymnax

B, N = 4, 25


@pytest.fixture(autouse=True)
def alarms_off() -> Iterator[None]:
    """Environments of others promote types."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def test_steps_are_gymnaxs_own_and_its_params_vary() -> None:
    """Pendulums of other masses: obs, reward, episodes of 20 steps, fresh starts after them."""
    own, params = gymnax.make("Pendulum-v1")
    env = from_gymnax(own, episode_length=20)
    worlds = worldline.Worlds(env, B, domain=Domain(scale("m", Uniform(0.5, 2.0))))
    actions = np.random.default_rng(0).uniform(-1.5, 1.5, (N, B, 1)).astype(np.float32)
    state = worlds.reset(jax.random.key(0))
    step = jax.jit(worlds.step)
    for number, action in enumerate(actions, start=1):
        before = state
        state, told = step(state, action)
        key = before.env.physics.engine.own
        theirs = jax.vmap(own.step_env, in_axes=(None, 0, 0, 0))
        mass = jax.vmap(lambda m: params.replace(m=m))(before.variation["m"])
        obs, _, reward, _, _ = theirs(jax.random.key(9), key, 2.0 * action, mass)
        np.testing.assert_allclose(told.final_obs, obs, atol=1e-5)
        np.testing.assert_allclose(told.reward, reward, rtol=1e-5, atol=1e-5)
        assert (told.truncated == (number == 20)).all()
        assert not told.terminated.any()
        if number == 20:
            assert (np.abs(state.obs - told.final_obs) > 1e-3).any(axis=1).all()
            assert (state.variation["m"] != before.variation["m"]).all()
    assert len(np.unique(before.variation["m"])) == B


@pytest.mark.parametrize(
    "name",
    [
        "MountainCarContinuous-v0",
        *(
            pytest.param(it, marks=pytest.mark.exhaustive)
            for it in ("PointRobot-misc", "Swimmer-misc")
        ),
    ],
)
def test_its_own_time_limit_and_its_bounds_are_ours(name: str) -> None:
    own, params = gymnax.make(name)
    env = from_gymnax(own)
    assert env.task.episode_length == params.max_steps_in_episode
    space = own.action_space(params)
    assert env.action_space.shape == (int(np.prod(space.shape)),)
    state = jax.jit(env.reset)(jax.random.key(1))
    shape = np.broadcast_to(np.asarray(space.high, np.float32), space.shape)
    _, _, reward, _, _ = own.step_env(
        jax.random.key(0), state.physics.engine.own, jnp.asarray(shape), params
    )
    after = jax.jit(env.step)(state, np.ones(env.action_space.shape, np.float32))
    np.testing.assert_allclose(after.reward, np.reshape(reward, ()), rtol=1e-5)


@pytest.mark.exhaustive
def test_ppo_learns_from_it() -> None:
    """It swings up: gymnax's own start is about -1200."""
    env = from_gymnax(gymnax.make("Pendulum-v1")[0])
    config = PPOConfig(num_worlds=64, unroll_length=64, minibatches=8, gae_lambda=0.9)
    learner = ppo(worldline.Worlds(env, 64), config)
    state = learner.init(jax.random.key(0))
    for _ in range(60):
        state, metrics = learner.update(state)
    assert metrics["train/return"] > -400


def test_discrete_actions_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"the action space of CartPole-v1 is Discrete\(2"):
        from_gymnax(gymnax.make("CartPole-v1")[0])
