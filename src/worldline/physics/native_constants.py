"""The constants of a batch's rows: those that vary, and what MuJoCo derives from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import mujoco
import numpy as np

from worldline.mjlib import Batch

NDArray: TypeAlias = np.ndarray[Any, Any]


class LastDerived:
    """Where `mj_setConst` ran last, among the batches that share this.

    A world that begins an episode has its constants in one batch where it starts, and in another
    where it steps: what the first derived from them is right for the second.
    """

    def __init__(self) -> None:
        self.where: RowConstants | None = None
        self.rows: dict[bytes, int] = {}
        """The row of `where` that holds what follows from constants."""


class RowConstants:
    """Constants that are written to a row only where they are not those that it holds.

    Args:
        batch: whose rows.
        fields: name of each field that varies, and its dtype in MuJoCo.
        last: to be shared by batches of one model in which the same fields vary.
    """

    def __init__(
        self, batch: Batch, fields: Mapping[str, np.dtype[Any]], last: LastDerived
    ) -> None:
        self._batch, self._last = batch, last
        self._expanded = [batch.expand(name, dtype) for name, dtype in fields.items()]
        self._derives = [_derives(name) for name in fields]
        outputs = mujoco.MjModel._setconst_outputs
        self._stands = [name in outputs and not _derives(name) for name in fields]
        """Whether a value takes the place of what MuJoCo derives."""
        self._held = [values.copy() for values in self._expanded]
        self._unknown = np.ones(batch.rows, bool)
        """Rows that were not written yet, or that MuJoCo could not derive anything from."""
        self._derived: dict[str, NDArray] = {}
        """What follows, as far as rows have their own: the bytes of a field, live `(rows, n)`."""

    def write(self, values: Sequence[NDArray], ids: NDArray | None) -> NDArray:
        """Makes rows hold `values`, and what follows from them.

        Args:
            values: for each field `(rows, n)`.
            ids: which rows, int32; None for all.

        Returns:
            The rows that MuJoCo could not derive anything from, int32.
        """
        chosen = np.full(self._batch.rows, ids is None)
        chosen[ids if ids is not None else []] = True
        changed = np.zeros(self._batch.rows, bool)
        fields = zip(self._expanded, self._held, values, self._derives, strict=True)
        for expanded, held, value, derives in fields:
            rows = np.flatnonzero(chosen & (self._unknown | (held != value).any(axis=1)))
            expanded[rows] = held[rows] = value[rows]
            changed[rows] |= derives
        self._unknown[chosen] = False
        derived = np.flatnonzero(changed).astype(np.int32)
        failed = self._derive(derived)
        for expanded, held, stands in zip(self._expanded, self._held, self._stands, strict=True):
            if stands:
                expanded[derived] = held[derived]
        self._unknown[failed] = True  # to be tried again
        return failed

    def _derive(self, rows: NDArray) -> NDArray:
        """Lets follow what does in rows whose constants have changed; returns those that failed."""
        left = self._copied(rows)
        if not len(left):
            return left
        self._batch.set_const(left)
        self._derived = self._batch.derived()
        good = self._batch.status[left] == 0
        self._last.where = self
        self._last.rows = dict(zip(self._read(left[good]), left[good].tolist(), strict=True))
        return left[~good]

    def _copied(self, rows: NDArray) -> NDArray:
        """Copies what follows to rows from where it was derived last; returns the others."""
        where = self._last.where
        # In a batch of its own, rows that it was derived in may hold other constants by now.
        if where is None or where is self or where._derived.keys() != self._derived.keys():
            return rows
        there = np.array([self._last.rows.get(x, -1) for x in self._read(rows)], np.int32)
        found = there >= 0
        for name, values in self._derived.items():
            values[rows[found]] = where._derived[name][there[found]]
        return rows[~found]

    def _read(self, rows: NDArray) -> list[bytes]:
        """The constants in rows from which something follows."""
        pairs = zip(self._held, self._derives, strict=True)
        columns = [held[rows] for held, derives in pairs if derives]
        return [row.tobytes() for row in np.concatenate(columns, axis=1)] if len(rows) else []


def _derives(field: str) -> bool:
    """Whether `mj_setConst` reads a field."""
    return field.startswith("opt.") or field in mujoco.MjModel._setconst_inputs
