"""Networks and distributions against their definitions."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.learn.networks.mlp import MLP, Gaussian


@pytest.mark.parametrize("sizes", [(5, 32, 3), (40, 8, 8, 1)])
def test_layers_are_orthogonal_with_their_gains(sizes: tuple[int, ...]) -> None:
    network = MLP.initial(jax.random.key(0), sizes, "tanh", last_gain=0.01)
    gains = [2**0.5] * (len(sizes) - 2) + [0.01]
    for weight, gain in zip(network.weights, gains, strict=True):
        tall = weight if weight.shape[0] >= weight.shape[1] else weight.T
        identity = gain**2 * np.eye(tall.shape[1])
        np.testing.assert_allclose(tall.T @ tall, identity, atol=1e-5 * gain**2)
    assert all(not bias.any() for bias in network.biases)


_MANY_SIDE_BY_SIDE = """
import jax
from worldline.learn.networks.mlp import MLP

@jax.jit
def networks(key):
    return [
        jax.vmap(lambda key: MLP.initial(key, (200, 200, 200), "relu", 1.0))(jax.random.split(k, 2))
        for k in jax.random.split(key, 6)
    ]

for seed in range(20):
    jax.block_until_ready(networks(jax.random.key(seed)))
"""


def test_many_networks_at_once_do_not_wait_for_each_other_forever() -> None:
    # Without one after another in `orthogonal`, JAX 0.10 hangs here on two cores within seconds.
    subprocess.run([sys.executable, "-c", _MANY_SIDE_BY_SIDE], check=True, timeout=240)


def test_layers_differ_and_follow_the_key() -> None:
    one, same, other = (
        MLP.initial(jax.random.key(seed), (8, 8, 8), "tanh", 1.0) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.weights[0], same.weights[0])
    assert not np.allclose(one.weights[0], other.weights[0])
    assert not np.allclose(one.weights[0] / 2**0.5, one.weights[1])


def test_forward_pass_by_hand_and_over_leading_axes() -> None:
    network = MLP(
        [jnp.array([[1.0], [2.0]]), jnp.array([[3.0]])],
        [jnp.array([0.5]), jnp.array([1.0])],
        "relu",
    )
    # relu(1 * x + 2 * y + 0.5) * 3 + 1
    np.testing.assert_allclose(network(jnp.array([1.0, 1.0])), [11.5])
    np.testing.assert_allclose(
        network(jnp.array([[[1.0, 1.0]], [[-9.0, 0.0]]])), [[[11.5]], [[1.0]]]
    )


def test_log_density_of_a_standard_normal_at_its_mean() -> None:
    distribution = Gaussian(jnp.zeros(3), jnp.zeros(3))
    np.testing.assert_allclose(distribution.log_prob(jnp.zeros(3)), -1.5 * np.log(2 * np.pi))
    # One standard deviation away in one component costs a half.
    away = jnp.array([1.0, 0.0, 0.0])
    difference = distribution.log_prob(jnp.zeros(3)) - distribution.log_prob(away)
    np.testing.assert_allclose(difference, 0.5, rtol=1e-5)


def test_entropy_and_divergence_against_draws() -> None:
    p = Gaussian(jnp.array([0.3, -1.0]), jnp.array([-0.5, 0.2]))
    q = Gaussian(jnp.array([0.0, -0.5]), jnp.array([0.1, -0.1]))
    noise = jax.random.normal(jax.random.key(0), (200_000, 2))
    draws = Gaussian(jnp.broadcast_to(p.mean, noise.shape), p.log_std).at(noise)
    np.testing.assert_allclose(p.entropy(), -p.log_prob(draws).mean(), atol=0.01)
    expected = (p.log_prob(draws) - q.log_prob(draws)).mean()
    np.testing.assert_allclose(q.kl_from(p), expected, atol=0.01)
    np.testing.assert_allclose(p.kl_from(p), 0.0, atol=1e-6)


@pytest.mark.parametrize("mean", [0.0, -0.7, 3.0])
@pytest.mark.parametrize("std", [0.05, 0.6, 1.5])
def test_entropy_of_bounded_actions_against_their_density(mean: float, std: float) -> None:
    """That of the first component; the second has no bounds."""
    distribution = Gaussian(jnp.array([mean, 0.3]), jnp.log(jnp.array([std, 0.4])))
    found = distribution.squashed_entropy(np.array([True, False]))
    # The density of y = tanh(x), by a substitution, over what float64 can tell apart from 1.
    grid = np.linspace(mean - 12 * std, mean + 12 * std, 200_001)
    density = np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    slope = 2 * (np.log(2) - grid - np.logaddexp(0, -2 * grid))
    entropy = -np.trapezoid(density * (np.log(np.maximum(density, 1e-300)) - slope), grid)
    other = np.log(0.4) + 0.5 * np.log(2 * np.pi * np.e)
    np.testing.assert_allclose(found, entropy + other, atol=0.01)
    free = distribution.squashed_entropy(np.array([False, False]))
    np.testing.assert_allclose(free, distribution.entropy(), rtol=1e-6)
