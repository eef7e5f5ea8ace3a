"""Runs side by side: what they reached, and where their settings differ."""

import pytest

from worldline.cli import main as cli
from worldline.errors import RunError
from worldline.report import RunFolder
from worldline.report.compare import compare_runs


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rate, returns in (("a", 1e-3, (10.0, 30.0, 20.0)), ("b", 3e-3, (5.0,))):
        config = {"task": "gym/ant", "seed": 1, "ppo": {"learning_rate": rate}, "out": name}
        with RunFolder.create(name, config) as folder:
            for index, value in enumerate(returns):
                metrics = {"train/return": value - 1, "eval/return": value}
                folder.write_metrics(1000 * (index + 1), 60.0 * (index + 1), metrics)
            folder.write_metrics(1000 * (len(returns) + 1), 90.0 * len(returns), {"loss": 1.0})
    return ["a", "b"]


def test_the_table_has_what_they_reached_and_what_differs(runs, capsys):
    assert cli.main(["compare", *runs]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["run", "steps", "minutes", "last", "best", "ppo.learning_rate"],
        ["a", "4,000", "4.5", "20", "30", "0.001"],
        ["b", "2,000", "1.5", "5", "5", "0.003"],
        ["picture", "compare.png"],
    ]


def test_the_picture_shows_each_run(runs, tmp_path):
    from PIL import Image

    compare_runs(runs, tmp_path / "x.png")
    colours = {colour for _, colour in Image.open("x.png").convert("RGB").getcolors(2**20)}
    assert {(0x1F, 0x77, 0xB4), (0xFF, 0x7F, 0x0E)} <= colours


def test_what_is_no_run_is_said(runs, tmp_path, capsys):
    with RunFolder.create("empty", {"task": "gym/ant"}):
        pass
    for wrong, said in (("c", "is not a run folder"), ("empty", "has no metrics yet")):
        with pytest.raises(RunError, match=said):
            compare_runs([*runs, wrong], tmp_path / "x.png")
    assert cli.main(["compare", "a", "--out", "no/where.png"]) == 2
    assert "cannot write 'no/where.png'" in capsys.readouterr().err
    assert cli.main(["compare"]) == 2
    assert "worldline compare" in capsys.readouterr().err
