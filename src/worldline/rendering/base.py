"""Renderer: what OpenGL, Warp and ray casting have in common."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeAlias

import mujoco
import numpy as np

from worldline.rendering.scene import NDArray, Scene, World


class View(NamedTuple):
    """One picture to draw of each world."""

    camera: int
    """The index of a camera of the model; -1: the world's own free camera, `scene.VIEW`."""
    height: int
    """Pixels."""
    width: int
    """Pixels."""
    rgb: bool = True
    """Whether to draw colours."""
    depth: bool = False
    """Whether to measure distances."""

    def blank(self, worlds: int) -> Picture:
        """Pictures of this number of worlds to draw into: black, and nothing near."""
        shape = (worlds, self.height, self.width)
        return (
            np.zeros((*shape, 3), np.uint8) if self.rgb else None,
            np.zeros(shape, np.float32) if self.depth else None,
        )


#: A view of n worlds: colours, `(n, height, width, 3)` uint8, and distances along the axis of the
#: camera, `(n, height, width)` float32 in m, 0 where there is nothing. None: the view has no such.
Picture: TypeAlias = tuple[NDArray | None, NDArray | None]


class Renderer(abc.ABC):
    """Draws worlds of one model through some views, on the thread that makes it.

    Args:
        model: the model that all worlds share.
        views: what to draw of each world.

    Raises:
        Exception: of any kind, where the renderer cannot run on this machine or with this model.
    """

    most: ClassVar[int]
    """The largest number of worlds that one call of `draw` takes."""
    shared: ClassVar[frozenset[str]] = frozenset()
    """Names from `scene.CONSTANTS` that cannot differ between worlds: the model's are drawn."""

    def __init__(self, model: mujoco.MjModel, views: Sequence[View]) -> None:
        self.scene = Scene(model)
        self.views = tuple(views)

    @abc.abstractmethod
    def draw(self, worlds: Sequence[World]) -> list[Picture]:
        """Draws 1 to `most` worlds, all of which have arrays of the same names.

        Returns:
            A picture for each view. The next call may write into the same arrays.
        """

    def close(self) -> None:
        """Gives back what the renderer holds, on its own thread."""
        return
