"""The part of MuJoCo's C API that its Python bindings lack: `mjb_apply`, and the clock.

`mujoco.batch.Batch` wraps all of MuJoCo's batch API (`mujoco/mjbatch.h`) but `mjb_apply`, which
alone runs a MuJoCo function on the threads of a batch, and it keeps the batch's address to itself.
So this module speaks to the same shared library, already loaded by `import mujoco`, by ctypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_ubyte, c_void_p
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from worldline.types import NDArray


class _BatchConfig(ctypes.Structure):
    _fields_ = (("nthread", c_int), ("persistent", c_ubyte))


#: Argument and result types of the functions used, as in `mjbatch.h` and `mujoco.h`.
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "mjb_makeBatch": (c_void_p, (c_void_p, c_int, c_void_p, c_char_p, c_int)),
    "mjb_deleteBatch": (None, (c_void_p,)),
    "mjb_nstate": (c_int, (c_void_p,)),
    "mjb_state": (c_void_p, (c_void_p,)),
    "mjb_stateComponent": (c_void_p, (c_void_p, c_int, POINTER(c_int))),
    "mjb_warning": (c_void_p, (c_void_p,)),
    "mjb_status": (c_void_p, (c_void_p,)),
    "mjb_output": (c_void_p, (c_void_p, c_char_p, POINTER(c_int), POINTER(c_int))),
    "mjb_expand": (c_void_p, (c_void_p, c_char_p, POINTER(c_int), POINTER(c_int))),
    "mjb_expanded": (c_void_p, (c_void_p, c_char_p, POINTER(c_int), POINTER(c_int))),
    "mjb_step": (c_int, (c_void_p, c_void_p, c_int, c_int, c_int)),
    "mjb_forward": (c_int, (c_void_p, c_void_p, c_int, c_int)),
    "mjb_reset": (c_int, (c_void_p, c_void_p, c_int, c_void_p, c_int)),
    "mjb_setConst": (c_int, (c_void_p, c_void_p, c_int)),
    "mjb_apply": (c_int, (c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_int)),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The shared library that `import mujoco` loaded, with the signatures above."""
    folder = Path(mujoco.__file__).parent
    patterns = ("libmujoco.so*", "libmujoco*.dylib", "mujoco.dll")
    lib = ctypes.CDLL(str(next(file for pattern in patterns for file in folder.glob(pattern))))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


@contextlib.contextmanager
def without_timers() -> Iterator[None]:
    """Lets MuJoCo run without its clock, in the whole process.

    `import mujoco` installs a clock (`mjcb_time`) that MuJoCo reads dozens of times a step to fill
    `MjData.timer`. This takes up to an eighth of a step. Without the clock all timers stay 0, also
    those of other code in the process: so no step of Worldline calls this, but the `worldline`
    command and the benchmarks do, once.
    """
    clock = c_void_p.in_dll(library(), "mjcb_time")
    before, clock.value = clock.value, None
    try:
        yield
    finally:
        clock.value = before


#: What every counter of warnings is set to before a call. MuJoCo writes a warning to the terminal
#: and to MUJOCO_LOG.TXT where its counter is 0: from here it counts, and writes nothing.
_UNWARNED = 1 << 20


