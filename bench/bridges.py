"""How fast the bridges are, against TorchRL's BraxEnv, EnvPool and Gymnasium: one run, all ratios.

`python bench/bridges.py`, or `worldline bench bridges`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import tyro

from _harness import (
    PEERS,
    Finding,
    MissingPeerError,
    Ratio,
    StepWorker,
    interleave,
    machine,
    peer_python,
    save,
    say,
    show_findings,
    use_cores,
)

Measured: TypeAlias = dict[str, list[float]]


@dataclasses.dataclass(frozen=True)
class BridgesBench:
    """How fast the bridges are, against TorchRL's BraxEnv, EnvPool and Gymnasium."""

    batches: tuple[int, ...] = (4, 16, 128, 1024)
    """Batch sizes of the TorchRL rollouts."""
    steps: int = 100
    """Steps of a rollout."""
    num_envs: int = 256
    """Environments of `gymnasium.make_vec` and of EnvPool."""
    gymnasium_envs: int = 16
    """Environments of Gymnasium's vectors."""
    threads: int = 2
    """Cores for everyone, and threads of the engines."""
    repeats: int = 5
    """Measurements of each contender, in turn with the others."""
    seconds: float = 1.0
    """How long a measurement takes, about; a rollout at least."""
    peers: bool = True
    """Whether to measure the peers too."""
    json: Path | None = None
    """Where to write the results."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """A process to measure."""

    name: str
    python: Callable[[], str]
    command: tuple[str, ...]
    env_steps: int
    """Environment steps in one of its steps."""
    trial: int = 8
    """The fewest of its steps in a measurement."""


#: Our speed over that of BraxEnv without cache clearing, at least, by batch size. Our ant
#: integrates with RK4, four times the work of a step of Brax's.
BRAX = {4: 5.0, 16: 5.0, 128: 3.0}
BRAX_DEFAULT = 10.0
#: Our speed over that of our own compiled loop, at least, where the batch is 128.
RAW = {128: 1 / 1.5}
ENVPOOL, GYMNASIUM, SAME_MODES = 1.3, 3.0, 0.95


def main(config: BridgesBench) -> None:
    """Measures, prints the table and writes the results."""
    use_cores(config.threads)
    results: dict[str, Any] = {"machine": machine(), "config": _plain(config), "measured": {}}
    findings: list[Finding] = []
    parts = {
        **{f"TorchRL, ant, batch {b}": torchrl_contenders(config, b) for b in config.batches},
        "Gymnasium, half-cheetah": gymnasium_contenders(config),
    }
    for part, contenders in parts.items():
        measured = measure(config, part, contenders)
        judge = judge_gymnasium if part.startswith("Gymnasium") else judge_torchrl
        findings += judge(part, measured)
        results["measured"][part] = measured
        results["findings"] = [finding.json() for finding in findings]
        save(config.json, results)
    what = f"{config.threads} threads, {config.repeats} repeats"
    show_findings(f"Environment steps a second: {what}; medians of ratios pair by pair", findings)


def torchrl_contenders(config: BridgesBench, batch: int) -> list[Contender]:
    """Rollouts of a batch: ours through TorchRL and without, and Brax's."""

    def contender(name: str, kind: str, python: Callable[[], str]) -> Contender:
        command = (str(PEERS / "step_torchrl.py"), kind, str(batch), str(config.steps))
        return Contender(name, python, command, batch * config.steps, trial=1)

    ours = [
        contender("worldline", "worldline", lambda: sys.executable),
        contender("raw loop", "raw", lambda: sys.executable),
    ]
    brax = [
        contender("BraxEnv", "brax", lambda: peer_python("brax")),
        contender("BraxEnv as it comes", "brax-default", lambda: peer_python("brax")),
    ]
    return ours + brax * config.peers


