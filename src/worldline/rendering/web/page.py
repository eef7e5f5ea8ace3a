"""A page that plays what worlds did, by itself: one HTML file to orbit, pause and scrub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import mujoco

from worldline.errors import RunError
from worldline.files import whole_file
from worldline.rendering.scene import NDArray
from worldline.rendering.web.poses import Poser
from worldline.rendering.web.server import open_server, point_camera
from worldline.rendering.web.stage import Stage, spacing_of

#: Frames a second, at most.
_FRAMES = 30.0

#: Poses are rounded to multiples of 1 / 4096, a quarter of a millimetre: what is round is small.
_STEPS = 4096.0


class Frame(NamedTuple):
    """A moment of B worlds."""

    qpos: NDArray
    """`(B, nq)`"""
    shown: Mapping[str, NDArray]
    """Mocap bodies and constants, `(B, ...)` each."""
    text: str
    """What stands above the first world."""


def stride_of(timestep: float) -> int:
    """How many control steps there are from frame to frame.

    Args:
        timestep: seconds between two control steps.
    """
    return max(1, round(1 / (_FRAMES * timestep)))


def page_of(
    model: mujoco.MjModel, frames: Iterable[Frame], seconds: float, num_worlds: int
) -> bytes:
    """The page as HTML that needs no other file and no server.

    Args:
        model: the model of all worlds.
        frames: what to play.
        seconds: between two frames, of simulated time.
        num_worlds: B.

    Raises:
        MissingExtraError: viser is not installed.
    """
    with open_server() as (server, _):
        stage = Stage(server, model, num_worlds, spacing_of(model))
        point_camera(server, model, stage)
        poser, recording = Poser(model), server.get_scene_serializer()
        for frame in frames:
            poses = poser.poses(frame.qpos, frame.shown)
            for values in (poses.position, poses.wxyz):
                _round(values)
            stage.show(poses, 0, follow=True, contacts=False, centre=False, text=frame.text)
            recording.insert_sleep(seconds)
        html: str = recording.as_html()
    return html.encode()


def write_page(file: Path, page: bytes) -> None:
    """Writes a page whole, and makes its folder.

    Raises:
        RunError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as opened:
            opened.write(page)
    except OSError as error:
        raise RunError(f"cannot write {str(file)!r}: {error.strerror}; free some space") from error


def _round(values: NDArray) -> None:
    values *= _STEPS
    values.round(out=values)
    values /= _STEPS
