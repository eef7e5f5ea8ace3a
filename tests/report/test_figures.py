import math

import imageio.v2 as imageio
import pytest

from worldline.report import plot_curves

EVALUATION, TRAINING = (0x1F, 0x5F, 0xA8), (0x9D, 0xB4, 0xCC)


def _rows(count, **metrics):
    return [
        {"step": 1000 * i, "seconds": 2.0 * i} | {name: value(i) for name, value in metrics.items()}
        for i in range(1, count + 1)
    ]


def _draw(tmp_path, rows):
    """The picture, `(height, width, 3)`."""
    plot_curves(rows, tmp_path / "curves.png", "a run")
    return imageio.imread(tmp_path / "curves.png")[..., :3]


def _count(image, colour):
    return int((image == colour).all(axis=2).sum())


def test_evaluation_and_training_are_both_drawn(tmp_path):
    train = _rows(30, **{"train/return": lambda i: float(i)})
    image = _draw(tmp_path, train)
    assert _count(image, TRAINING) > 500 and _count(image, EVALUATION) == 0
    both = [row | ({"eval/return": 40.0, "eval/return_std": 5.0} if i % 5 else {})
            for i, row in enumerate(train)]  # fmt: skip
    image = _draw(tmp_path, both)
    assert _count(image, TRAINING) > 500 and _count(image, EVALUATION) > 500


def test_a_panel_for_every_metric_that_has_numbers(tmp_path):
    returns = {"train/return": float}
    plain = _draw(tmp_path, _rows(9, **returns))
    empty = _draw(tmp_path, _rows(9, **returns, **{"loss/value": lambda i: math.nan}))
    assert empty.shape == plain.shape
    one = _draw(tmp_path, _rows(9, **returns, **{"a/new metric": float}))
    assert one.shape[0] > plain.shape[0]
    names = ["loss/policy", "loss/value", "ppo/kl", "eval/length", "train/episode_length"]
    five = _draw(tmp_path, _rows(9, **returns, **dict.fromkeys(names, float)))
    assert five.shape == one.shape, "the two episode lengths share a panel, so four fill a row"


def test_no_panel_of_zeros_for_worlds_that_never_diverged(tmp_path):
    returns = {"train/return": float}
    plain = _draw(tmp_path, _rows(9, **returns))
    fine = _draw(tmp_path, _rows(9, **returns, **{"train/diverged": lambda i: 0.0}))
    broken = _draw(tmp_path, _rows(9, **returns, **{"train/diverged": lambda i: float(i == 5)}))
    assert fine.shape == plain.shape and broken.shape[0] > plain.shape[0]


@pytest.mark.parametrize(
    "rows",
    [
        _rows(1, **{"train/return": float}),
        _rows(3),
        _rows(3, **{"train/return": lambda i: math.nan, "loss/value": lambda i: 0.0}),
        _rows(
            2000, **{"train/return": lambda i: -1e6 * i, "loss/value": lambda i: 10.0 ** (i % 9)}
        ),
        _rows(40, **{"loss/value": lambda i: 1e9 if i == 1 else 1.0, "eval/return": float}),
    ],
    ids=["one point", "no metrics", "no returns", "large", "a spike"],
)
def test_unusual_runs_are_drawn_without_a_warning(tmp_path, rows):
    assert _draw(tmp_path, rows).size > 0
