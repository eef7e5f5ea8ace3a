import io
import math
import subprocess
import sys

import numpy as np

from worldline.report import ProgressDisplay


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_gets_plain_lines():
    log = io.StringIO()
    with ProgressDisplay(4_000_000, stream=log, interval=0.0) as display:
        display.update(1_000_000, {"speed/steps_per_s": 65_200.0, "train/return": math.nan})
        display.update(2_000_000, {"speed/steps_per_s": np.float32(65_000), "train/return": 812.3})
        display.update(3_000_000, {"eval/return": 2100.0})
        display.note("the best policy so far is saved")
        display.update(4_000_000, {"train/return": 900.0, "eval/return": 1900.0})
    start, *lines = log.getvalue().splitlines()
    assert start == "compiling for a run of 4M steps"
    assert lines[0] == " 25% 1M of 4M steps, 65.2k steps/s"
    assert lines[1].startswith(" 50% 2M of 4M steps, 65k steps/s, return 812, ")
    assert ", return 812, best evaluation 2100, " in lines[2]
    assert lines[3] == "the best policy so far is saved"
    assert lines[4].startswith("100% 4M of 4M steps")
    assert ", return 900, best evaluation 2100, 0:00:00 left" in lines[4]
    assert "\x1b" not in log.getvalue()


def test_a_log_gets_few_lines_but_always_the_first_and_the_last():
    log = io.StringIO()
    with ProgressDisplay(100, stream=log, interval=math.inf) as display:
        for step in range(1, 101):
            display.update(step, {})
    _, first, last = log.getvalue().splitlines()
    assert first.startswith("  1%") and last.startswith("100%")


def test_a_terminal_gets_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    terminal = Terminal()
    with ProgressDisplay(100, stream=terminal) as display:
        display.update(50, {"train/return": 12.0, "eval/return": 34.0})
        display.note("a [note] in brackets")
    text = terminal.getvalue()
    assert "\x1b[" in text and " 50%" in text
    assert "return 12, best evaluation 34" in text and "a [note] in brackets" in text


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with ProgressDisplay(100, stream=terminal) as display:
        display.update(50, {})
    assert terminal.getvalue().endswith("\n 50% 50 of 100 steps, starting\n")


def test_quiet_shows_nothing():
    terminal = Terminal()
    with ProgressDisplay(100, stream=terminal, quiet=True) as display:
        display.update(100, {"train/return": 1.0})
        display.note("hello")
    assert terminal.getvalue() == ""


def test_importing_the_report_imports_no_heavy_library():
    heavy = ["matplotlib", "rich", "imageio", "tensorboardX", "PIL", "gymnasium", "jax"]
    program = (
        "import sys, worldline.report\n"
        f"loaded = [name for name in {heavy} if name in sys.modules]\n"
        "sys.exit(f'imported {loaded}' if loaded else 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
