import math

import mujoco
import numpy as np
import pytest

from worldline.errors import ModelError, TaskError
from worldline.model import Model
from worldline.rendering.frames import camera_index, camera_path
from worldline.rendering.scene import VIEW, Scene

ROBOT = """
<mujoco>
  <visual><global fovy="90"/></visual>
  <worldbody>
    <camera name="overhead" pos="0 0 9"/>
    <geom type="plane" size="40 40 40"/>
    <body name="root">
      <joint type="slide" axis="1 0 0" {limit}/>
      <joint type="slide" axis="0 0 1" {limit}/>
      <geom type="sphere" size="0.5"/>
    </body>
  </worldbody>
</mujoco>
"""
ROAMS, STAYS = Model(ROBOT.format(limit="")), Model(ROBOT.format(limit='range="-1 1"'))
TIME = np.arange(100) * 0.05
WALK = np.stack([8 * TIME, 0.1 * np.sin(20 * TIME)], axis=1)


def test_follows_a_robot_that_goes_anywhere_and_evens_its_bobbing():
    path = camera_path(ROAMS, {}, WALK, 0.05)
    np.testing.assert_allclose(path[:, 0], WALK[:, 0], atol=1e-9)
    assert np.abs(path[20:-20, 2]).max() < 0.03
    assert (path[:, 4:] == (90, -15)).all()


def test_everything_is_in_sight():
    path = camera_path(ROAMS, {}, np.zeros((1, 2)), 0.05)
    assert path[0, 3] * math.sin(math.radians(45)) > 0.5, "the sphere's radius"
    assert path[0, 3] < 2


def test_stands_still_before_a_robot_that_cannot_go_far():
    swing = np.stack([np.sin(TIME), 0 * TIME], axis=1)
    path = camera_path(STAYS, {}, swing, 0.05)
    np.testing.assert_allclose(path[:, :3], np.zeros((100, 3)), atol=0.05)
    assert path[0, 3] * math.sin(math.radians(45)) > 1.4, "radius and reach of the slide"


def test_attributes_are_taken_as_given():
    camera = {"distance": 3.0, "azimuth": 10, "elevation": -45, "lookat": (1, 2, 3)}
    path = camera_path(ROAMS, camera, WALK, 0.05)
    assert path.shape == (100, 6)
    scene = Scene(ROAMS.mj)
    scene.put({"qpos": WALK[7], VIEW: path[7]})
    seen = scene.camera(camera_index(ROAMS, camera))
    assert (seen.distance, seen.azimuth, seen.elevation) == (3, 10, -45)
    np.testing.assert_array_equal(seen.lookat, [1, 2, 3])
    assert seen.type == mujoco.mjtCamera.mjCAMERA_FREE


def test_a_tracked_body_keeps_the_given_height():
    for body in (1, "root"):
        path = camera_path(
            ROAMS, {"trackbodyid": body, "lookat": np.array([0, 0, 1.2])}, WALK, 0.05
        )
        np.testing.assert_allclose(path[:, 0], WALK[:, 0], atol=1e-9)
        np.testing.assert_array_equal(path[:, 2], 1.2)


@pytest.mark.parametrize("camera", [{"type": "free"}, {"trackbodyid": -1}, {"trackbodyid": 0}])
def test_a_free_camera_follows_nothing(camera):
    assert np.ptp(camera_path(ROAMS, camera, WALK, 0.05), axis=0).max() == 0


def test_a_camera_of_the_model():
    seen = Scene(ROAMS.mj).camera(camera_index(ROAMS, {"name": "overhead"}))
    assert (seen.type, seen.fixedcamid) == (mujoco.mjtCamera.mjCAMERA_FIXED, 0)


@pytest.mark.parametrize("frames", [1, 2, 3, 11])
def test_short_trajectories(frames):
    assert camera_path(ROAMS, {}, WALK[:frames], 0.05).shape == (frames, 6)


def test_mistakes_get_a_hint():
    with pytest.raises(TaskError, match=r"'distnce'; did you mean 'distance'\?"):
        camera_path(ROAMS, {"distnce": 3}, WALK, 0.05)
    with pytest.raises(TaskError, match=r"no body 7 .* has 2 bodies"):
        camera_path(ROAMS, {"trackbodyid": 7}, WALK, 0.05)
    with pytest.raises(ModelError, match="overhead"):
        camera_path(ROAMS, {"name": "overhed"}, WALK, 0.05)
    with pytest.raises(ModelError, match="root"):
        camera_path(ROAMS, {"trackbodyid": "rot"}, WALK, 0.05)
