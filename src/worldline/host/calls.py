"""Calls from compiled programs to functions of this process, by XLA's foreign function interface.

XLA calls one C function, which finds the Python function by the name that the program carries, and
gives it NumPy views of XLA's own operands and results. Lowering a program, which every process does
anew, enters its functions under their names; so JAX can keep what it compiled from it in its cache,
which it does not with `jax.pure_callback`, whose programs carry an address.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, byref, c_void_p, pointer, sizeof
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

import jax
import numpy as np

from worldline.host.ffi import (
    INSTANTIATE,
    INTERNAL,
    METADATA,
    VERSION,
    Buffers,
    ErrorArguments,
    Frame,
    StateArguments,
    TypeId,
    TypeInfo,
    View,
    views,
    where,
)

NDArray: TypeAlias = np.ndarray[Any, Any]
P = ParamSpec("P")
R = TypeVar("R")


class Host(Protocol):
    """A function of the host; calls no JAX."""

    @property
    def name(self) -> str:
        """Two of a name do the same. The same in every process, where programs are to be cached."""

    def views(self, operands: list[View], results: list[View]) -> tuple[list[View], list[View]]:
        """As what `bind` is to have the operands and the results."""

    def bind(self, operands: list[NDArray], results: list[NDArray]) -> Callable[[], None]:
        """What reads the operands and fills the results, any number of times.

        XLA's memory is: its numbers change, but neither their shapes nor where they lie.
        """


class _Calls:
    """The calls from one place in a program, each bound to the memory that XLA gave it.

    XLA gives a loop the same memory in each pass; so the last call is kept.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._views: list[View] = []
        self._last: tuple[tuple[int | None, ...], Callable[[], None]] = (), lambda: None

    def at(self, operands: Buffers, results: Buffers) -> Callable[[], None]:
        """The call on these buffers."""
        addresses = tuple(where(operands) + where(results))
        last, call = self._last
        if addresses != last:
            if not self._views:  # what XLA says of the buffers of a place never changes
                given = views(operands, writeable=False), views(results, writeable=True)
                self._views = [view for them in self.host.views(*given) for view in them]
            arrays = [view.at(it) for view, it in zip(self._views, addresses, strict=True)]
            call = self.host.bind(arrays[: operands.size], arrays[operands.size :])
            self._last = addresses, call
        return call


_TARGET = "worldline_host"

#: Those of programs that are being compiled, or may run, by name.
_hosts: weakref.WeakValueDictionary[str, Host] = weakref.WeakValueDictionary()

#: The function of each call in a compiled program. XLA ends the program after its last execution,
#: which may be after the last reference to it in Python.
_held: dict[int, _Calls] = {}
_numbers = itertools.count(1)

#: When the process ends, a program that has had no call for so long (s) is taken to be over.
_MOMENT = 0.2


class _Process:
    """What is under way in this process."""

    def __init__(self) -> None:
        self.ends = False
        self.threads: set[int] = set()
        """Those that are in a call."""
        self.last = -_MOMENT
        """When the last call ended, s of `time.monotonic`."""

    def run(self, calls: _Calls, frame: Frame) -> None:
        """Every call."""
        thread = threading.get_ident()
        self.threads.add(thread)
        try:
            if self.ends:
                raise KeyboardInterrupt("the process ends")
            calls.at(frame.operands, frame.results)()
        finally:
            self.last = time.monotonic()
            self.threads.discard(thread)

    def end(self) -> None:
        """Ends every program that is under way, at its next call.

        A thread of XLA's that comes back to Python after Python's end never returns, and the
        process would wait for it for good.
        """
        self.ends = True
        while self.threads or time.monotonic() - self.last < _MOMENT:
            time.sleep(0.01)


_process = _Process()


class _Caller(threading.local):
    """What this thread waits for, if it runs its programs itself; see `raised_as_it_is`."""

    waits = False
    raised: BaseException | None = None


_caller = _Caller()


def raised_as_it_is(program: Callable[P, R]) -> Callable[P, R]:
    """A program that runs on its caller's thread: what is raised in its calls of the host is raised
    by it, in place of an error of XLA's that speaks of it.

    On the main thread that may be anything that a signal's handler raises, such as
    `KeyboardInterrupt`.
    """

    @functools.wraps(program)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        _caller.waits = True
        try:
            return program(*args, **kwargs)
        finally:
            raised, _caller.waits, _caller.raised = _caller.raised, False, None
            if raised is not None:
                raise raised

    return run


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

    @CFUNCTYPE(c_void_p, POINTER(Frame))
    def entry(frame: Any) -> int | None:
        frame = frame.contents
        try:
            if frame.extension and frame.extension.contents.kind == METADATA:
                metadata = frame.extension.contents.metadata.contents
                metadata.version.major, metadata.version.minor = VERSION
                metadata.state_type_id = _state
            else:
                handle(frame)
        except BaseException as error:
            if _caller.waits:
                _caller.raised = error
            message = f"error calling the host: {traceback.format_exc()}".encode()
            arguments = ErrorArguments(sizeof(ErrorArguments), None, message, INTERNAL)
            return frame.api.contents.make_error(byref(arguments))
        return None

    return entry


@_entry
def _begin(frame: Any) -> None:
    """A program is ready: holds its function."""
    span = frame.attributes.values[0].contents
    number = next(_numbers)
    _held[number] = _Calls(_hosts[ctypes.string_at(span.start, span.size).decode()])
    arguments = StateArguments(
        sizeof(StateArguments), None, frame.context, frame.stage, pointer(_state), number
    )
    _check(frame.api.contents.set_state(byref(arguments)))


@_entry
def _call(frame: Any) -> None:
    """A program runs."""
    arguments = StateArguments(
        sizeof(StateArguments), None, frame.context, INSTANTIATE, pointer(_state), None
    )
    _check(frame.api.contents.get_state(byref(arguments)))
    _process.run(_held[arguments.state], frame)


@CFUNCTYPE(None, c_void_p)
def _end(number: int, held: dict[int, _Calls] = _held) -> None:
    """A program is gone; perhaps after all that this module has."""
    held.pop(number, None)


_state = TypeId(0)
_info = TypeInfo(sizeof(TypeInfo), None, ctypes.cast(_end, c_void_p))


def _check(error: int | None) -> None:
    if error:
        raise RuntimeError("XLA keeps no state for a call of the host")


class Named:
    """A function of the host that returns its results, under a name."""

    def __init__(self, name: str, function: Callable[..., Sequence[NDArray]]) -> None:
        self.name, self._function = name, function

    def views(self, operands: list[View], results: list[View]) -> tuple[list[View], list[View]]:
        """See `Host`."""
        return operands, results

    def bind(self, operands: list[NDArray], results: list[NDArray]) -> Callable[[], None]:
        """See `Host`."""
        return functools.partial(self._fill, operands, results)

    def _fill(self, operands: list[NDArray], results: list[NDArray]) -> None:
        for result, value in zip(results, self._function(*operands), strict=True):
            np.copyto(result, value)
