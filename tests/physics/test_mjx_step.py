"""MJX's step where MJX's own is another than MuJoCo's: one step from the same state, beside it."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from worldline.model import Model
from worldline.physics.mjx import MjxPhysics
from worldline.physics.mjx.source import mjx
from worldline.physics.mjx.step import refresh

#: MuJoCo 4 turns it at fourth order in time; the mean of RK4's angular velocities is of second.
TUMBLING = """
<mujoco>
  <option timestep="0.05" integrator="RK4" gravity="0 0 0"/>
  <worldbody>
    <body>
      <freejoint/> <geom type="box" size="0.1 0.2 0.35" mass="1"/>
      <body pos="0 0 0.5"><joint type="ball"/> <geom type="box" size="0.1 0.05 0.02"/></body>
    </body>
  </worldbody>
</mujoco>"""

#: The leg leans by 20 degrees and slides: a pyramid of friction, along it, is not round.
STEEP = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.28">
      <joint type="slide" axis="1 0 0"/> <joint type="slide" axis="0 1 0"/>
      <joint type="slide" axis="0 0 1"/> <geom type="capsule" size="0.05 0.25" zaxis="0.2 0.3 1"/>
    </body>
  </worldbody>
</mujoco>"""

#: A box comes down on two edges of unlike depth.
TIPPED = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.09" euler="12 8 0"><freejoint/> <geom type="box" size="0.2 0.1 0.1"/></body>
  </worldbody>
</mujoco>"""

#: A cylinder comes down on both of its ends, and one stands.
CYLINDERS = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1" euler="2 1 0"/>
    <body pos="0 0 0.05" euler="82 20 0"><freejoint/> <geom type="cylinder" size="0.1 0.2"/></body>
    <body pos="1 0 0.2"><freejoint/> <geom type="cylinder" size="0.1 0.2"/></body>
  </worldbody>
</mujoco>"""

#: The first servo is stronger than its limit allows, the second is not.
AT_LIMIT = """
<mujoco>
  <option integrator="implicitfast"/>
  <worldbody>
    <body><joint name="a"/> <geom type="box" size="0.5 0.02 0.02"/></body>
    <body pos="0 1 0"><joint name="b"/> <geom type="box" size="0.5 0.02 0.02"/></body>
  </worldbody>
  <actuator>
    <position joint="a" kp="500" kv="50" forcerange="-3 3"/> <position joint="b" kp="50" kv="5"/>
  </actuator>
</mujoco>"""

#: The same by the limit of the joint, and by that of a tendon with two motors.
JOINT_AT_LIMIT = AT_LIMIT.replace(
    '<joint name="a"/>', '<joint name="a" actuatorfrcrange="-3 3"/>'
).replace(' forcerange="-3 3"', "")
TENDON_AT_LIMIT = AT_LIMIT.replace(
    "<actuator>",
    '<tendon><fixed name="t" actuatorfrcrange="-3 3"><joint joint="a" coef="1"/></fixed></tendon>'
    '<actuator><motor tendon="t"/>',
).replace('joint="a" kp="500" kv="50" forcerange="-3 3"', 'tendon="t" kp="500" kv="50"')

#: A muscle pulls less as it shortens.
MUSCLE = AT_LIMIT.replace(
    '<position joint="a" kp="500" kv="50" forcerange="-3 3"/>',
    '<general joint="a" gaintype="muscle" biastype="muscle" lengthrange="-2 2" '
    'gainprm="0.75 1.05 20 200 0.5 1.6 1.5 1.3 1.2" '
    'biasprm="0.75 1.05 20 200 0.5 1.6 1.5 1.3 1.2"/>',
)

#: A tendon couples joints of two branches: `implicitfast` drops that.
FINGERS = """
<mujoco>
  <option integrator="implicitfast"/>
  <worldbody>
    <body><joint name="a" type="slide"/> <geom type="box" size="0.05 0.02 0.02"/></body>
    <body pos="0 1 0"><joint name="b" type="slide"/> <geom type="box" size="0.05 0.02 0.02"/></body>
  </worldbody>
  <tendon>
    <fixed name="grip"><joint joint="a" coef="0.5"/><joint joint="b" coef="1"/></fixed>
  </tendon>
  <actuator><position tendon="grip" kp="50" kv="50"/></actuator>
</mujoco>"""

#: MuJoCo's `implicitfast` keeps how a gyroscope's own forces follow from its spin.
GYROSCOPE = """
<mujoco>
  <option timestep="0.05" integrator="implicitfast"/>
  <worldbody>
    <body><freejoint/> <geom type="box" size="0.1 0.2 0.05" pos="0.1 0.05 0"/></body>
  </worldbody>
</mujoco>"""

