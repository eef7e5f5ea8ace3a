import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import imageio.v2 as imageio
import imageio_ffmpeg
import numpy as np
import pytest

from worldline.errors import (
    ConfigError,
    ModelError,
    RendererUnavailableError,
    RunError,
    VariationError,
)
from worldline.model import Model
from worldline.report import render_episode

MODEL = Model("""
<mujoco>
  <worldbody>
    <light directional="true" pos="0 0 3" dir="0 0 -1"/>
    <geom type="plane" size="20 20 1" rgba="0.2 0.2 0.9 1"/>
    <body pos="0 0 0.5">
      <joint type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.5" rgba="0.9 0.1 0.1 1"/>
    </body>
    <body mocap="true" pos="0 0 9">
      <geom type="sphere" size="0.5" rgba="0.1 0.9 0.1 1"/>
    </body>
  </worldbody>
</mujoco>
""")
ROLL = np.linspace(0, 1, 20)[:, None]
SIZE = (96, 128)
STILL = {"type": "free", "lookat": (0, 0, 0.5), "distance": 4.0, "elevation": -10}


@pytest.fixture
def no_graphics(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")


def _red(image):
    image = image.astype(int)
    return (image[..., 0] > 80) & (image[..., 0] > 2 * image[..., 1:].max(axis=-1))


def _decode(mp4):
    """What FFmpeg says of a video, and its frames `(T, height, width, 3)`."""
    arguments = ["-i", str(mp4), "-f", "rawvideo", "-pix_fmt", "rgb24", "-fps_mode", "passthrough"]
    program = [imageio_ffmpeg.get_ffmpeg_exe(), *arguments, "-"]
    result = subprocess.run(program, capture_output=True, check=True)
    frames = np.frombuffer(result.stdout, np.uint8).reshape(-1, *SIZE, 3)
    return result.stderr.decode(), frames


def _size(png):
    height, width, _ = imageio.imread(png).shape
    return width, height


def _tile(png, column, row=0):
    """One frame of the picture, without its edges and the time on it."""
    image = imageio.imread(png)
    top, left = row * (SIZE[0] + 4), column * (SIZE[1] + 4)
    return image[top + 12 : top + SIZE[0], left : left + SIZE[1]]


def test_video_plays_in_browsers_in_real_time(tmp_path, no_graphics):
    mp4 = tmp_path / "a.mp4"
    clip = render_episode(MODEL, ROLL, mp4, timestep=0.05, size=SIZE, camera=STILL)
    assert (clip.mp4, clip.png) == (mp4, None)
    words, frames = _decode(mp4)
    assert "h264" in words and "yuv420p" in words and "128x96" in words and " 20 fps" in words
    assert len(frames) == 20
    middles = [np.nonzero(_red(frame))[1].mean() for frame in frames]
    assert np.all(np.diff(middles) > 0), "the ball rolls to the right"
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]


def test_fast_control_is_shown_in_real_time_too(tmp_path, no_graphics):
    mp4 = tmp_path / "a.mp4"
    render_episode(MODEL, np.zeros((50, 1)), mp4, timestep=0.008, size=SIZE)
    words, frames = _decode(mp4)
    assert " 31.25 fps" in words and len(frames) == 13


def test_picture_shows_eight_frames(tmp_path, no_graphics):
    png = tmp_path / "a.png"
    clip = render_episode(MODEL, ROLL, None, png, timestep=0.05, size=SIZE, camera=STILL)
    assert (clip.mp4, clip.png) == (None, png)
    assert _size(png) == (4 * 128 + 3 * 4, 2 * 96 + 4)
    tiles = [_tile(png, column, row) for row in (0, 1) for column in range(4)]
    middles = [np.nonzero(_red(tile))[1].mean() for tile in tiles]
    assert np.all(np.diff(middles) > 0)


def test_one_frame_is_enough(tmp_path, no_graphics):
    render_episode(
        MODEL, ROLL[:1], tmp_path / "a.mp4", tmp_path / "a.png", timestep=0.05, size=SIZE
    )
    assert _size(tmp_path / "a.png") == (128, 96)


def test_mocap_bodies_move(tmp_path, no_graphics):
    png = tmp_path / "a.png"
    position = np.tile([0.0, 0.0, 0.5], (2, 1, 1))
    position[0, 0, 2] = 9
    inputs = {"mocap_pos": position}
    render_episode(
        MODEL, [[9.0], [9.0]], None, png, timestep=1, size=SIZE, camera=STILL, inputs=inputs
    )
    before, after = (_tile(png, column)[40, 64].astype(int) for column in (0, 1))
    assert before[1] < 2 * before[0] and after[1] > 2 * after[0]


def test_the_worlds_own_constants_are_drawn(tmp_path, no_graphics):
    sizes = MODEL.mj.geom_size.copy()
    sizes[1] *= 0.5
    areas = []
    for variation in ({}, {"geom_size": sizes, "opt.gravity": np.zeros(3)}):
        png = tmp_path / "a.png"
        render_episode(
            MODEL, ROLL[:1], None, png, timestep=1, size=SIZE, camera=STILL, variation=variation
        )
        areas.append(_red(_tile(png, 0)).sum())
    assert areas[1] == pytest.approx(areas[0] / 4, rel=0.1)
    assert MODEL.mj.geom_size[1, 0] == 0.5, "the caller's model is as it was"


