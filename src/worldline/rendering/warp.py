"""MuJoCo Warp's ray tracer: by pip alone, on a CPU or an NVIDIA card.

It needs no graphics library. Its kernels are compiled when a model with new kinds of geoms is first
drawn on a machine, which takes half a minute, and kept in Warp's own cache.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import mujoco
import numpy as np

from worldline.errors import ModelError
from worldline.rendering.base import Picture, Renderer, View
from worldline.rendering.scene import World
from worldline.warp_library import mujoco_warp, warp

#: MjData fields that decide what a ray hits.
_POSES = ("geom_xpos", "geom_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")

#: Constants that Warp reads from its model for each world; the poses depend on the others.
_OWN = frozenset((
    "geom_size", "geom_rgba", "cam_fovy", "cam_intrinsic",
    "light_ambient", "light_diffuse", "light_specular", "light_attenuation", "light_cutoff",
    "light_exponent", "mat_rgba", "mat_emission", "mat_specular", "mat_shininess", "mat_texrepeat",
))  # fmt: skip
_LENSES = frozenset(("cam_fovy", "cam_intrinsic"))


class WarpRenderer(Renderer):
    """Draws a batch of worlds at a time; on a CPU it uses the calling thread alone."""

    most: ClassVar[int] = 32
    shared: ClassVar[frozenset[str]] = frozenset(("cam_sensorsize", "flex_rgba"))

    def __init__(self, model: mujoco.MjModel, views: Sequence[View]) -> None:
        super().__init__(model, views)
        self._wp, self._mjw = warp(), mujoco_warp()
        try:
            self._stored = self._mjw.put_model(model)
        except NotImplementedError as error:
            raise ModelError(
                f"MuJoCo Warp cannot draw the model ({error}); use renderer='opengl'"
            ) from error
        self._data = self._mjw.make_data(model, nworld=self.most)
        self._poses = {
            name: np.zeros((self.most, *getattr(self.scene.data, name).shape), np.float32)
            for name in _POSES
        }
        self._contexts: dict[bool, Any] = {}
        self.draw([{"qpos": model.qpos0}])  # compiles the kernels, on one thread at a time

    def draw(self, worlds: Sequence[World]) -> list[Picture]:
        """Draws 1 to `most` worlds at once."""
        for row, world in enumerate(worlds):
            self.scene.put(world)
            for name, values in self._poses.items():
                values[row] = getattr(self.scene.data, name)
        self._place(len(worlds))
        own = _OWN.intersection(worlds[0])
        model = self._varied(worlds, sorted(own))
        context = self._context(bool(own & _LENSES))
        self._mjw.refit_bvh(model, self._data, context)
        self._mjw.render(model, self._data, context)
        return self._read(context, len(worlds))

    def _place(self, rows: int) -> None:
        """Gives Warp the poses of the first worlds, so that it draws those alone."""
        self._data.nworld = rows
        for name, values in self._poses.items():
            target = getattr(self._data, name)
            target.assign(self._wp.array(values, dtype=target.dtype, device="cpu"))

    def _varied(self, worlds: Sequence[World], names: Sequence[str]) -> Any:
        """Warp's model with each world's own constants in it."""
        if not names:
            return self._stored
        model = copy.copy(self._stored)
        for name in names:
            dtype, shape = getattr(self._stored, name).dtype, getattr(self.scene.model, name).shape
            values = [np.reshape(world[name], shape).astype(np.float32) for world in worlds]
            setattr(model, name, self._wp.array(np.stack(values), dtype=dtype))
        return model

    def _context(self, lenses_vary: bool) -> Any:
        """The buffers of the pictures; rays are laid out anew where a world has its own lens."""
        if lenses_vary not in self._contexts:
            model = self.scene.model
            self._contexts[lenses_vary] = self._mjw.create_render_context(
                model,
                nworld=self.most,
                cam_active=[view.camera for view in self.views],
                cam_res=[(view.width, view.height) for view in self.views],
                render_rgb=[view.rgb for view in self.views],
                render_depth=[view.depth for view in self.views],
                render_seg=[False] * len(self.views),
                render_skybox=True,
                use_precomputed_rays=not lenses_vary,
            )
        return self._contexts[lenses_vary]

    def _read(self, context: Any, rows: int) -> list[Picture]:
        """The pictures of all cameras, which lie one after the other in Warp's buffers."""
        words = context.rgb_data.numpy()[:rows]
        colours = words.view(np.uint8).reshape(rows, -1, 4)[..., 2::-1]  # stored as BGRA
        depths = context.depth_data.numpy()[:rows]
        pictures: list[Picture] = []
        for view in self.views:
            shape, pixels = (rows, view.height, view.width), view.height * view.width
            colour, depth = None, None
            if view.rgb:
                colour, colours = colours[:, :pixels].reshape(*shape, 3), colours[:, pixels:]
            if view.depth:
                depth, depths = depths[:, :pixels].reshape(shape), depths[:, pixels:]
            pictures.append((colour, depth))
        return pictures
