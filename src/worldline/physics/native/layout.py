"""What a call of native physics gives of a world, and how that follows from what the host gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from worldline.model import Model
from worldline.physics.base import Reads

#: The parts of a state that are real numbers and travel on their own, beside the words.
MOVING = ("qpos", "qvel", "act")

#: Shape and dtype.
Spec: TypeAlias = tuple[tuple[int, ...], Any]


class Layout:
    """The results of a call, of one world.

    The host gives few arrays, since each costs time of its own there: the words, whether the
    world diverged, the fields of `Reads`, and all other real numbers side by side. These are
    float64; to make of them what the results are is left to the compiled program. Fields are not
    among them, since they may be large: then it costs less to copy each once, as what it is to be.

    Args:
        model: what is simulated.
        reads: what is read of it.
        words: the length of a state.
    """

    def __init__(self, model: Model, reads: Reads, words: int) -> None:
        fields = {name: model.data_field(name) for name in (*reads.fields, *reads.changes)}
        #: Each result by its name, in order.
        self.results: dict[str | tuple[str, str], Spec] = {
            "words": ((words,), np.uint32),
            "diverged": ((), np.bool_),
            "time": ((), np.float32),
            "qpos": ((model.nq,), np.float32),
            "qvel": ((model.nv,), np.float32),
            "act": ((model.na,), np.float32),
        }
        for name in reads.fields:
            shape, dtype = fields[name]
            self.results["field", name] = (shape, np.float32 if dtype.kind == "f" else dtype)
        for name in reads.changes:
            self.results["change", name] = (fields[name][0], np.float32)
        side_by_side = {name: shape for name, (shape, _) in self.results.items() if _joins(name)}
        size = sum(map(math.prod, side_by_side.values()))
        self._size_of_changes = sum(math.prod(fields[name][0]) for name in reads.changes)
        #: What the host gives. The numbers side by side are those of the results in their order, of
        #: a change what the field is now; and after them what each of the changes began with.
        self.host: list[Spec] = [it for name, it in self.results.items() if not _joins(name)]
        self.host.append(((size + self._size_of_changes,), np.float64))

    @property
    def differentiable(self) -> tuple[int, ...]:
        """Which results have a derivative of their own: real numbers, but for the time, which moves
        with nothing, and for changes of what the results have too.
        """
        none = {"time", *(("change", name) for name in MOVING)}
        kinds = enumerate(self.results.items())
        return tuple(i for i, (name, (_, kind)) in kinds if kind == np.float32 and name not in none)

    def of_host(self, *given: Any) -> list[Any]:
        """The results in what the host gave, with any axes in front: arrays of JAX, where it has
        float64, or of NumPy.
        """
        return list(self._results(*given))

    def _results(self, *given: Any) -> Iterator[Any]:
        *others, numbers = given
        rest, start = iter(others), 0
        for name, (shape, dtype) in self.results.items():
            if not _joins(name):
                yield next(rest)
                continue
            end = start + math.prod(shape)
            values = numbers[..., start:end]
            if name[0] == "change":
                shift = self._size_of_changes
                values = values - numbers[..., start + shift : end + shift]
            yield values.astype(dtype).reshape(numbers.shape[:-1] + shape)
            start = end


def _joins(name: str | tuple[str, str]) -> bool:
    """Whether a result is among the numbers side by side."""
    return name not in ("words", "diverged") and name[0] != "field"
