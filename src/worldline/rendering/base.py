"""What a renderer is."""

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
        """Pictures of so many worlds to draw into: black, and nothing near."""
        shape = (worlds, self.height, self.width)
        return (
            np.zeros((*shape, 3), np.uint8) if self.rgb else None,
            np.zeros(shape, np.float32) if self.depth else None,
        )


#: What a view shows of n worlds: the colours, `(n, height, width, 3)` uint8, and the distances
#: along the camera's axis, `(n, height, width)` float32 in m, 0 where there is nothing; None for
#: what the view does not ask for.
Picture: TypeAlias = tuple[NDArray | None, NDArray | None]


class Renderer(abc.ABC):
    """Draws worlds of one model through some views, on the thread that makes it.

    Args:
        model: the model that all worlds share.
        views: what to draw of each world.

    Raises:
        Exception: it cannot run on this machine, or not with this model; of any kind.
    """

    most: ClassVar[int]
    """The most worlds that it draws at a time."""
    shared: ClassVar[frozenset[str]] = frozenset()
    """Those of `scene.CONSTANTS` that it takes from the model for all worlds."""

    def __init__(self, model: mujoco.MjModel, views: Sequence[View]) -> None:
        self.scene = Scene(model)
        self.views = tuple(views)

    @abc.abstractmethod
    def draw(self, worlds: Sequence[World]) -> list[Picture]:
        """Draws 1 to `most` worlds, all of which have arrays of the same names.

        Returns:
            What each view shows of them; the arrays hold until the next call.
        """

    def close(self) -> None:
        """Gives back what the renderer holds, on its own thread."""
        return
