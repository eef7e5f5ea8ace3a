"""What a task reads: whole fields, or rows of them alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.errors import ModelError
from worldline.model import Model
from worldline.physics import engines, make_physics
from worldline.physics.base import Reads

FIELDS, ROWS = ("xpos", "cvel", "qpos"), ("xpos[2]", "cvel[1]", "qpos[1]")


@functools.cache
def physics(engine):
    # First called where a function is traced, which no engine may remember.
    both = (*FIELDS, *ROWS)
    return make_physics(engine, Model(toys.ARM), Reads(both, both))


def after_two_steps(engine, qpos, qvel):
    one = physics(engine)
    state = one.start(qpos, qvel, {}, {})
    return one.step(one.step(state, {"ctrl": jnp.ones(one.model.nu)}, 2), {}, 2)


@pytest.mark.parametrize("engine", engines())
def test_a_row_is_that_of_the_field(engine):
    qpos = jnp.float32([[0.4, -0.3], [0.1, 0.2], [-1.0, 0.5]])
    state = jax.jit(jax.vmap(functools.partial(after_two_steps, engine)))(qpos, 2 * qpos)
    for row, field in zip(ROWS, FIELDS, strict=True):
        number = int(row[-2])
        assert np.abs(state.changes[field][:, number]).max() > 1e-4
        for seen in (state.fields, state.changes):
            np.testing.assert_array_equal(seen[row], seen[field][:, number])


@pytest.mark.parametrize("engine", ["native", "mjx", "fake"])
def test_a_row_has_the_derivative_of_the_field(engine):
    def what(qvel):
        state = after_two_steps(engine, jnp.float32([0.4, -0.3]), qvel)
        return state.fields, state.changes

    for slopes in jax.jit(jax.jacrev(what))(jnp.float32([0.8, -0.6])):
        for row, field in zip(ROWS, FIELDS, strict=True):
            assert np.abs(slopes[row]).max() > 1e-4
            expected = slopes[field][int(row[-2])]
            np.testing.assert_allclose(slopes[row], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", engines())
def test_a_row_that_is_not_there_is_refused(engine):
    with pytest.raises(ModelError, match=r"no 'xpos\[3\]': 'xpos' has 3 rows.*; give a number be"):
        make_physics(engine, Model(toys.ARM), Reads((), ("xpos[3]",)))
