"""Checks the actions that a user gives to an environment or to worlds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import ActionError
from worldline.types import Array, ArrayLike


def checked_action(action: ArrayLike, wanted: tuple[int, ...]) -> Array | np.ndarray[Any, Any]:
    """An action as float32, after a check of its shape, dtype and values: `Env.check_action`.

    Raises:
        ActionError: a wrong shape or dtype; or outside of `jit`, a value that is not finite.
    """
    array = action if isinstance(action, jax.Array) else np.asarray(action)
    shape = array.shape
    if shape != wanted:
        raise ActionError(f"the action has shape {shape}; this environment takes {wanted}")
    if array.dtype.kind != "f" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise ActionError(f"the action has dtype {array.dtype}; give floating point numbers")
    if not isinstance(array, jax.core.Tracer):
        finite = np.isfinite(np.asarray(array))
        if not finite.all():
            where = tuple(int(i) for i in np.argwhere(~finite)[0])
            value = np.asarray(array)[where]
            raise ActionError(f"the action at index {where} is {value}; it must be finite")
    if isinstance(array, jax.Array):
        return jnp.asarray(array, jnp.float32)
    return np.array(array, np.float32)
