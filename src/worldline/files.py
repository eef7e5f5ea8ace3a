"""Files that appear whole or not at all, whenever the process dies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: What a file is called until it is whole. One that a killed process left behind means nothing.
PARTIAL = ".partial"


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its name, or another file's place, once it is on the disk.

    Raises:
        OSError: it cannot be written; what was there before is intact.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the disk may be gone
            partial.unlink(missing_ok=True)
        raise
