"""Calls from compiled programs to functions of this process, by XLA's foreign function interface.

XLA calls one C function, which finds the Python function by the name that the program carries, and
gives it NumPy views of XLA's own operands and results. Lowering a program, which every process does
anew, enters its functions under their names; so JAX can keep what it compiled from it in its cache,
which it does not with `jax.pure_callback`, whose programs carry an address.
"""

from __future__ import annotations

import abc
import atexit
import ctypes
import functools
import itertools
import math
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, byref, c_void_p, pointer, sizeof
from types import TracebackType
from typing import Any, ParamSpec, TypeAlias, TypeVar

import cffi
import jax
import numpy as np
from jax.interpreters.mlir import emit_python_callback

from worldline.host.ffi import (
    INSTANTIATE,
    INTERNAL,
    METADATA,
    VERSION,
    Api,
    Buffers,
    ErrorArguments,
    Frame,
    StateArguments,
    TypeId,
    TypeInfo,
    View,
    addresses,
    views,
)
from worldline.types import NDArray

P = ParamSpec("P")
R = TypeVar("R")


#: Shape and dtype of an array.
Spec: TypeAlias = tuple[tuple[int, ...], Any]


class HostCall(abc.ABC):
    """A function of this process, with its settings, that works on `B` worlds at once.

    It is the static parameter `call` of a host primitive: a subclass is a frozen dataclass, which
    is hashable, and defines `run`, or `bind` where that is faster. Neither calls JAX.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name by which programs find the call: two calls with the same name do the same.

        The name is the same in every process, so that JAX can cache compiled programs.
        """

    @property
    @abc.abstractmethod
    def results(self) -> Sequence[Spec]:
        """Shape and dtype of each result of one world."""

    @property
    def shareable(self) -> int:
        """How many of the first operands may come as `(1, ...)` instead of `(B, ...)`, where all
        worlds have the same. The very first operand never does.
        """
        return 0

    def run(self, *operands: NDArray) -> Sequence[NDArray]:
        """Returns the results, `(B, ...)` each, from operands `(B, ...)`."""
        raise NotImplementedError(f"{type(self).__name__} defines neither run nor bind")

    def bind(self, operands: list[NDArray], results: list[NDArray]) -> Callable[[], None]:
        """Returns a function that reads the operands and fills the results, `(B, ...)` each.

        It may be called any number of times. The arrays are XLA's memory: their numbers change
        from call to call, their shapes and addresses do not. Operands must not be written.
        """

        def fill() -> None:
            for result, value in zip(results, self.run(*operands), strict=True):
                np.copyto(result, value)

        return fill


class _CallSite:
    """A place in a compiled program that calls the host.

    XLA gives a loop the same memory in each pass, so it keeps the function that was bound last.
    """

    def __init__(self, call: HostCall, lead: int) -> None:
        self.call, self._lead = call, lead
        self._views: list[View] = []
        self._last: tuple[tuple[int | None, ...], Callable[[], None]] = (), lambda: None

    def bound(self, operands: Buffers, results: Buffers) -> Callable[[], None]:
        """The call, bound to these buffers."""
        where = tuple(addresses(operands) + addresses(results))
        last, run = self._last
        if where != last:
            if not self._views:  # the shapes of a place never change
                self._views = views(operands, self._lead) + views(results, self._lead)
            arrays = [view.at(it) for view, it in zip(self._views, where, strict=True)]
            run = self.call.bind(arrays[: operands.size], arrays[operands.size :])
            self._last = where, run
        return run


_TARGET = "worldline_host"

#: The platforms of programs whose memory the host reads and fills itself.
_DIRECT = ("cpu",)

#: The calls of programs that are being compiled, or may run, by name.
_calls: weakref.WeakValueDictionary[str, HostCall] = weakref.WeakValueDictionary()

