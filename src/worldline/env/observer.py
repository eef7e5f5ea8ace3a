"""Observer: makes the observation of a world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.cameras import Cameras
from worldline.env.history import History
from worldline.env.parts import STATE
from worldline.env.task import Task, specs_of
from worldline.errors import TaskError
from worldline.physics.base import PhysicsState
from worldline.types import Array, ArrayLike, Observation, PyTree, in_32_bits
from worldline.variation.context import Context, Values

if TYPE_CHECKING:
    from gymnasium import spaces


class Observer:
    """Makes the observation of one world: the task's own, and what the environment adds to it.

    With an addition (`context`, `last_action` or an image) the observation is a dict, and the
    task's own array has the key `state`. Without an addition, it is the task's observation.

    Args:
        task: makes its own observation.
        context: its visible features are added as `context`, `(nvisible,)`.
        cameras: their images are added as `pixels/<name>` and `depth/<name>`; None: no images.
        last_action: whether the action of the last step is added, `(nact,)`; zeros at a start.
        frames: the number of latest measurements of parts of `state`, by the parts' names.
    """

    def __init__(
        self,
        task: Task,
        context: Context,
        cameras: Cameras | None,
        last_action: bool,
        frames: Mapping[str, int] = {},
    ) -> None:
        self._task, self._context = task, context
        self._history = History(task, frames) if frames else None
        self._cameras, self._last_action = cameras, last_action
        self._action_shape = np.shape(task.action_bounds[0])

    def specs(self, task_obs: PyTree) -> Any:
        """The shape and dtype of each array of an observation, from those of the task's own."""
        if self._history:
            task_obs = _with_state(
                task_obs, jax.ShapeDtypeStruct((self._history.size,), jnp.float32)
            )
        added = dict[str, Any](self._cameras.specs() if self._cameras else {})
        if self._context.visible:
            shape = (len(self._context.visible),)
            added["context"] = jax.ShapeDtypeStruct(shape, jnp.float32)
        if self._last_action:
            added["last_action"] = jax.ShapeDtypeStruct(self._action_shape, jnp.float32)
        return _add(task_obs, added)

    def space(self, task_obs: PyTree) -> spaces.Space[Any]:
        """The observations as a space: a `Box`, or a `Dict` of them.

        Raises:
            TaskError: the task observes something else, such as a dict in a dict.
        """
        from gymnasium import spaces

        obs = self.specs(task_obs)
        if isinstance(obs, dict):
            return spaces.Dict(
                {name: self._box(f"a part {name!r} of ", leaf) for name, leaf in obs.items()}
            )
        return self._box("", obs)

    def _box(self, part: str, leaf: Any) -> spaces.Box:
        """The space of an array, or of a part of a dict of arrays."""
        from gymnasium import spaces

        what = f"{type(self._task).__name__}.observe returns {part}{specs_of(leaf)}"
        if not hasattr(leaf, "dtype"):
            raise TaskError(f"{what}; give an array, or a dict of arrays without dicts in it")
        low, high = -np.inf, np.inf
        if leaf.dtype.kind == "b":
            low, high = 0, 1
        elif leaf.dtype.kind in "ui":
            low, high = np.iinfo(leaf.dtype).min, np.iinfo(leaf.dtype).max
        elif leaf.dtype not in (jnp.float32, jnp.float64):
            raise TaskError(f"{what}; give float32, integers or bool")
        return spaces.Box(low, high, leaf.shape, leaf.dtype.type)

    def first(
        self, physics: PhysicsState, memory: PyTree, context: Values, mask: ArrayLike
    ) -> Observation:
        """The observation at the start of an episode.

        Args:
            physics: the world.
            memory: the task's memory.
            context: the value of each context feature, `()`.
            mask: `()` bool; where False no image is drawn, and the images are unspecified.
        """
        images = self._cameras.first(physics, mask) if self._cameras else {}
        action = jnp.zeros(self._action_shape, jnp.float32)
        return self._observe(physics, memory, context, action, images, None)

    def next(
        self,
        physics: PhysicsState,
        memory: PyTree,
        context: Values,
        mask: ArrayLike,
        action: Array,
        previous: Observation,
    ) -> Observation:
        """The observation after a step.

        Args:
            physics: the world after the step.
            memory: the task's memory after the step.
            context: as in `first`.
            mask: as in `first`.
            action: the action of the step, `(nact,)`.
            previous: the observation before the step, which holds earlier frames of each image,
                and earlier measurements.
        """
        images = {}
        if self._cameras is not None:
            images = self._cameras.following(physics, _as_dict(previous), mask)
        return self._observe(physics, memory, context, action, images, previous)

    def with_context(self, obs: Observation, context: Values) -> Observation:
        """An observation with other values of the context features."""
        visible = self._context.visible
        return _add(obs, {"context": self._context.seen(context)} if visible else {})

    def _observe(
        self,
        physics: PhysicsState,
        memory: PyTree,
        context: Values,
        action: Array,
        images: dict[str, Array],
        previous: Observation | None,
    ) -> Observation:
        own = in_32_bits(self._task.observe(physics, memory))
        if self._history:
            state = _as_dict(own)[STATE]
            before = None if previous is None else _as_dict(previous)[STATE]
            own = _with_state(own, self._history.longer(state, before))
        obs = self.with_context(own, context)
        return _add(obs, images | ({"last_action": action} if self._last_action else {}))


def _as_dict(obs: Observation) -> dict[str, Array]:
    """An observation as a dict; an array becomes its only entry, `state`."""
    return obs if isinstance(obs, dict) else {STATE: obs}


def _with_state(obs: Any, state: Any) -> Any:
    """An observation with another `state`; one that is an array is that state."""
    return {**obs, STATE: state} if isinstance(obs, dict) else state


def _add(obs: Any, added: dict[str, Any]) -> Any:
    """An observation and what is added to it; as it is where that is nothing."""
    return {**_as_dict(obs), **added} if added else obs
