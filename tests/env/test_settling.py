"""Starts that have time to come to rest, beside a loop over MuJoCo's own steps."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import toys
from worldline.env.env import Env
from worldline.env.task import Start
from worldline.env.worlds import Worlds
from worldline.errors import ModelError


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Settling(toys.Swing):
    """A pendulum that swings for a while before an episode begins, held by its motor."""

    settle_time: float = 0.5

    def start(self, key):
        drawn = super().start(key)
        inputs = {"ctrl": jnp.full(1, 0.3)}
        return dataclasses.replace(drawn, inputs=inputs, settle_time=self.settle_time)


@pytest.fixture(scope="module")
def env():
    return Env(Settling(), "native")


def swung(env, mass=None):
    """Where plain MuJoCo is after the time, from the start that the task draws for key 1."""
    drawn: Start = env.task.start(jax.random.key(1))
    model = mujoco.MjModel.from_xml_string(toys.PENDULUM)
    if mass is not None:
        model.body_mass[:] = mass
        mujoco.mj_setConst(model, mujoco.MjData(model))
    data = mujoco.MjData(model)
    data.qpos[:], data.ctrl[:] = drawn.qpos, 0.3
    mujoco.mj_step(model, data, 50)
    return [data.qpos[0], data.qvel[0]]


def test_an_episode_begins_at_time_zero_where_plain_mujoco_comes_to(env):
    state = env.reset(jax.random.key(1))
    np.testing.assert_allclose(state.obs, swung(env), 1e-6)
    assert state.physics.time == 0
    # It goes on as from any other start, with the controls of that.
    after = env.step(state, np.zeros(1, np.float32))
    np.testing.assert_allclose(after.physics.time, 0.02, 1e-6)


def test_a_world_settles_with_its_own_constants(env):
    mass = np.array([0.0, 5.0])
    state = env.reset(jax.random.key(1), {"body_mass": mass})
    np.testing.assert_allclose(state.obs, swung(env, mass), 1e-5)
    assert abs(swung(env, mass)[0] - swung(env)[0]) > 1e-3


def test_what_is_chosen_stays_and_the_rest_is_as_after_a_reset(env):
    drawn = env.reset(jax.random.key(1)).physics
    given = env.reset_to(jax.random.key(1), qpos=jnp.ones(1)).physics
    assert given.qpos == 1
    assert given.qvel == drawn.qvel
    same = env.reset_to(jax.random.key(1)).physics
    assert (same.qpos, same.qvel) == (drawn.qpos, drawn.qvel)


def test_only_worlds_that_end_settle_anew(env):
    worlds = Worlds(env, 3, episode_length=2)
    state = worlds.reset(jax.random.key(0))
    for _ in range(4):
        state, step = worlds.step(state, np.zeros((3, 1), np.float32))
    assert step.truncated.all()
    assert (state.env.physics.time == 0).all()
    assert len(np.unique(state.env.physics.qpos)) == 3


def test_the_time_is_a_whole_number_of_steps():
    with pytest.raises(ModelError, match=r"0\.013 s is no multiple of the model's time step"):
        Env(Settling(settle_time=0.013), "native").reset(jax.random.key(0))


def test_a_start_that_fails_is_told(env, nans_allowed):
    class Failing(Settling):
        def start(self, key):
            pushed = {"qfrc_applied": jnp.full(1, 5e9)}  # too fast for MuJoCo before long
            return dataclasses.replace(super().start(key), inputs=pushed)

    assert Env(Failing(), "native").reset(jax.random.key(0)).diverged
