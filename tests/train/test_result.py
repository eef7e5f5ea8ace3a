"""A result in a notebook: its numbers, and the pictures of its run folder."""

import dataclasses

import imageio.v3 as iio
import numpy as np

from worldline.learn.rollout import Evaluation
from worldline.train.run import Result


def test_a_notebook_shows_numbers_and_pictures(tmp_path):
    evaluation = Evaluation(np.array([90.0, 110.0]), np.array([10, 10]), {})
    result = Result(tmp_path / "<run>", 20_000, 61.5, evaluation, False, "")
    shown = result._repr_html_()
    for fact in ("100 ± 10 over 2 episodes", "20,000", "62 s", "&lt;run&gt;"):
        assert fact in shown
    assert "<img" not in shown
    result = dataclasses.replace(result, folder=tmp_path, interrupted=True)
    iio.imwrite(tmp_path / "curves.png", np.zeros((2, 3, 3), np.uint8))
    shown = result._repr_html_()
    assert "src='data:image/png;base64,iVBOR" in shown
    assert "20,000 (interrupted)" in shown
