"""How well a video is drawn follows from how long its first frames take."""

import dataclasses
import io
import time

import numpy as np
import pytest

from worldline.model import Model
from worldline.rendering.pool import RAYS
from worldline.report import drawing, render_episode
from worldline.report.drawing import Job, Plan, plans
from worldline.report.pictures import grid_shape, in_grid
from worldline.report.progress import DrawingProgress
from worldline.report.video import Take

MODEL = Model("""
<mujoco>
  <worldbody>
    <geom type="plane" size="20 20 1" rgba="0.2 0.2 0.9 1"/>
    <body pos="0 0 0.5">
      <joint type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.5" rgba="0.9 0.1 0.1 1"/>
    </body>
  </worldbody>
</mujoco>
""")
JOB = Job(
    model=MODEL.mj,
    worlds=[{"qpos": np.zeros((300, 1))}],
    camera=-1,
    fps=30.0,
    sizes=((720, 1280), (480, 854), (320, 480)),
    steps=(1, 2, 3),
    budget_s=20.0,
    mp4=None,
    png=None,
    views={},
    way="egl",
)


def test_each_plan_is_cheaper_than_the_one_before(monkeypatch):
    monkeypatch.setattr(drawing, "drawn_faces", lambda model: 400_000)
    assert list(plans(JOB)) == [
        Plan((720, 1280)),
        Plan((720, 1280), simple=True),
        Plan((480, 854), simple=True),
        Plan((480, 854), simple=True, shadows=False),
        Plan((320, 480), simple=True, shadows=False),
        Plan((320, 480), 2, simple=True, shadows=False),
        Plan((320, 480), 3, simple=True, shadows=False),
    ]


def test_what_is_asked_for_stays():
    asked = dataclasses.replace(JOB, sizes=((720, 1280),), steps=(1,), way=RAYS)
    assert list(plans(asked)) == [Plan((720, 1280))]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.05, ""),
        (0.1, "480 x 854 instead of 720 x 1280 pixels"),
        (
            0.7,
            "no shadows, 320 x 480 instead of 720 x 1280 pixels, 15 instead of 30 "
            "frames per second",
        ),
        (
            9.0,
            "no shadows, 320 x 480 instead of 720 x 1280 pixels, 10 instead of 30 "
            "frames per second",
        ),
    ],
)
def test_the_first_plan_that_keeps_the_budget_is_taken_and_named(seconds, words, monkeypatch):
    """A renderer whose time goes with the number of pixels, 300 frames, and 20 s."""
    whole = 720 * 1280

    class Pool:
        def close(self):
            pass

    def opened(job, plan, frames):
        pool = Pool()
        pool.pace = seconds * plan.size[0] * plan.size[1] / whole
        return pool

    monkeypatch.setattr(drawing, "_open", opened)
    monkeypatch.setattr(drawing, "_seconds_a_frame", lambda job, pool, enough: pool.pace)
    plan, _ = drawing._affordable(JOB, 300)
    assert drawing._in_words(JOB, plan) == words


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (5, (2, 3))])
def test_a_grid(count, shape):
    assert grid_shape(count) == shape
    pictures = [np.full((2, 4, 3), number, np.uint8) for number in range(count)]
    whole = in_grid(pictures)
    assert whole.shape == (2 * shape[0], 4 * shape[1], 3)
    assert whole[0, 0, 0] == 0 and count - 1 in whole[-2:]


def test_worlds_stand_beside_each_other_and_one_that_ended_stands_still(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    import imageio.v2 as imageio

    camera = {"type": "free", "lookat": (0, 0, 0.5), "distance": 4.0, "elevation": -10}
    still = np.zeros((2, 1))
    gone = np.array([[0.0]] * 2 + [[9.0]] * 6)
    others = [Take(gone), Take(still)]
    done = []
    clip = render_episode(
        MODEL, still, None, tmp_path / "a.png", timestep=1, size=(96, 128), camera=camera,
        beside=others, progress=lambda drawn, total: done.append((drawn, total)),
    )  # fmt: skip
    assert clip.note == "rendered by ray casting"
    assert done[-1] == (8, 8)
    last = imageio.imread(tmp_path / "a.png")[-96:, -128:].astype(int)
    red = (last[..., 0] > 80) & (last[..., 0] > 2 * last[..., 1:].max(axis=-1))
    cells = [red[:48, :64], red[:48, 64:], red[48:, :64], red[48:, 64:]]
    assert [cell.sum() > 50 for cell in cells] == [True, False, True, False]


def test_progress_is_shown_after_a_while_unless_quiet():
    def watched(**settings):
        stream = io.StringIO()
        with DrawingProgress(stream=stream, interval=0.0, **settings) as show:
            time.sleep(0.1)
            show(3, 10)
        show(10, 10)  # too late
        return stream.getvalue().splitlines()

    assert watched(patience=0.01) == ["video: playing the episode", "video: 3 of 10 frames"]
    assert watched(patience=5.0) == []
    assert watched(patience=0.01, quiet=True) == []
