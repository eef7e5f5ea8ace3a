"""Files that appear whole or not at all, and archives of arrays that are read so."""

from __future__ import annotations

import contextlib
import io
import math
import os
import zipfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # `types` imports JAX, which takes a second
    from worldline.types import NDArray

#: What a file is called until it is whole. One that a killed process left behind means nothing.
PARTIAL = ".partial"

#: Bytes to read at once of an array of which a part is wanted.
_AT_ONCE = 1 << 24


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


@contextlib.contextmanager
def open_archive(file: Path) -> Iterator[zipfile.ZipFile]:
    """An archive of arrays, to read within the context. Errors of the file are told apart there.

    Raises:
        OSError: it cannot be opened.
        DamagedArchiveError: a part of it that is read is damaged.
    """
    with file.open("rb") as opened:
        try:
            with zipfile.ZipFile(opened) as archive:
                yield archive
        except (EOFError, ValueError, OverflowError, MemoryError, RuntimeError) as error:
            raise DamagedArchiveError(f"{type(error).__name__}: {error}") from error
        except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
            raise DamagedArchiveError(str(error)) from error


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
    with open_archive(file) as archive:
        within = [info.filename.removesuffix(".npy") for info in archive.infolist()]
        return {name: _array(archive, name) for name in (names or within)}


def read_part(
    archive: zipfile.ZipFile,
    name: str,
    shape: Sequence[int],
    part: Sequence[tuple[int, int]],
    into: NDArray,
) -> None:
    """Reads a part of an array, which is checked by the sum of the whole array.

    Beside the part, this takes a few megabytes of memory, or one row of the array.

    Args:
        archive: from `open_archive`.
        name: of the array.
        shape: of the array.
        part: of each axis, where the part begins and ends.
        into: where the part goes; of its shape. The file has no types such as bfloat16, and its
            bytes are taken as what they are here.

    Raises:
        KeyError: the array is not in it.
        BadZipFile, ValueError: the array is damaged, or has another shape or size.
    """
    member = _stored(archive, name)
    with archive.open(member) as content:
        dtype, found = _header(content)
        size = math.prod(shape) * into.dtype.itemsize
        is_right = found == tuple(shape) and dtype.itemsize == into.dtype.itemsize
        if not is_right or content.tell() + size != member.file_size:
            raise zipfile.BadZipFile(f"{name!r} is {dtype}{list(found)}")
        rows, *row = shape or (1,)
        (begin, end), *within = part or ((0, 1),)
        wanted = into.reshape(1) if not shape else into
        cut = tuple(slice(*axis) for axis in within)
        at_once = max(_AT_ONCE // max(size // max(rows, 1), 1), 1)
        for first in range(0, rows if size else 0, at_once):
            last = min(first + at_once, rows)
            read = np.frombuffer(content.read(size // rows * (last - first)), into.dtype)
            low, high = max(begin, first), min(end, last)
            if low < high:
                here = read.reshape(-1, *row)[low - first : high - first]
                wanted[low - begin : high - begin] = here[(slice(None), *cut)]
        content.read(1)  # at its end, `zipfile` compares with its sum


def _header(content: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The type and shape of the array that follows in a file of NumPy."""
    version = np.lib.format.read_magic(content)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"an array of version {version}")
    shape, by_columns, dtype = read[version](content)
    if dtype.hasobject or (by_columns and len(shape) > 1):
        raise ValueError(f"an array of type {dtype}, by columns: {by_columns}")
    return dtype, shape


def _array(archive: zipfile.ZipFile, name: str) -> NDArray:
    """An array by name. What is read to its end, `zipfile` compares with its sum."""
    member = _stored(archive, name)
    content = io.BytesIO(archive.read(member))
    array: NDArray = np.lib.format.read_array(content, allow_pickle=False)
    if content.tell() != member.file_size:
        raise zipfile.BadZipFile(f"{name!r} is longer than its array")
    return array


def _stored(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"{name!r} is compressed")
    return member
