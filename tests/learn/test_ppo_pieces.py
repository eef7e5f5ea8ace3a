"""The pieces of PPO that have an answer of their own: rates, clips, scales."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from worldline.env.env import Env
from worldline.env.task import Outcome
from worldline.env.worlds import Worlds
from worldline.learn import ppo as ppo_module
from worldline.learn.ppo import Batch, PPOConfig, ppo

CONFIG = PPOConfig(
    num_worlds=8,
    unroll_length=8,
    minibatches=2,
    epochs=2,
    actor_hidden=(8,),
    critic_hidden=(8,),
    learning_rate=1e-3,
    target_kl=0.0,
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Scaled(toys.Puck):
    """The puck, its reward in other units."""

    scale: float = 1.0

    def outcome(self, before: Any, action: Any, after: Any, memory: Any) -> Outcome:
        good = super().outcome(before, action, after, memory)
        return dataclasses.replace(good, reward=self.scale * good.reward)


def train(config: PPOConfig, updates: int, scale: float = 1.0) -> tuple[Any, list[dict[str, Any]]]:
    learner = ppo(Worlds(Env(Scaled(scale=scale), "fake"), config.num_worlds), config)
    state, measured = learner.init(jax.random.key(0)), []
    for _ in range(updates):
        state, metrics = learner.update(state)
        measured.append(jax.device_get(metrics))
    return state, measured


def test_the_learning_rate_falls_to_a_tenth():
    config = dataclasses.replace(CONFIG, anneal_steps=4 * 64)  # four updates of 8 x 8 steps
    _, measured = train(config, 6)
    rates = [metrics["ppo/learning_rate"] for metrics in measured]
    np.testing.assert_allclose(rates, 1e-3 * np.array([1, 0.775, 0.55, 0.325, 0.1, 0.1]), rtol=1e-5)


@pytest.mark.parametrize(
    ("target_kl", "rates"),
    [
        (0.0, [1e-3, 1e-3, 1e-3]),
        # Always below half the target: 1.5 times faster after each of two passes, up to 0.01.
        (1e9, [2.25e-3, 5.0625e-3, 1e-2]),
        # Always above twice the target, once there is any divergence: ever slower.
        (1e-12, None),
    ],
)
def test_the_divergence_leads_the_learning_rate(target_kl, rates):
    _, measured = train(dataclasses.replace(CONFIG, target_kl=target_kl), 3)
    got = [metrics["ppo/learning_rate"] for metrics in measured]
    if rates is None:
        np.testing.assert_allclose(got, 1e-3 / 2.25 ** np.arange(1, 4), rtol=1e-4)
    else:
        np.testing.assert_allclose(got, rates, rtol=1e-5)


def test_the_scale_of_rewards_does_not_matter_where_they_are_normalised():
    state, _ = train(CONFIG, 2)
    thousandfold, _ = train(CONFIG, 2, scale=1000.0)
    for a, b in zip(
        jax.tree.leaves(state.learning.networks),
        jax.tree.leaves(thousandfold.learning.networks),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    plain = dataclasses.replace(CONFIG, normalize_rewards=False)
    one, _ = train(plain, 2)
    other, _ = train(plain, 2, scale=1000.0)
    bias = lambda state: state.learning.networks.critic.weights[0]  # noqa: E731
    assert not np.allclose(bias(one), bias(other), rtol=1e-3, atol=1e-5)


def test_observations_are_counted_or_left_alone():
    state, _ = train(CONFIG, 2)
    statistics = state.learning.statistics
    assert statistics.count == 2 * 64
    assert (statistics.variance != 1).all()
    state, _ = train(dataclasses.replace(CONFIG, normalize_observations=False), 2)
    assert state.learning.statistics.count == 0


def test_long_gradients_are_cut_and_short_ones_are_not():
    gradient = {"a": jnp.array([3.0]), "b": jnp.array([[4.0]])}  # of norm 5
    cut, norm = ppo_module._clip_norm(gradient, jnp.float32(0.5))
    assert norm == 5
    np.testing.assert_allclose([cut["a"][0], cut["b"][0, 0]], [0.3, 0.4], rtol=1e-5)
    whole, _ = ppo_module._clip_norm(gradient, jnp.float32(7.0))
    np.testing.assert_allclose(whole["a"], gradient["a"])


def test_the_value_loss_with_its_move_clipped_and_not():
    def loss(value, clip):
        zeros = jnp.zeros((1, 1))
        batch = Batch(
            obs=zeros,
            action=zeros,
            log_prob=zeros[0],
            mean=zeros,
            value=jnp.array([1.0]),
            advantage=zeros[0],
            target=jnp.array([3.0]),
        )
        return float(ppo_module._value_loss(jnp.array([value]), batch, jnp.float32(clip)))

    # Half the squared distance from 2 to 3; clipped it had only gone to 1.25, of distance 1.75.
    np.testing.assert_allclose(loss(2.0, 0.0), 0.5)
    np.testing.assert_allclose(loss(2.0, 0.25), 0.5 * 1.75**2)
    # A move away from the target is not forgiven: the worse of the two counts.
    np.testing.assert_allclose(loss(-1.0, 0.25), 0.5 * 4**2)


def test_minibatches_are_the_samples_in_another_order():
    samples = Batch(*(jnp.arange(12.0) for _ in Batch._fields))
    batches = ppo_module._shuffled(samples, jax.random.key(0), 3)
    assert batches.obs.shape == (3, 4)
    np.testing.assert_array_equal(np.sort(np.ravel(batches.obs)), np.arange(12))
    np.testing.assert_array_equal(batches.obs, batches.advantage)
    assert (np.ravel(batches.obs) != np.arange(12)).any()
