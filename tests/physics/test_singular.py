"""Where derivatives tend to become NaN: at rest, at limits, upright, where bodies just touch.

One scene, many of its states as worlds of one batch, on both engines.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_worlds import in_mjx

from worldline.model import Model
from worldline.physics.mjx import MjxPhysics
from worldline.physics.native import NativePhysics

#: A free ball over a floor, and a pole on a hinge with limits and a motor.
SCENE = """
<mujoco>
  <option timestep="0.005" cone="{cone}" tolerance="1e-14"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="ball" pos="0 0 0.1">
      <freejoint/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
    <body pos="3 0 1">
      <joint name="hinge" axis="0 1 0" limited="true" range="-90 90" damping="0.05"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.5" size="0.02"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" gear="0.5" ctrlrange="-1 1"/></actuator>
</mujoco>"""

LIMIT = np.pi / 2

#: Name to the ball's height above its radius, the hinge's angle, and the speeds of both.
STATES = {
    "upright, at rest, in the air": (0.5, 0.0, 0.0, 0.0),
    "upright, at rest, just touching": (0.0, 0.0, 0.0, 0.0),
    "a hair's breadth above the floor": (1e-7, 0.0, 0.0, 0.0),
    "a hair's breadth in the floor": (-1e-7, 0.0, 0.0, 0.0),
    "at rest in the floor": (-1e-3, 0.0, 0.0, 0.0),
    "first contact, falling": (0.0, 0.0, -1.0, 0.0),
    "at the upper limit": (0.5, LIMIT, 0.0, 0.0),
    "at the lower limit": (0.5, -LIMIT, 0.0, 0.0),
    "beyond a limit, at rest": (0.5, LIMIT + 0.01, 0.0, 0.0),
    "into a limit": (0.5, LIMIT, 0.0, 2.0),
}


#: Where the derivative is the same from all sides; elsewhere each engine may take its own.
SMOOTH = {"upright, at rest, in the air", "at rest in the floor", "beyond a limit, at rest"}


def worlds(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """`qpos` and `qvel` of all states, `(B, 8)` and `(B, 7)`."""
    height, angle, fall, turn = np.array(list(STATES.values()), np.float32).T
    qpos, qvel = np.tile(np.float32(model.qpos0), (len(height), 1)), np.zeros((len(height), 7))
    qpos[:, 2] += height
    qpos[:, 7] = angle
    qvel[:, 2], qvel[:, 6] = fall, turn
    return jnp.asarray(qpos), jnp.float32(qvel)


@pytest.mark.exhaustive  # compiles for minutes
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_derivatives_are_finite_and_the_engines_agree(cone: str) -> None:
    model = Model(SCENE.format(cone=cone))
    native, other = NativePhysics(model), MjxPhysics(model)
    qpos, qvel = worlds(model)
    variation = {"body_mass": jnp.tile(jnp.float32(model.constant("body_mass")), (len(qpos), 1))}
    states = jax.vmap(lambda *start: native.start(*start, {}))(qpos, qvel, variation)

    def gradient(physics, states):
        def total(state, qpos, qvel, variation, ctrl):
            moved = dataclasses.replace(state, qpos=qpos, qvel=qvel, variation=variation)
            after = physics.step(moved, {"ctrl": ctrl}, 2)
            return after.qpos.sum() + after.qvel.sum()

        of = jax.jit(jax.vmap(jax.grad(total, argnums=(1, 2, 3, 4))))
        ctrl = jnp.zeros((len(qpos), 1))
        return of(states, states.qpos, states.qvel, states.variation, ctrl)

    ours = gradient(other, in_mjx(other, native, states))
    theirs = gradient(native, states)
    for name, of_mjx, of_native in zip(
        ("qpos", "qvel", "body_mass", "ctrl"),
        jax.tree.leaves(ours),
        jax.tree.leaves(theirs),
        strict=True,
    ):
        for number, state in enumerate(STATES):
            x, y = of_mjx[number], of_native[number]
            assert np.isfinite(x).all(), (name, state)
            assert np.isfinite(y).all(), (name, state)
            if state in SMOOTH:
                scale = np.abs(y).max(initial=1e-3)
                np.testing.assert_allclose(x, y, atol=1e-3 * scale, err_msg=f"{name}, {state}")
