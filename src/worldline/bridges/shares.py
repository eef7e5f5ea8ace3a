"""Steps of worlds that several cores compute at the same time, each for its share of the rows.

XLA keeps little more than one core of a CPU busy with the small arrays of worlds. So where the
steps of an engine are programs of XLA's (MJX, Brax), a bridge cuts the rows into shares, and runs
one program for several shares at the same time. Without this module, the worlds would be one share.

The number of shares depends on that of the worlds alone, so that every machine computes the same
numbers. With another number of rows, XLA may round differently.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from worldline.bridges.caller_thread import device_for_caller, jit_on_caller_thread
from worldline.env.worlds import Worlds
from worldline.parallel.cores import usable_cores
from worldline.types import PyTree

#: A share has so many worlds at least, since each program takes some 0.1 ms to begin; and there are
#: so many shares at most.
_FEWEST, _MOST = 32, 16


class Shares:
    """Equal shares of the rows of worlds.

    Args:
        worlds: the worlds.
    """

    def __init__(self, worlds: Worlds) -> None:
        #: How many shares there are.
        self.number = _number(worlds)
        #: The worlds of one share.
        self.worlds = worlds if self.number == 1 else worlds.share(self.number)

    def jit(self, function: Callable[..., PyTree]) -> Callable[..., Any]:
        """Compiles a function of the rows of one share, for a caller that gives those of all.

        Args:
            function: of arrays with rows of worlds in front, which returns such arrays. No row
                depends on another.

        Returns:
            The function of all rows. With several shares, its results are NumPy arrays.
        """
        if self.number == 1:
            return jit_on_caller_thread(self.worlds, function)
        here = device_for_caller(self.worlds)
        program = jax.jit(function, in_shardings=here, out_shardings=here)
        compiled: dict[Any, Callable[..., Any]] = {}
        size = self.worlds.num_worlds
        shares = [slice(i * size, (i + 1) * size) for i in range(self.number)]

        def run(*arguments: PyTree) -> PyTree:
            parts = [
                jax.tree.map(lambda x, own=own: np.asarray(x)[own], arguments) for own in shares
            ]
            kind = jax.tree.structure(arguments)
            # Compiled here, because a thread does not have its caller's settings of JAX.
            if kind not in compiled:
                compiled[kind] = program.lower(*parts[0]).compile()
            results = list(_threads().map(lambda part: compiled[kind](*part), parts))
            return jax.tree.map(lambda *rows: np.concatenate(rows), *results)

        return run


def _number(worlds: Worlds) -> int:
    """How many shares the worlds have; one where that would gain nothing."""
    env, every = worlds.env, worlds.num_worlds
    # The pictures of all worlds are drawn together.
    if not env.physics.by_xla or env.cameras is not None or device_for_caller(worlds) is None:
        return 1
    fitting = (n for n in range(_MOST, 1, -1) if every % n == 0 and every // n >= _FEWEST)
    return next(fitting, 1)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(usable_cores()), "worldline share")
