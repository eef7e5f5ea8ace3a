"""Kinematics and contacts of the suite's starts, against MuJoCo's own."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from worldline.model import Model
from worldline.tasks.registry import load_task
from worldline.tasks.suite.base import random_joints
from worldline.tasks.suite.contacts import Contacts, kinematics

POSES = 200
#: Distances that float32 cannot tell from none, m.
TOUCH = 1e-6

SHAPES = """
<mujoco>
  <worldbody>
    <geom name="wall" type="plane" size="1 1 1" zaxis="1 0 1" pos="-0.3 0 0"/>
    <geom name="step" type="box" size="0.2 0.3 0.1" pos="0.2 0.1 0" euler="20 10 0"/>
    <body name="free"><freejoint/><geom type="capsule" size="0.05 0.2"/></body>
    <body pos="0 0 0.3" euler="0 30 0">
      <joint type="slide" axis="1 1 0" pos="0.1 0 0" ref="0.1"/>
      <joint type="hinge" axis="0 1 2" pos="0 0.1 0.1"/>
      <geom type="sphere" size="0.1" pos="0 0 0.1"/>
      <body pos="0.1 0 0.3" quat="1 2 0 1">
        <joint type="hinge" axis="1 0 0" ref="30"/>
        <geom type="capsule" fromto="0 0 0 0.1 0.2 0.3" size="0.03"/>
        <body pos="0 0 0.4"><geom type="capsule" size="0.04 0.1"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>"""


@pytest.fixture(scope="module", autouse=True)
def _compile_quickly():
    """Many programs, each run once: XLA is not to take its time over them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def mujocos(model: Model, poses: np.ndarray, **constants) -> tuple[np.ndarray, ...]:
    """`xpos`, `xmat` and the deepest contact (0 for none) of each pose, by MuJoCo."""
    mj, results = model.mj, []
    data = mujoco.MjData(mj)
    kept = {name: np.array(getattr(mj, name)) for name in constants}
    for number, qpos in enumerate(poses):
        for name, values in constants.items():
            getattr(mj, name)[:] = values[number]
        data.qpos[:] = qpos
        mujoco.mj_kinematics(mj, data)
        mujoco.mj_comPos(mj, data)
        mujoco.mj_collision(mj, data)
        deepest = min((contact.dist for contact in data.contact), default=0.0)
        results.append((data.xpos.copy(), data.xmat.reshape(-1, 3, 3).copy(), deepest))
    for name, value in kept.items():
        getattr(mj, name)[:] = value
    return tuple(map(np.stack, zip(*results, strict=True)))


def assert_agree(contacts: Contacts, poses: np.ndarray, **constants) -> None:
    """The same kinematics, and contact in the same poses, of which some have it and some not."""
    model = contacts.model

    @jax.jit
    @jax.vmap
    def ours(qpos, constants):
        return *kinematics(model, qpos, constants), contacts.gap(qpos, constants)

    xpos, xmat, gap = ours(poses, constants)
    wanted_xpos, wanted_xmat, deepest = mujocos(model, np.asarray(poses), **constants)
    np.testing.assert_allclose(xpos, wanted_xpos, atol=2e-6)
    np.testing.assert_allclose(xmat, wanted_xmat, atol=2e-6)
    touch = deepest < -TOUCH
    np.testing.assert_array_equal(np.asarray(gap) < -TOUCH, touch)
    assert 0.05 * POSES < touch.sum() < 0.95 * POSES


def test_every_kind_of_joint_and_shape():
    model = Model(SHAPES)
    keys = jax.random.split(jax.random.key(0), POSES)
    joints = jax.vmap(lambda key: random_joints(model, key))(keys)
    places = np.random.default_rng(0).uniform(-0.5, 0.5, (POSES, 4)).astype(np.float32)
    assert_agree(Contacts(model), joints.at[:, jnp.array([0, 1, 2, 7])].set(places))


@pytest.mark.parametrize("task", ["finger-spin", "humanoid-run"])
def test_the_suites_poses(task):
    task = load_task(f"suite/{task}")
    keys = jax.random.split(jax.random.key(1), POSES)
    assert_agree(task._contacts, jax.vmap(lambda key: random_joints(task.model, key))(keys))


def test_the_suites_ball_and_cup():
    contacts = load_task("suite/ball_in_cup-catch")._contacts
    balls = np.random.default_rng(0).uniform([0, 0, -0.2, 0.2], [0, 0, 0.2, 0.5], (POSES, 4))
    assert_agree(contacts, balls.astype(np.float32))


def test_the_suites_scenes():
    task = load_task("suite/manipulator-insert_peg")
    keys = jax.random.split(jax.random.key(1), POSES)
    scenes = jax.device_get(jax.jit(jax.vmap(task._scene))(keys))
    assert_agree(task._contacts, scenes.qpos, **scenes.poses)


def test_what_is_left_out_is_not_looked_at():
    model = Model(SHAPES)
    deep = jnp.asarray(model.qpos0).at[:3].set(jnp.array([-0.5, 0.0, 0.0]))  # behind the wall
    assert jax.jit(Contacts(model).gap)(deep) < -0.1
    assert jax.jit(Contacts(model, without=("wall",)).gap)(deep) > 0
