"""Cameras: one JAX primitive from the states of worlds to images."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import ConfigError, RendererUnavailableError, VariationError, did_you_mean
from worldline.host.calls import HostCall, Spec
from worldline.host.primitive import host_primitive
from worldline.model import Model
from worldline.physics.base import PhysicsState
from worldline.rendering.base import View
from worldline.rendering.camera import Camera
from worldline.rendering.pool import GET, CameraRenderer, camera_ways, open_pool
from worldline.rendering.scene import CONSTANTS, MOVED, NDArray
from worldline.types import Array, ArrayLike


class Cameras:
    """Named cameras on one model; `first` and `following` are pure functions of a state.

    An image depends only on the world's configuration, mocap bodies and constants, not on the other
    worlds of the batch.

    Args:
        model: the model of all worlds.
        views: a camera by its name in the observation.
        renderer: `"opengl"`, `"warp"`; or `"auto"`: Warp on an NVIDIA card, else OpenGL, else Warp.

    Raises:
        ConfigError: there are no views, the model has no such camera, or there is no such renderer.
        RendererUnavailableError: the renderer does not work on this machine, or no renderer works.
    """

    def __init__(
        self, model: Model, views: Mapping[str, Camera], renderer: CameraRenderer = "auto"
    ) -> None:
        if not views:
            raise ConfigError(
                'cameras is empty; give some, for example {"front": Camera("fixed")}, or None'
            )
        names = [name for name in model.names("camera") if name]
        for view, camera in views.items():
            if camera.name not in names:
                hint = did_you_mean(camera.name, names) or "; it has none with a name"
                raise ConfigError(f"view {view!r}: the model has no camera {camera.name!r}{hint}")
        self.views, self.renderer = dict(sorted(views.items())), renderer
        self._made_of = model, self.views, renderer
        drawn = [
            View(model.id("camera", c.name), c.height, c.width, c.rgb, c.depth)
            for c in self.views.values()
        ]
        try:
            self._renderers, self.note = open_pool(camera_ways(renderer), model.mj, drawn)
        except RendererUnavailableError as error:
            raise RendererUnavailableError(f"cameras cannot be drawn: {error}; {GET}") from error
        _say_once(f"pixels are drawn by {self.note}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made of: threads and contexts are opened again."""
        return type(self), self._made_of

    def specs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and type of each image in an observation."""
        return {
            name: jax.ShapeDtypeStruct((c.height, c.width, channels * c.stack), dtype)
            for view, c in self.views.items()
            for name, (channels, dtype) in c.images(view).items()
        }

    def frame_specs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and type of one frame of each image, in the order in which they are drawn."""
        return {
            name: jax.ShapeDtypeStruct((c.height, c.width, channels), dtype)
            for view, c in self.views.items()
            for name, (channels, dtype) in c.images(view).items()
        }

    def first(self, physics: PhysicsState, mask: ArrayLike = True) -> dict[str, Array]:
        """The images at the start of an episode, `(height, width, channels)` each.

        Args:
            physics: the world.
            mask: `()` bool; where False nothing is drawn, and the images are unspecified.
        """
        specs = self.specs()
        return {
            name: jnp.tile(frame, (1, 1, specs[name].shape[2] // frame.shape[2]))
            for name, frame in self._frames(physics, mask).items()
        }

    def following(
        self, physics: PhysicsState, before: Mapping[str, Array], mask: ArrayLike = True
    ) -> dict[str, Array]:
        """The images one control step later: the newest frame replaces the oldest.

        Args:
            physics: the world.
            before: the observation before the step.
            mask: as in `first`.
        """
        frames = self._frames(physics, mask)
        return {
            name: jnp.concatenate([before[name][..., frame.shape[-1] :], frame], axis=-1)
            for name, frame in frames.items()
        }

    def _frames(self, physics: PhysicsState, mask: ArrayLike) -> dict[str, Array]:
        """One frame of every image."""
        world = {"qpos": physics.qpos}
        world |= {name: physics.fields[name] for name in MOVED if name in physics.fields}
        world |= {name: x for name, x in physics.variation.items() if name in CONSTANTS}
        if shared := sorted(self._renderers.shared.intersection(world)):
            raise VariationError(
                f"this renderer cannot vary {shared[0]} between worlds; use renderer='opengl'"
            )
        drawing = _Drawing(self, tuple(world))
        operands = [jnp.asarray(mask, bool), *map(jax.lax.stop_gradient, world.values())]
        frames = _images.bind(*operands, call=drawing, lead=0)
        return dict(zip(self.frame_specs(), frames, strict=True))


@dataclasses.dataclass(frozen=True)
class _Drawing(HostCall):
    """Draws worlds on the host, from a mask and one array of a world for each of `operands`."""

    cameras: Cameras
    operands: tuple[str, ...]

    @property
    def name(self) -> str:
        model, views, renderer = self.cameras._made_of
        return f"draw {model.digest} {views} {renderer} {self.operands}"

    @property
    def results(self) -> list[Spec]:
        return [(frame.shape, frame.dtype) for frame in self.cameras.frame_specs().values()]

    @property
    def shareable(self) -> int:
        """All operands but the mask may be shared by all worlds."""
        return 1 + len(self.operands)

    def run(self, *operands: NDArray) -> list[NDArray]:
        """Draws a frame of every image, `(B, height, width, channels)`."""
        mask, *arrays = operands
        worlds = {
            name: np.broadcast_to(x.reshape(len(x), -1), (len(mask), math.prod(x.shape[1:])))
            for name, x in zip(self.operands, arrays, strict=True)
        }
        images: list[NDArray] = []
        for colour, depth in self.cameras._renderers.draw(worlds, np.flatnonzero(mask)):
            if colour is not None:
                images.append(colour)
            if depth is not None:
                images.append(_millimetres(depth)[..., None])
        return images


def _millimetres(depth: NDArray) -> NDArray:
    """Metres as the observation has them: `uint16`, 0 where there is nothing near enough."""
    rounded = np.rint(depth * 1000)
    return np.where(rounded < 65536, rounded, 0).astype(np.uint16)


@functools.cache
def _say_once(line: str) -> None:
    sys.stderr.write(line + "\n")


_images = host_primitive("worldline_images")
