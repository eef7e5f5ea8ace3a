"""A network between processes of one machine on which every packet takes some time more.

Linux only. Each process has a network namespace with one device (TUN), and a thread here carries
packets from device to device. This needs no `tc netem`, which many kernels lack, and leaves nothing
behind: a namespace is gone when its process is. Run as a script, this file becomes such a process.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence

#: Addresses are 10.77.0.1, 10.77.0.2, ...
_PREFIX = "10.77.0."
#: The largest packet, bytes: few packets, since each takes our thread some 20 us.
_MTU = 65_000

# Numbers of Linux's headers.
_CLONE_NEWUTS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x0400_0000, 0x1000_0000, 0x4000_0000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x4004_54CA, 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922
_IFF_UP_AND_RUNNING = 0x41
_PR_SET_TIMERSLACK = 29


class NoNetworkError(Exception):
    """This system does not let us make such a network."""


def address(index: int) -> str:
    """The address of a process, from 0."""
    return f"{_PREFIX}{index + 1}"


class DelayedNetwork:
    """A network for some processes; a context, inside of which packets are carried.

    Args:
        processes: how many, at most 200.
        delay: seconds that a packet takes from process to process beyond what we need to carry it.
    """

    def __init__(self, processes: int, delay: float) -> None:
        if not 1 <= processes <= 200:
            raise ValueError(f"processes is {processes}; give 1 to 200")
        self._delay = delay
        pairs = [socket.socketpair() for _ in range(processes)]
        self._ours, self._theirs = (list(side) for side in zip(*pairs, strict=True))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._devices: dict[int, int] = {}
        """The file of the device of each process that has one."""

    def command(self, index: int, command: Sequence[str]) -> tuple[list[str], int]:
        """What runs a command as one of the processes, and the file that it must inherit."""
        file = self._theirs[index].fileno()
        inside = [sys.executable, "-SE", os.path.abspath(__file__)]  # noqa: PTH100
        return [*inside, str(file), address(index), *command], file

    def __enter__(self) -> DelayedNetwork:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for file in self._devices.values():
            os.close(file)
        for end in (*self._ours, *self._theirs):
            end.close()

    def _run(self) -> None:
        """Takes each device as its process makes it, and carries packets when they are due."""
        _be_punctual()
        waiting: collections.deque[tuple[float, int, bytes]] = collections.deque()
        ours = {end.fileno(): index for index, end in enumerate(self._ours)}
        sources = list(ours)
        while not self._stop.is_set():
            now = time.perf_counter()
            while waiting and waiting[0][0] <= now:
                _, to, packet = waiting.popleft()
                with contextlib.suppress(OSError, KeyError):  # it is gone, or not there yet
                    os.write(self._devices[to], packet)
            patience = min(0.1, waiting[0][0] - now) if waiting else 0.1
            for file in select.select(sources, [], [], max(0.0, patience))[0]:
                if file in ours:
                    sources.remove(file)
                    _, found, *_ = socket.recv_fds(self._ours[ours[file]], 1, 1)
                    if found:
                        self._devices[ours[file]] = found[0]
                        sources.append(found[0])
                    continue
                try:
                    packet = os.read(file, _MTU + 100)
                except OSError:  # its process has ended, and its namespace with it
                    sources.remove(file)
                    continue
                if packet[0] >> 4 == 4:  # IPv4; there is nobody to answer anything else
                    waiting.append((time.perf_counter() + self._delay, packet[19] - 1, packet))


def _be_punctual() -> None:
    """This thread wakes when it asks to, and before the processes that it serves, if allowed."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)


def _enter(file: int, own: str) -> None:
    """Gives this process a network of its own with one device, and the device to who carries.

    Raises:
        NoNetworkError: the system does not allow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    spaces = _CLONE_NEWNET | _CLONE_NEWUTS | (_CLONE_NEWUSER if os.geteuid() else 0)
    try:
        if libc.unshare(spaces):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        socket.sethostname(own)  # gloo asks which address its host's name has
        device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"wl0", _IFF_TUN | _IFF_NO_PI))
        _set_up("wl0", own)
        _set_up("lo", "127.0.0.1")
    except OSError as error:
        raise NoNetworkError(f"no network of our own: {error}") from error
    with socket.socket(fileno=os.dup(file)) as end:
        socket.send_fds(end, [b"1"], [device])
    os.close(device)
    os.close(file)


def _set_up(device: str, own: str) -> None:
    name = device.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for request, value in ((_SIOCSIFADDR, own), (_SIOCSIFNETMASK, "255.255.255.0")):
            packed = struct.pack("16sHH4s16x", name, socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(any_socket, request, packed)
        if device != "lo":
            fcntl.ioctl(any_socket, _SIOCSIFMTU, struct.pack("16si20x", name, _MTU))
        flags = struct.pack("16sH22x", name, _IFF_UP_AND_RUNNING)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, flags)


if __name__ == "__main__":
    try:
        _enter(int(sys.argv[1]), sys.argv[2])
    except NoNetworkError as error:
        sys.exit(str(error))
    os.execvp(sys.argv[3], sys.argv[3:])
