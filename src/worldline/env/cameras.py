"""Cameras: what worlds look like, as one JAX primitive from states to images."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from worldline.errors import ConfigError, VariationError, did_you_mean
from worldline.host.calls import Named, call_host
from worldline.model import Model
from worldline.physics.autodiff import stack
from worldline.physics.base import PhysicsState
from worldline.rendering.camera import Camera
from worldline.rendering.painter import NDArray, Picture
from worldline.rendering.renderer import Renderer, open_renderer
from worldline.rendering.scene import MOVED, SEEN
from worldline.types import Array, ArrayLike


class Cameras:
    """Named cameras on one model; `first` and `following` are pure functions of a state.

    An image depends on the world's configuration, mocap bodies and constants alone, not on the
    other worlds of the batch.

    Args:
        model: the model of all worlds.
        views: a camera by its name in the observation.
        renderer: `"opengl"`, `"warp"`; or `"auto"`: Warp on an NVIDIA card, else OpenGL, else Warp.

    Raises:
        ConfigError: no views, a camera that the model lacks, or no such renderer.
        RendererUnavailableError: the renderer does not run here, or none does.
    """

    def __init__(
        self, model: Model, views: Mapping[str, Camera], renderer: Renderer = "auto"
    ) -> None:
        if not views:
            raise ConfigError(
                'there are no cameras; give some, as {"front": Camera("fixed")}, or leave them out'
            )
        names = [name for name in model.names("camera") if name]
        for view, camera in views.items():
            if camera.name not in names:
                hint = did_you_mean(camera.name, names) or "; it has none with a name"
                raise ConfigError(f"view {view!r}: the model has no camera {camera.name!r}{hint}")
        self.views = dict(sorted(views.items()))
        self._made_of = model, self.views, renderer
        self._painters, self.note = open_renderer(model, tuple(self.views.values()), renderer)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made of: threads and contexts are opened again."""
        return type(self), self._made_of

    def specs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and type of each image in an observation."""
        return {
            name: jax.ShapeDtypeStruct(
                (camera.height, camera.width, channels * camera.stack), np.dtype(dtype)
            )
            for view, camera in self.views.items()
            for name, (channels, dtype) in camera.images(view).items()
        }

    def first(self, physics: PhysicsState, mask: ArrayLike = True) -> dict[str, Array]:
        """The images at the start of an episode, `(height, width, channels)` each.

        Args:
            physics: the world.
            mask: `()` bool; where False nothing is drawn, and the images are unspecified.
        """
        frames = self._frames(physics, mask)
        return {name: jnp.tile(frames[name], (1, 1, self._stacks[name])) for name in frames}

    def following(
        self, physics: PhysicsState, before: Mapping[str, Array], mask: ArrayLike = True
    ) -> dict[str, Array]:
        """The images a control step later: the oldest frame gives way to the newest.

        Args:
            physics: the world.
            before: the observation a step ago.
            mask: as in `first`.
        """
        frames = self._frames(physics, mask)
        return {
            name: jnp.concatenate([before[name][..., frame.shape[-1] :], frame], axis=-1)
            for name, frame in frames.items()
        }

    @functools.cached_property
    def _stacks(self) -> dict[str, int]:
        return {
            name: camera.stack
            for view, camera in self.views.items()
            for name in camera.images(view)
        }

    def _frames(self, physics: PhysicsState, mask: ArrayLike) -> dict[str, Array]:
        """One frame of every image."""
        world = {"qpos": physics.qpos}
        world |= {name: physics.fields[name] for name in MOVED if name in physics.fields}
        world |= {name: x for name, x in physics.variation.items() if name in SEEN}
        if shared := sorted(self._painters.shared.intersection(world)):
            raise VariationError(
                f"this renderer draws all worlds with one {shared[0]}; use renderer='opengl'"
            )
        look = _Look(self, tuple(world))
        operands = [jnp.asarray(mask, bool), *map(jax.lax.stop_gradient, world.values())]
        return dict(zip(look.layout, _images.bind(*operands, look=look), strict=True))


@dataclasses.dataclass(frozen=True)
class _Look:
    """The static part of a call: who looks, and what the operands are."""

    cameras: Cameras
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """Tells calls apart; the same in every process."""
        model, views, renderer = self.cameras._made_of
        return f"look {model.digest} {views} {renderer} {self.names}"

    @property
    def layout(self) -> dict[str, tuple[tuple[int, int, int], type[np.generic]]]:
        """Shape and type of a frame of each image."""
        return {
            name: ((camera.height, camera.width, channels), dtype)
            for view, camera in self.cameras.views.items()
            for name, (channels, dtype) in camera.images(view).items()
        }

    def __call__(self, mask: NDArray, *operands: NDArray) -> list[NDArray]:
        """Draws on the host; calls no JAX. Operands and images have the same leading axes."""
        lead, number = mask.shape, mask.size
        rows = np.flatnonzero(mask)
        world = {
            name: np.reshape(np.asarray(x), (number, -1))
            for name, x in zip(self.names, operands, strict=True)
        }
        pictures = [_canvas(camera, number) for camera in self.cameras.views.values()]
        if len(rows):
            self.cameras._painters.draw(world, rows, pictures)
        images: list[NDArray] = []
        for colour, depth in pictures:
            if colour is not None:
                images.append(colour)
            if depth is not None:
                images.append(_millimetres(depth)[..., None])
        return [image.reshape(*lead, *image.shape[1:]) for image in images]


def _canvas(camera: Camera, rows: int) -> Picture:
    """Arrays to draw into: black, and nothing near."""
    shape = (rows, camera.height, camera.width)
    return (
        np.zeros((*shape, 3), np.uint8) if camera.rgb else None,
        np.zeros(shape, np.float32) if camera.depth else None,
    )


def _millimetres(depth: NDArray) -> NDArray:
    """Metres as the observation has them, `Camera`'s docstring."""
    rounded = np.rint(depth * 1000)
    return np.where(rounded < 65536, rounded, 0).astype(np.uint16)


_images = Primitive("worldline_images")
_images.multiple_results = True


@_images.def_impl
def _evaluate(*operands: Array, look: _Look) -> list[Array]:
    return [jnp.asarray(x) for x in look(*map(np.asarray, operands))]


@_images.def_abstract_eval
def _shapes(mask: Any, *_: Any, look: _Look) -> list[jax.core.ShapedArray]:
    return [
        jax.core.ShapedArray(mask.shape + shape, np.dtype(dtype))
        for shape, dtype in look.layout.values()
    ]


def _batch(operands: Sequence[Array], axes: Sequence[Any], *, look: _Look) -> Any:
    """Any nesting of `vmap` stacks axes in front: it reaches the host as one call."""
    results = _images.bind(*stack(operands, axes), look=look)
    return results, [0] * len(results)


def _lower(ctx: Any, *operands: Any, look: _Look) -> Any:
    return call_host(ctx, Named(look.name, look), operands)


batching.primitive_batchers[_images] = _batch
mlir.register_lowering(_images, _lower)
