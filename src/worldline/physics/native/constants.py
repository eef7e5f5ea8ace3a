"""The constants of a batch's rows: those that vary, and what MuJoCo derives from them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from worldline.errors import VariationError
from worldline.mujoco_c import Batch
from worldline.types import NDArray


class LastDerived:
    """The rows in which `mj_setConst` ran last, among the batches that share this object.

    At the start of an episode a world gets its constants in one batch, and at its first step in
    another. What MuJoCo derived from them in the first is copied to the second.
    """

    def __init__(self) -> None:
        self.where: RowConstants | None = None
        self.rows: dict[bytes, int] = {}
        """The row of `where` in which MuJoCo derived from these constants (their bytes)."""


class RowConstants:
    """The constants of each row of a batch, which are written only where they change.

    Args:
        batch: the batch.
        model: what it simulates.
        fields: the dtype in MuJoCo of each field that varies, by name.
        last: shared by the batches of one model in which the same fields vary.
    """

    def __init__(
        self,
        batch: Batch,
        model: mujoco.MjModel,
        fields: Mapping[str, np.dtype[Any]],
        last: LastDerived,
    ) -> None:
        self._batch, self._model, self._last = batch, model, last
        self._names = order = sorted(fields, key=lambda name: not _derives(name))
        self._order = [list(fields).index(name) for name in order]
        expanded = [batch.expand(name, fields[name]) for name in order]
        ends = np.cumsum([0, *(values.shape[1] for values in expanded)]).tolist()
        columns = [slice(*pair) for pair in itertools.pairwise(ends)]
        self._fields = list(zip(expanded, columns, strict=True))
        """The batch's array of each field, and the columns of `_held` with the same values."""
        self._deriving = ends[sum(map(_derives, order))]
        """How many of the first columns of `_held` hold fields that `mj_setConst` reads."""
        outputs = set(mujoco.MjModel._setconst_outputs)
        stands = [name in outputs and not _derives(name) for name in order]
        self._standing = list(itertools.compress(self._fields, stands))
        """The fields that `mj_setConst` writes but that are given: the given values stand."""
        self._held = np.zeros((batch.rows, ends[-1]))
        self._unknown = np.ones(batch.rows, bool)
        """The rows that were not written yet, or whose constants MuJoCo refuses."""
        self._derived: dict[str, NDArray] = {}
        """The fields that `mj_setConst` writes, if each row has its own: live bytes `(rows, n)`."""

    def write(self, values: Sequence[NDArray], ids: NDArray | None) -> None:
        """Writes constants into rows, and lets MuJoCo derive what follows from them.

        Args:
            values: for each field `(rows, n)`, or `(1, n)` where all rows have the same.
            ids: which rows, int32; None for all.

        Raises:
            VariationError: MuJoCo refuses the constants of a row.
        """
        given = np.empty_like(self._held)
        for place, (_, columns) in zip(self._order, self._fields, strict=True):
            given[:, columns] = values[place]
        differs = self._held != given
        differs[self._unknown] = True
        if ids is not None:
            others = np.ones(self._batch.rows, bool)
            others[ids] = False
            differs[others] = False
        rows = np.flatnonzero(differs.any(axis=1))
        fresh = self._held[rows] = given[rows]
        for expanded, columns in self._fields:
            expanded[rows] = fresh[:, columns]
        derived = rows[differs[rows, : self._deriving].any(axis=1)].astype(np.int32)
        self._unknown[rows] = True  # until all went well
        self._derive(derived)
        self._unknown[rows] = False
        for expanded, columns in self._standing:
            expanded[derived] = self._held[derived, columns]

    def _derive(self, rows: NDArray) -> None:
        """Derives what follows in rows whose constants changed."""
        left = self._copied(rows)
        if not len(left):
            return
        if self._batch.set_const(left):
            self._refuse(left[self._batch.status[left] != 0][0])
        self._derived = self._batch.derived()
        self._last.where = self
        self._last.rows = dict(zip(self._read(left), left.tolist(), strict=True))

    def _refuse(self, row: int) -> None:
        """Raises what MuJoCo says of the constants of a row."""
        model = copy.copy(self._model)
        for name, (expanded, _) in zip(self._names, self._fields, strict=True):
            if not name.startswith("opt."):
                value = getattr(model, name)
                value[...] = expanded[row].reshape(value.shape)
        try:
            mujoco.mj_setConst(model, mujoco.MjData(model))
            line = "it does not say why"
        except mujoco.FatalError as error:
            line = str(error)
        varied = ", ".join(sorted(self._names))
        raise VariationError(f"MuJoCo does not accept the values of {varied} in a world: {line}")

    def _copied(self, rows: NDArray) -> NDArray:
        """Copies what follows into rows from where it was derived last; returns the other rows."""
        where = self._last.where
        # In a batch of its own, rows that it was derived in may hold other constants by now.
        if where is None or where is self or where._derived.keys() != self._derived.keys():
            return rows
        there = np.array([self._last.rows.get(x, -1) for x in self._read(rows)], np.int32)
        found = there >= 0
        here, there = rows[found], there[found]
        for name, values in self._derived.items():
            values[here] = where._derived[name][there]
        return rows[~found]

    def _read(self, rows: NDArray) -> list[bytes]:
        """The bytes of the constants in rows that `mj_setConst` reads."""
        return [row.tobytes() for row in self._held[rows, : self._deriving]]


def _derives(field: str) -> bool:
    """Whether `mj_setConst` reads a field."""
    return field.startswith("opt.") or field in mujoco.MjModel._setconst_inputs
