"""The pieces of PPO that have an answer of their own: rates, clips, scales."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.learn.gradient import clipped
from worldline.learn.ppo import Batch, PPOConfig, PPOState, ppo, with_hyperparameters
from worldline.learn.ppo import update as ppo_module
from worldline.learn.ppo.loss import _value_loss
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.learn.shuffle import shuffled

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


@functools.cache
def beginning() -> tuple[Worlds, Learner[PPOState], PPOState]:
    """Worlds, a learner on them, and its state before training."""
    worlds = Worlds(Env(toys.Puck(), "fake"), CONFIG.num_worlds)
    learner = ppo(worlds, CONFIG)
    return worlds, learner, learner.init(jax.random.key(0))


def learning_rates(updates: int, **numbers: float) -> list[float]:
    """The learning rate of each update, with other numbers in the state: nothing recompiles."""
    _, learner, state = beginning()
    state = with_hyperparameters(state, **numbers)
    rates = []
    with jax.debug_key_reuse(False):  # several series begin in the same state
        for _ in range(updates):
            state, metrics = learner.update(state)
            rates.append(float(metrics["ppo/learning_rate"]))
    return rates


def test_the_learning_rate_falls_to_a_tenth():
    rates = learning_rates(6, anneal_updates=4)
    np.testing.assert_allclose(rates, 1e-3 * np.array([1, 0.775, 0.55, 0.325, 0.1, 0.1]), rtol=1e-5)
    config = dataclasses.replace(CONFIG, anneal_steps=4 * 64)  # four updates of 8 x 8 steps
    learner = ppo(beginning()[0], config)
    assert learner.init(jax.random.key(0)).learning.hyperparameters.anneal_updates == 4


@pytest.mark.parametrize(
    ("target_kl", "rates"),
    [
        (0.0, [1e-3, 1e-3, 1e-3]),
        # Always below half the target: 1.5 times faster after each of two passes, but no more than
        # twice what was configured.
        (1e9, [2e-3, 2e-3, 2e-3]),
        # Always above twice the target, as soon as there is any divergence: ever slower.
        (1e-12, [1e-3 / 2.25, 1e-3 / 2.25**2, 1e-3 / 2.25**3]),
    ],
)
def test_the_divergence_leads_the_learning_rate(target_kl, rates):
    np.testing.assert_allclose(learning_rates(3, target_kl=target_kl), rates, rtol=1e-4)


@functools.cache
def first_rollout() -> tuple[Any, Rollout]:
    """The state before training, and what the first policy did."""
    worlds, learner, state = beginning()
    program = jax.jit(functools.partial(unroll, worlds), static_argnums=3)
    policy, key = learner.policy(state), jax.random.key(1)
    return state.learning, program(state.acting.worlds, policy, key, CONFIG.unroll_length)[1]


def test_the_scale_of_rewards_does_not_matter_where_they_are_normalised():
    learning, rollout = first_rollout()
    larger = rollout._replace(reward=1000 * rollout.reward)
    one, other = (ppo_module.prepare(CONFIG, learning, each)[0] for each in (rollout, larger))
    np.testing.assert_allclose(other.target, one.target, rtol=1e-4, atol=1e-5)
    plain = dataclasses.replace(CONFIG, normalize_rewards=False, gae_lambda=1.0)
    one, other = (ppo_module.prepare(plain, learning, each)[0] for each in (rollout, larger))
    assert np.abs(other.target).max() > 100 * np.abs(one.target).max()


def test_observations_are_counted_or_left_alone():
    learning, rollout = first_rollout()
    samples, counted = ppo_module.prepare(CONFIG, learning, rollout)
    np.testing.assert_allclose(counted.statistics.actor.mean, rollout.obs.mean((0, 1)), atol=1e-5)
    assert counted.statistics.actor.count == 64
    # They count from the next rollout on: these samples are as the policy saw them.
    np.testing.assert_array_equal(samples.segments.obs["state"], rollout.obs)
    plain = dataclasses.replace(CONFIG, normalize_observations=False)
    assert ppo_module.prepare(plain, learning, rollout)[1].statistics.actor.count == 0


def test_long_gradients_are_cut_and_short_ones_are_not():
    gradient = {"a": jnp.array([3.0]), "b": jnp.array([[4.0]])}  # of norm 5
    cut, norm = clipped(gradient, jnp.float32(0.5))
    assert norm == 5
    np.testing.assert_allclose([cut["a"][0], cut["b"][0, 0]], [0.3, 0.4], rtol=1e-5)
    whole, _ = clipped(gradient, jnp.float32(7.0))
    np.testing.assert_allclose(whole["a"], gradient["a"])


def test_the_value_loss_with_its_move_clipped_and_not():
    def loss(value, clip):
        zeros = jnp.zeros((1, 1))
        batch = Batch(
            segments=zeros,
            action=zeros,
            log_prob=zeros[0],
            distribution=zeros,
            value=jnp.array([1.0]),
            advantage=zeros[0],
            target=jnp.array([3.0]),
        )
        return float(_value_loss(jnp.array([value]), batch, jnp.float32(clip)))

    # Half the squared distance from 2 to 3; clipped it had only gone to 1.25, of distance 1.75.
    np.testing.assert_allclose(loss(2.0, 0.0), 0.5)
    np.testing.assert_allclose(loss(2.0, 0.25), 0.5 * 1.75**2)
    # A move away from the target is not forgiven: the worse of the two counts.
    np.testing.assert_allclose(loss(-1.0, 0.25), 0.5 * 4**2)


def test_minibatches_are_the_samples_in_another_order():
    samples = Batch(*(jnp.arange(12.0).reshape(3, 4) for _ in Batch._fields))
    batches, _ = shuffled(samples, jax.random.key(0), 3)
    assert batches.value.shape == (3, 4)
    np.testing.assert_array_equal(np.sort(np.ravel(batches.value)), np.arange(12))
    np.testing.assert_array_equal(batches.value, batches.advantage)
    assert (np.ravel(batches.value) != np.arange(12)).any()
