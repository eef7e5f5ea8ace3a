"""JAX's random numbers on a CPU: the same bits, several times as fast.

Unless told otherwise, JAX draws from Threefry-2x32 (Salmon et al. 2011, "Parallel random numbers:
as easy as 1, 2, 3"). For CPUs it compiles the twenty rounds as a loop, whose passes cost more than
the arithmetic in them; here they are written out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.random
import numpy as np
from jax.interpreters import mlir

from worldline.types import Array

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = np.uint32(0x1BD11BDA)
_ROUNDS = 20


def write_out() -> None:
    """Makes programs that are compiled in this process from now on draw without a loop."""
    primitive = getattr(jax.extend.random, "threefry2x32_p", None)
    if primitive is not None:
        lowering: Any = mlir.lower_fun(threefry2x32, multiple_results=True)
        mlir.register_lowering(primitive, lowering, platform="cpu")


def threefry2x32(key1: Array, key2: Array, x1: Array, x2: Array) -> tuple[Array, Array]:
    """The block cipher, of 20 rounds; all are uint32, and of one shape."""
    keys = (key1, key2, key1 ^ key2 ^ _PARITY)
    x1, x2 = x1 + keys[0], x2 + keys[1]
    for number in range(1, _ROUNDS + 1):
        left = np.uint32(_ROTATIONS[(number - 1) % len(_ROTATIONS)])
        x1 = x1 + x2
        x2 = ((x2 << left) | (x2 >> np.uint32(32 - left))) ^ x1
        injections, rest = divmod(number, 4)
        if not rest:
            x1 = x1 + keys[injections % 3]
            x2 = x2 + keys[(injections + 1) % 3] + np.uint32(injections)
            # XLA would compile twenty rounds in one expression for minutes, in some programs.
            x1, x2 = jax.lax.optimization_barrier((x1, x2))
    return x1, x2
