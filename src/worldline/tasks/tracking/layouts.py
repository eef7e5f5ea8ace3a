"""Layouts: reference motions as the field stores them, in CSV and NPZ files.

CSV without a header is the layout of the LAFAN1 motions that Unitree retargeted to its robots, and
of BeyondMimic's `csv_to_npz.py`: in each row the root's position, its quaternion xyzw, and the
joints in the order of the model. NPZ has the keys of BeyondMimic's and mjlab's motions, of GMR's
and PHC's retargeted ones, or a `qpos` of MuJoCo.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from worldline.errors import ConfigError, did_you_mean
from worldline.tasks.tracking.motion import Motion, NDArray

#: The columns of the root in a CSV file with a header.
ROOT_COLUMNS = ("root_x", "root_y", "root_z", "root_qx", "root_qy", "root_qz", "root_qw")

#: Other words for them: `root_pos_x`, `base_x`, `root_quat_w`, `root_rot_w`, `base_qw`.
_ROOT_COLUMN = re.compile(r"(?:root|base)_(?:(?:pos_)?([xyz])|(?:q|quat_|rot_)([xyzw]))")

#: What an NPZ file may call each of its arrays; the first is ours.
_KEYS = {
    "fps": ("fps", "frequency", "framerate", "frame_rate"),
    "joint_pos": ("joint_pos", "dof_pos", "joint_positions"),
    "joint_names": ("joint_names", "dof_names"),
    "root_pos": ("root_pos", "root_trans", "base_pos"),
    "root_quat": ("root_quat", "root_quat_wxyz", "base_quat"),
    "root_rot": ("root_rot", "root_quat_xyzw"),
    "body_pos": ("body_pos_w", "body_pos"),
    "body_quat": ("body_quat_w", "body_quat"),
    "qpos": ("qpos",),
}


def read_motion(file: str | os.PathLike[str], fps: float = 30.0) -> Motion:
    """A reference motion from a file.

    A CSV file without a header has in each row the root's x, y and z, its quaternion x, y, z and w,
    and the joints in the order of the model. With a header, its columns have any order: those of
    `ROOT_COLUMNS`, one for each joint with its name, and if there is one `time`, s.

    An NPZ file has `joint_pos` `(T, n)`, `root_pos` `(T, 3)` and `root_quat` `(T, 4)`, wxyz, or
    `root_rot`, xyzw; in place of the root `body_pos_w` `(T, nbody, 3)` and `body_quat_w`, wxyz,
    whose first body it is; or in place of all `qpos` `(T, nq)` as of MuJoCo. It may have
    `joint_names` and `fps`.

    Args:
        file: a path that ends in `.csv` or `.npz`.
        fps: frames a second of a file that does not say.

    Raises:
        ConfigError: there is no such file, or it has another layout; the error names the column,
            the key or the row.
    """
    path = Path(file)
    if path.suffix.lower() not in _READERS:
        raise ConfigError(f"the motion is {str(file)!r}; give a file that ends in .csv or .npz")
    if not path.is_file():
        raise ConfigError(f"there is no motion at {str(file)!r}; give a .csv or .npz file")
    return _READERS[path.suffix.lower()](path, fps)


def _read_csv(path: Path, fps: float) -> Motion:
    with path.open(newline="") as text:
        rows = [row for row in csv.reader(text) if any(cell.strip() for cell in row)]
    if not rows:
        raise ConfigError(f"{path.name} is empty; give a row for each frame")
    first = [cell.strip() for cell in rows[0]]
    if all(map(_is_number, first)):
        table = _numbers(path, rows, [f"column {i}" for i in range(len(first))], 1)
        if table.shape[1] < 8:
            raise ConfigError(
                f"{path.name} has {table.shape[1]} columns; without a header, give the root's x, "
                "y, z, its quaternion x, y, z, w, and the joints"
            )
        position, turn, joints = table[:, :3], table[:, 3:7], table[:, 7:]
        return Motion(path.name, fps, position, _wxyz(turn), joints)
    return _with_header(path, first, rows[1:], fps)


def _with_header(path: Path, names: list[str], rows: list[list[str]], fps: float) -> Motion:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"{path.name} has two columns {twice[0]!r}; give each a name of its own")
    columns = dict(zip(names, _numbers(path, rows, names, 2).T, strict=True))
    known = {name: _root_name(name) for name in names}
    root = {known[name]: columns[name] for name in names if known[name]}
    for wanted in ROOT_COLUMNS:
        if wanted not in root:
            raise ConfigError(
                f"{path.name} has no column {wanted!r}{did_you_mean(wanted, names)}; a header "
                f"needs {', '.join(ROOT_COLUMNS)}"
            )
    if "time" in columns:
        fps = _rate(path, columns["time"])
    joints = tuple(name for name in names if not known[name] and name != "time")
    if not joints:
        raise ConfigError(f"{path.name} has no column of a joint; give one for each")
    position, turn = (
        np.stack([root[n] for n in p], 1) for p in (ROOT_COLUMNS[:3], ROOT_COLUMNS[3:])
    )
    angles = np.stack([columns[name] for name in joints], axis=1)
    return Motion(path.name, fps, position, _wxyz(turn), angles, joints)


def _root_name(name: str) -> str:
    """The name in `ROOT_COLUMNS` of a column; empty: it is none of the root's."""
    found = _ROOT_COLUMN.fullmatch(name.lower())
    if not found:
        return ""
    return f"root_{found[1]}" if found[1] else f"root_q{found[2]}"


