"""MuJoCo's OpenGL renderer, set up for many small pictures.

Against its defaults: a buffer no larger than the pictures, one sample a pixel, no shadows and no
reflections, one context for all worlds of a thread, and colour and depth in one read (two in models
with a sky).
"""

from __future__ import annotations

import copy
import ctypes.util
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mujoco
import numpy as np

from worldline.errors import ModelError
from worldline.rendering.camera import Camera
from worldline.rendering.painter import NDArray, Painter, Picture

#: By platform, the ways to a context without a window: MuJoCo's name, and the library it needs.
_BACKENDS = {"linux": (("egl", "EGL"), ("osmesa", "OSMesa")), "darwin": (("cgl", ""),)}
_ELSEWHERE = (("glfw", ""),)

_FLAGS = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)
_MOST_GEOMS = 10_000


def backend() -> str | None:
    """The way to a context on this machine, by `MUJOCO_GL` or by which libraries are installed.

    One only: the OpenGL bindings of a process cannot change from one to another.
    """
    ways = _BACKENDS.get(sys.platform, _ELSEWHERE)
    if (chosen := os.environ.get("MUJOCO_GL", "").lower()) in [name for name, _ in ways]:
        return chosen
    found = [name for name, library in ways if not library or ctypes.util.find_library(library)]
    return found[0] if found else None


class OpenGLPainter(Painter):
    """One OpenGL context; one world at a time.

    Args:
        model: as in `Painter`.
        cameras: as in `Painter`.
        backend: MuJoCo's name of the way to a context.
    """

    most: ClassVar[int] = 64

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[Camera], backend: str) -> None:
        super().__init__(_quick(model, cameras), cameras)
        height, width = _largest(cameras)
        context = importlib.import_module(f"mujoco.{backend}").GLContext
        self._gl: Any = context(width, height)
        self._gl.make_current()
        font = mujoco.mjtFontScale.mjFONTSCALE_50
        self._mjr = mujoco.MjrContext(self.stage.model, font.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._mjr)
        self._mjr.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        if self._mjr.offWidth < width or self._mjr.offHeight < height:
            raise ModelError(
                f"OpenGL gives a buffer of {self._mjr.offHeight} x {self._mjr.offWidth} pixels for "
                f"{height} x {width}; choose smaller cameras"
            )
        self._scene = mujoco.MjvScene(self.stage.model, maxgeom=_MOST_GEOMS)
        for flag in _FLAGS:
            self._scene.flags[flag] = False
        self._has_sky = bool((model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).any())
        self._option = mujoco.MjvOption()
        self._views = [_fixed(model, camera) for camera in cameras]

    def paint(self, worlds: Sequence[Mapping[str, NDArray]]) -> list[Picture]:
        """See `Painter.paint`."""
        pictures = [_empty(camera, len(worlds)) for camera in self.cameras]
        for row, world in enumerate(worlds):
            self.stage.put(world)
            for camera, view, (colour, depth) in zip(
                self.cameras, self._views, pictures, strict=True
            ):
                self._shoot(
                    camera,
                    view,
                    None if colour is None else colour[row],
                    None if depth is None else depth[row],
                )
        return pictures

    def _shoot(
        self,
        camera: Camera,
        view: mujoco.MjvCamera,
        colour: NDArray | None,
        depth: NDArray | None,
    ) -> None:
        """One picture of what is on the stage, into arrays of the camera's size."""
        every = mujoco.mjtCatBit.mjCAT_ALL.value
        model, data = self.stage.model, self.stage.data
        mujoco.mjv_updateScene(model, data, self._option, None, view, every, self._scene)
        rect = mujoco.MjrRect(0, 0, camera.width, camera.height)
        # A sky has a depth of its own: it is left out where distances are measured.
        apart = self._has_sky and depth is not None
        if colour is not None:
            mujoco.mjr_render(rect, self._scene, self._mjr)
            mujoco.mjr_readPixels(colour, None if apart else depth, rect, self._mjr)
        if depth is not None and (apart or colour is None):
            self._scene.flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = False
            mujoco.mjr_render(rect, self._scene, self._mjr)
            mujoco.mjr_readPixels(None, depth, rect, self._mjr)
            self._scene.flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = True
        # OpenGL counts rows from below.
        if colour is not None:
            colour[:] = colour[::-1].copy()
        if depth is not None:
            depth[:] = self._metres(depth[::-1])

    def _metres(self, depth: NDArray) -> NDArray:
        """Distances from what OpenGL's reversed depth buffer holds: 0 far, 1 near."""
        model = self.stage.model
        near = model.vis.map.znear * model.stat.extent
        far = model.vis.map.zfar * model.stat.extent
        if self._scene.camera[0].orthographic:
            metres = far - depth * (far - near)
        else:
            metres = near * far / (near + depth.astype(np.float64) * (far - near))
        return np.where(depth > 0, metres, 0.0).astype(np.float32)

    def close(self) -> None:
        """See `Painter.close`."""
        self._mjr.free()
        self._gl.free()


def _quick(model: mujoco.MjModel, cameras: Sequence[Camera]) -> mujoco.MjModel:
    """The model with the settings for small pictures."""
    model = copy.copy(model)
    model.vis.global_.offheight, model.vis.global_.offwidth = _largest(cameras)
    model.vis.quality.offsamples = 0
    model.vis.quality.shadowsize = 0
    return model


def _largest(cameras: Sequence[Camera]) -> tuple[int, int]:
    """The height and width that hold the picture of every camera."""
    return max(camera.height for camera in cameras), max(camera.width for camera in cameras)


def _fixed(model: mujoco.MjModel, camera: Camera) -> mujoco.MjvCamera:
    """A camera of the model as MuJoCo's visualiser takes it."""
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FIXED
    view.fixedcamid = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, camera.name)
    return view


def _empty(camera: Camera, rows: int) -> Picture:
    """Arrays for a camera's pictures of some worlds."""
    shape = (rows, camera.height, camera.width)
    return (
        np.empty((*shape, 3), np.uint8) if camera.rgb else None,
        np.empty(shape, np.float32) if camera.depth else None,
    )