def gymnasium_contenders(config: BridgesBench) -> list[Contender]:
    """Batched steps of half-cheetah: ours in two modes, EnvPool's and Gymnasium's."""
    ours = [
        Contender(
            f"worldline {mode}",
            lambda: sys.executable,
            (
                str(PEERS / "step_make_vec.py"),
                mode,
                "worldline/gym-half-cheetah-v0",
                str(config.num_envs),
            ),
            config.num_envs,
        )
        for mode in ("SAME_STEP", "DISABLED")
    ]
    vectors = [
        Contender(
            f"Gymnasium {kind}",
            lambda: sys.executable,
            (str(PEERS / "step_gymnasium.py"), kind, "HalfCheetah-v5", str(config.gymnasium_envs)),
            config.gymnasium_envs,
        )
        for kind in ("sync", "async")
    ]
    envs, threads = str(config.num_envs), str(config.threads)
    envpool = Contender(
        "EnvPool",
        lambda: peer_python("envpool"),
        (str(PEERS / "step_envpool.py"), "HalfCheetah-v5", envs, threads),
        config.num_envs,
    )
    return ours + [*vectors, envpool] * config.peers


def measure(config: BridgesBench, part: str, contenders: list[Contender]) -> Measured:
    """All contenders in turn; a peer that is not installed is left out."""
    with contextlib.ExitStack() as stack:
        rates = dict(_start(config, contender, stack) for contender in _installed(contenders))
        return interleave(rates, config.repeats, lambda text: say(f"{part}: {text}"))


def judge_torchrl(part: str, measured: Measured) -> Iterator[Finding]:
    """Rollouts as ratios, beside what was promised of them."""
    batch = int(part.split()[-1])
    yield from _compare(part, measured, "worldline", "raw loop", RAW.get(batch))
    yield from _compare(part, measured, "worldline", "BraxEnv", BRAX.get(batch))
    yield from _compare(part, measured, "worldline", "BraxEnv as it comes", BRAX_DEFAULT)


def judge_gymnasium(part: str, measured: Measured) -> Iterator[Finding]:
    """Steps as ratios, beside what was promised of them."""
    modes = ("worldline SAME_STEP", "worldline DISABLED")
    yield from _compare(part, measured, *modes, SAME_MODES)
    yield from _compare(part, measured, *reversed(modes), SAME_MODES)
    yield from _compare(part, measured, modes[0], "EnvPool", ENVPOOL)
    vectors = [name for name in measured if name.startswith("Gymnasium")]
    if vectors:
        best = max(vectors, key=lambda name: statistics.median(measured[name]))
        yield from _compare(part, measured, modes[0], best, GYMNASIUM)


def _compare(
    part: str, measured: Mapping[str, list[float]], ours: str, theirs: str, at_least: float | None
) -> Iterator[Finding]:
    """Ours over theirs, if theirs was measured."""
    if theirs not in measured:
        return
    ratio = Ratio.of(measured[ours], measured[theirs])
    speeds = [statistics.median(measured[name]) for name in (ours, theirs)]
    yield Finding(
        what=f"{part}: {ours} / {theirs}",
        value=ratio.median,
        shown=str(ratio),
        detail="{:,.0f} / {:,.0f} steps/s".format(*speeds),
        at_least=at_least,
    )


def _installed(contenders: list[Contender]) -> Iterator[tuple[Contender, str]]:
    """Each contender with its interpreter, if it has one."""
    for contender in contenders:
        try:
            yield contender, contender.python()
        except MissingPeerError as error:
            say(f"without {contender.name}: {error}")


def _start(
    config: BridgesBench, installed: tuple[Contender, str], stack: contextlib.ExitStack
) -> tuple[str, Callable[[], float]]:
    """A contender's process, ended with the stack, and its rate."""
    contender, python = installed
    say(f"starts {contender.name}")
    command = [python, *contender.command]
    worker = StepWorker(command, contender.env_steps, config.seconds, contender.trial)
    stack.callback(worker.close)
    return contender.name, worker.rate


def _plain(config: BridgesBench) -> dict[str, Any]:
    return {**dataclasses.asdict(config), "json": None}


if __name__ == "__main__":
    main(tyro.cli(BridgesBench))
