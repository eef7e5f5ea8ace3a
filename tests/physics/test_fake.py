"""The fake engine does what its docstring says, and what every engine must."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ModelError, VariationError
from worldline.model import Model
from worldline.physics.base import Reads
from worldline.physics.fake import FakePhysics

MODELS = {
    name: Model(getattr(toys, name)) for name in ("PENDULUM", "BOXES", "ARM", "MECHANISM", "PUCK")
}


@given(
    qpos=st.lists(st.floats(-1, 1, width=16), min_size=2, max_size=2),
    qvel=st.lists(st.floats(-1, 1, width=16), min_size=2, max_size=2),
    ctrl=st.lists(st.floats(-1, 1, width=16), min_size=2, max_size=2),
    steps=st.integers(1, 30),
)
def test_a_point_mass_moves_as_the_closed_form_says(qpos, qvel, ctrl, steps):
    qpos, qvel, u = (np.array(x, np.float32) for x in (qpos, qvel, ctrl))
    physics, h, n = FakePhysics(MODELS["PUCK"]), 0.01, steps
    state = physics.start(qpos, qvel, {}, {})
    state = physics.step(state, {"ctrl": u}, n)
    np.testing.assert_allclose(state.qvel, qvel + n * h * u, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        state.qpos, qpos + n * h * qvel + h**2 * u * n * (n + 1) / 2, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(state.time, n * h, rtol=1e-5)


def test_mujoco_agrees_where_there_is_nothing_but_a_point_mass():
    # A puck of 1 kg on motors of unit gear, without gravity, is what the docstring describes.
    model = MODELS["PUCK"].mj
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = [0.1, -0.2], [0.5, 0.3], [1.0, -0.5]
    state = FakePhysics(MODELS["PUCK"]).start(jnp.array([0.1, -0.2]), jnp.array([0.5, 0.3]), {}, {})
    state = FakePhysics(MODELS["PUCK"]).step(state, {"ctrl": jnp.array([1.0, -0.5])}, 20)
    for _ in range(20):
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(state.qpos, data.qpos, rtol=1e-5)
    np.testing.assert_allclose(state.qvel, data.qvel, rtol=1e-5)


def test_the_gear_scales_the_push():
    physics = FakePhysics(MODELS["PENDULUM"])  # gear 2, time step 0.01
    state = physics.step(
        physics.start(jnp.zeros(1), jnp.zeros(1), {}, {}), {"ctrl": jnp.array([0.5])}, 1
    )
    np.testing.assert_allclose(state.qvel, [0.01 * 2 * 0.5], rtol=1e-6)


def test_controls_are_held_until_new_ones_come():
    physics = FakePhysics(MODELS["PUCK"])
    state = physics.start(jnp.zeros(2), jnp.zeros(2), {}, {})
    state = physics.step(state, {"ctrl": jnp.array([1.0, 0.0])}, 1)
    np.testing.assert_allclose(physics.step(state, {}, 1).qvel, [0.02, 0], rtol=1e-6)


def test_joints_of_every_kind_move_as_mujoco_integrates_them():
    model = Model(
        """<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody>
        <body><freejoint/><geom type="box" size=".1 .2 .3"/></body>
        <body><joint type="ball"/><geom size=".1"/>
          <body><joint type="hinge"/><joint type="slide"/><geom size=".1" pos=".2 0 0"/></body>
        </body></worldbody></mujoco>"""
    )
    random = np.random.default_rng(0)
    qvel = random.normal(0, 1, model.nv)
    qpos = model.mj.qpos0.copy()
    mujoco.mj_integratePos(model.mj, qpos, random.normal(0, 1, model.nv), 1.0)  # anywhere
    physics = FakePhysics(model)
    state = physics.start(qpos.astype(np.float32), qvel.astype(np.float32), {}, {})
    state = physics.step(state, {}, 7)
    for _ in range(7):
        mujoco.mj_integratePos(model.mj, qpos, qvel, 0.01)
    np.testing.assert_allclose(state.qpos, qpos, atol=1e-6)
    np.testing.assert_allclose(state.qvel, qvel, rtol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_what_it_gives_has_the_shapes_of_the_model(name):
    model = MODELS[name]
    reads = Reads(("xpos", "nefc", "sensordata", "qpos"), ("qpos", "xpos"))
    physics = FakePhysics(model, reads)
    state = physics.start(model.qpos0, jnp.zeros(model.nv), {}, {})
    after = physics.step(state, {}, 2)
    for each in (state, after):
        assert each.qpos.shape == (model.nq,)
        assert each.act.shape == (model.na,)
        for field, value in each.fields.items():
            assert value.shape == model.data_field(field)[0]
            assert value.dtype == (np.int32 if field == "nefc" else np.float32)
        for value in jax.tree.leaves(each.changes):
            assert value.dtype == np.float32
    # At the model's default the fields are MuJoCo's own.
    data = mujoco.MjData(model.mj)
    mujoco.mj_forward(model.mj, data)
    np.testing.assert_allclose(state.fields["xpos"], data.xpos, rtol=1e-6)
    np.testing.assert_array_equal(state.fields["qpos"], model.qpos0)


def test_changes_are_differences():
    physics = FakePhysics(MODELS["PUCK"], Reads(("xpos",), ("qpos", "xpos")))
    start = physics.start(jnp.array([0.5, 0.25]), jnp.array([1.0, 2.0]), {}, {})
    for value in start.changes.values():
        assert not np.asarray(value).any()
    after = physics.step(start, {}, 10)
    np.testing.assert_allclose(after.changes["qpos"], [0.1, 0.2], rtol=1e-5)
    # The mean displacement goes to every number of a field.
    np.testing.assert_allclose(after.changes["xpos"], np.full((2, 3), 0.15), rtol=1e-5)


def test_where_the_mask_is_off_nothing_happens():
    physics = FakePhysics(MODELS["PUCK"])
    state = physics.start(jnp.zeros(2), jnp.ones(2), {}, {})
    same = physics.step(state, {"ctrl": jnp.ones(2)}, 3, jnp.asarray(False))
    jax.tree.map(np.testing.assert_array_equal, same, state)


def test_it_can_be_differentiated():
    physics = FakePhysics(MODELS["PUCK"])

    def x(ctrl):
        state = physics.start(jnp.zeros(2), jnp.zeros(2), {}, {})
        return physics.step(state, {"ctrl": ctrl}, 10).qpos[0]

    # d/du of h^2 u n (n + 1) / 2.
    np.testing.assert_allclose(jax.grad(x)(jnp.zeros(2)), [1e-4 * 55, 0], rtol=1e-5)


def test_numbers_that_are_none_are_a_diverged_world(nans_allowed):
    physics = FakePhysics(MODELS["PUCK"])
    state = physics.start(jnp.zeros(2), jnp.zeros(2), {}, {})
    assert not state.diverged
    assert physics.step(state, {"ctrl": jnp.array([np.nan, 0])}, 1).diverged


def test_errors_are_those_of_every_engine():
    with pytest.raises(ModelError, match="'xpo' is not an MjData field"):
        FakePhysics(MODELS["PUCK"], Reads(("xpo",)))
    physics = FakePhysics(MODELS["PUCK"])
    with pytest.raises(VariationError, match="'body_mas'"):
        physics.start(jnp.zeros(2), jnp.zeros(2), {"body_mas": jnp.ones(2)}, {})
    with pytest.raises(ModelError, match="the physics has no input 'ctl'"):
        physics.start(jnp.zeros(2), jnp.zeros(2), {}, {"ctl": jnp.ones(2)})


def test_it_carries_a_variation_from_episode_to_episode():
    worlds = Worlds(Env(toys.Puck(), "fake"), 3)
    variation = {"body_mass": jnp.arange(6.0).reshape(3, 2)}
    state = worlds.reset(jax.random.key(0), variation)
    for _ in range(12):
        state, _ = worlds.step(state, jnp.zeros((3, 2)))
    np.testing.assert_array_equal(state.variation["body_mass"], variation["body_mass"])
