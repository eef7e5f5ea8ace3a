"""Files that appear whole or not at all, and archives of arrays that are read so."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # `types` imports JAX, which takes a second
    from worldline.types import NDArray

#: What a file is called until it is whole. One that a killed process left behind means nothing.
PARTIAL = ".partial"


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its name, or another file's place, once it is on the disk.

    Links that are there in place of it, or of the file until it is whole, are replaced, not
    followed.

    Raises:
        OSError: it cannot be written; what was there before is intact.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the disk may be gone
            partial.unlink(missing_ok=True)
        raise


class DamagedArchiveError(Exception):
    """An archive of arrays is not as `numpy.savez` wrote it; the text says how."""


def read_archive(file: Path, names: Collection[str] | None = None) -> dict[str, NDArray]:
    """The arrays of an archive that `numpy.savez` wrote, each checked by its sum and its size.

    An archive is no larger in memory than on the disk: one that is compressed is refused.

    Args:
        file: the archive.
        names: the arrays to read; None: all.

    Raises:
        OSError: it cannot be opened.
        KeyError: an array is not in it.
        DamagedArchiveError: a part of it is damaged.
    """
    with file.open("rb") as opened:
        try:
            with zipfile.ZipFile(opened) as archive:
                within = [info.filename.removesuffix(".npy") for info in archive.infolist()]
                return {name: _array(archive, name) for name in (names or within)}
        except (EOFError, ValueError, OverflowError, MemoryError, RuntimeError) as error:
            raise DamagedArchiveError(f"{type(error).__name__}: {error}") from error
        except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
            raise DamagedArchiveError(str(error)) from error


def _array(archive: zipfile.ZipFile, name: str) -> NDArray:
    """An array by name. What is read to its end, `zipfile` compares with its sum."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"{name!r} is compressed")
    content = io.BytesIO(archive.read(member))
    array: NDArray = np.lib.format.read_array(content, allow_pickle=False)
    if content.tell() != member.file_size:
        raise zipfile.BadZipFile(f"{name!r} is longer than its array")
    return array
