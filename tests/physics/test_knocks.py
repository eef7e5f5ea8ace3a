"""A world that gets a knock goes on as one that had the new velocity, on every engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.model import Model
from worldline.physics import make_physics
from worldline.physics.base import Physics, PhysicsState, Reads

SLOW, FAST, ANGLE = jnp.float32([0.1]), jnp.float32([-2.0]), jnp.float32([0.3])


def knocked(physics: Physics, velocity: jax.Array) -> PhysicsState:
    """Three physics steps after a slow world was given a velocity."""
    state = physics.start(ANGLE, SLOW, {}, {})
    return physics.step(state, {"qvel": velocity}, 3)


@pytest.mark.parametrize(
    "engine",
    ["native", "fake", *(pytest.param(e, marks=pytest.mark.exhaustive) for e in ("mjx", "warp"))],
)
def test_a_knocked_world_has_the_velocity(engine: str) -> None:
    physics = make_physics(engine, Model(toys.PENDULUM), Reads())

    @jax.jit
    def begun_fast() -> PhysicsState:
        return physics.step(physics.start(ANGLE, FAST, {}, {}), {}, 3)

    started, after = begun_fast(), jax.jit(lambda velocity: knocked(physics, velocity))(FAST)
    np.testing.assert_allclose(after.qpos, started.qpos, rtol=1e-6)
    np.testing.assert_allclose(after.qvel, started.qvel, rtol=1e-6)
    assert abs(float(after.qvel[0])) > 1


def test_the_derivative_with_respect_to_the_velocity() -> None:
    physics = make_physics("native", Model(toys.PENDULUM), Reads())
    slope = jax.grad(lambda velocity: knocked(physics, velocity).qpos[0])(FAST)
    # By float32 differences, of which three digits are good.
    ends = [knocked(physics, FAST + by).qpos[0] for by in (0.05, -0.05)]
    np.testing.assert_allclose(slope[0], (ends[0] - ends[1]) / 0.1, rtol=1e-3)

    def from_before(velocity: jax.Array) -> jax.Array:
        state = physics.start(ANGLE, velocity, {}, {})
        return physics.step(state, {"qvel": FAST}, 3).qpos[0]

    np.testing.assert_array_equal(jax.grad(from_before)(SLOW), 0)
