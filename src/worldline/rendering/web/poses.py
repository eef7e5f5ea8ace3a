"""Poses: where the bodies of many worlds are, and what touches, for a viewer to draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import mujoco
import numpy as np

from worldline.rendering.scene import NDArray, Scene


@dataclasses.dataclass(frozen=True)
class Poses:
    """B worlds in the frame of their own origins."""

    position: NDArray
    """Of each body, `(B, nbody, 3)`, m."""
    wxyz: NDArray
    """Orientation of each body, a unit quaternion, `(B, nbody, 4)`."""
    centre_of_mass: NDArray
    """Of each body with all that hangs on it, `(B, nbody, 3)`, m."""
    contacts: NDArray
    """Points that touch, `(n, 3)`, m; empty unless asked for."""
    touching: NDArray
    """The world of each of these, `(n,)`."""


class Poser:
    """Computes the poses of worlds from their configurations, on the host.

    Args:
        model: the model that all worlds share.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self._scene = Scene(model)

    def poses(
        self, qpos: NDArray, shown: Mapping[str, NDArray], *, contacts: bool = False
    ) -> Poses:
        """The poses of all worlds.

        Args:
            qpos: `(B, nq)`.
            shown: mocap bodies and constants, `(B, ...)` each.
            contacts: whether to find the points that touch.
        """
        count, data = len(qpos), self._scene.data
        nbody = self._scene.model.nbody
        position, com = np.empty((2, count, nbody, 3), np.float32)
        wxyz = np.empty((count, nbody, 4), np.float32)
        points, worlds = [np.zeros((0, 3))], [np.zeros(0, int)]
        for world in range(count):
            own = {name: value[world] for name, value in shown.items()}
            self._scene.put({"qpos": qpos[world], **own})
            position[world], wxyz[world] = data.xpos, data.xquat
            com[world] = data.subtree_com
            if contacts:
                mujoco.mj_collision(self._scene.model, data)
                points.append(data.contact.pos[data.contact.dist <= 0])
                worlds.append(np.full(len(points[-1]), world))
        return Poses(position, wxyz, com, np.concatenate(points), np.concatenate(worlds))


def root_bodies(model: mujoco.MjModel) -> list[int]:
    """The bodies that hang on the world itself, and weigh something."""
    hangs = np.flatnonzero((model.body_parentid == 0) & (model.body_subtreemass > 0))
    return [int(body) for body in hangs if body > 0]


def grid(count: int, spacing: float) -> NDArray:
    """The places of worlds in a square around the origin, `(B, 3)`, m."""
    columns = int(np.ceil(np.sqrt(count)))
    rows = int(np.ceil(count / columns))
    index = np.arange(count)
    x = (index % columns - (columns - 1) / 2) * spacing
    y = (index // columns - (rows - 1) / 2) * spacing
    return np.stack([x, -y, np.zeros(count)], axis=1).astype(np.float32)
