"""MuJoCo's OpenGL renderer, without a window."""

from __future__ import annotations

import ctypes.util
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import ClassVar

import mujoco
import numpy as np

from worldline.errors import ModelError
from worldline.rendering.base import Picture, Renderer, View
from worldline.rendering.scene import NDArray, World

_MOST_GEOMS = 10_000
_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}


def disabled() -> bool:
    """Whether `MUJOCO_GL` forbids OpenGL."""
    return _chosen() in ("disable", "disabled", "off", "false", "0")


def backends() -> list[str]:
    """MuJoCo's names of the OpenGL backends that this machine may have, best first.

    The environment variable `MUJOCO_GL` chooses one, or none (`disable`).
    """
    chosen = _chosen()
    if disabled():
        return []
    if chosen in ("egl", "osmesa", "glfw", "cgl"):
        return [chosen]
    if sys.platform != "linux":
        return ["cgl" if sys.platform == "darwin" else "glfw"]
    found = [name for name, library in _LIBRARIES.items() if ctypes.util.find_library(library)]
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        found.append("glfw")
    return found


def _chosen() -> str:
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    return {"glx": "glfw", "wgl": "glfw"}.get(chosen, chosen)


class OpenGLRenderer(Renderer):
    """Draws one world at a time into a buffer of its own OpenGL context.

    For policies it draws quickly: one sample a pixel, no shadows, no reflections. For people it
    draws smooth edges and shadows, which come from what the camera looks at, but no haze.

    Args:
        model: the model.
        views: what to draw of each world.
        backend: one of `backends()`. A process can use one backend only, since the OpenGL bindings
            of Python cannot change to another.
        for_people: whether the pictures are for people.
    """

    most: ClassVar[int] = 64

    def __init__(
        self,
        model: mujoco.MjModel,
        views: Sequence[View],
        backend: str,
        for_people: bool = False,
    ) -> None:
        super().__init__(model, views)
        self._for_people = for_people
        height, width = max(view.height for view in views), max(view.width for view in views)
        visual = self.scene.model.vis
        visual.global_.offheight, visual.global_.offwidth = height, width
        visual.quality.shadowsize = min(visual.quality.shadowsize, 1024 if for_people else 0)
        if not for_people:
            visual.quality.offsamples = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a library that fails, beside its exception
            context = importlib.import_module(f"mujoco.{backend}").GLContext
            self._gl = context(width, height)
        self._gl.make_current()
        self._size = height, width
        self._planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        self._open_context()
        self._mjv = mujoco.MjvScene(self.scene.model, maxgeom=_MOST_GEOMS)
        flags = mujoco.mjtRndFlag
        self._mjv.flags[flags.mjRND_REFLECTION] = False
        self._mjv.flags[flags.mjRND_HAZE if for_people else flags.mjRND_SHADOW] = False
        self._has_sky = bool((model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).any())
        self._option = mujoco.MjvOption()

    def draw(self, worlds: Sequence[World]) -> list[Picture]:
        """Draws 1 to `most` worlds."""
        pictures = [view.blank(len(worlds)) for view in self.views]
        for row, world in enumerate(worlds):
            self.scene.put(world)
            self._update_context()
            for view, whole in zip(self.views, pictures, strict=True):
                self._draw_view(view, *(None if x is None else x[row] for x in whole))
        return pictures

    def _draw_view(self, view: View, colour: NDArray | None, depth: NDArray | None) -> None:
        """Draws what is in the scene into arrays of the view's size."""
        every = mujoco.mjtCatBit.mjCAT_ALL.value
        model, data, camera = self.scene.model, self.scene.data, self.scene.camera(view.camera)
        # First the camera: MuJoCo lays endless floors around where it was at the last picture.
        mujoco.mjv_updateCamera(model, data, camera, self._mjv)
        mujoco.mjv_updateScene(model, data, self._option, None, camera, every, self._mjv)
        if self._for_people and view.camera < 0:
            self._aim_shadows(camera)
        rect = mujoco.MjrRect(0, 0, view.width, view.height)
        # A sky has a depth of its own: it is left out where distances are measured.
        apart = self._has_sky and depth is not None
        if colour is not None:
            mujoco.mjr_render(rect, self._mjv, self._mjr)
            mujoco.mjr_readPixels(colour, None if apart else depth, rect, self._mjr)
        if depth is not None and (apart or colour is None):
            self._mjv.flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = False
            mujoco.mjr_render(rect, self._mjv, self._mjr)
            mujoco.mjr_readPixels(None, depth, rect, self._mjr)
            self._mjv.flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = True
        # OpenGL counts rows from below.
        if colour is not None:
            colour[:] = colour[::-1].copy()
        if depth is not None:
            depth[:] = self._metres(depth[::-1])

    def _aim_shadows(self, camera: mujoco.MjvCamera) -> None:
        """Moves the suns to what the camera looks at: they cast shadows in a small region only."""
        self._mjr.shadowClip = camera.distance
        for light in self._mjv.lights[: self._mjv.nlight]:
            if light.type == mujoco.mjtLightType.mjLIGHT_DIRECTIONAL:
                light.pos = camera.lookat - 2 * camera.distance * light.dir

    def _open_context(self) -> None:
        """Gives OpenGL the meshes, textures and planes of the model in the scene."""
        model, (height, width) = self.scene.model, self._size
        self._mjr = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50.value)
        offscreen = mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value
        mujoco.mjr_setBuffer(offscreen, self._mjr)
        if self._mjr.currentBuffer != offscreen:
            raise ModelError("the OpenGL driver has no framebuffer")
        if self._mjr.offWidth < width or self._mjr.offHeight < height:
            raise ModelError(
                f"OpenGL has a buffer of {self._mjr.offHeight} x {self._mjr.offWidth} pixels, but "
                f"the camera needs {height} x {width}; choose smaller images"
            )
        self._mjr.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        self._plane_sizes = model.geom_size[self._planes]
        self._changes = self.scene.changes

    def _update_context(self) -> None:
        """Gives OpenGL the constants of the world in the scene that it keeps, if they have changed.

        Sizes of planes need a new context, which takes a tenth of a second.
        """
        model = self.scene.model
        if self._changes == self.scene.changes:
            return
        if (model.geom_size[self._planes] != self._plane_sizes).any():
            self._mjr.free()
            self._open_context()
        self._mjr.mat_texrepeat[: 2 * model.nmat] = model.mat_texrepeat.ravel()
        self._mjr.mat_texuniform[: model.nmat] = model.mat_texuniform
        self._changes = self.scene.changes

    def _metres(self, depth: NDArray) -> NDArray:
        """Distances in m from OpenGL's reversed depth buffer, where 0 is far and 1 is near."""
        model = self.scene.model
        near = model.vis.map.znear * model.stat.extent
        far = model.vis.map.zfar * model.stat.extent
        if self._mjv.camera[0].orthographic:
            metres = far - depth * (far - near)
        else:
            metres = near * far / (near + depth.astype(np.float64) * (far - near))
        return np.where(depth > 0, metres, 0.0).astype(np.float32)

    def close(self) -> None:
        """Frees the context."""
        self._mjr.free()
        self._gl.free()
