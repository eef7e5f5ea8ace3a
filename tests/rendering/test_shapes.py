"""Shapes against extents that a person can compute, and poses against MuJoCo's own."""

import mujoco
import numpy as np
import pytest

from worldline.rendering.web.poses import Poser, grid, root_bodies
from worldline.rendering.web.shapes import floors_of, shapes_of

pytest.importorskip("trimesh")

MJCF = """
<mujoco>
  <asset>
    <hfield name="hills" nrow="3" ncol="5" size="2 1 0.5 0.1"
      elevation="0 0 0 0 0  0 1 0 0 0  0 0 0 0 0"/>
    <mesh name="tetra" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <material name="green" rgba="0 1 0 1"/>
  </asset>
  <worldbody>
    <geom type="plane" size="0 0 1" rgba="1 1 1 1"/>
    <geom type="hfield" hfield="hills" pos="0 0 3"/>
    <body name="all" pos="0 0 1">
      <freejoint/>
      <geom type="box" size="0.1 0.2 0.3" pos="1 0 0" rgba="1 0 0 1"/>
      <geom type="capsule" size="0.1 0.4" pos="0 1 0" rgba="0 0 1 1"/>
      <geom type="cylinder" size="0.2 0.1" pos="0 2 0" rgba="0 0.5 1 1"/>
      <geom type="ellipsoid" size="0.1 0.2 0.3" rgba="0.5 0.5 0 1"/>
      <geom type="mesh" mesh="tetra" material="green" pos="5 5 5"/>
      <geom type="sphere" size="3" group="3"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(MJCF)


def test_each_geom_is_as_large_and_where_mujoco_has_it(model):
    shapes = {shape.rgba[:3]: shape for shape in shapes_of(model) if shape.body == 1}
    wanted = {
        (1, 0, 0): ([0.9, -0.2, -0.3], [1.1, 0.2, 0.3]),
        (0, 0, 1): ([-0.1, 0.9, -0.5], [0.1, 1.1, 0.5]),
        (0, 0.5, 1): ([-0.2, 1.8, -0.1], [0.2, 2.2, 0.1]),
        (0.5, 0.5, 0): ([-0.1, -0.2, -0.3], [0.1, 0.2, 0.3]),
        (0, 1, 0): ([5, 5, 5], [6, 6, 6]),
    }
    assert len(shapes) == len(wanted)  # the sphere of group 3 is for collisions
    for rgb, (low, high) in wanted.items():
        found = next(s for key, s in shapes.items() if np.allclose(key, rgb, atol=1e-3))
        np.testing.assert_allclose(found.vertices.min(axis=0), low, atol=0.01)
        np.testing.assert_allclose(found.vertices.max(axis=0), high, atol=0.01)
        assert found.faces.max() < len(found.vertices)


def test_a_height_field_has_its_hill(model):
    (hills,) = (shape for shape in shapes_of(model) if shape.body == 0)
    np.testing.assert_allclose(hills.vertices.max(axis=0), [2, 1, 3.5], atol=1e-6)
    top = hills.vertices[hills.vertices[:, 2].argmax()]
    np.testing.assert_allclose(top[:2], [-1, 0], atol=1e-6)
    normals = np.cross(
        hills.vertices[hills.faces[:, 1]] - hills.vertices[hills.faces[:, 0]],
        hills.vertices[hills.faces[:, 2]] - hills.vertices[hills.faces[:, 0]],
    )
    assert (normals[:, 2] > 0).all()


def test_the_endless_plane_is_a_floor(model):
    (floor,) = floors_of(model)
    assert floor.position[2] == 0


def test_poses_are_mujocos(model):
    data = mujoco.MjData(model)
    qpos = np.tile(model.qpos0, (2, 1))
    qpos[1, :3] = [1, 2, 3]
    poses = Poser(model).poses(qpos, {}, contacts=True)
    data.qpos = qpos[1]
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(poses.position[1], data.xpos, atol=1e-6)
    np.testing.assert_allclose(poses.centre_of_mass[1], data.subtree_com, atol=1e-5)
    assert (poses.touching == 0).sum() > 0
    assert root_bodies(model) == [1]


def test_worlds_stand_in_a_square():
    places = grid(6, 2.0)
    assert len({tuple(place) for place in places}) == 6
    np.testing.assert_allclose(places.mean(axis=0), 0, atol=1e-6)
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    assert distances[distances > 0].min() == pytest.approx(2.0)
    assert not grid(5, 0.0).any()
