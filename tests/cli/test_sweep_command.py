"""A sweep: what it starts, what it goes on with, and what it says at the end."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from worldline.cli import main as cli
from worldline.cli.sweeping import _jobs_of, read_plan, seeds_of, sweep
from worldline.errors import WorldlineError
from worldline.report import RunFolder

#: In place of training: a run of ten rows that learns by its number; the file `stop` in the folder
#: of the sweep has a run of seed 1 kill itself in its middle.
TRAIN = """
import json, os, signal, sys
from pathlib import Path

given = dict(zip(sys.argv[3::2], sys.argv[4::2]))
out, rate, first = Path(given["--out"]), float(given["--learning-rate"]), int(given["--seed"])
with (out.parents[2] / "calls").open("a") as calls:
    calls.write(f"{out}\\n")
out.mkdir(parents=True, exist_ok=True)
config = {"task": "t", "seed": first, "steps": 100}
(out / "config.json").write_text(json.dumps({"config": config, "versions": {}}))
with (out / "metrics.jsonl").open("a+") as file:
    file.seek(0)
    for step in range(10 * len(file.readlines()) + 10, 101, 10):
        row = {"step": step, "seconds": step / 10, "eval/return": rate * step + first}
        file.write(json.dumps(row) + "\\n")
        file.flush()
        if step == 50 and first == 1 and (out.parents[2] / "stop").exists():
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def standin(tmp_path, monkeypatch):
    """The program, and the folder of the sweep."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return [sys.executable, str(tmp_path / "train.py")]


COMMAND = ["robot/reach", "--seeds", "0-1", "--apart", "--set", "learning-rate=1,2", "--out", "all"]


def curve(path):
    return [(row["step"], row["eval/return"]) for row in RunFolder.open(path).read_metrics()]


def test_a_killed_run_goes_on_and_a_done_one_is_not_done_again(standin, capsys):
    Path("all").mkdir()
    Path("all/stop").touch()
    assert sweep(COMMAND, standin) == 1
    said = capsys.readouterr().err
    assert said.count("failed with -9") == 2
    assert said.count("is done") == 2
    Path("all/stop").unlink()
    Path("all/calls").unlink()
    assert sweep(COMMAND, standin) == 0
    out, err = capsys.readouterr()
    assert "2 of 4 runs are already done" in err
    assert len(Path("all/calls").read_text().splitlines()) == 2
    for rate, seed in itertools.product((1, 2), (0, 1)):
        path = f"all/robot-reach/learning-rate={rate}/seed-{seed}"
        assert curve(path) == [(step, rate * step + seed) for step in range(10, 101, 10)]
    head, one, two, *files = out.splitlines()
    assert head.split()[:4] == ["task", "setting", "seeds", "steps"]
    assert one.split()[:5] == ["robot/reach", "learning-rate=1", "2", "100", "100"]
    assert "200 to 201" in two
    assert files == ["  table    all/sweep.txt", "  picture  all/sweep.png"]
    assert Path("all/sweep.txt").read_text().splitlines() == [head, one, two]
    assert Path("all/sweep.png").stat().st_size > 10_000


def test_more_values_may_be_added_and_other_options_not(standin, capsys):
    assert sweep(COMMAND, standin) == 0
    wider = [it.replace("=1,2", "=1,2,3").replace("0-1", "0-2") for it in COMMAND]
    capsys.readouterr()
    assert sweep(wider, standin) == 0
    assert "4 of 9 runs are already done" in capsys.readouterr().err
    with pytest.raises(WorldlineError, match="the sweep in 'all' has the options 'none'"):
        sweep([*COMMAND, "--steps", "7"], standin)


def test_seeds_in_a_row_are_one_run():
    command = "robot/reach --seeds 0-2,7 --out all --steps=100 --no-video"
    plan = read_plan(command.split())
    assert plan.tasks == ["robot/reach"]
    assert plan.arguments == ["--steps=100", "--no-video"]

    jobs, runs = _jobs_of(plan, "robot/reach", {"actor-hidden": "64 32"})
    place = Path("all/robot-reach/actor-hidden=64-32")
    assert [job.folder for job in jobs] == [place / "seeds-0-2", place / "seed-7"]
    assert runs == [place / "seeds-0-2" / f"seed-{n}" for n in range(3)] + [place / "seed-7"]
    words = " ".join(jobs[0].arguments)
    assert (
        "train robot/reach --steps=100 --no-video --actor-hidden 64 32 --seed 0 --seeds 3" in words
    )
    assert seeds_of("1,5,7") == [1, 5, 7]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ("--out a", "needs a TASK"),
        ("robot/reech --out a", "did you mean 'robot/reach'"),
        ("robot/reach", "Missing from worldline sweep"),
        ("robot/reach --out a --seeds 4-1", "seeds is '4-1'"),
        ("robot/reach --out a --set learning-rate", "set is 'learning-rate'"),
        ("robot/reach --out a --set lerning-rate=1", "did you mean '--learning-rate'"),
        ("robot/reach --out a --set learning-rate=fast", "fast"),
        ("robot/reach --out a --seed 3", "worldline sweep sets --seed itself"),
        ("robot/reach --out a --optuna x --set learning-rate=1,2", "Optuna needs a range"),
    ],
)
def test_wrong_options_are_one_line(arguments, match, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert match in error
    assert error.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_optuna_proposes_and_goes_on(standin, capsys):
    pytest.importorskip("optuna")
    command = "robot/reach --seeds 0 --set learning-rate=1:2 --optuna sqlite:///all.db --out all"
    for trials, new in ((2, 2), (3, 1)):
        assert sweep([*command.split(), "--trials", str(trials)], standin) == 0
        runs = sorted(Path("all/robot-reach").iterdir())
        assert len(runs) == trials
        assert len(Path("all/calls").read_text().splitlines()) == new
        Path("all/calls").unlink()
        assert len(capsys.readouterr().out.splitlines()) == 1 + trials + 2


@pytest.mark.exhaustive
def test_training_that_was_killed_ends_with_the_same_curves(tmp_path):
    command = "robot/reach --seeds 0-1 --set learning-rate=1e-3,1e-4 --steps 4096 --num-worlds 16"
    command = [*command.split(), "--unroll-length", "8", "--no-video", "--evaluations", "4"]
    line = [sys.executable, "-m", "worldline.cli", "sweep", *command, "--out"]
    subprocess.run([*line, tmp_path / "whole"], check=True)
    process = subprocess.Popen([*line, tmp_path / "killed"])
    place = "robot-reach/learning-rate=1e-3/seeds-0-1"
    metrics = tmp_path / "killed" / place / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < 3:
        time.sleep(0.02)
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    assert process.wait() == 1
    subprocess.run([*line, tmp_path / "killed"], check=True)
    for rate, seed in itertools.product(("1e-3", "1e-4"), (0, 1)):
        end = f"robot-reach/learning-rate={rate}/seeds-0-1/seed-{seed}"
        one, other = (curve(tmp_path / name / end) for name in ("whole", "killed"))
        np.testing.assert_array_equal(one, other)