#: Springs, dampers, the compensation of gravity and a fluid: MJX leaves out all of them where
#: springs or dampers are switched off.
PASSIVE = """
<mujoco>
  <option density="2" viscosity="0.5"/>
  <worldbody>
    <body gravcomp="0.7">
      <joint name="a" stiffness="30" damping="2" springref="0.5"/>
      <geom type="box" size="0.5 0.02 0.02"/>
    </body>
    <body pos="0 1 0"><joint name="b" damping="3"/> <geom type="box" size="0.5 0.02 0.02"/></body>
  </worldbody>
  <tendon>
    <fixed stiffness="20" damping="1" springlength="0.3"><joint joint="b" coef="1"/></fixed>
  </tendon>
</mujoco>"""
WITHOUT_SPRINGS = PASSIVE.replace("<option", '<option><flag spring="disable"/></option> <option')
WITHOUT_DAMPERS = WITHOUT_SPRINGS.replace('spring="disable"', 'damper="disable"')
WITHOUT_BOTH = WITHOUT_SPRINGS.replace("<flag", '<flag damper="disable"')


def _dry_fast(scene: str) -> str:
    """Without the fluid, which MJX lacks under `implicitfast`."""
    return scene.replace('density="2" viscosity="0.5"', 'integrator="implicitfast"')


SCENES = {
    "tumbling": TUMBLING,
    "steep": STEEP,
    "tipped": TIPPED,
    "cylinders": CYLINDERS,
    "cylinders, elliptic": CYLINDERS.replace("<worldbody", '<option cone="elliptic"/> <worldbody'),
    "at limit": AT_LIMIT,
    "joint at limit": JOINT_AT_LIMIT,
    "tendon at limit": TENDON_AT_LIMIT,
    "muscle": MUSCLE,
    "fingers": FINGERS,
    "fingers, RK4": FINGERS.replace("implicitfast", "RK4"),
    "gyroscope": GYROSCOPE,
    "passive": PASSIVE,
    "without springs": WITHOUT_SPRINGS,
    "without dampers": WITHOUT_DAMPERS,
    "without both": WITHOUT_BOTH,
    "without springs, implicitfast": _dry_fast(WITHOUT_SPRINGS),
    "without dampers, implicitfast": _dry_fast(WITHOUT_DAMPERS),
}


@pytest.mark.parametrize("double", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(text, id=name, marks=pytest.mark.exhaustive if "fingers" in name else ())
        for name, text in SCENES.items()
    ],
)
def test_a_step_is_that_of_mujoco(scene: str, double: bool) -> None:
    model, random = Model(scene), np.random.default_rng(0)
    plain = mujoco.MjData(model.mj)
    plain.qvel = np.float32(random.uniform(-3, -1, model.nv))  # the leg comes down
    plain.ctrl = np.float32(random.uniform(0.5, 1, model.nu))
    start = (plain.qpos.copy(), plain.qvel.copy(), plain.ctrl.copy())
    with jax.enable_x64(double):
        qpos, qvel = one_step(MjxPhysics(model), *map(jnp.asarray, start))
    mujoco.mj_step(model.mj, plain)
    np.testing.assert_allclose(qpos, plain.qpos, atol=1e-9 if double else 2e-6)
    np.testing.assert_allclose(qvel, plain.qvel, atol=1e-7 if double else 5e-5)


def one_step(
    physics: MjxPhysics, qpos: jax.Array, qvel: jax.Array, ctrl: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Positions and velocities after a physics step."""

    @jax.jit
    def step(qpos: jax.Array, qvel: jax.Array, ctrl: jax.Array) -> tuple[jax.Array, jax.Array]:
        after = physics.step(physics.start(qpos, qvel, {}, {}), {"ctrl": ctrl}, 1)
        return after.qpos, after.qvel

    return step(qpos, qvel, ctrl)


@pytest.mark.parametrize("double", [False, True])
def test_controls_stay_within_limits_that_vary(double: bool) -> None:
    model = Model(AT_LIMIT.replace('kp="50"', 'kp="50" ctrlrange="-1 1"'))
    limits = np.float32([[0, 0], [-0.25, 0.25]])
    plain = mujoco.MjData(model.mj)
    plain.ctrl[1] = limits[1, 1]
    mujoco.mj_step(model.mj, plain)
    with jax.enable_x64(double):
        physics, zero = MjxPhysics(model), jnp.zeros(model.nv)
        given = {"ctrl": jnp.array([0.0, 5.0])}
        start = physics.start(zero, zero, {"actuator_ctrlrange": jnp.asarray(limits)}, {})
        qvel = jax.jit(physics.step, static_argnums=2)(start, given, 1).qvel
    np.testing.assert_allclose(qvel, plain.qvel, atol=1e-6)


def test_a_contact_of_bodies_that_cannot_move_has_no_cost() -> None:
    """MuJoCo has no rows for it; with MJX's cost of 1e15 the solver did not see all others."""
    touch = """
    <mujoco>
      <worldbody>
        <body mocap="true"><geom name="one" size="0.1"/></body>
        <body mocap="true" pos="0.05 0 0"><geom name="other" size="0.1"/></body>
        <body pos="0 0 1"><joint frictionloss="0.3"/> <geom size="0.1"/></body>
      </worldbody>
      <contact><pair geom1="one" geom2="other"/></contact>
    </mujoco>"""
    model = mujoco.MjModel.from_xml_string(touch)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with jax.numpy_dtype_promotion("standard"):
        made = jax.jit(refresh)(mjx.put_model(model), mjx.put_data(model, data))
    cost = np.asarray(made._impl.efc_D)
    assert np.count_nonzero(cost) == data.nefc == 1
    np.testing.assert_allclose(cost[cost > 0], data.efc_D, rtol=1e-5)
