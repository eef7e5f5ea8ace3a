"""Calls from compiled programs to functions of this process, by XLA's foreign function interface.

XLA calls one C function, which finds the Python function by the name that the program carries, and
gives it NumPy views of XLA's own operands and results. Lowering a program, which every process does
anew, enters its functions under their names; so JAX can keep what it compiled from it in its cache,
which it does not with `jax.pure_callback`, whose programs carry an address.

The structures are those of `xla/ffi/api/c_api.h`, API version 0.3, in `jax.ffi.include_dir()`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import itertools
import math
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
    pointer,
    sizeof,
)
from typing import Any, Protocol, TypeAlias

import jax
import ml_dtypes
import numpy as np

NDArray: TypeAlias = np.ndarray[Any, Any]


class Host(Protocol):
    """A function of the host; calls no JAX."""

    @property
    def name(self) -> str:
        """Two of a name do the same. The same in every process, where programs are to be cached."""

    def __call__(self, operands: list[NDArray], results: list[NDArray]) -> None:
        """Fills the results."""


class _Span(Structure):
    _fields_ = (("start", c_void_p), ("size", c_size_t))


class _Buffer(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("shape", POINTER(c_int64)),
    )


class _Buffers(Structure):
    """`XLA_FFI_Args` and `XLA_FFI_Rets`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("buffers", POINTER(POINTER(_Buffer))),
    )


class _Attributes(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("values", POINTER(POINTER(_Span))),
    )


class _Version(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("major", c_int),
        ("minor", c_int),
    )


class _ErrorArguments(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("message", ctypes.c_char_p),
        ("code", c_int),
    )


_MakeError = CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))


class _TypeId(Structure):
    _fields_ = (("number", c_int64),)


class _TypeInfo(Structure):
    _fields_ = (("struct_size", c_size_t), ("extension", c_void_p), ("delete", c_void_p))


class _StateArguments(Structure):
    """`XLA_FFI_State_Set_Args` and `XLA_FFI_State_Get_Args`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("context", c_void_p),
        ("stage", c_int),
        ("type_id", POINTER(_TypeId)),
        ("state", c_void_p),
    )


_UseState = CFUNCTYPE(c_void_p, POINTER(_StateArguments))


class _Api(Structure):
    """The beginning of `XLA_FFI_Api`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("version", _Version),
        ("internal", c_void_p),
        ("make_error", _MakeError),
        ("others", c_void_p * 6),
        ("set_state", _UseState),
        ("get_state", _UseState),
    )


class _Metadata(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("version", _Version),
        ("traits", c_uint32),
        ("state_type_id", _TypeId),
    )


