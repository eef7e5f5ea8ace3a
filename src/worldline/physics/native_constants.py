"""The constants of a batch's rows: those that vary, and what MuJoCo derives from them."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import mujoco
import numpy as np

from worldline.mjlib import Batch

NDArray: TypeAlias = np.ndarray[Any, Any]

#: What derives from them is remembered for so many of the latest constants: a world that begins an
#: episode has its constants in one batch where it starts and in another where it steps.
_REMEMBERED = 1024


class _Derived(NamedTuple):
    """What follows from a row's constants."""

    fields: tuple[str, ...]
    values: bytes
    """Of each field, one after the other."""


class Derivations:
    """What `mj_setConst` made of the latest constants, for the batches that share them."""

    def __init__(self) -> None:
        self._known: collections.OrderedDict[bytes, _Derived] = collections.OrderedDict()

    def get(self, constants: bytes) -> _Derived | None:
        """What followed from them, if that is remembered."""
        if constants in self._known:
            self._known.move_to_end(constants)
        return self._known.get(constants)

    def remember(self, constants: bytes, derived: _Derived) -> None:
        """The oldest are forgotten."""
        self._known[constants] = derived
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


class RowConstants:
    """Constants that are written to a row only where they are not those that it holds.

    Args:
        batch: whose rows.
        fields: name of each field that varies, and its dtype in MuJoCo.
        derivations: to be shared by batches of one model in which the same fields vary.
    """

    def __init__(
        self, batch: Batch, fields: Mapping[str, np.dtype[Any]], derivations: Derivations
    ) -> None:
        self._batch, self._derivations = batch, derivations
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
        derived = np.flatnonzero(changed)
        failed = self._derive(derived)
        for expanded, held, stands in zip(self._expanded, self._held, self._stands, strict=True):
            if stands:
                expanded[derived] = held[derived]
        self._unknown[failed] = True  # to be tried again
        return failed

    def _derive(self, rows: NDArray) -> NDArray:
        """Lets follow what does in rows whose constants have changed; returns those that failed.

        It is copied where it is known, of another row or another batch, and else derived first.
        """
        if not len(rows):
            return rows
        pairs = zip(self._held, self._derives, strict=True)
        constants = _bytes([held[rows] for held, derives in pairs if derives])
        known = {c: self._derivations.get(c) for c in constants}
        failed: set[bytes] = set()
        # Again only where MuJoCo has come to derive another field, which what was known lacks.
        while first := {
            c: row
            for row, c in zip(rows, constants, strict=True)
            if c not in failed and self._lacks(known[c])
        }:
            ids = np.sort(np.fromiter(first.values(), np.int32))
            self._batch.set_const(ids)
            self._derived = self._batch.derived()
            ran = self._read(np.fromiter(first.values(), np.int32))
            for (c, row), derived in zip(first.items(), ran, strict=True):
                if self._batch.status[row]:
                    failed.add(c)
                else:
                    known[c] = derived
                    self._derivations.remember(c, derived)
        good = np.array([c not in failed for c in constants], bool)
        self._copy(rows[good], [x for c in constants if (x := known[c]) and c not in failed])
        return rows[~good]

    def _lacks(self, derived: _Derived | None) -> bool:
        """Whether it is not known, or lacks a field that rows have their own of."""
        return derived is None or derived.fields != tuple(self._derived)

    def _read(self, rows: NDArray) -> list[_Derived]:
        """What follows in rows."""
        fields = tuple(self._derived)
        values = (
            _bytes([values[rows] for values in self._derived.values()])
            if fields
            else [b""] * len(rows)
        )
        return [_Derived(fields, x) for x in values]

    def _copy(self, rows: NDArray, derived: list[_Derived]) -> None:
        """Makes it follow in rows."""
        joined = np.frombuffer(b"".join(x.values for x in derived), np.uint8)
        matrix, start = joined.reshape(len(rows), -1) if len(joined) else joined, 0
        for values in self._derived.values():
            stop = start + values.shape[1]
            values[rows], start = matrix[:, start:stop], stop


def _bytes(columns: Sequence[NDArray]) -> list[bytes]:
    """Each row of arrays `(rows, n)`, one after the other."""
    return [row.tobytes() for row in np.concatenate(columns, axis=1)]


def _derives(field: str) -> bool:
    """Whether `mj_setConst` reads a field."""
    return field.startswith("opt.") or field in mujoco.MjModel._setconst_inputs
