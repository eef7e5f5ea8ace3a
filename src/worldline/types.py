"""Axis letters and the aliases that every signature uses.

One letter, one meaning, everywhere:

| letter | axis |
|---|---|
| `B` | worlds (the batch) |
| `T` | time, in control steps |
| `nq nv na nu nbody ngeom ...` | sizes of `mujoco.MjModel` |
| `nobs nact` | sizes of a flat observation and of an action |

Units are MuJoCo's: metres, radians, seconds, kilograms, newtons. Arrays of a world carry no batch
axis in the docstrings of `Task`, `Env` and `Physics`; `Worlds` and the learners add `B` in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = jax.Array
#: An array in the memory of this process.
NDArray: TypeAlias = np.ndarray[Any, Any]
ArrayLike: TypeAlias = jax.Array | np.ndarray[Any, Any] | float | int | bool

#: A new-style PRNG key, `jax.random.key(seed)`, or an array of them.
Key: TypeAlias = jax.Array

#: An observation of one world: an array `(nobs,)`, or a flat dict of arrays with the keys `state`,
#: `privileged_state`, `pixels/<camera>` or a task's own.
Observation: TypeAlias = Array | dict[str, Array]

#: The constants of one world that differ from the model's: MjModel field name (`opt.<name>` for
#: an option) to an array of that field's own shape. Holds only the fields that vary.
Variation: TypeAlias = Mapping[str, Array]

#: Any pytree.
PyTree: TypeAlias = Any

Tree = TypeVar("Tree")

#: Named scalars or arrays for a report.
Metrics: TypeAlias = dict[str, Array]


def in_32_bits(tree: Tree) -> Tree:
    """A pytree whose numbers of 64 bits have 32: what worlds and learners compute with.

    There are none without JAX's option `jax_enable_x64`; with it, the draws of a task have 64.
    """
    if not jax.config.read("jax_enable_x64"):
        return tree
    narrow = {jnp.float64: jnp.float32, jnp.int64: jnp.int32, jnp.uint64: jnp.uint32}

    def narrowed(leaf: Any) -> Any:
        for wide, dtype in narrow.items():
            if jnp.result_type(leaf) == wide:
                return jnp.asarray(leaf, dtype)
        return leaf

    return jax.tree.map(narrowed, tree)
