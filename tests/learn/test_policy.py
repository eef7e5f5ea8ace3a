"""Policy: from what a robot sees to what it does, batched or not, NumPy or JAX."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.errors import TaskError
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy


def policy_of(**changes: Any) -> Policy:
    """A linear policy of two observations: action 0 is their sum, action 1 their difference."""
    weights = [jnp.array([[1.0, 1.0], [1.0, -1.0]])]
    actor = Actor(MLP(weights, [jnp.zeros(2)], "tanh"), jnp.log(jnp.array([0.1, 0.2])))
    policy = Policy(
        actor=actor,
        statistics=RunningStatistics.zero((2,)),
        low=jnp.array([-1.0, 0.0]),
        high=jnp.array([1.0, 10.0]),
        squash="clip",
    )
    return dataclasses.replace(policy, **changes)


@pytest.mark.parametrize(
    ("squash", "raw", "action"),
    [
        # The middle and the ends of [-1, 1] and of [0, 10], and what lies beyond.
        ("clip", [0.0, 0.0], [0.0, 5.0]),
        ("clip", [1.0, -1.0], [1.0, 0.0]),
        ("clip", [0.5, 0.5], [0.5, 7.5]),
        ("clip", [-7.0, 7.0], [-1.0, 10.0]),
        ("tanh", [0.0, 0.0], [0.0, 5.0]),
        ("tanh", [0.5, -0.5], [np.tanh(0.5), 5 - 5 * np.tanh(0.5)]),
        ("tanh", [-20.0, 20.0], [-1.0, 10.0]),
    ],
)
def test_actions_come_into_their_bounds(squash, raw, action):
    policy = policy_of(squash=squash)
    np.testing.assert_allclose(policy.to_action(jnp.array(raw)), action, rtol=1e-6, atol=1e-6)


def test_actions_without_bounds_are_as_they_are():
    policy = policy_of(low=jnp.array([-jnp.inf, 0.0]), high=jnp.array([jnp.inf, 10.0]))
    np.testing.assert_allclose(policy.to_action(jnp.array([-7.0, 0.0])), [-7.0, 5.0])


def test_one_observation_or_many_numpy_or_jax():
    policy = policy_of()
    one = np.array([0.25, 0.5], np.float32)
    # Sum 0.75; difference -0.25, of [0, 10] that is 3.75.
    action = policy(one)
    np.testing.assert_allclose(action, [0.75, 3.75])
    assert isinstance(action, np.ndarray)
    assert isinstance(policy(jnp.asarray(one)), jax.Array)
    for shape in ((3,), (2, 3)):
        many = policy(np.broadcast_to(one, (*shape, 2)))
        np.testing.assert_array_equal(many, np.broadcast_to(action, (*shape, 2)))
    np.testing.assert_array_equal(policy({"state": one, "pixels/front": np.zeros(3)}), action)
    np.testing.assert_allclose(policy(one.astype(np.float64)), action)
    np.testing.assert_array_equal(policy(one.tolist()), action)
    np.testing.assert_array_equal(policy({"state": one.tolist()}), action)
    with pytest.raises(TaskError, match=r"'state' of the observation is .'a', 'b'.; give numb"):
        policy(["a", "b"])
    compiled = jax.jit(lambda policy, obs: policy(obs))
    np.testing.assert_allclose(compiled(policy, jnp.asarray(one)), action)


def test_observations_are_normalised_first():
    seen = jnp.array([[1.0, 10.0], [3.0, 30.0]])  # mean 2 and 20, standard deviation 1 and 10
    policy = policy_of(statistics=RunningStatistics.zero((2,)).update(seen))
    # (2.5 - 2) / 1 = 0.5 and (15 - 20) / 10 = -0.5: sum 0, difference 1.
    np.testing.assert_allclose(policy(np.array([2.5, 15.0])), [0.0, 10.0], atol=1e-5)


def test_a_key_draws_around_the_mean():
    policy = policy_of()
    obs = np.zeros((20_000, 2), np.float32)
    drawn = policy(obs, jax.random.key(0))
    np.testing.assert_array_equal(drawn, policy(obs, jax.random.key(0)))
    assert (drawn != policy(obs, jax.random.key(1))).any()
    np.testing.assert_allclose(drawn.mean(0), [0, 5], atol=0.02)
    np.testing.assert_allclose(drawn.std(0), [0.1, 5 * 0.2], rtol=0.02)


def test_what_is_wrong_with_an_observation():
    policy = policy_of()
    with pytest.raises(TaskError, match=r"shape \(4, 3\); this policy takes \(..., 2\)"):
        policy(np.zeros((4, 3)))
    with pytest.raises(TaskError, match=r"has \['image'\] but no 'state' for the policy to read"):
        policy({"image": np.zeros(3)})
