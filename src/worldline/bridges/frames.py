"""Single pictures of worlds, in this process: what `render()` of a bridge shows."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.worlds import Worlds, WorldsState
from worldline.rendering.frames import FrameRenderer

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
    """Draws worlds, each as a `FrameRenderer` would.

    Args:
        worlds: the worlds.
        size: height and width of a picture, in pixels.
    """

    def __init__(self, worlds: Worlds, size: tuple[int, int]) -> None:
        env = worlds.env
        self._frames = FrameRenderer(env.model, env.task.camera, size, worlds.num_worlds)
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
        return tuple(self._frames.draw(*shown))

    def close(self) -> None:
        """Gives the graphics context back."""
        self._frames.close()


def _as_column(rows: NDArray, array: NDArray) -> NDArray:
    """A mask `(B,)` that broadcasts over an array with `B` in front."""
    return rows.reshape(rows.shape + (1,) * (array.ndim - 1))
