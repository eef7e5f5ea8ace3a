"""Pictures for people: a world beside its robot, in one look for videos and for `render()`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from worldline.model import Model
from worldline.rendering import opengl
from worldline.rendering.base import View
from worldline.rendering.pool import RAYS, open_pool
from worldline.rendering.scene import CONSTANTS, VIEW, NDArray, World, endless_floors
from worldline.rendering.viewpoint import CameraPath, camera_path

#: The most renderers that draw one video, or one batch of worlds.
MOST = 16


def filmed(
    model: mujoco.MjModel, states: World, constants: Mapping[str, Any], path: CameraPath
) -> dict[str, NDArray]:
    """One world at `T` moments, each with its camera, to be drawn as a batch of worlds.

    Args:
        model: the model.
        states: `qpos` and other MjData fields to show, `(T, ...)` each.
        constants: the world's own constants; those that cannot be seen are left out.
        path: where the camera stands at each moment.
    """
    seen = {name: np.asarray(x) for name, x in constants.items() if name in CONSTANTS}
    seen |= endless_floors(model, seen, path.lookat, path.distance)
    frames = len(states["qpos"])
    rows = {name: np.broadcast_to(x, (frames, *np.shape(x))) for name, x in seen.items()}
    return {**states, **rows, VIEW: path.views()}


class FrameRenderer:
    """Draws worlds of one model in this process, each by a camera that follows its robot.

    Args:
        model: the model.
        camera: where to look from, as in `Task.camera`.
        size: height and width of a picture, in pixels.
        worlds: how many are drawn at a time, at most.
    """

    def __init__(
        self, model: Model, camera: Mapping[str, Any], size: tuple[int, int], worlds: int = 1
    ) -> None:
        self._model, self._camera = model, camera
        index = model.id("camera", camera["name"]) if "name" in camera else -1
        ways, views, most = [*opengl.backends(), RAYS], [View(index, *size)], min(worlds, MOST)
        self._pool, _ = open_pool(ways, model.mj, views, for_people=True, most=most)
        self._distance: float | None = None

    def draw(self, qpos: NDArray, variation: World, inputs: World) -> NDArray:
        """A picture of each of n worlds, `(n, height, width, 3)` uint8.

        Args:
            qpos: `(n, nq)`.
            variation: the worlds' own constants, `(n, ...)` each.
            inputs: further MjData fields to show, such as `mocap_pos`, `(n, ...)` each.
        """
        worlds = []
        for row in range(len(qpos)):
            states = {"qpos": qpos, **inputs}
            states = {name: values[row : row + 1] for name, values in states.items()}
            constants = {name: values[row] for name, values in variation.items()}
            path = self._steady(camera_path(self._model, self._camera, states["qpos"], 1.0))
            worlds.append(filmed(self._model.mj, states, constants, path))
        together = {name: np.concatenate([w[name] for w in worlds]) for name in worlds[0]}
        ((colours, _),) = self._pool.draw(together)
        assert colours is not None
        return colours

    def close(self) -> None:
        """Gives the graphics contexts back."""
        self._pool.close()

    def _steady(self, path: CameraPath) -> CameraPath:
        """The camera at the distance of the first picture, so that it does not go to and fro."""
        if self._distance is None:
            self._distance = path.distance
        return dataclasses.replace(path, distance=self._distance)
