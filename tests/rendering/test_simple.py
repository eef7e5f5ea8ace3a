"""Meshes with fewer triangles look nearly the same, and the caller's model stays as it is."""

import mujoco
import numpy as np
import pytest

from worldline.rendering.simple import drawn_faces, simplified, without_shadows

STEPS = 120


@pytest.fixture(scope="module")
def ball():
    """A ball of 28,000 triangles, and lights that cast shadows."""
    turn, rise = np.meshgrid(
        np.linspace(0, 2 * np.pi, STEPS, endpoint=False), np.linspace(-1.55, 1.55, STEPS)
    )
    points = np.stack([np.cos(turn) * np.cos(rise), np.sin(turn) * np.cos(rise), np.sin(rise)], -1)
    at = np.arange(STEPS**2).reshape(STEPS, STEPS)
    a, b = at[:-1], at[1:]
    faces = np.stack([a, np.roll(a, -1, 1), b, np.roll(a, -1, 1), np.roll(b, -1, 1), b], -1)
    spec = mujoco.MjSpec()
    mesh = spec.add_mesh(name="ball", uservert=points.ravel(), userface=faces.reshape(-1))
    mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    for place in (0, 3):
        body = spec.worldbody.add_body(pos=[place, 0, 0])
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="ball")
    spec.worldbody.add_light(pos=[0, 0, 4])
    return spec.compile()


def test_there_are_few_triangles_and_they_are_where_the_others_were(ball):
    before = ball.mesh_face.copy()
    fewer = simplified(ball)
    assert drawn_faces(ball) == 2 * ball.mesh_facenum[0] > 50_000
    assert drawn_faces(fewer) < 0.6 * drawn_faces(ball)
    np.testing.assert_array_equal(ball.mesh_face, before)
    faces = fewer.mesh_face[: fewer.mesh_facenum[0]]
    assert (np.sort(faces, axis=1)[:, :-1] != np.sort(faces, axis=1)[:, 1:]).all()
    corners = fewer.mesh_vert[faces]
    sides = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = 0.5 * np.linalg.norm(sides, axis=1).sum()
    assert area == pytest.approx(4 * np.pi, rel=0.05)  # of a ball: there are no holes
    middles = corners.mean(axis=1)
    assert (np.einsum("ij,ij->i", sides, middles) >= -1e-6).mean() > 0.98  # they face outwards


def test_no_light_casts_a_shadow(ball):
    assert ball.light_castshadow.any()
    assert not without_shadows(ball).light_castshadow.any()
    assert ball.light_castshadow.any()
