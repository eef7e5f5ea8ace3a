"""The cores of the machine that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> list[int]:
    """The numbers of these cores."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else list(range(os.cpu_count() or 1))
