"""Motion: the frames of a reference motion, as a file has them, and at another rate."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from worldline.errors import ConfigError

NDArray = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True)
class Motion:
    """T frames of a robot with a floating base, float64."""

    source: str
    """Where it comes from, for errors."""
    fps: float
    """Frames a second."""
    root_pos: NDArray
    """The position of the root body, `(T, 3)`, m."""
    root_quat: NDArray
    """Its orientation, `(T, 4)`, real part first, of length 1."""
    joint_pos: NDArray
    """The angles of the joints, `(T, n)`, rad."""
    joint_names: tuple[str, ...] | None = None
    """The joints' names, in the order of `joint_pos`; None: the file has no names."""
    body_pos: NDArray | None = None
    """The positions of the robot's bodies, `(T, nbody, 3)`, m, where the file has them. They show
    the order of joints without names."""

    def __post_init__(self) -> None:
        frames = {len(x) for x in (self.root_pos, self.root_quat, self.joint_pos)}
        if len(frames) != 1 or self.frames < 2:
            raise ConfigError(
                f"{self.source} has {len(self.root_pos)} positions, {len(self.root_quat)} "
                f"orientations and {len(self.joint_pos)} rows of joint angles; give as many of "
                "each, 2 or more"
            )
        if not 0 < self.fps < float("inf"):
            raise ConfigError(f"{self.source} has {self.fps:g} frames a second; give more than 0")
        for what, rows, names in self._columns():
            bad = np.argwhere(~np.isfinite(rows))
            if len(bad):
                frame, column = bad[0]
                raise ConfigError(
                    f"{self.source}: {what} {names[column]!r} is {rows[frame, column]} in frame "
                    f"{frame}; give finite numbers"
                )
        length = np.linalg.norm(self.root_quat, axis=1)
        if np.abs(length - 1).max() > 0.02:
            frame = int(np.abs(length - 1).argmax())
            raise ConfigError(
                f"{self.source}: the root's quaternion in frame {frame} has length "
                f"{length[frame]:.3g}; give unit quaternions, and columns in the order that the "
                "layout asks for"
            )

    def _columns(self) -> list[tuple[str, NDArray, tuple[str, ...]]]:
        """What there are columns of, the columns, and their names."""
        joints = self.joint_names or tuple(map(str, range(self.joint_pos.shape[1])))
        return [
            ("root position", self.root_pos, ("x", "y", "z")),
            ("root quaternion", self.root_quat, ("w", "x", "y", "z")),
            ("joint", self.joint_pos, joints),
        ]

    @property
    def frames(self) -> int:
        """T."""
        return len(self.joint_pos)

    @property
    def duration(self) -> float:
        """From the first frame to the last, s."""
        return (self.frames - 1) / self.fps


def resampled(motion: Motion, fps: float) -> Motion:
    """The motion at another rate, from its first frame to the last time of the new rate within it.

    Positions and joint angles are interpolated linearly, the root's orientation at a constant rate
    of turning the shorter way round: Shoemake (1985), "Animating rotation with quaternion curves".

    Args:
        motion: the motion.
        fps: frames a second.

    Raises:
        ConfigError: the motion is shorter than a frame of the new rate.
    """
    from scipy.spatial.transform import Rotation, Slerp

    # A duration of 2.9999999 frames is one of 3.
    frames = int(np.floor(motion.duration * fps + 1e-6)) + 1
    if frames < 2:
        raise ConfigError(
            f"{motion.source} takes {motion.duration:g} s, less than a frame at {fps:g} Hz; give a "
            "longer motion"
        )
    given = np.arange(motion.frames) / motion.fps
    times = np.minimum(np.arange(frames) / fps, given[-1])

    def linear(rows: NDArray) -> NDArray:
        flat = rows.reshape(len(rows), -1)
        columns = [np.interp(times, given, column) for column in flat.T]
        return np.stack(columns, axis=1).reshape(frames, *rows.shape[1:])

    turns = Slerp(given, Rotation.from_quat(motion.root_quat, scalar_first=True))
    return dataclasses.replace(
        motion,
        fps=fps,
        root_pos=linear(motion.root_pos),
        root_quat=turns(times).as_quat(scalar_first=True),
        joint_pos=linear(motion.joint_pos),
        body_pos=None if motion.body_pos is None else linear(motion.body_pos),
    )
