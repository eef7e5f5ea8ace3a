"""Learners in PyTorch on `gymnasium.make_vec`: a script like CleanRL's."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import worldline.bridges.gymnasium  # noqa: F401 # its ids

pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "cleanrl_ppo.py"

#: What libraries of others warn of is theirs.
pytestmark = pytest.mark.filterwarnings("default")


def returns_of_example(steps: int, monkeypatch: Any, capsys: Any) -> list[float]:
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, "--steps", str(steps)])
    runpy.run_path(str(EXAMPLE))
    return [float(found) for found in re.findall(r"return ([\d.]+)", capsys.readouterr().out)]


@pytest.mark.slow
def test_a_script_like_cleanrls_learns(monkeypatch: Any, capsys: Any) -> None:
    returns = returns_of_example(30_000, monkeypatch, capsys)
    assert returns[-1] > 5 * returns[0]


@pytest.mark.exhaustive
def test_a_script_like_cleanrls_solves_the_pendulum(monkeypatch: Any, capsys: Any) -> None:
    assert max(returns_of_example(150_000, monkeypatch, capsys)) > 900
