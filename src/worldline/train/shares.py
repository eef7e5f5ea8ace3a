"""How processes share out the arrays of a checkpoint, to write them and to read them.

An array that is divided over processes is written in blocks. Each process has its own blocks in a
file of its own, its share: `share-000001000000-0-of-2.npz`, beside the checkpoint's own file. That
one names the shares, with the size and the SHA-256 of each and where its blocks belong. So a share
from another time or with a damaged bit is found out, and any process can read any part of an array.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from zipfile import ZipFile

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from worldline.files import DamagedArchiveError, open_archive, read_part, whole_file
from worldline.keys import is_key
from worldline.types import Array, NDArray

#: A part of an array: of each axis, where the part begins and ends.
Box: TypeAlias = tuple[tuple[int, int], ...]


class Block(NamedTuple):
    """A block of one array of a state, which lies on one device."""

    leaf: int
    """The number of the array."""
    box: Box
    device: jax.Device


def divided(words: Sequence[Any]) -> dict[int, list[Block]]:
    """The blocks of those arrays that are divided over processes, by process.

    It is the same in all processes. A block that several devices have belongs to the first of them.

    Args:
        words: the arrays of a state; of keys, their words.
    """
    found: dict[int, list[Block]] = {}
    for leaf, word in enumerate(words):
        alone = not isinstance(word, jax.Array) or word.is_fully_addressable
        if alone or word.is_fully_replicated or not word.size:
            continue
        boxes: dict[Box, jax.Device] = {}
        for device, index in word.sharding.devices_indices_map(word.shape).items():
            boxes.setdefault(_box(index, word.shape), device)
        for box, device in boxes.items():
            found.setdefault(device.process_index, []).append(Block(leaf, box, device))
    return found


def block_of(words: Sequence[Array], block: Block) -> NDArray:
    """A copy of a block that this process has."""
    shards = words[block.leaf].addressable_shards
    (data,) = [shard.data for shard in shards if shard.device == block.device]
    return np.array(data, order="C")


def share_file(checkpoint: Path, process: int, processes: int) -> Path:
    """The file of a process's share of a checkpoint."""
    step = checkpoint.stem.removeprefix("step-")
    return checkpoint.with_name(f"share-{step}-{process}-of-{processes}.npz")


def write_share(file: Path, blocks: Sequence[NDArray]) -> dict[str, Any]:
    """Writes a share, and returns what the checkpoint says of it: its name, size and SHA-256.

    Raises:
        OSError: it cannot be written.
    """
    with whole_file(file) as opened:
        named: dict[str, Any] = {str(number): block for number, block in enumerate(blocks)}
        np.savez(opened, **named)
    return {"file": file.name, "bytes": file.stat().st_size, "sha256": _digest(file)}


def forget_shares(checkpoint: Path, names: Collection[str]) -> None:
    """Deletes the shares up to a checkpoint's that no checkpoint needs: of those that are deleted,
    and of those that a kill left incomplete.

    Shares of later steps stay: other processes may be writing them.

    Args:
        checkpoint: the newest one.
        names: the names of its shares.
    """
    for share in checkpoint.parent.glob("share-*"):
        step = share.name.split("-")[1]
        its = share.with_name(f"step-{step}.npz")
        needed = share.name in names if its == checkpoint else its.exists()
        if not needed and its.name <= checkpoint.name:
            share.unlink(missing_ok=True)


@contextlib.contextmanager
def saved_arrays(checkpoint: Path, shares: Sequence[Mapping[str, Any]]) -> Iterator[SavedArrays]:
    """The arrays of a checkpoint, to read within the context.

    Args:
        checkpoint: its file.
        shares: what it says of its shares.

    Raises:
        OSError, DamagedArchiveError, KeyError, TypeError, ValueError: what is read is damaged, or a
            share is not there or has another size.
    """
    with contextlib.ExitStack() as stack:
        yield SavedArrays(stack, checkpoint, shares)