class Batch:
    """`rows` simulations of one model on a thread pool: MuJoCo's `mjBatch`, its arrays and calls.

    Each call takes `ids`, sorted unique int32 row numbers, or None for all rows; it runs without
    the interpreter's lock, and returns in how many rows it failed. The arrays are live views of the
    batch's memory.

    Args:
        model: the model; the batch keeps a copy.
        rows: the number of simulations.
        threads: the number of threads, the caller's included.
        persistent: keep one MjData a row, so that `apply` sees what `step` left there.
    """

    def __init__(
        self, model: mujoco.MjModel, rows: int, threads: int, persistent: bool = False
    ) -> None:
        lib = self._lib = library()
        config = _BatchConfig(threads, persistent)
        error = ctypes.create_string_buffer(1024)
        handle = lib.mjb_makeBatch(model._address, rows, byref(config), error, len(error))
        if not handle:
            raise ValueError(f"MuJoCo cannot batch the model: {error.value.decode()}")
        self._handle = handle
        self.rows = rows
        self.state = _view(lib.mjb_state(handle), np.float64, (rows, lib.mjb_nstate(handle)))
        warnings = int(mujoco.mjtWarning.mjNWARNING)
        self._warnings = _view(lib.mjb_warning(handle), np.int32, (rows, warnings, 2))[:, :, 1]
        #: Nonzero where a row's last call failed, `(rows,)` int32.
        self.status = _view(lib.mjb_status(handle), np.int32, (rows,))
        outputs = mujoco.MjModel._setconst_outputs
        self._shared = {field: field.encode() for field in outputs if getattr(model, field).size}
        self._derived: dict[str, NDArray] = {}

    def forget_warnings(self) -> None:
        """Sets all counters of warnings back, so that MuJoCo writes none of them to its log."""
        self._warnings.fill(_UNWARNED)

    def warned(self, kinds: Sequence[int]) -> NDArray:
        """Which rows had a warning of these kinds (`mjtWarning`) since then, `(rows,)` bool.

        A row that MuJoCo reset by itself, after a bad state, has all of them.
        """
        return (self._warnings[:, kinds] != _UNWARNED).any(axis=1)

    def component(self, component: mujoco.mjtState) -> NDArray:
        """The columns of `state` that hold one state component, `(rows, n)`."""
        size = c_int()
        address = self._lib.mjb_stateComponent(self._handle, int(component), byref(size))
        start = (address - self.state.ctypes.data) // self.state.itemsize
        return self.state[:, start : start + size.value]

    def output(self, field: str, dtype: Any) -> NDArray:
        """The MjData field `field` of each row, copied out after every call, `(rows, n)`."""
        return self._field(self._lib.mjb_output, field, dtype)

    def expand(self, field: str, dtype: Any) -> NDArray:
        """The MjModel field `field` of each row, `(rows, n)`, from now on each row's own."""
        return self._field(self._lib.mjb_expand, field, dtype)

    def derived(self) -> dict[str, NDArray]:
        """The bytes of each MjModel field that `set_const` writes, if rows have their own of it."""
        size, itemsize = c_int(), c_int()
        for field, name in self._shared.copy().items():
            if address := self._lib.mjb_expanded(self._handle, name, size, itemsize):
                del self._shared[field]
                shape = (self.rows, size.value * itemsize.value)
                self._derived[field] = _view(address, np.uint8, shape)
        return dict(sorted(self._derived.items()))

    def _field(self, function: Any, field: str, dtype: Any) -> NDArray:
        size, itemsize = c_int(), c_int()
        address = function(self._handle, field.encode(), byref(size), byref(itemsize))
        if not address:
            raise ValueError(f"MuJoCo's batch does not hold the field {field!r}")
        if itemsize.value != np.dtype(dtype).itemsize:
            raise ValueError(f"{field!r} has items of {itemsize.value} bytes, not {dtype}")
        return _view(address, dtype, (self.rows, size.value))

    def reset(self, ids: NDArray | None) -> int:
        """Resets rows to the model's defaults, without a forward pass."""
        none = int(mujoco.mjtStage.mjSTAGE_NONE)
        return int(self._lib.mjb_reset(self._handle, *_ids(ids), None, none))

    def forward(self, ids: NDArray | None, stage: mujoco.mjtStage) -> int:
        """Computes the stages of `mj_forward` up to `stage`; copies the outputs in any case."""
        return int(self._lib.mjb_forward(self._handle, *_ids(ids), int(stage)))

    def step(self, ids: NDArray | None, substeps: int, stage: mujoco.mjtStage) -> int:
        """Calls `mj_step` `substeps` times, then computes the stages up to `stage`."""
        return int(self._lib.mjb_step(self._handle, *_ids(ids), substeps, int(stage)))

    def set_const(self, ids: NDArray | None) -> int:
        """Runs `mj_setConst` on rows, so that what it derives follows their expanded fields."""
        return int(self._lib.mjb_setConst(self._handle, *_ids(ids)))

    def apply(self, ids: NDArray | None, function: str) -> int:
        """Runs a MuJoCo function `void f(const mjModel*, mjData*)` on rows.

        The batch calls `f(model, data, row, argument)`: in every C calling convention that MuJoCo
        is built for, a function that takes the first two is right to ignore the others.
        """
        address = ctypes.cast(getattr(self._lib, function), c_void_p)
        return int(self._lib.mjb_apply(self._handle, *_ids(ids), address, None, 0))

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._lib.mjb_deleteBatch(handle)


def _ids(ids: NDArray | None) -> tuple[int | None, int]:
    """Row numbers as the C API takes them: an address (null for all rows) and a count."""
    return (None, 0) if ids is None else (ids.ctypes.data, len(ids))


def _view(address: int, dtype: Any, shape: tuple[int, ...]) -> NDArray:
    """An array over memory that the batch owns."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    buffer = (c_char * size).from_address(address)
    return np.frombuffer(buffer, dtype).reshape(shape)
