"""A motion on a robot's model: joints by name and order, velocities, bodies."""

import dataclasses

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from worldline.errors import ConfigError, ModelError
from worldline.model import Model
from worldline.tasks.tracking.motion import Motion
from worldline.tasks.tracking.reference import (
    find_tracked,
    fitted,
    joint_names,
    reference_of,
    velocities,
)

#: Two limbs of two joints: in the model's order by limb, in Isaac Lab's by distance from the root.
LIMBS = "".join(
    f"""
    <body name="{side} upper" pos="{x} 0 0">
      <joint name="{side} hip" axis="0 1 0" range="-100 100"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.02"/>
      <body name="{side} lower" pos="0 0 -0.3">
        <joint name="{side} knee" axis="0 1 0" range="-100 100"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02"/>
        <site name="{side} tip" pos="0 0 -0.2"/>
      </body>
    </body>"""
    for side, x in (("front", 0.2), ("rear", -0.2))
)
MJCF = f"""
<mujoco>
  <worldbody>
    <body name="torso" pos="0 0 1">
      <freejoint/>
      <geom type="box" size="0.2 0.1 0.05"/>{LIMBS}
    </body>
  </worldbody>
</mujoco>
"""
MODEL = Model(MJCF)
NAMES = ("front hip", "front knee", "rear hip", "rear knee")


def motion(**changes):
    """A second at 20 Hz: the root moves at 1, 2 and 0.5 m/s and turns about z at 2 rad/s, and the
    joints at 0.1, 0.2, 0.3 and 0.4 rad/s."""
    times = np.arange(21) / 20
    turns = Rotation.from_rotvec(np.outer(2 * times, [0, 0, 1])).as_quat(scalar_first=True)
    joints = np.outer(times, [0.1, 0.2, 0.3, 0.4])
    made = Motion("walk.csv", 20, np.outer(times, [1, 2, 0.5]), turns, joints, NAMES)
    return dataclasses.replace(made, **changes)


def test_joints_are_matched_by_name():
    order = [2, 0, 3, 1]
    shuffled = motion(
        joint_pos=motion().joint_pos[:, order], joint_names=tuple(NAMES[i] for i in order)
    )
    assert joint_names(MODEL) == NAMES
    np.testing.assert_array_equal(fitted(shuffled, MODEL), fitted(motion(), MODEL))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (
            ("front hip", "front kneee", "rear hip", "rear knee"),
            "walk.csv does not fit the model: it has no joint 'front knee', and the model has no "
            "joint 'front kneee'; did you mean 'front knee'",
        ),
        (("a", "b", "rear hip", "c"), "it has no joints 'front hip', 'front knee', 'rear knee'"),
    ],
)
def test_other_joints_are_refused_by_name(names, says):
    with pytest.raises(ConfigError, match=says):
        fitted(motion(joint_names=names), MODEL)


def test_joints_without_names_are_counted():
    with pytest.raises(ConfigError, match="3 joints without names, and the model 4: joints 'front"):
        fitted(motion(joint_names=None, joint_pos=np.zeros((21, 3))), MODEL)


def bodies_of(qpos):
    """Where MuJoCo puts the bodies, `(T, 5, 3)`."""
    data, places = mujoco.MjData(MODEL.mj), []
    for row in qpos:
        data.qpos[:] = row
        mujoco.mj_kinematics(MODEL.mj, data)
        places.append(data.xpos[1:].copy())
    return np.array(places)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)], ids=["model", "Isaac Lab"])
def test_bodies_show_the_order_of_joints_without_names(order):
    rng = np.random.default_rng(0)
    moved = motion(joint_pos=rng.uniform(-1, 1, (21, 4)))
    qpos = fitted(moved, MODEL)
    places = bodies_of(qpos)[:, rng.permutation(5)]
    mute = dataclasses.replace(
        moved, joint_names=None, joint_pos=moved.joint_pos[:, order], body_pos=places
    )
    np.testing.assert_array_equal(fitted(mute, MODEL), qpos)
    with pytest.raises(ConfigError, match="bodies that are not where its joints put them"):
        fitted(dataclasses.replace(mute, joint_pos=-mute.joint_pos), MODEL)


def test_degrees_are_refused_with_the_joint():
    with pytest.raises(ConfigError, match=r"'rear knee' is 22\.9 in frame 20, .* in rad"):
        fitted(motion(joint_pos=np.rad2deg(motion().joint_pos)), MODEL)


def test_a_robot_without_a_floating_base_is_refused():
    with pytest.raises(ModelError, match="needs a free joint"):
        fitted(motion(), Model(MJCF.replace("<freejoint/>", "")))


def test_velocities_are_those_of_the_motion():
    qvel = velocities(MODEL, fitted(motion(), MODEL), 1 / 20)
    np.testing.assert_allclose(
        qvel, np.tile([1, 2, 0.5, 0, 0, 2, 0.1, 0.2, 0.3, 0.4], (21, 1)), atol=1e-9
    )


def test_bodies_are_where_mujoco_puts_them():
    parts = find_tracked(MODEL, ("torso", "rear lower"), "torso", ("front tip", "rear lower"))
    reference = reference_of(motion(), MODEL, parts, 0.02)
    assert reference.frames == 51 and parts.anchor == 0
    places = bodies_of(reference.qpos)
    np.testing.assert_allclose(reference.bodies.position, places[:, [0, 4]], atol=1e-6)
    np.testing.assert_allclose(reference.end_heights[:, 0], places[:, 4, 2], atol=1e-6)
    # Its velocity is the change of its place, by central differences.
    change = (places[2:, 4] - places[:-2, 4]) / 0.04
    np.testing.assert_allclose(reference.bodies.linear_velocity[1:-1, 1], change, atol=2e-3)
    # The lower limb turns about z with the torso, and about its own y by both joints.
    spin = np.linalg.norm(reference.bodies.angular_velocity[:, 1], axis=1)
    np.testing.assert_allclose(spin, np.hypot(2, 0.7), atol=1e-5)


def test_names_of_bodies_are_checked():
    with pytest.raises(ModelError, match="no body 'tors'; did you mean 'torso'"):
        find_tracked(MODEL, ("tors",), "torso", ())
