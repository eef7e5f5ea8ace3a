"""What bodies look like: triangles of one colour in the frame of a body, from a model's geoms."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import mujoco
import numpy as np

from worldline.rendering.simple import with_few_faces

NDArray: TypeAlias = np.ndarray[Any, Any]

#: Geoms of higher groups are for collisions; MuJoCo's own viewer hides them too.
_HIGHEST_GROUP = 2

#: A plane that reaches farther than this from its centre is shown as an endless floor, m.
_ENDLESS = 10.0

#: Half the thickness of a plane that is shown as a plate, m.
_THICKNESS = 0.002


@dataclasses.dataclass(frozen=True)
class Shape:
    """All parts of a body that have one colour."""

    name: str
    """The body's, made unique."""
    body: int
    """The body's number."""
    vertices: NDArray
    """In the body's frame, `(V, 3)` float32, m."""
    faces: NDArray
    """Three vertices each, `(F, 3)` uint32."""
    rgba: tuple[float, float, float, float]
    """Its colour, each in [0, 1]."""


@dataclasses.dataclass(frozen=True)
class Floor:
    """An endless plane."""

    position: NDArray
    """A point of it, `(3,)`."""
    wxyz: NDArray
    """How its normal is turned from the vertical, `(4,)`."""
    rgb: tuple[float, float, float]
    """Its colour, each in [0, 1]."""


def shapes_of(model: mujoco.MjModel) -> list[Shape]:
    """The bodies of a model, without endless planes; one shape for each colour of a body.

    Meshes of many triangles are simplified: a browser gets all of them, and draws them for each
    world.
    """
    model = with_few_faces(model)
    parts: dict[tuple[int, tuple[float, ...]], list[tuple[NDArray, NDArray]]] = {}
    for geom in _visible(model):
        if _is_endless(model, geom):
            continue
        vertices, faces = _triangles(model, geom)
        if len(faces):
            turned = np.zeros(9)
            mujoco.mju_quat2Mat(turned, model.geom_quat[geom])
            placed = vertices @ turned.reshape(3, 3).T + model.geom_pos[geom]
            key = int(model.geom_bodyid[geom]), _rgba(model, geom)
            parts.setdefault(key, []).append((placed, faces))
    shapes = []
    for number, ((body, rgba), pieces) in enumerate(parts.items()):
        starts = np.cumsum([0, *(len(vertices) for vertices, _ in pieces)])
        vertices = np.concatenate([v for v, _ in pieces]).astype(np.float32)
        faces = np.concatenate([f + s for (_, f), s in zip(pieces, starts, strict=False)])
        label = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) or f"body {body}"
        name = f"{label.replace('/', '.')}-{number}"
        r, g, b, a = rgba
        shapes.append(Shape(name, body, vertices, faces.astype(np.uint32), (r, g, b, a)))
    return shapes


def floors_of(model: mujoco.MjModel) -> list[Floor]:
    """The endless planes of a model, which all worlds share."""
    return [
        Floor(model.geom_pos[geom].copy(), model.geom_quat[geom].copy(), _rgba(model, geom)[:3])
        for geom in _visible(model)
        if _is_endless(model, geom)
    ]


def _visible(model: mujoco.MjModel) -> list[int]:
    """The geoms to show: those of low groups, or all where that would leave nothing."""
    seen = [geom for geom in range(model.ngeom) if _rgba(model, geom)[3] > 0]
    low = [geom for geom in seen if model.geom_group[geom] <= _HIGHEST_GROUP]
    solid = [geom for geom in low if not _is_endless(model, geom)]
    return low if solid else seen


def _is_endless(model: mujoco.MjModel, geom: int) -> bool:
    size = model.geom_size[geom, :2]
    flat = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE and model.geom_bodyid[geom] == 0
    return bool(flat and ((size <= 0) | (size >= _ENDLESS)).any())


def _rgba(model: mujoco.MjModel, geom: int) -> tuple[float, float, float, float]:
    """A geom's colour; of a texture the mean."""
    material = model.geom_matid[geom]
    if material < 0:
        r, g, b, a = model.geom_rgba[geom]
        return float(r), float(g), float(b), float(a)
    r, g, b, a = model.mat_rgba[material].astype(float)
    texture = model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB]
    if texture >= 0 and model.tex_nchannel[texture] >= 3:
        start, channels = model.tex_adr[texture], model.tex_nchannel[texture]
        count = model.tex_width[texture] * model.tex_height[texture] * channels
        texels = model.tex_data[start : start + count].reshape(-1, channels)[:, :3]
        r, g, b = np.array([r, g, b]) * texels.mean(axis=0) / 255
    return round(float(r), 3), round(float(g), 3), round(float(b), 3), float(a)


def _triangles(model: mujoco.MjModel, geom: int) -> tuple[NDArray, NDArray]:
    """The vertices, `(V, 3)` in the geom's frame, and the faces, `(F, 3)`, of a geom."""
    from trimesh import creation

    kinds, size = mujoco.mjtGeom, model.geom_size[geom]
    match model.geom_type[geom]:
        case kinds.mjGEOM_MESH:
            return _of_mesh(model, model.geom_dataid[geom])
        case kinds.mjGEOM_HFIELD:
            return _of_hfield(model, model.geom_dataid[geom])
        case kinds.mjGEOM_BOX:
            made = creation.box(2 * size)
        case kinds.mjGEOM_PLANE:
            made = creation.box((*(2 * size[:2]), 2 * _THICKNESS))
        case kinds.mjGEOM_SPHERE | kinds.mjGEOM_ELLIPSOID:
            made = creation.icosphere(subdivisions=2)
            scale = size if model.geom_type[geom] == kinds.mjGEOM_ELLIPSOID else size[0]
            made.apply_scale(scale)
        case kinds.mjGEOM_CYLINDER:
            made = creation.cylinder(size[0], 2 * size[1], sections=24)
        case kinds.mjGEOM_CAPSULE:
            made = creation.capsule(2 * size[1], size[0], count=(12, 12))
        case _:
            return np.zeros((0, 3)), np.zeros((0, 3), np.uint32)
    vertices = np.asarray(made.vertices)
    centre = (vertices.min(axis=0) + vertices.max(axis=0)) / 2
    return vertices - centre, np.asarray(made.faces)


def _of_mesh(model: mujoco.MjModel, mesh: int) -> tuple[NDArray, NDArray]:
    vertex, face = model.mesh_vertadr[mesh], model.mesh_faceadr[mesh]
    vertices = model.mesh_vert[vertex : vertex + model.mesh_vertnum[mesh]]
    faces = model.mesh_face[face : face + model.mesh_facenum[mesh]]
    used, renumbered = np.unique(faces, return_inverse=True)
    return vertices[used], renumbered.reshape(faces.shape)


def _of_hfield(model: mujoco.MjModel, field: int) -> tuple[NDArray, NDArray]:
    rows, columns = int(model.hfield_nrow[field]), int(model.hfield_ncol[field])
    start = model.hfield_adr[field]
    x_half, y_half, top, _ = model.hfield_size[field]
    heights = model.hfield_data[start : start + rows * columns] * top
    y, x = np.meshgrid(
        np.linspace(-y_half, y_half, rows), np.linspace(-x_half, x_half, columns), indexing="ij"
    )
    vertices = np.stack([x.ravel(), y.ravel(), heights], axis=1)
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    lower = np.stack([corner, corner + 1, corner + columns + 1], axis=1)
    upper = np.stack([corner, corner + columns + 1, corner + columns], axis=1)
    return vertices, np.concatenate([lower, upper])
