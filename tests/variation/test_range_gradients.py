"""Derivatives by what episodes are drawn from, against finite differences of whole returns."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.variation import Context, Domain, Uniform, scale

#: Three episodes of three steps: two of them begin within the run.
STEPS, LENGTH, NUM_WORLDS = 9, 3, 2


def total_reward(worlds: Worlds, ranges: Any = None, variation: Any = None) -> jax.Array:
    """The rewards of all worlds and steps under a constant torque for each world, `()`."""
    state = worlds.reset(jax.random.key(1), variation, ranges=ranges)
    action = jnp.array([[0.4], [-0.2]])

    def step(state: Any, _: Any) -> Any:
        state, step = worlds.step(state, action)
        return state, step.reward.sum()

    return jax.lax.scan(step, state, None, length=STEPS)[1].sum()


def assert_differentiable(function: Callable[[Any], jax.Array], at: float, width: float) -> None:
    """Both modes of differentiation against the differences of a function of one number."""
    function, number = jax.jit(function), jnp.float32(at)
    expected = (function(number + width) - function(number - width)) / (2 * width)
    assert abs(expected) > 1e-4
    np.testing.assert_allclose(jax.grad(function)(number), expected, rtol=0.02)
    forwards = jax.jvp(function, (number,), (jnp.float32(1.0),))[1]
    np.testing.assert_allclose(forwards, expected, rtol=0.02)


def with_high(distribution: Uniform, high: Any) -> Uniform:
    return eqx.tree_at(lambda it: it.high, distribution, high)


def test_a_return_by_the_ranges_of_a_domain():
    domain = Domain(scale("actuator_gainprm", Uniform(0.5, 1.5), name="strength"))
    worlds = Worlds(Env(toys.Swing(episode_length=LENGTH)), NUM_WORLDS, domain=domain)
    strength = domain.ranges["strength"]
    assert_differentiable(
        lambda high: total_reward(worlds, {"strength": with_high(strength, high)}), 1.5, 0.1
    )


def test_a_return_by_what_a_context_is_drawn_from():
    env = Env(toys.Swing(episode_length=LENGTH), context=Context(["gravity"], visible=()))
    gravity = Uniform(-10.0, -8.0)
    worlds = Worlds(env, NUM_WORLDS, context={"gravity": gravity})
    assert_differentiable(
        lambda high: total_reward(worlds, {"gravity": with_high(gravity, high)}), -8.0, 0.2
    )


def test_a_return_by_a_variation_that_holds_in_every_episode():
    worlds = Worlds(Env(toys.Swing(episode_length=LENGTH)), NUM_WORLDS)
    gain = jnp.asarray(worlds.env.model.constant("actuator_gainprm"), jnp.float32)
    assert_differentiable(
        lambda factor: total_reward(
            worlds, variation={"actuator_gainprm": jnp.stack([factor * gain] * NUM_WORLDS)}
        ),
        1.0,
        0.1,
    )
