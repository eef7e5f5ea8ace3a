"""What `worldline watch` can show, how soon its page is there, and what it costs a training.

`python bench/watch.py`, or `worldline bench watch`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import tyro

from _harness import (
    SCRATCH,
    Finding,
    Ratio,
    interleave,
    machine,
    save,
    say,
    scratch_folder,
    show_findings,
    use_cores,
)


@dataclasses.dataclass(frozen=True)
class WatchBench:
    """What `worldline watch` can show, how soon its page is there, and what it costs a training."""

    task: str = "robot/quadruped-joystick"
    """The task that is watched."""
    worlds: int = 16
    """How many worlds."""
    seconds: float = 20.0
    """How long each measurement of steps takes."""
    repeats: int = 5
    """Of each measurement."""
    trained: str = "gym/half-cheetah"
    """The task that trains beside the viewer."""
    json: Path | None = None
    """Where to write the results."""


#: Longest wait for a page.
_PATIENCE_S = 120.0

#: The worlds of `worldline watch`, stepped and shown as fast as they go; prints steps a second.
_SHOWN = """
import sys, time
from pathlib import Path
from worldline.rendering.web.server import open_server
from worldline.watch.source import open_source
from worldline.watch.watcher import Watcher

name, worlds, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with open_server() as (server, _):
    watcher = Watcher(server, name, open_source(name), worlds, 0, Path())
    watcher.act("random")
    watcher.step()
    watcher.show()
    begun, steps, shown = time.perf_counter(), 0, 0.0
    while (now := time.perf_counter()) - begun < seconds:
        watcher.step()
        steps += 1
        if now - shown > 1 / 30:
            watcher.show()
            shown = now
    print(steps / (time.perf_counter() - begun))
"""

#: A browser as far as the server can tell, which reads all that it gets until it is ended.
_LOOKS = """
import sys, viser
from websockets.sync.client import connect

name = f"viser-v{viser.__version__}"
with connect(f"ws://localhost:{sys.argv[1]}", subprotocols=[name], max_size=None) as socket:
    while True:
        socket.recv()
"""


def main(config: WatchBench) -> None:
    """Measures, prints the table and writes the results."""
    scratch_folder()
    measures = {
        "steps/s of the worlds": lambda: shown_steps(config),
        "seconds to the page": lambda: page_seconds(config),
        "training alone": lambda: trained_steps(config),
        "training watched": lambda: watched_training(config),
    }
    if browser() is None:
        say("no Chromium: the page is not timed")
        del measures["seconds to the page"]
    measured = interleave(measures, config.repeats, say)
    findings = judge(config, measured)
    results = {
        "machine": machine(),
        "config": {**dataclasses.asdict(config), "json": None},
        "measured": measured,
        "findings": [finding.json() for finding in findings],
    }
    save(config.json, results)
    show_findings(f"Watching: medians of {config.repeats}", findings)


def shown_steps(config: WatchBench) -> float:
    """Control steps a second of all worlds, stepped and shown on one core."""
    arguments = [config.task, str(config.worlds), str(config.seconds)]
    done = subprocess.run(
        [sys.executable, "-c", _SHOWN, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: use_cores(1),
    )
    return float(done.stdout)


@contextlib.contextmanager
def watching(config: WatchBench) -> Iterator[int]:
    """`worldline watch` in a process of its own; gives its port."""
    command = [str(Path(sys.executable).with_name("worldline")), "watch", config.task]
    process = subprocess.Popen(
        [*command, "--worlds", str(config.worlds), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=SCRATCH,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().partition("localhost:")[2].split()[0])
    finally:
        process.terminate()
        process.wait()


def browser() -> str | None:
    """Chromium's program, if it and Playwright are there."""
    with contextlib.suppress(ImportError):
        import playwright  # noqa: F401

        return shutil.which("chromium") or shutil.which("chromium-browser")
    return None


def page_seconds(config: WatchBench) -> float:
    """Seconds from asking for the page until its panel says how many worlds there are."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with watching(config) as port, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=flags)
        for _ in range(2):  # the worlds compile when the first one looks
            page = chromium.new_page(viewport={"width": 800, "height": 450})
            page.set_default_timeout(1000 * _PATIENCE_S)
            began = time.perf_counter()
            page.goto(f"http://localhost:{port}")
            page.get_by_text(f"{config.worlds} worlds").wait_for()
            took = time.perf_counter() - began
            page.close()
        chromium.close()
    return took


def trained_steps(config: WatchBench) -> float:
    """Environment steps a second of a training, the median over its updates after the first."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        run = Path(folder) / "run"
        command = [str(Path(sys.executable).with_name("worldline")), "train", config.trained]
        process = subprocess.Popen(
            [*command, "--out", str(run), "--no-video", "--quiet", "--evaluations", "1"],
            stdout=subprocess.DEVNULL,
            cwd=SCRATCH,
        )
        try:
            metrics = run / "metrics.jsonl"
            while not metrics.exists() and process.poll() is None:
                time.sleep(0.1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(config.seconds)
            rows = [json.loads(line) for line in metrics.read_text().split("\n")[:-1]]
        finally:
            process.kill()
            process.wait()
    return statistics.median(row["speed/steps_per_s"] for row in rows[1:] or rows)


def watched_training(config: WatchBench) -> float:
    """The same beside `worldline watch`, at whose page somebody looks."""
    with watching(config) as port:
        looker = subprocess.Popen([sys.executable, "-c", _LOOKS, str(port)])
        try:
            return trained_steps(config)
        finally:
            looker.kill()
            looker.wait()


def judge(config: WatchBench, measured: dict[str, list[float]]) -> Sequence[Finding]:
    """The measurements beside what was promised."""
    promised = {"steps/s of the worlds": (60.0, None), "seconds to the page": (None, 3.0)}
    findings = []
    for name, (least, most) in promised.items():
        if name in measured:
            value = statistics.median(measured[name])
            findings.append(
                Finding(
                    what=f"{config.worlds} worlds of {config.task}: {name}",
                    value=value,
                    shown=f"{value:.3g}",
                    detail=f"{min(measured[name]):.3g} to {max(measured[name]):.3g}",
                    at_least=least,
                    at_most=most,
                )
            )
    ratio = Ratio.of(measured["training watched"], measured["training alone"])
    alone = statistics.median(measured["training alone"])
    findings.append(
        Finding(
            what=f"{config.trained}: training watched / alone",
            value=ratio.median,
            shown=str(ratio),
            detail=f"{alone:,.0f} steps/s alone",
            at_least=0.97,
        )
    )
    return findings


if __name__ == "__main__":
    main(tyro.cli(WatchBench))