class SavedArrays:
    """The arrays of a checkpoint, in its own file and in its shares. See `saved_arrays`."""

    def __init__(
        self, stack: contextlib.ExitStack, checkpoint: Path, shares: Sequence[Mapping[str, Any]]
    ) -> None:
        self._stack, self._shares = stack, shares
        self._archive = stack.enter_context(open_archive(checkpoint))
        self._files = [checkpoint.with_name(Path(share["file"]).name) for share in shares]
        self._opened: dict[int, ZipFile] = {}
        self._blocks: dict[int, list[tuple[int, int, Box]]] = {}
        for number, (share, file) in enumerate(zip(shares, self._files, strict=True)):
            if file.stat().st_size != share["bytes"]:
                raise DamagedArchiveError(f"{file.name} has another size")
            for name, (leaf, box) in enumerate(share["blocks"]):
                self._blocks.setdefault(leaf, []).append((number, name, box))

    def leaf(self, number: int, like: Any) -> Any:
        """An array of the state with the type of `like`: a file has no bfloat16 and no keys.

        Args:
            number: of the array.
            like: its shape and type. If it says where on a mesh the array lies, it comes to lie
                there, and this process reads what its devices have of it, and no more.
        """
        word = jax.eval_shape(jax.random.key_data, like) if is_key(like) else like
        place = like.sharding if isinstance(like, jax.ShapeDtypeStruct) else None
        if isinstance(place, NamedSharding):
            array = self._on_devices(number, word, place)
        else:
            array = jnp.array(self._read(number, word, tuple((0, n) for n in word.shape)))
        return jax.random.wrap_key_data(array) if is_key(like) else array

    def _on_devices(self, number: int, like: Any, place: NamedSharding) -> Array:
        """An array over the devices of a mesh, of which this process reads what its own have."""
        indices = place.addressable_devices_indices_map(like.shape).values()
        boxes = [_box(index, like.shape) for index in indices if index is not None]
        axes = zip(*boxes, strict=True)
        mine = tuple((min(a for a, _ in axis), max(b for _, b in axis)) for axis in axes)
        read = self._read(number, like, mine)

        def of_device(index: Any) -> NDArray:
            part: NDArray = read[_within(_box(index, like.shape), mine)]
            return part

        return jax.make_array_from_callback(like.shape, place, of_device)

    def _read(self, number: int, like: Any, box: Box) -> NDArray:
        """A part of an array, from the file of the checkpoint or from its shares."""
        read, filled = np.empty([end - begin for begin, end in box], like.dtype), 0
        if number not in self._blocks:
            read_part(self._archive, str(number), like.shape, box, read)
            return read
        for share, name, block in self._blocks[number]:
            both = zip(box, block, strict=True)
            common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in both)
            if all(begin < end for begin, end in common):
                shape = [end - begin for begin, end in block]
                part = [(cut.start, cut.stop) for cut in _within(common, block)]
                into = read[_within(common, box)]
                read_part(self._share(share), str(name), shape, part, into)
                filled += into.size
        if filled != read.size:
            raise DamagedArchiveError(f"array {number} is incomplete")
        return read

    def _share(self, number: int) -> ZipFile:
        """The archive of a share, of which the SHA-256 is compared when it is opened."""
        if number not in self._opened:
            file = self._files[number]
            if _digest(file) != self._shares[number]["sha256"]:
                raise DamagedArchiveError(f"{file.name} has another SHA-256")
            self._opened[number] = self._stack.enter_context(open_archive(file))
        return self._opened[number]


def _box(index: Sequence[slice], shape: Sequence[int]) -> Box:
    return tuple(axis.indices(length)[:2] for axis, length in zip(index, shape, strict=True))


def _within(part: Box, box: Box) -> tuple[slice, ...]:
    """Where a part of an array is in a larger part of it."""
    pairs = zip(part, box, strict=True)
    return tuple(slice(begin - first, end - first) for (begin, end), (first, _) in pairs)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