def test_a_robot_that_ran_off_the_floor_still_stands_on_it(tmp_path, no_graphics):
    png = tmp_path / "a.png"
    render_episode(MODEL, [[0.0], [500.0]], None, png, timestep=30, size=SIZE)
    near, far = (_tile(png, column)[-3, 64].astype(int) for column in (0, 1))
    assert np.abs(far - near).max() < 60, "floor, not the pale horizon"


def _check_ball(png):
    red = _red(_tile(png, 0))
    assert 300 < red.sum() < 1500
    assert np.nonzero(red)[1].mean() == pytest.approx(63.5, abs=1.5)


def test_this_machines_own_graphics_or_a_line_that_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    png = tmp_path / "a.png"
    clip = render_episode(MODEL, ROLL[:1], None, png, timestep=1, size=SIZE, camera=STILL)
    _check_ball(png)
    assert "\n" not in clip.note
    if clip.note.startswith("rendered by ray casting"):
        assert "apt-get install libegl1" in clip.note
    else:
        assert clip.note.startswith("rendered by MuJoCo with ")


@pytest.fixture
def broken_graphics(monkeypatch):
    """EGL that fails for good: on a device that no machine has."""
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "999")


def test_without_working_graphics_a_run_still_ends_with_a_picture(tmp_path, broken_graphics):
    png = tmp_path / "a.png"
    clip = render_episode(MODEL, ROLL[:1], None, png, timestep=1, size=SIZE, camera=STILL)
    _check_ball(png)
    assert clip.note.startswith("rendered by ray casting, since EGL failed (")
    assert "apt-get install libegl1" in clip.note and "\n" not in clip.note


def test_a_renderer_asked_for_by_name_has_no_stand_in(tmp_path, broken_graphics):
    with pytest.raises(RendererUnavailableError, match=r"EGL failed .*apt-get install") as error:
        render_episode(MODEL, ROLL, None, tmp_path / "a.png", timestep=1, renderer="egl")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "a.png").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_a_driver_that_crashes_does_not_take_the_run_with_it(tmp_path, monkeypatch):
    crashing = tmp_path / "python"
    crashing.write_text(
        f'#!/bin/sh\n[ "$MUJOCO_GL" = egl ] && kill -SEGV $$\nexec "{sys.executable}" "$@"\n'
    )
    crashing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(crashing))
    monkeypatch.setenv("MUJOCO_GL", "egl")
    clip = render_episode(MODEL, ROLL[:1], None, tmp_path / "a.png", timestep=1, size=SIZE)
    assert "EGL failed (crashed with signal 11)" in clip.note


def test_no_library_at_all(tmp_path, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    clip = render_episode(MODEL, ROLL[:1], None, tmp_path / "a.png", timestep=1, size=SIZE)
    assert "no EGL or OSMesa library was found; for MuJoCo's own renderer: apt-get" in clip.note


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"qpos": np.zeros((3, 2))}, ConfigError, r"'qpos' has shape \(3, 2\).*give \(3, 1\)"),
        ({"qpos": np.zeros((0, 1))}, ConfigError, "0 frames"),
        ({"qpos": [[0.0], [np.nan]]}, ConfigError, "'qpos' has numbers that are not finite"),
        ({"size": (95, 128)}, ConfigError, "even"),
        ({"inputs": {"mocap_pos": np.zeros((2, 1, 3))}}, ConfigError, "'mocap_pos' has shape"),
        ({"inputs": {"mocap": 0}}, ModelError, "'mocap'"),
        ({"variation": {"geom_sizes": 0}}, VariationError, "geom_size"),
        ({"png": "/nowhere/a.png"}, RunError, r"cannot write '/nowhere/a\.png'"),
    ],
    ids=["shape", "none", "nan", "size", "frames", "input", "variation", "folder"],
)
def test_mistakes_are_told_in_one_line(tmp_path, change, error, message):
    arguments = {"qpos": ROLL, "png": tmp_path / "a.png", "timestep": 0.05} | change
    with pytest.raises(error, match=message) as raised:
        render_episode(MODEL, **arguments)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir()) and not Path("/nowhere").exists()


LONG = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's children ignore it
import numpy as np
from worldline.model import Model
from worldline.report import render_episode

model = Model(sys.argv[1])
render_episode(model, np.zeros((3000, model.nq)), sys.argv[2], timestep=1 / 30, size=(96, 128))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_drawing_that_is_broken_off(tmp_path, no_graphics, number):
    model = tmp_path / "model.xml"
    model.write_text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    command = [sys.executable, "-c", LONG, model, tmp_path / "long.mp4"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    until(lambda: any(b"ffmpeg" in line for line in commands(tmp_path)))
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert b"libegl" not in error.lower()  # no advice on what to install
    until(lambda: not commands(tmp_path) and [x.name for x in tmp_path.iterdir()] == ["model.xml"])


def commands(folder: Path) -> list[bytes]:
    """The command lines of this machine's processes that name a folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_bytes())
    return [line for line in lines if bytes(folder) in line]


def until(true: Callable[[], bool]) -> None:
    """Waits for a condition; fails after a minute."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
