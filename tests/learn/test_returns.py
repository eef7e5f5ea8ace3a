"""Advantages against numbers worked out by hand, and against the definition."""

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
from hypothesis import given

from worldline.learn.returns import discounted_return_so_far, generalized_advantage


def column(*values: float) -> jnp.ndarray:
    """Steps of one world, `(T, 1)`."""
    return jnp.asarray(values, jnp.float32)[:, None]


def flags(*values: int) -> jnp.ndarray:
    return jnp.asarray(values, bool)[:, None]


def test_hand_computed_over_a_termination_and_a_truncation() -> None:
    # Discount 1/2, lambda 1/2, so what comes later counts a quarter.
    #   step 0: error 1 + 0.5 * 4 - 2 = 1          advantage 1 + 0.25 * (-1.5) = 0.625
    #   step 1: terminated: 2 - 4 = -2 ... its successor's value 8 must not count
    #           error 2 + 0 - 4 = -2, nothing later: advantage -2
    #   so step 0 is 1 + 0.25 * (-2) = 0.5
    #   step 2: truncated: its successor's value 6 counts: 1 + 3 - 2 = 2, nothing later
    #   step 3: the last: 0 + 0.5 * 2 - 1 = 0
    advantage = generalized_advantage(
        reward=column(1, 2, 1, 0),
        value=column(2, 4, 2, 1),
        next_value=column(4, 8, 6, 2),
        terminated=flags(0, 1, 0, 0),
        truncated=flags(0, 0, 1, 0),
        discount=0.5,
        gae_lambda=0.5,
    )
    np.testing.assert_allclose(advantage[:, 0], [0.5, -2.0, 2.0, 0.0])


@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 1))
def test_equals_the_sum_that_defines_it(seed: int, discount: float, gae_lambda: float) -> None:
    random = np.random.default_rng(seed)
    reward, value, next_value = random.normal(size=(3, 12, 2))
    terminated = random.random((12, 2)) < 0.15
    truncated = (random.random((12, 2)) < 0.15) & ~terminated
    error = reward + discount * np.where(terminated, 0, next_value) - value
    expected = np.zeros((12, 2))
    for world in range(2):
        for start in range(12):
            weight = 1.0
            for time in range(start, 12):
                expected[start, world] += weight * error[time, world]
                if terminated[time, world] or truncated[time, world]:
                    break
                weight *= discount * gae_lambda
    advantage = generalized_advantage(
        *(jnp.asarray(x, jnp.float32) for x in (reward, value, next_value)),
        jnp.asarray(terminated),
        jnp.asarray(truncated),
        discount,
        gae_lambda,
    )
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-5)


def test_the_return_so_far_begins_anew_with_each_episode() -> None:
    # Discount 1/2; 8 was collected before; the episode ends with the second step.
    last, after_each = discounted_return_so_far(
        jnp.array([8.0]), column(1, 2, 3), flags(0, 1, 0), 0.5
    )
    np.testing.assert_allclose(after_each[:, 0], [5.0, 4.5, 3.0])
    np.testing.assert_allclose(last, [3.0])
