"""The parts of XLA's foreign function interface that `host` uses, as ctypes structures.

They are those of `xla/ffi/api/c_api.h`, API version 0.3, in `jax.ffi.include_dir()`. XLA refuses a
function of a version that it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
    sizeof,
)
from typing import Any, ClassVar, NamedTuple

import ml_dtypes
import numpy as np

from worldline.types import NDArray

#: Of the interface.
VERSION = 0, 3

#: Of `XLA_FFI_ExecutionStage`, `XLA_FFI_Extension_Type` and `XLA_FFI_Error_Code`.
INSTANTIATE, METADATA, INTERNAL = 0, 1, 13


class Span(Structure):
    """`XLA_FFI_ByteSpan`."""

    _fields_ = (("start", c_void_p), ("size", c_size_t))


class Sized(Structure):
    """How most of these structures begin: with their size, and extensions, which are not used."""

    _fields_: ClassVar[Any] = (("struct_size", c_size_t), ("extension", c_void_p))


class Buffer(Sized):
    """`XLA_FFI_Buffer`."""

    _fields_ = (
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("shape", POINTER(c_int64)),
    )


class Buffers(Sized):
    """`XLA_FFI_Args` and `XLA_FFI_Rets`."""

    _fields_ = (
        ("size", c_int64),
        ("types", c_void_p),
        ("buffers", c_void_p),  # so many pointers
    )


class Attributes(Sized):
    """`XLA_FFI_Attrs`."""

    _fields_ = (
        ("size", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("values", POINTER(POINTER(Span))),
    )


class Version(Sized):
    """`XLA_FFI_Api_Version`."""

    _fields_ = (("major", c_int), ("minor", c_int))


class ErrorArguments(Sized):
    """`XLA_FFI_Error_Create_Args`."""

    _fields_ = (("message", c_char_p), ("code", c_int))


MakeError = CFUNCTYPE(c_void_p, POINTER(ErrorArguments))


class TypeId(Structure):
    """`XLA_FFI_TypeId`."""

    _fields_ = (("number", c_int64),)


class TypeInfo(Sized):
    """`XLA_FFI_TypeInfo`."""

    _fields_ = (("delete", c_void_p),)


class StateArguments(Sized):
    """`XLA_FFI_State_Set_Args` and `XLA_FFI_State_Get_Args`."""

    _fields_ = (
        ("context", c_void_p),
        ("stage", c_int),
        ("type_id", POINTER(TypeId)),
        ("state", c_void_p),
    )


UseState = CFUNCTYPE(c_void_p, POINTER(StateArguments))


class Api(Sized):
    """The beginning of `XLA_FFI_Api`."""

    _fields_ = (
        ("version", Version),
        ("internal", c_void_p),
        ("make_error", MakeError),
        ("others", c_void_p * 6),
        ("set_state", UseState),
        ("get_state", UseState),
    )


class Metadata(Structure):
    """`XLA_FFI_Metadata`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("version", Version),
        ("traits", c_uint32),
        ("state_type_id", TypeId),
    )


class Extension(Structure):
    """`XLA_FFI_Metadata_Extension`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("kind", c_int),
        ("next", c_void_p),
        ("metadata", POINTER(Metadata)),
    )


class Frame(Structure):
    """`XLA_FFI_CallFrame`, but for its end."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", POINTER(Extension)),
        ("api", POINTER(Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("operands", Buffers),
        ("results", Buffers),
        ("attributes", Attributes),
    )


#: By `XLA_FFI_DataType`.
DTYPES = {
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


class View(NamedTuple):
    """How to see XLA's memory as an array."""

    memory: Any
    """The ctypes type of its bytes."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def at(self, address: int | None) -> NDArray:
        """The array at an address; an array without elements needs none."""
        if address is None or not sizeof(self.memory):
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, self.memory.from_address(address))


def views(buffers: Buffers, lead: int) -> list[View]:
    """How to see buffers as arrays whose first `lead` axes are one, of length 1 if `lead` is 0."""
    return [_view(Buffer.from_address(it), lead) for it in _pointers(buffers)]


def addresses(buffers: Buffers) -> list[int | None]:
    """Where buffers lie in memory."""
    return [c_void_p.from_address(it + _DATA).value for it in _pointers(buffers)]


def _pointers(buffers: Buffers) -> Iterable[int]:
    return (c_void_p * buffers.size).from_address(buffers.buffers) if buffers.size else ()


_DATA = Buffer.data.offset


def _view(buffer: Buffer, lead: int) -> View:
    dtype, shape = DTYPES[buffer.dtype], tuple(buffer.shape[: buffer.rank])
    memory = c_char * (math.prod(shape) * dtype.itemsize)
    return View(memory, (math.prod(shape[:lead]), *shape[lead:]), dtype)
