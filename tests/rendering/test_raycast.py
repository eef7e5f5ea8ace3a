import math

import mujoco
import numpy as np

from worldline.rendering.base import View
from worldline.rendering.raycast import RayRenderer
from worldline.rendering.scene import VIEW

SIZE = (160, 240)
BALL = """
<mujoco>
  <visual><global fovy="45"/></visual>
  <asset><material name="green" rgba="0 1 0 1"/></asset>
  <worldbody>
    {floor}
    <geom type="sphere" size="0.5" pos="0 0 1" {colour}/>
    <geom type="box" size="9 9 9" pos="0 30 9" group="3"/>
  </worldbody>
</mujoco>
"""


def _paint(floor="", colour='rgba="1 0 0 1"', lookat=(0, 0, 1), distance=4.0, elevation=0.0):
    model = mujoco.MjModel.from_xml_string(BALL.format(floor=floor, colour=colour))
    view = np.array([*lookat, distance, 90, elevation])
    renderer = RayRenderer(model, [View(-1, *SIZE)])
    ((image, _),) = renderer.draw([{"qpos": model.qpos0, VIEW: view}])
    return image[0].astype(int)


def _reddish(image):
    return image[..., 0] > 2 * image[..., 1].clip(1)


def test_a_sphere_is_a_disc_of_the_right_size_in_the_middle():
    rows, columns = np.nonzero(_reddish(_paint()))
    radius = math.tan(math.asin(0.5 / 4)) / math.tan(math.radians(45 / 2)) * SIZE[0] / 2
    np.testing.assert_allclose(len(rows), math.pi * radius**2, rtol=0.03)
    np.testing.assert_allclose([rows.mean(), columns.mean()], [79.5, 119.5], atol=0.5)


def test_right_is_right_and_up_is_up():
    rows, columns = np.nonzero(_reddish(_paint(lookat=(0.5, 0, 0.5))))
    assert rows.mean() < 60 and columns.mean() < 100


def test_the_sphere_throws_a_shadow_away_from_the_sun():
    floor = '<geom type="plane" size="0 0 1" rgba="1 1 1 1"/>'
    image = _paint(floor=floor, elevation=-40)
    dark = (image.max(axis=2) < 125) & ~_reddish(image)
    assert 200 < dark.sum() < 2000
    assert np.nonzero(dark)[1].mean() > 125, "the sun stands on the left"


def test_sun_side_is_brighter():
    image = _paint()
    assert image[70, 110, 0] > image[92, 130, 0] + 50


def test_material_colours_and_hidden_collision_geoms():
    image = _paint(colour='material="green"')
    middle = image[80, 120]
    assert middle[1] > 3 * max(middle[0], middle[2])
    assert (image[10, 120] > 150).all(), "the box of group 3 is not drawn"


def test_edges_are_smooth():
    image = _paint()
    middle = image[80, :, 1]
    between = np.unique(middle[(middle > 40) & (middle < 200)])
    assert len(between) > 0, "some pixels lie between ball and sky"


def test_an_empty_sky():
    image = _paint(lookat=(0, 0, 50))
    assert (image[..., 2] > 200).all()
