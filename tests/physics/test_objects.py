"""A world as MuJoCo's own objects is that world: MuJoCo's own steps go on from it as ours do."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import worldline
from worldline.bridges.gymnasium import Env, make_vector_env
from worldline.physics.base import Reads
from worldline.physics.native import NativePhysics
from worldline.physics.objects import as_mujoco

VARIATION = {"body_mass": 1.5, "geom_friction": 0.3, "opt.gravity": 0.5, "opt.viscosity": 0.0}


def test_mujoco_goes_on_as_the_engine_does(arm):
    variation = {n: jnp.asarray(scale * arm.constant(n)) for n, scale in VARIATION.items()}
    variation["opt.viscosity"] = jnp.asarray(0.1, jnp.float32)
    physics = NativePhysics(arm, Reads(fields=("ctrl", "xpos")))
    inputs = {"ctrl": jnp.full(arm.nu, 0.3)}
    state = physics.start(
        jnp.asarray(arm.qpos0, jnp.float32), jnp.full(arm.nv, 0.1), variation, inputs
    )
    state = physics.step(state, inputs, 20)
    model, data = as_mujoco(arm, state)
    for name in ("body_mass", "geom_friction"):
        np.testing.assert_allclose(getattr(model, name), variation[name], rtol=1e-6)
    np.testing.assert_allclose(model.opt.gravity, variation["opt.gravity"], rtol=1e-6)
    assert model.opt.viscosity == pytest.approx(0.1)
    assert data.time == pytest.approx(20 * model.opt.timestep)
    mujoco.mj_step(model, data, 30)
    after = physics.step(state, inputs, 30)
    np.testing.assert_allclose(data.qpos, after.qpos, atol=1e-5)
    np.testing.assert_allclose(data.qvel, after.qvel, atol=1e-4)
    assert arm.mj.body_mass == pytest.approx(arm.constant("body_mass"))  # a copy was changed


def test_mocap_bodies_are_where_the_world_has_them(mechanism):
    physics = NativePhysics(mechanism, Reads(fields=("mocap_pos",)))
    place = jnp.full((mechanism.mj.nmocap, 3), 7.0)
    qpos = jnp.asarray(mechanism.qpos0, jnp.float32)
    state = physics.start(qpos, jnp.zeros(mechanism.nv), {}, {"mocap_pos": place})
    _, data = as_mujoco(mechanism, state)
    np.testing.assert_array_equal(data.mocap_pos, place)
    np.testing.assert_array_equal(data.xpos[mechanism.mj.body_mocapid == 0], place[:1])


def test_an_environment_of_gymnasium_has_a_model_and_data():
    env = Env("gym/hopper")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    qpos = np.asarray(env._vector._state().env.physics.qpos[0])
    np.testing.assert_array_equal(env.unwrapped.data.qpos.astype(np.float32), qpos)
    mass = 2 * env.unwrapped.model.body_mass
    env.reset(options={"variation": {"body_mass": mass}})
    np.testing.assert_allclose(env.unwrapped.model.body_mass, mass, rtol=1e-6)


def test_a_world_of_a_vector():
    envs = make_vector_env(3, "gym/hopper")
    obs, _ = envs.reset(seed=0)
    for world in range(3):
        _, data = envs.mujoco(world)
        np.testing.assert_allclose(data.qpos[1:], obs[world, :5], atol=1e-6)
    with pytest.raises(IndexError, match="there is no world 3; give 0 to 2"):
        envs.mujoco(3)


def test_what_a_notebook_shows_of_worlds():
    shown = worldline.Worlds(worldline.make("gym/hopper"), 3)._repr_html_()
    for fact in ("3 worlds", "Hopper", "native", "0.008 s, 4 physics steps", "1000 control steps"):
        assert fact in shown
