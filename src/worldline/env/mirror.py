"""Mirror images: what becomes of the numbers of a vector when left and right are exchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from worldline.types import Array


@dataclasses.dataclass(frozen=True)
class Mirror:
    """A signed permutation of the numbers of a vector that is its own inverse."""

    index: tuple[int, ...]
    """The place from which each number of the mirror image comes."""
    sign: tuple[float, ...]
    """1 or -1: the factor of each number that comes."""

    def __call__(self, values: Array) -> Array:
        """The mirror image of vectors, `(..., n)`."""
        return values[..., np.array(self.index)] * np.array(self.sign, np.float32)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def is_involution(self) -> bool:
        """Whether the mirror image of a mirror image is the vector itself."""
        index, sign = np.array(self.index, int), np.array(self.sign)
        return bool((index[index] == np.arange(len(index))).all() and (sign[index] == sign).all())

    @classmethod
    def of_signs(cls, *sign: float) -> Mirror:
        """Each number in its own place, times its sign."""
        return cls(tuple(range(len(sign))), sign)

    @classmethod
    def joined(cls, mirrors: Sequence[Mirror]) -> Mirror:
        """The mirror of vectors one behind the other."""
        starts = np.cumsum([0, *(len(mirror) for mirror in mirrors)]).tolist()
        moved = zip(mirrors, starts[:-1], strict=True)
        index = tuple(start + place for mirror, start in moved for place in mirror.index)
        return cls(index, tuple(sign for mirror in mirrors for sign in mirror.sign))

    def of_rows(self, size: int) -> Mirror:
        """The mirror of rows of so many numbers, where this one is that of a number a row."""
        index = tuple(row * size + n for row in self.index for n in range(size))
        return Mirror(index, tuple(sign for sign in self.sign for _ in range(size)))

    def times(self, sign: Sequence[float]) -> Mirror:
        """This one, with further signs of the numbers of each row of `len(sign)` numbers."""
        rows = len(self) // len(sign)
        return Mirror(self.index, tuple(np.multiply(self.sign, tuple(sign) * rows).tolist()))


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """A task that is its own mirror image: what it observes and does in the mirror."""

    observation: Mapping[str, Mirror]
    """For each key of the observation; an array's key is `state`."""
    action: Mirror
    """Of an action."""
