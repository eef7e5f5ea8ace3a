"""What a task reads: fields, and how the positions among them change."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.errors import ModelError
from worldline.model import Model
from worldline.physics import engines, make_physics
from worldline.physics.base import POSITIONS, Reads


@functools.cache
def physics(engine):
    # First called where a function is traced, which no engine may remember.
    return make_physics(engine, Model(toys.ARM), Reads(POSITIONS, POSITIONS))


def two_steps(engine, qpos, qvel):
    one = physics(engine)
    first = one.step(one.start(qpos, qvel, {}, {}), {"ctrl": jnp.ones(one.model.nu)}, 2)
    return first, one.step(first, {}, 2)


@pytest.mark.parametrize("engine", engines())
def test_a_change_is_the_difference_of_the_field(engine):
    qpos = jnp.float32([[0.4, -0.3], [0.1, 0.2], [-1.0, 0.5]])
    before, after = jax.jit(jax.vmap(functools.partial(two_steps, engine)))(qpos, 2 * qpos)
    for name in POSITIONS:
        assert np.abs(after.changes[name]).max() > 1e-4
        difference = after.fields[name] - before.fields[name]
        np.testing.assert_allclose(after.changes[name], difference, atol=2e-6)


@pytest.mark.parametrize(
    "engine", ["native", "fake", pytest.param("mjx", marks=pytest.mark.exhaustive)]
)
def test_a_change_has_the_derivative_of_the_difference(engine):
    def what(qvel):
        before, after = two_steps(engine, jnp.float32([0.4, -0.3]), qvel)
        return after.changes, {name: after.fields[name] - before.fields[name] for name in POSITIONS}

    changes, differences = jax.jit(jax.jacrev(what))(jnp.float32([0.8, -0.6]))
    for name in POSITIONS:
        assert np.abs(changes[name]).max() > 1e-4
        np.testing.assert_allclose(changes[name], differences[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", engines())
def test_a_change_of_another_field_is_refused(engine):
    with pytest.raises(ModelError, match=r"`changes` cannot have 'cvel'; .* qpos, xpos, xipos"):
        make_physics(engine, Model(toys.ARM), Reads((), ("cvel",)))
