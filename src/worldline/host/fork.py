"""Processes that were forked from one in which JAX runs: they would wait for ever."""

from __future__ import annotations

import os

from worldline.errors import ForkedProcessError

#: The process that used Worldline first, of this one and its ancestors by fork.
_first_user: int | None = None


def check_not_forked() -> None:
    """Refuses to go on in a process whose parent had used Worldline before the fork.

    A fork copies the memory, but not the threads: whatever JAX computes in the child waits for
    threads that are not there.

    Raises:
        ForkedProcessError: this is such a process.
    """
    global _first_user
    process = os.getpid()
    if _first_user is None:
        _first_user = process
    if process != _first_user:
        raise ForkedProcessError(
            f"process {process} was forked from process {_first_user}, which uses JAX, and has "
            'none of its threads; start processes by "spawn" or "forkserver", as in '
            'AsyncVectorEnv(..., context="spawn"), SubprocVecEnv(..., start_method="spawn") or '
            'ParallelEnv(..., mp_start_method="spawn")'
        )
