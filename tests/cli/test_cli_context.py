"""Contexts on the command line: train on a range, look outside it."""

import json

import jax
import numpy as np
import pytest

from worldline.cli.main import main

SMALL = [
    *["--steps", "512", "--num-worlds", "16", "--unroll-length", "16", "--minibatches", "2"],
    *["--evaluations", "1", "--eval-episodes", "2", "--no-video", "--quiet"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "reach"
    context = ["--context", "gravity=-12:-8", "joint_damping=0.5,1.0", "--visible"]
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        assert main(["train", "robot/reach", *SMALL, *context, "--out", str(out)]) == 0
    return out


def test_the_run_remembers_its_context(folder):
    config = json.loads((folder / "config.json").read_text())["config"]
    assert config["context"] == ["gravity=-12:-8", "joint_damping=0.5,1.0"]
    assert config["env"]["visible"] == ["gravity", "joint_damping"]
    assert config["ppo"]["actor_obs"] == ["state", "context"]


def test_a_table_and_a_picture_over_contexts(folder, capsys):
    grid = ["--context", "gravity=-5:-15:3", "--episodes", "2"]
    assert main(["eval", str(folder), *grid]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.strip().startswith("-")]
    assert [float(row[0]) for row in rows] == [-5, -10, -15]
    assert (folder / "context-gravity.png").stat().st_size > 5_000
    grid = ["--context", "gravity=-5,-15", "mass_forearm=0.5,2", "--episodes", "1"]
    main(["eval", str(folder), *grid])
    assert main(["eval", str(folder)]) == 0  # on the contexts' defaults


def test_each_row_of_the_table_is_a_point_with_its_return(folder, capsys, monkeypatch):
    returns = np.array([[[0, 2], [4, 4]], [[8, 8], [9, 11]]], float)
    monkeypatch.setattr("worldline.train.sweep.sweep", lambda *_: returns)
    grid = ["--context", "gravity=-5,-15", "mass_forearm=0.5,2", "--episodes", "2"]
    assert main(["eval", str(folder), *grid]) == 0
    lines = filter(str.strip, capsys.readouterr().out.splitlines())
    head, *rows, _ = map(str.split, lines)
    assert head == ["gravity", "mass_forearm", "return", "+-"]
    assert rows == [
        ["-5", "0.5", "1", "1"],
        ["-5", "2", "4", "0"],
        ["-15", "0.5", "8", "0"],
        ["-15", "2", "10", "1"],
    ]


@pytest.mark.parametrize(
    ("context", "complaint"),
    [
        ("gravty=-5:-15:3", "did you mean 'gravity'"),
        ("gravity=-5:-15", "give gravity=first:last:count"),
        ("joint_damping=-1,1", "the context 'joint_damping' is -1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, capsys, context, complaint):
    assert main(["eval", str(folder), "--context", context]) == 2
    which, error = capsys.readouterr().err.splitlines()
    assert which.startswith("policy ") and error.startswith("error: ")
    assert complaint in error


def test_a_range_outside_the_bounds_is_refused_before_training(tmp_path, capsys):
    out = tmp_path / "run"
    options = ["--context", "joint_damping=-1:1", "--out", str(out)]
    assert main(["train", "robot/reach", *SMALL, *options]) == 2
    assert "the context 'joint_damping' is -1" in capsys.readouterr().err
    assert not out.exists()