class _Extension(Structure):
    """`XLA_FFI_Metadata_Extension`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("kind", c_int),
        ("next", c_void_p),
        ("metadata", POINTER(_Metadata)),
    )


class _Frame(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", POINTER(_Extension)),
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("operands", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    )


#: Of `XLA_FFI_ExecutionStage`, `XLA_FFI_Extension_Type` and `XLA_FFI_Error_Code`.
_INSTANTIATE, _METADATA, _INTERNAL = 0, 1, 13

_DTYPES = {
    1: np.dtype(bool),
    2: np.dtype(np.int8),
    3: np.dtype(np.int16),
    4: np.dtype(np.int32),
    5: np.dtype(np.int64),
    6: np.dtype(np.uint8),
    7: np.dtype(np.uint16),
    8: np.dtype(np.uint32),
    9: np.dtype(np.uint64),
    10: np.dtype(np.float16),
    11: np.dtype(np.float32),
    12: np.dtype(np.float64),
    16: np.dtype(ml_dtypes.bfloat16),
}

_TARGET = "worldline_host"

#: Those of programs that are being compiled, or may run, by name.
_hosts: weakref.WeakValueDictionary[str, Host] = weakref.WeakValueDictionary()

#: A function for each call in a compiled program. XLA ends the program after its last execution,
#: which may be after the last reference to it in Python.
_held: dict[int, Host] = {}
_numbers = itertools.count(1)

#: When the process ends, a program without a call for so long (s) is taken to be over.
_MOMENT = 0.2


class _Process:
    """What is under way in this process."""

    def __init__(self) -> None:
        self.ends = False
        self.threads: set[int] = set()
        """Those that are in a call."""
        self.last = 0.0
        """When a call or the process ended, s of `time.monotonic`."""

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """To be around every call."""
        thread = threading.get_ident()
        self.threads.add(thread)
        try:
            if self.ends:
                raise KeyboardInterrupt("the process ends")
            yield
        finally:
            self.last = time.monotonic()
            self.threads.discard(thread)

    def end(self) -> None:
        """Ends every program that is under way, at its next call.

        A thread of XLA's that comes back to Python after Python's end never returns, and the
        process would wait for it for good.
        """
        self.ends, self.last = True, time.monotonic()
        while self.threads or time.monotonic() - self.last < _MOMENT:
            time.sleep(0.01)


_process = _Process()


def call_host(
    ctx: Any, host: Host, operands: Sequence[Any], has_side_effect: bool = False
) -> Sequence[Any]:
    """A call of `host` in the lowering of a primitive.

    Args:
        ctx: the lowering's context; its `avals_in` are those of `operands`.
        host: what to call. Of several with a name, the first is.
        operands: MLIR values.
        has_side_effect: whether to call it even where nobody needs its results.

    Returns:
        An MLIR value for each of the context's `avals_out`.
    """
    _register()
    host = _hosts.setdefault(host.name, host)
    ctx.module_context.add_keepalive(host)
    lowering = jax.ffi.ffi_lowering(_TARGET, has_side_effect=has_side_effect)
    return lowering(ctx, *operands, name=host.name)


@functools.cache
def _register() -> None:
    state: Any = {
        "type_id": jax.ffi.pycapsule(byref(_state)),
        "type_info": jax.ffi.pycapsule(byref(_info)),
    }
    jax.ffi.register_ffi_type(_TARGET, state, platform="cpu")
    stages = {"instantiate": _begin, "execute": _call}
    target = {stage: jax.ffi.pycapsule(entry) for stage, entry in stages.items()}
    jax.ffi.register_ffi_target(_TARGET, target, platform="cpu")
    atexit.register(_process.end)


def _entry(handle: Callable[[Any], None]) -> Any:
    """What XLA calls: answers what it asks on registration; an exception becomes its error."""

    @CFUNCTYPE(c_void_p, POINTER(_Frame))
    def entry(frame: Any) -> int | None:
        frame = frame.contents
        try:
            if frame.extension and frame.extension.contents.kind == _METADATA:
                metadata = frame.extension.contents.metadata.contents
                metadata.version.major, metadata.version.minor = 0, 3
                metadata.state_type_id = _state
            else:
                handle(frame)
        except BaseException:
            message = f"error calling the host: {traceback.format_exc()}".encode()
            arguments = _ErrorArguments(sizeof(_ErrorArguments), None, message, _INTERNAL)
            return frame.api.contents.make_error(byref(arguments))
        return None

    return entry


@_entry
def _begin(frame: Any) -> None:
    """A program is ready: holds its function."""
    span = frame.attributes.values[0].contents
    number = next(_numbers)
    _held[number] = _hosts[ctypes.string_at(span.start, span.size).decode()]
    arguments = _StateArguments(
        sizeof(_StateArguments), None, frame.context, frame.stage, pointer(_state), number
    )
    _check(frame.api.contents.set_state(byref(arguments)))


@_entry
def _call(frame: Any) -> None:
    """A program runs."""
    arguments = _StateArguments(
        sizeof(_StateArguments), None, frame.context, _INSTANTIATE, pointer(_state), None
    )
    _check(frame.api.contents.get_state(byref(arguments)))
    with _process.call():
        _held[arguments.state](_views(frame.operands), _views(frame.results))


@CFUNCTYPE(None, c_void_p)
def _end(number: int) -> None:
    """A program is gone."""
    _held.pop(number, None)


_state = _TypeId(0)
_info = _TypeInfo(sizeof(_TypeInfo), None, ctypes.cast(_end, c_void_p))


def _check(error: int | None) -> None:
    if error:
        raise RuntimeError("XLA keeps no state for a call of the host")


def _views(buffers: Any) -> list[NDArray]:
    """Arrays in XLA's memory."""
    return [_view(buffers.buffers[i].contents) for i in range(buffers.size)]


def _view(buffer: Any) -> NDArray:
    dtype, shape = _DTYPES[buffer.dtype], tuple(buffer.shape[: buffer.rank])
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    return np.frombuffer((c_char * size).from_address(buffer.data), dtype).reshape(shape)


class Named:
    """A function of the host that returns its results, under a name."""

    def __init__(self, name: str, function: Callable[..., Sequence[NDArray]]) -> None:
        self.name, self._function = name, function

    def __call__(self, operands: list[NDArray], results: list[NDArray]) -> None:
        """See `Host`."""
        for result, value in zip(results, self._function(*operands), strict=True):
            np.copyto(result, value)
