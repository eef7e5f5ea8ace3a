"""Under implicitfast, MuJoCo brakes a free body by all that holds it; here beside MuJoCo itself."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from worldline.model import Model
from worldline.physics import make_physics
from worldline.physics.base import Reads

#: What brakes the body: of the tendon, and the actuators.
BRAKES = {
    "tendon": ('damping="5"', ""),
    "tendon, faster": ('damping="1 3"', ""),
    "tendon of an actuator": ("", '<motor tendon="t" damping="3" gear="2"/>'),
    "servo on the tendon": ("", '<position tendon="t" kp="20" kv="3"/>'),
    "between sites": ("", '<velocity site="w" refsite="wall" kv="3" gear="1 .5 0 0 0 .3"/>'),
    "at its own site": ("", '<velocity site="w" kv="3" gear="1 .5 0 0 0 .3"/>'),
    "at its joint": ("", '<velocity joint="free" kv="3" gear="1 .5 0 0 .2 .3"/>'),
}
TENDON = {"tendon_damping": 5.0, "tendon_stiffness": 30.0}
STEPS = 20


def mjcf(brakes: str, simple: bool = True, option: str = "", timestep: float = 0.004) -> str:
    tendon, actuators = BRAKES[brakes]
    place = "" if simple else 'pos=".1 .05 .02"'
    return f"""<mujoco>
  <option timestep="{timestep}" integrator="implicitfast" {option}/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="wall" pos="0 0 1"/>
    <body><joint axis="0 1 0"/><geom type="capsule" size=".04" fromto="0 0 0 .4 0 0"/></body>
    <body>
      <freejoint name="free"/>
      <geom type="box" size=".1 .08 .05" {place}/>
      <site name="w" pos=".05 .02 0"/>
    </body>
  </worldbody>
  <tendon><spatial name="t" {tendon}><site site="wall"/><site site="w"/></spatial></tendon>
  <actuator>{actuators}</actuator>
</mujoco>"""


def velocities(model: mujoco.MjModel) -> np.ndarray:
    return np.float32(np.random.default_rng(0).normal(size=model.nv))


def truth(model: mujoco.MjModel) -> np.ndarray:
    """Where plain MuJoCo is after some steps."""
    data = mujoco.MjData(model)
    data.qvel = velocities(model)
    mujoco.mj_step(model, data, STEPS)
    return np.concatenate([data.qpos, data.qvel])


def in_warp(model: mujoco.MjModel, **variation: float) -> np.ndarray:
    physics = make_physics("warp", Model(model), Reads())
    own = {
        name: jnp.full(getattr(model, name).shape, x, jnp.float32) for name, x in variation.items()
    }
    start = jnp.asarray(model.qpos0, jnp.float32), jnp.asarray(velocities(model))
    state = jax.jit(lambda: physics.step(physics.start(*start, own, {}), {}, STEPS))()
    return np.concatenate([state.qpos, state.qvel])


@pytest.mark.parametrize("simple", [True, False])
@pytest.mark.parametrize("brakes", BRAKES)
def test_what_holds_a_free_body_brakes_it_as_in_mujoco(brakes: str, simple: bool) -> None:
    """Also where MuJoCo stores the inertia of the body as a diagonal: there it is simple."""
    model = mujoco.MjModel.from_xml_string(mjcf(brakes, simple))
    assert (model.body_simple[2] > 0) == simple
    np.testing.assert_allclose(in_warp(model), truth(model), atol=1e-5)


@pytest.mark.parametrize("option", ['density="40" viscosity=".4" wind=".3 .2 .1"', ""])
@pytest.mark.parametrize("timestep", [0.004, 0.02])
def test_beside_a_fluid_and_in_long_steps(option: str, timestep: float) -> None:
    model = mujoco.MjModel.from_xml_string(mjcf("tendon", False, option, timestep))
    np.testing.assert_allclose(in_warp(model), truth(model), atol=1e-5)


def test_a_brake_of_a_world_s_own_is_as_one_of_the_model() -> None:
    free = mjcf("tendon").replace(BRAKES["tendon"][0], "")
    model = mujoco.MjModel.from_xml_string(free)
    expected = mujoco.MjModel.from_xml_string(free)
    for name, value in TENDON.items():
        getattr(expected, name)[:] = value
    np.testing.assert_allclose(in_warp(model, **TENDON), truth(expected), atol=1e-5)


def test_worlds_of_a_batch_have_their_own() -> None:
    model = mujoco.MjModel.from_xml_string(mjcf("tendon"))
    physics = make_physics("warp", Model(model), Reads())
    dampings = jnp.asarray([[0.0], [2.0], [9.0]])

    @jax.jit
    @jax.vmap
    def run(damping: jax.Array) -> jax.Array:
        qvel = jnp.asarray(velocities(model))
        state = physics.start(physics.model.qpos0, qvel, {"tendon_damping": damping}, {})
        return physics.step(state, {}, STEPS).qvel

    for got, damping in zip(run(dampings), dampings, strict=True):
        model.tendon_damping[:] = damping
        np.testing.assert_allclose(got, truth(model)[-model.nv :], atol=1e-5)
