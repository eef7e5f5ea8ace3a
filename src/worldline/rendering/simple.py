"""A model that is quicker to draw, and looks nearly the same."""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from worldline.rendering.scene import NDArray

#: Triangles of a model that OpenGL draws quickly on a CPU.
FEW_FACES = 20_000
#: Cells along the longest side of a mesh: vertices that share a cell become one.
CELLS = 48


def drawn_faces(model: mujoco.MjModel) -> int:
    """How many triangles the meshes that are shown have, each as often as it is shown."""
    shown = (model.geom_type == mujoco.mjtGeom.mjGEOM_MESH) & (model.geom_group < 3)
    return int(model.mesh_facenum[model.geom_dataid[shown]].sum())


def with_few_faces(model: mujoco.MjModel, few: int = FEW_FACES) -> mujoco.MjModel:
    """The model itself if it has few triangles, else a copy that is simplified until it has.

    It is not coarser than 12 cells along the longest side of a mesh, whatever it then has.
    """
    simple, cells = model, CELLS
    while drawn_faces(simple) > few and cells >= 12:
        simple = simplified(model, cells)
        cells = cells * 2 // 3
    return simple


def simplified(model: mujoco.MjModel, cells: int = CELLS) -> mujoco.MjModel:
    """A copy whose meshes have fewer triangles, for OpenGL alone.

    Vertices near each other become one, and triangles that lose a corner so are left out. The
    trees in which MuJoCo looks for triangles that a ray meets are those of before: neither rays nor
    contacts can be computed with it.

    Args:
        model: the model, which stays as it is.
        cells: along the longest side of a mesh; vertices that share one become one.
    """
    model = copy.copy(model)
    for mesh in range(model.nmesh):
        start, count = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
        first = int(model.mesh_vertadr[mesh])
        vertices = model.mesh_vert[first : first + int(model.mesh_vertnum[mesh])]
        faces = model.mesh_face[start : start + count]
        kept, corners = _clustered(vertices, faces, cells)
        for name in ("mesh_face", "mesh_facenormal", "mesh_facetexcoord"):
            rows = getattr(model, name)[start : start + count]
            rows[: len(kept)] = corners if name == "mesh_face" else rows[kept]
        model.mesh_facenum[mesh] = len(kept)
    return model


def _clustered(vertices: NDArray, faces: NDArray, cells: int) -> tuple[NDArray, NDArray]:
    """The faces to keep, and their corners `(n, 3)`: each the first vertex of its cell."""
    low = vertices.min(axis=0)
    side = max(float((vertices.max(axis=0) - low).max()), 1e-9) / cells
    cell = ((vertices - low) / side).astype(np.int64)
    number = cell @ np.array([1, cells + 1, (cells + 1) ** 2])
    _, first, inverse = np.unique(number, return_index=True, return_inverse=True)
    corners = first[inverse.ravel()][faces]
    a, b, c = np.sort(corners, axis=1).T
    whole = np.flatnonzero((a != b) & (b != c))
    _, once = np.unique(np.sort(corners[whole], axis=1), axis=0, return_index=True)
    kept = whole[np.sort(once)]
    return kept, corners[kept]


def without_shadows(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy in which no light casts a shadow, and edges are not smoothed, for OpenGL alone."""
    model = copy.copy(model)
    model.light_castshadow[:] = False
    model.vis.quality.offsamples = 0
    return model