def _rate(path: Path, times: NDArray) -> float:
    """Frames a second, of the times of all frames."""
    gaps = np.diff(times)
    if not len(gaps) or gaps.min() <= 0 or np.ptp(gaps) > 0.02 * gaps.mean():
        raise ConfigError(
            f"{path.name}: 'time' is not even; give frames at equal time intervals, in s"
        )
    return float((len(times) - 1) / (times[-1] - times[0]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(path: Path, rows: list[list[str]], names: Sequence[str], line: int) -> NDArray:
    """The cells as numbers, `(T, columns)`; `line` is that of the first row."""
    for row, number in zip(rows, itertools.count(line)):
        if len(row) != len(names):
            raise ConfigError(
                f"{path.name}: row {number} has {len(row)} columns, and the first {len(names)}"
            )
        for cell, name in zip(row, names, strict=True):
            if not _is_number(cell):
                raise ConfigError(f"{path.name}: {name!r} is {cell!r} in row {number}, no number")
    return np.array(rows, np.float64).reshape(len(rows), len(names))


def _wxyz(xyzw: NDArray) -> NDArray:
    return np.roll(xyzw, 1, axis=-1)


def _read_npz(path: Path, fps: float) -> Motion:
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path.name} is no NPZ file of arrays: {error}") from error
    known = {word: name for name, words in _KEYS.items() for word in words}
    found = {known[word]: array for word, array in content.items() if word in known}
    rate = float(np.ravel(found["fps"])[0]) if "fps" in found else fps
    names = tuple(map(str, found["joint_names"].tolist())) if "joint_names" in found else None
    position, turn, joints = _arrays(path, found, sorted(content))
    if names is not None and len(names) != joints.shape[1]:
        raise ConfigError(
            f"{path.name} has {len(names)} joint_names and {joints.shape[1]} columns of joints; "
            "give one name for each column"
        )
    bodies = found.get("body_pos")
    return Motion(path.name, rate, position, turn, joints, names, bodies)


def _arrays(
    path: Path, found: Mapping[str, NDArray], keys: list[str]
) -> tuple[NDArray, NDArray, NDArray]:
    """The root's positions and quaternions wxyz, and the joints."""
    if "qpos" in found and "joint_pos" not in found:
        qpos = _shaped(path, "qpos", found["qpos"], 2)
        return qpos[:, :3], qpos[:, 3:7], qpos[:, 7:]
    if "joint_pos" not in found:
        raise ConfigError(f"{path.name} has no 'joint_pos' or 'qpos'; it has {', '.join(keys)}")
    joints = _shaped(path, "joint_pos", found["joint_pos"], 2)
    if "body_pos" in found and "body_quat" in found and "root_pos" not in found:
        position, turn = (_shaped(path, n, found[n], 3)[:, 0] for n in ("body_pos", "body_quat"))
        return position, turn, joints
    turn_key = "root_quat" if "root_quat" in found else "root_rot"
    for key in ("root_pos", turn_key):
        if key not in found:
            wanted = "root_quat" if key == "root_rot" else key
            raise ConfigError(
                f"{path.name} has no {wanted!r}, and no 'body_pos_w' with 'body_quat_w'; it has "
                f"{', '.join(keys)}"
            )
    position, turn = (_shaped(path, key, found[key], 2) for key in ("root_pos", turn_key))
    return position, turn if turn_key == "root_quat" else _wxyz(turn), joints


def _shaped(path: Path, name: str, array: NDArray, axes: int) -> NDArray:
    """An array in float64 with so many axes, the last of the size that its name says."""
    last = {"root_pos": 3, "body_pos": 3, "joint_pos": None, "qpos": None}.get(name, 4)
    if array.ndim != axes or (last and array.shape[-1] != last):
        wanted = {2: f"(T, {last or 'n'})", 3: f"(T, nbody, {last})"}[axes]
        raise ConfigError(f"{path.name}: {name!r} has shape {array.shape}; give {wanted}")
    return np.asarray(array, np.float64)


_READERS = {".csv": _read_csv, ".npz": _read_npz}
