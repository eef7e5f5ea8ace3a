"""PPO with a lag of one update: against a loop that says what it means, and by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.errors import ConfigError
from worldline.learn.policy import Policy
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.ppo.update import prepare
from worldline.learn.run import Learner, run

CONFIG = PPOConfig(
    num_worlds=8, unroll_length=8, minibatches=2, epochs=2, actor_hidden=(8,), critic_hidden=(8,)
)
LAG = dataclasses.replace(CONFIG, lag=1)


@pytest.fixture(scope="module")
def worlds():
    return worldline.Worlds(worldline.Env(toys.Swing(), "fake"), CONFIG.num_worlds)


@pytest.fixture(autouse=True)
def optax_may_promote():
    with jax.numpy_dtype_promotion("standard"):
        yield


def assert_same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


def test_the_policy_before_the_last_update_acts(worlds):
    """The first rollout is of the first policy; each further one of the policy that the rollout
    before it is about to change.
    """
    plain = ppo(worlds, CONFIG)
    assert plain.halves is not None
    act, learn = plain.halves.act, plain.halves.learn
    start = plain.init(jax.random.key(0))
    acting, learning = start.acting, start.learning
    acting, rollout = act(acting, learning)
    lagging = ppo(worlds, LAG)
    state = lagging.init(jax.random.key(0))
    for update in range(3):
        old = learning
        learning, expected = learn(learning, rollout)
        acting, rollout = act(acting, old)
        state, metrics = lagging.update(state)
        assert_same((state.acting, state.learning, state.pending), (acting, learning, rollout))
        assert_same(metrics, expected)
        assert int(metrics["train/updates"]) == update + 1


def test_the_ratio_is_of_the_present_policy_to_the_one_that_acted(worlds):
    """Both densities by hand, of normal distributions of the observations normalised by hand."""
    lagging = ppo(worlds, LAG)
    before, _ = lagging.update(lagging.init(jax.random.key(1)))
    state, _ = lagging.update(before)  # `before` has acted, in what `state` has not learned from
    batch, _ = prepare(LAG, state.learning, state.pending.rollout)
    distribution, _ = state.learning.networks.evaluate(batch.segments)
    ratio = jnp.exp(distribution.log_prob(batch.action) - batch.log_prob)

    def log_density(policy: Policy):
        drawn = state.pending.rollout
        mean, variance = policy.statistics.mean, policy.statistics.variance
        seen = np.clip((drawn.obs - mean) / np.maximum(np.sqrt(variance), 0.01), -10, 10)
        out = policy.actor(jnp.float32(seen))
        std = np.exp(np.asarray(out.log_std, np.float64))
        z = (np.asarray(drawn.action, np.float64) - np.asarray(out.mean)) / std
        return (-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(-1)

    now, then = (log_density(lagging.policy(each)) for each in (state, before))
    np.testing.assert_allclose(batch.log_prob, then, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ratio, np.exp(now - then), rtol=1e-3, atol=1e-3)
    assert np.abs(ratio - 1).max() > 0.01


def test_a_lag_of_two_is_refused():
    with pytest.raises(ConfigError, match="lag is 2; give 0 to 1"):
        PPOConfig(lag=2)


@pytest.mark.slow
def test_it_learns_all_the_same():
    """An episode earns 1 a step."""
    env = worldline.make("gym/inverted-pendulum")
    config = PPOConfig(num_worlds=32, unroll_length=32, minibatches=8, discount=0.98, lag=1)
    learner: Learner = ppo(worldline.Worlds(env, 32), config)
    progress = run(learner, learner.init(jax.random.key(0)), steps=60 * 1024)
    returns = [each.metrics["train/return"] for each in progress]
    assert np.nanmean(returns[:5]) < 50
    assert np.nanmax(returns) > 300
