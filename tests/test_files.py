"""Archives of arrays: read whole, or refused, whatever is done to a byte of them."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from worldline.files import DamagedArchiveError, read_archive, whole_file

ARRAYS = {
    "about": np.array("some text"),
    "0": np.linspace(0, 1, 7, dtype=np.float32).reshape(7, 1),
    "1": np.arange(5),
    "2": np.array(True),
    "empty": np.zeros((0, 3)),
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    file = tmp_path / "arrays.npz"
    np.savez(file, **ARRAYS)
    return file


def assert_right(found: dict[str, np.ndarray]) -> None:
    for name, array in found.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype


def test_arrays_come_back(archive: Path) -> None:
    assert_right(read_archive(archive))
    assert read_archive(archive).keys() == ARRAYS.keys()
    assert read_archive(archive, ["1"]).keys() == {"1"}
    with pytest.raises(KeyError):
        read_archive(archive, ["3"])
    with pytest.raises(FileNotFoundError):
        read_archive(archive.with_name("none.npz"))


@pytest.mark.parametrize("of_each", [1, pytest.param(8, marks=pytest.mark.exhaustive)])
def test_no_flipped_bit_is_accepted_in_silence(archive: Path, of_each: int) -> None:
    """In every byte of the file: it is refused, or leaves each array that is found as it was."""
    content, refused = archive.read_bytes(), 0
    for place in range(len(content)):
        for bit in range(place, place + of_each):
            changed = content[place] ^ (1 << bit % 8)
            archive.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
            try:
                found = read_archive(archive)
            except (DamagedArchiveError, KeyError):
                refused += 1
                continue
            assert_right(found)
    assert refused > len(content) * of_each // 2


def test_a_part_of_a_file_is_refused(archive: Path) -> None:
    content = archive.read_bytes()
    for length in range(len(content)):
        archive.write_bytes(content[:length])
        with pytest.raises(DamagedArchiveError):
            read_archive(archive)


def test_what_is_larger_in_memory_is_refused(archive: Path) -> None:
    np.savez_compressed(archive, zeros=np.zeros(10**6))
    assert archive.stat().st_size < 10**4
    with pytest.raises(DamagedArchiveError, match="'zeros' is compressed"):
        read_archive(archive)
    header = io.BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": (2**40,)}
    np.lib.format.write_array_header_1_0(header, described)
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("huge.npy", header.getvalue() + bytes(64))
    with pytest.raises(DamagedArchiveError):
        read_archive(archive)


def test_objects_and_trailing_bytes_are_refused(archive: Path) -> None:
    np.savez(archive, bad=np.array([{}], dtype=object))
    with pytest.raises(DamagedArchiveError, match="allow_pickle"):
        read_archive(archive)
    whole = io.BytesIO()
    np.save(whole, np.ones(3))
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("long.npy", whole.getvalue() + b"more")
    with pytest.raises(DamagedArchiveError, match="longer than its array"):
        read_archive(archive)


def test_a_file_takes_the_place_of_links_and_follows_none(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in ("file", "file.partial"):
        (tmp_path / name).symlink_to(outside)
    with whole_file(tmp_path / "file") as file:
        file.write(b"new")
    assert outside.read_text() == "mine"
    assert (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / "file").is_symlink()
    assert not (tmp_path / "file.partial").is_symlink()
