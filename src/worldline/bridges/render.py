"""Pictures of worlds, drawn in this process, for `render()` of a bridge."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from worldline.env.episodes import WorldsState
from worldline.env.resets import where_rows
from worldline.env.worlds import Worlds
from worldline.physics.base import PhysicsState
from worldline.rendering.frames import FrameRenderer
from worldline.types import NDArray

#: The default height and width of a picture, in pixels.
RENDER_SIZE = (320, 480)


class LastStep(NamedTuple):
    """A step that ended episodes, for drawing their ends."""

    before: WorldsState
    """The worlds before the step."""
    action: Any
    """`(B, nact)`"""
    ended: Any
    """Whether the step ended a world's episode, `(B,)` bool."""


class WorldsRenderer:
    """Draws several worlds with a `FrameRenderer`.

    Args:
        worlds: the worlds.
        size: height and width of a picture, in pixels.
    """

    def __init__(self, worlds: Worlds, size: tuple[int, int]) -> None:
        env = worlds.env
        self._frames = FrameRenderer(env.model, env.task.camera, size, worlds.num_worlds)
        self._worlds, self._size = worlds, size
        self._physics_at_ends = jax.jit(self._after)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it is made of: a graphics context is opened again."""
        return type(self), (self._worlds, self._size)

    def render(self, state: WorldsState, last: LastStep | None = None) -> tuple[NDArray, ...]:
        """A picture of each world, `(height, width, 3)` uint8.

        Args:
            state: the worlds.
            last: the step before. If it ended an episode, the picture shows this end: `state` is
                already in the new episode, so the step is computed again.
        """
        physics = state.env.physics
        if last is not None and last.ended.any():
            physics = self._physics_at_ends(state, last)
        fields = {n: v for n, v in physics.fields.items() if n.startswith("mocap")}
        shown = jax.device_get((physics.qpos, dict(physics.variation), fields))
        return tuple(self._frames.draw(*shown))

    def _after(self, state: WorldsState, last: LastStep) -> PhysicsState:
        """The physics after the last step where it ended an episode, and of `state` elsewhere."""
        action = jnp.asarray(last.action, jnp.float32)
        after = self._worlds.after(last.before, action, last.ended)
        choose = functools.partial(where_rows, last.ended)
        return jax.tree.map(choose, after.physics, state.env.physics)

    def close(self) -> None:
        """Frees the graphics context."""
        self._frames.close()
