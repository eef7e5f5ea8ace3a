"""How soon a run learns: from the command to the first update, and what an import costs.

`python bench/start.py`, or `worldline bench start`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
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
class StartBench:
    """How soon a run learns: from the command to the first update, and what an import costs."""

    task: str = "gym/inverted-pendulum"
    """The task to train."""
    repeats: int = 5
    """Fresh processes of each kind."""
    cores: int = 2
    """Cores for everyone."""
    json: Path | None = None
    """Where to write the results."""


#: Longest wait for a first update.
_PATIENCE_S = 120.0


def main(config: StartBench) -> None:
    """Measures, prints the table and writes the results."""
    use_cores(config.cores)
    scratch_folder()
    measured = measure_imports(config.repeats)
    measured |= measure_starts(config)
    findings = judge(config, measured)
    results = {
        "machine": machine(),
        "config": {**dataclasses.asdict(config), "json": None},
        "seconds": measured,
        "findings": [finding.json() for finding in findings],
    }
    save(config.json, results)
    show_findings(f"Starting: medians of {config.repeats} fresh processes", findings)


def measure_imports(repeats: int) -> dict[str, list[float]]:
    """Seconds that imports take, in a process each."""
    statements = {
        "import jax": "import jax",
        "import worldline": "import worldline",
        "its names used": "from worldline import Env, Model, Task, Worlds, load_policy, make",
    }
    for statement in statements.values():
        import_seconds(statement)  # the first finds cold disks and writes bytecode
    measures = {
        name: functools.partial(import_seconds, statement) for name, statement in statements.items()
    }
    return interleave(measures, repeats, say)


def import_seconds(statement: str) -> float:
    """Seconds that a statement takes in a fresh interpreter, once that has started."""
    timed = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure_starts(config: StartBench) -> dict[str, list[float]]:
    """Seconds to the first update with JAX's cache empty, then with what that run left in it."""
    cache = ""

    def cold() -> float:
        nonlocal cache
        cache = tempfile.mkdtemp(dir=SCRATCH, prefix="cache-")
        return first_update(config.task, cache)

    def warm() -> float:
        return first_update(config.task, cache)

    return interleave({"cold": cold, "warm": warm}, config.repeats, say)


def first_update(task: str, cache: str) -> float:
    """Seconds from starting `worldline train` until its first update is in its metrics."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        run = Path(folder) / "run"
        command = [str(Path(sys.executable).with_name("worldline")), "train", task]
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--out", str(run)],
            env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=SCRATCH,
        )
        try:
            metrics = run / "metrics.jsonl"
            while not (metrics.exists() and metrics.stat().st_size):
                if process.poll() is not None:
                    assert process.stderr is not None
                    raise RuntimeError(process.stderr.read().decode().strip())
                if time.perf_counter() - began > _PATIENCE_S:
                    raise RuntimeError(f"no update within {_PATIENCE_S:g} s")
                time.sleep(0.005)
            return time.perf_counter() - began
        finally:
            process.kill()
            process.wait()


def judge(config: StartBench, measured: dict[str, list[float]]) -> Sequence[Finding]:
    """The measurements beside what was promised."""
    jax = measured["import jax"]
    findings = []
    for name, promised in (("import worldline", 1.5), ("its names used", None)):
        ratio = Ratio.of(measured[name], jax)
        seconds = statistics.median(measured[name]), statistics.median(jax)
        findings.append(
            Finding(
                what=f"{name} / import jax",
                value=ratio.median,
                shown=str(ratio),
                detail="{:.2f} / {:.2f} s".format(*seconds),
                at_most=promised,
            )
        )
    for name, promised in (("cold", 8.0), ("warm", 4.0)):
        value = statistics.median(measured[name])
        findings.append(
            Finding(
                what=f"{config.task}: first update, {name} cache, s",
                value=value,
                shown=f"{value:.2f}",
                detail=f"{min(measured[name]):.2f} to {max(measured[name]):.2f}",
                at_most=promised,
            )
        )
    return findings


if __name__ == "__main__":
    main(tyro.cli(StartBench))