#: The call sites of compiled programs, by number. XLA ends a program after its last execution,
#: which may be after the last reference to it in Python.
_sites: dict[int, _CallSite] = {}
_numbers = itertools.count(1)

#: When the process ends, programs are over after so long (s) without a call.
_MOMENT = 0.2

#: So long (s) the end of a process waits for programs that may call no more.
_LONGEST = 5.0


class _Process:
    """The calls that are under way in this process."""

    def __init__(self) -> None:
        self.ends = False
        self.threads: set[int] = set()
        """The threads that are in a call."""
        self.last = -_MOMENT
        """When the last call ended, s of `time.monotonic`."""

    def run(self, site: _CallSite, frame: Frame) -> None:
        """Runs a call."""
        thread = threading.get_ident()
        self.threads.add(thread)
        try:
            if self.ends:
                raise KeyboardInterrupt("the process ends")
            site.bound(frame.operands, frame.results)()
        finally:
            self.last = time.monotonic()
            self.threads.discard(thread)

    def end(self) -> None:
        """Ends every program that is under way, at its next call.

        A thread of XLA's that comes back to Python after Python's end never returns, and the
        process would wait for it for good. Of a program whose results are kept, JAX knows whether
        it is under way; of others, their calls tell.
        """
        self.ends, kept, began = True, jax.live_arrays(), time.monotonic()
        while (
            self.threads
            or (now := time.monotonic()) - self.last < _MOMENT
            or (now - began < _LONGEST and not all(array.is_ready() for array in kept))
        ):
            time.sleep(0.01)


_process = _Process()


class _Waiting:
    """Who waits in `raised_as_it_is`, and what calls raised meanwhile."""

    def __init__(self) -> None:
        self.callers: set[object] = set()
        self.raised: dict[str, BaseException] = {}
        """By the name that XLA's error quotes: XLA may have called from a thread of its own."""


_waiting = _Waiting()


def raised_as_it_is(program: Callable[P, R]) -> Callable[P, R]:
    """Wraps a program whose caller waits for it, so that it raises what the host raises.

    Without it, XLA raises an error of its own that quotes the exception. On the main thread the
    exception may come from the handler of a signal, such as `KeyboardInterrupt`.
    """

    @functools.wraps(program)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        caller = object()
        _waiting.callers.add(caller)
        try:
            return program(*args, **kwargs)
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX raises either
            for name, raised in list(_waiting.raised.items()):
                if name in str(error):
                    raise _waiting.raised.pop(name, raised) from None
            raise
        finally:
            _waiting.callers.discard(caller)
            if not _waiting.callers:
                _waiting.raised.clear()

    return run


def call_host(
    ctx: Any, call: HostCall, operands: Sequence[Any], *, lead: int, has_side_effect: bool = False
) -> Sequence[Any]:
    """Lowers a primitive to a call of the host.

    On a CPU the call reads and fills XLA's own memory. On any other platform it is a callback of
    JAX's, for which every array is copied to the CPU and back.

    Args:
        ctx: the lowering's context; its `avals_in` are those of `operands`.
        call: what to call; of several calls with one name, the first that is still in use.
        operands: MLIR values.
        lead: how many axes in front of each array count worlds; `call` sees them as one.
        has_side_effect: whether to call even where nobody needs the results.

    Returns:
        An MLIR value for each of the context's `avals_out`.
    """
    if ctx.module_context.platforms != _DIRECT:
        results, _, life = emit_python_callback(
            ctx,
            lambda *arrays: call_now(call, arrays, lead),
            None,
            operands,
            ctx.avals_in,
            ctx.avals_out,
            has_side_effect=has_side_effect,
        )
        ctx.module_context.add_keepalive(life)
        return results
    _register()
    call = _calls.setdefault(call.name, call)
    ctx.module_context.add_keepalive(call)
    lowering = jax.ffi.ffi_lowering(_TARGET, has_side_effect=has_side_effect)
    return lowering(ctx, *operands, site=f"{lead} {call.name}")


