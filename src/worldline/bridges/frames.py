"""Single pictures of worlds, in this process: what `render()` of a bridge shows."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import operator
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.worlds import Worlds, WorldsState
from worldline.model import Model
from worldline.rendering.raycast import RayPainter
from worldline.rendering.viewpoint import CameraPath, camera_path
from worldline.report.video import backends, drawn_model

NDArray: TypeAlias = np.ndarray[Any, Any]

#: Height and width of a picture, in pixels, where nobody says otherwise.
RENDER_SIZE = (320, 480)


class LastStep(NamedTuple):
    """The step that ended episodes, for pictures of how they ended."""

    before: WorldsState
    """The worlds before it."""
    action: Any
    """`(B, nact)`"""
    ended: NDArray
    """The worlds whose episode it ended, `(B,)` bool."""


class WorldsPainter:
    """Draws worlds, each as its `Frames` would.

    Args:
        worlds: the worlds.
        size: height and width of a picture, in pixels.
    """

    def __init__(self, worlds: Worlds, size: tuple[int, int]) -> None:
        env = worlds.env
        self._frames = Frames(env.model, env.task.camera, size)
        self._num_worlds = worlds.num_worlds
        self._again = jax.jit(worlds.after)

    def paint(self, state: WorldsState, last: LastStep | None = None) -> tuple[NDArray, ...]:
        """A picture of each world, `(height, width, 3)` uint8.

        Args:
            state: the worlds.
            last: the step before, of which the true ends are shown where it ended episodes. The
                worlds themselves are in their new ones, so it is taken once more.
        """
        physics = state.env.physics
        if last is not None and last.ended.any():
            action = jnp.asarray(last.action, jnp.float32)
            ended = self._again(last.before, action, last.ended).physics
            physics = jax.tree.map(
                lambda new, old: np.where(_as_column(last.ended, new), new, old),
                *jax.device_get((ended, physics)),
            )
        fields = {n: v for n, v in physics.fields.items() if n.startswith("mocap")}
        shown = jax.device_get((physics.qpos, dict(physics.variation), fields))
        rows = (jax.tree.map(operator.itemgetter(i), shown) for i in range(self._num_worlds))
        return tuple(self._frames.paint(*row) for row in rows)

    def close(self) -> None:
        """Gives the graphics context back."""
        self._frames.close()


def _as_column(rows: NDArray, array: NDArray) -> NDArray:
    """A mask `(B,)` that broadcasts over an array with `B` in front."""
    return rows.reshape(rows.shape + (1,) * (array.ndim - 1))


class Frames:
    """Draws states of one model, through a graphics library or, without one, by casting rays.

    Args:
        model: the model.
        camera: where to look from, as in `Task.camera`.
        size: height and width of a picture, in pixels.
    """

    def __init__(self, model: Model, camera: Mapping[str, Any], size: tuple[int, int]) -> None:
        self._model, self._camera, self._size = model, camera, size
        self._graphics = _open_graphics(model.mj, size)
        self._distance: float | None = None

    def paint(
        self, qpos: NDArray, variation: Mapping[str, NDArray], inputs: Mapping[str, NDArray]
    ) -> NDArray:
        """One picture, `(height, width, 3)` uint8.

        Args:
            qpos: `(nq,)`.
            variation: the world's own constants.
            inputs: further MjData fields to show, such as `mocap_pos`.
        """
        path = self._steady(camera_path(self._model, self._camera, qpos[None], timestep=1.0))
        drawn = drawn_model(self._model, variation, path)
        data = mujoco.MjData(drawn)
        for name, value in {"qpos": qpos, **inputs}.items():
            getattr(data, name)[...] = value
        mujoco.mj_fwdPosition(drawn, data)
        if self._graphics is None:
            return RayPainter(drawn, self._size).paint(data, path.at(0))
        return self._graphics.paint(drawn, data, path.at(0))

    def close(self) -> None:
        """Gives the graphics context back."""
        if self._graphics is not None:
            self._graphics.close()
            self._graphics = None

    def _steady(self, path: CameraPath) -> CameraPath:
        """The camera at the distance of the first picture, so that it does not go to and fro."""
        if self._distance is None:
            self._distance = path.distance
        return dataclasses.replace(path, distance=self._distance)


class _Graphics:
    """MuJoCo's own renderer on an OpenGL context of this thread."""

    def __init__(self, model: mujoco.MjModel, context: Any, size: tuple[int, int]) -> None:
        self._context, self._size = context, size
        context.make_current()
        self._scene = mujoco.MjvScene(model, maxgeom=10_000)
        self._mjr = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
        offscreen = mujoco.mjtFramebuffer.mjFB_OFFSCREEN
        mujoco.mjr_setBuffer(offscreen, self._mjr)
        if self._mjr.currentBuffer != offscreen:
            raise RuntimeError("the driver has no framebuffer to draw into")
        mujoco.mjr_resizeOffscreen(size[1], size[0], self._mjr)

    def paint(
        self, model: mujoco.MjModel, data: mujoco.MjData, camera: mujoco.MjvCamera
    ) -> NDArray:
        """See `Frames.paint`."""
        self._context.make_current()
        all_, options = mujoco.mjtCatBit.mjCAT_ALL, mujoco.MjvOption()
        mujoco.mjv_updateScene(model, data, options, None, camera, all_, self._scene)
        height, width = self._size
        view, image = mujoco.MjrRect(0, 0, width, height), np.empty((height, width, 3), np.uint8)
        mujoco.mjr_render(view, self._scene, self._mjr)
        mujoco.mjr_readPixels(image, None, view, self._mjr)
        return image[::-1].copy()  # OpenGL counts rows from the bottom

    def close(self) -> None:
        self._context.make_current()
        self._mjr.free()
        self._context.free()


def _open_graphics(model: mujoco.MjModel, size: tuple[int, int]) -> _Graphics | None:
    """The first graphics library that works, or None."""
    for backend in backends("auto"):
        if backend != "rays":
            with contextlib.suppress(Exception), _no_warnings():
                library = importlib.import_module(f"mujoco.{backend}")
                return _Graphics(model, library.GLContext(size[1], size[0]), size)
    return None


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