def call_now(call: HostCall, operands: Sequence[Any], lead: int) -> list[NDArray]:
    """Calls the host with arrays whose first `lead` axes count worlds; returns such arrays."""
    arrays = [np.asarray(x) for x in operands]
    worlds = arrays[0].shape[:lead]
    rows = [
        np.ascontiguousarray(x.reshape((math.prod(x.shape[:lead]), *x.shape[lead:])))
        for x in arrays
    ]
    results = [np.empty((math.prod(worlds), *shape), kind) for shape, kind in call.results]
    call.bind(rows, results)()
    return [x.reshape((*worlds, *x.shape[1:])) for x in results]


@functools.cache
def _register() -> None:
    state: Any = {
        "type_id": jax.ffi.pycapsule(byref(_state)),
        "type_info": jax.ffi.pycapsule(byref(_info)),
    }
    jax.ffi.register_ffi_type(_TARGET, state, platform="cpu")
    stages = {"instantiate": _begin, "execute": _call}
    target = {
        stage: jax.ffi.pycapsule(int(cffi.FFI().cast("uintptr_t", entry)))
        for stage, entry in stages.items()
    }
    jax.ffi.register_ffi_target(_TARGET, target, platform="cpu")
    atexit.register(_process.end)


def _entry(handle: Callable[[Frame], None]) -> Any:
    """Makes the C function that XLA calls.

    It answers what XLA asks at registration, and turns an exception into XLA's error: that of
    `handle`, and that of a signal's handler, which Python may run before the first line of a
    function. So ctypes does not serve here: it drops such an exception, and XLA goes on.
    """
    api: list[Api] = []

    def entry(address: int) -> int:
        frame = Frame.from_address(address)
        if frame.extension and frame.extension.contents.kind == METADATA:
            metadata = frame.extension.contents.metadata.contents
            metadata.version.major, metadata.version.minor = VERSION
            metadata.state_type_id = _state
            api.append(frame.api.contents)
        else:
            handle(frame)
        return 0

    def failed(_: type, error: BaseException, __: TracebackType) -> int:
        name = f"error {next(_numbers)} calling the host"
        if _waiting.callers:
            _waiting.raised[name] = error
        message = f"{name}: {''.join(traceback.format_exception(error))}".encode()
        arguments = ErrorArguments(sizeof(ErrorArguments), None, message, INTERNAL)
        return int(api[0].make_error(byref(arguments)))

    return cffi.FFI().callback("uintptr_t(uintptr_t)", entry, onerror=failed)


@_entry
def _begin(frame: Any) -> None:
    """XLA has compiled a program: keeps one of its call sites."""
    span, number = frame.attributes.values[0].contents, next(_numbers)
    lead, name = ctypes.string_at(span.start, span.size).decode().split(" ", 1)
    _sites[number] = _CallSite(_calls[name], int(lead))
    arguments = StateArguments(
        sizeof(StateArguments), None, frame.context, frame.stage, pointer(_state), number
    )
    _check(frame.api.contents.set_state(byref(arguments)))


@_entry
def _call(frame: Any) -> None:
    """XLA runs a program: makes the call."""
    arguments = StateArguments(
        sizeof(StateArguments), None, frame.context, INSTANTIATE, pointer(_state), None
    )
    _check(frame.api.contents.get_state(byref(arguments)))
    _process.run(_sites[arguments.state], frame)


#: XLA has ended a program: forgets a call site; perhaps when this module is gone already. It is no
#: Python function, in which the handler of a signal could run, whose exception would be lost.
_end = CFUNCTYPE(None, c_void_p)(_sites.pop)


_state = TypeId(0)
_info = TypeInfo(sizeof(TypeInfo), None, ctypes.cast(_end, c_void_p))


def _check(error: int | None) -> None:
    if error:
        raise RuntimeError("XLA keeps no state for a call of the host")
