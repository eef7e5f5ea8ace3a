"""How fast the bridges are, beside BraxEnv, EnvPool, Gymnasium and SB3's own vector; and how soon
other libraries' learners learn through them.

`python bench/bridges.py`, or `worldline bench bridges`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

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
from _learners import LEARNERS, judge, train_with
from _runs import plain
from _trials import Contender as Trainer
from _trials import Planned, Run, Terms, train

Measured: TypeAlias = dict[str, list[float]]
Part: TypeAlias = Literal[
    "torchrl", "cleared", "gradient", "memory", "gymnasium", "sb3", "brax", "rejax", "rsl_rl"
]


@dataclasses.dataclass(frozen=True)
class BridgesBench:
    """How fast the bridges are, beside BraxEnv, EnvPool, Gymnasium and SB3's own vector; and how
    soon other libraries' learners learn through them.
    """

    parts: tuple[Part, ...] = get_args(Part)
    """What to measure: TorchRL rollouts, those beside BraxEnv as it comes, those with gradients,
    their peak memory, `make_vec`, training with Stable-Baselines3, and the learners of other
    libraries."""
    batches: tuple[int, ...] = (4, 16, 128, 1024)
    """Batch sizes of the TorchRL rollouts, and of those beside BraxEnv as it comes."""
    memory_batches: tuple[int, ...] = (4, 16, 128)
    """Batch sizes of the rollouts whose memory is read, and of those with gradients."""
    memory_rollouts: int = 3
    """Rollouts before that."""
    steps: int = 100
    """Steps of a rollout."""
    cleared_steps: int = 20
    """Steps of a rollout beside BraxEnv as it comes: its period, in which it compiles anew."""
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
    sb3_budget: float = 240.0
    """Seconds of a training with Stable-Baselines3."""
    sb3_seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of it, each on both vectors."""
    sb3_return: float = 1000.0
    """The return of half-cheetah that it is to reach."""
    sb3_interval: float = 8.0
    """Least seconds between two evaluations of it."""
    learner_seeds: tuple[int, ...] = (0,)
    """Seeds of other libraries' learners on our environments."""
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
    repeats: int
    """Measurements."""
    trial: int = 8
    """The fewest of its steps in a measurement."""


#: Our speed over that of BraxEnv without cache clearing, at least, by batch size. Our ant
#: integrates with RK4, four times the work of a step of Brax's.
BRAX = {4: 5.0, 16: 5.0, 128: 3.0}
#: Our ant with the integrator of Brax's.
EULER = "worldline, Euler"
#: Its speed over that of BraxEnv without cache clearing, at least.
BRAX_EULER = 5.0
BRAX_DEFAULT = 10.0
#: Brax's own ant through Worldline. With a large batch, its physics takes most of the time.
SAME_ANT = "worldline, Brax's ant"
#: Its own compiled step in a loop, without a bridge: a single program for all worlds.
SAME_ANT_RAW = "Brax's ant, raw loop"
#: Its speed over that of BraxEnv without cache clearing, at least, by batch size.
BRAX_SAME_ANT = {4: 5.0}
#: The same of rollouts with gradients.
BRAX_GRADIENT = {4: 5.0}
#: Our speed over that of our own compiled loop, at least, where the batch is 128.
RAW = {128: 1 / 1.5}
ENVPOOL, GYMNASIUM, SAME_MODES = 1.3, 3.0, 0.95


def main(config: BridgesBench) -> None:
    """Measures, prints the table and writes the results."""
    use_cores(config.threads)
    results: dict[str, Any] = {"machine": machine(), "config": _plain(config), "measured": {}}
    findings: list[Finding] = []
    for name, contenders, judged in speed_parts(config):
        measured = measure(config, name, contenders)
        findings += judged(name, measured)
        results["measured"][name] = measured
        results["findings"] = [finding.json() for finding in findings]
        save(config.json, results)
    if "memory" in config.parts and config.peers:
        results["memory"] = peaks = peak_memory(config)
        findings += judge_memory(peaks)
        results["findings"] = [finding.json() for finding in findings]
        save(config.json, results)
    for runs, found in trainings(config):
        findings += found
        results["runs"] = [*results.get("runs", ()), *plain(runs)]
        results["findings"] = [finding.json() for finding in findings]
        save(config.json, results)
    what = f"{config.threads} threads, {config.repeats} repeats"
    show_findings(f"Bridges: {what}; ratios of steps a second are medians, pair by pair", findings)


def trainings(config: BridgesBench) -> Iterator[tuple[list[Run], list[Finding]]]:
    """What is trained, one after the other, and how it went."""
    if "sb3" in config.parts:
        sides = train_with_sb3(config)
        yield (
            [run for side in sides.values() for run in side],
            [*judge_sb3(sides, config.sb3_return)],
        )
    for part, learner in LEARNERS.items():
        if part in config.parts:
            runs = train_with(learner, config.learner_seeds)
            yield runs, [*judge(learner, runs)]


Judge: TypeAlias = Callable[[str, Measured], Iterator[Finding]]


def speed_parts(config: BridgesBench) -> Iterator[tuple[str, list[Contender], Judge]]:
    """What is measured together: its name, who, and what was promised of it."""
    if "torchrl" in config.parts:
        for batch in config.batches:
            yield f"TorchRL, ant, batch {batch}", torchrl_contenders(config, batch), judge_torchrl
    if "cleared" in config.parts and config.peers:
        for batch in config.batches:
            name = f"TorchRL, ant, beside cleared caches, batch {batch}"
            yield name, cleared_contenders(config, batch), judge_cleared
    if "gradient" in config.parts and config.peers and importlib.util.find_spec("brax"):
        for batch in config.memory_batches:
            name = f"TorchRL, Brax's ant, with gradients, batch {batch}"
            yield name, gradient_contenders(config, batch), judge_gradient
    if "gymnasium" in config.parts:
        yield "Gymnasium, half-cheetah", gymnasium_contenders(config), judge_gymnasium


def torchrl_contenders(config: BridgesBench, batch: int) -> list[Contender]:
    """Rollouts of a batch: ours through TorchRL and without, and Brax's."""
    ours = [
        rollouts("worldline", "worldline", batch, config.steps, config.repeats),
        rollouts("raw loop", "raw", batch, config.steps, config.repeats),
        rollouts(EULER, "worldline-euler", batch, config.steps, config.repeats),
    ]
    if importlib.util.find_spec("brax") is not None:
        ours.append(rollouts(SAME_ANT, "brax-worlds", batch, config.steps, config.repeats))
        ours.append(rollouts(SAME_ANT_RAW, "brax-raw", batch, config.steps, config.repeats))
    brax = rollouts("BraxEnv", "brax", batch, config.steps, config.repeats)
    return ours + [brax] * config.peers


def cleared_contenders(config: BridgesBench, batch: int) -> list[Contender]:
    """Rollouts of a batch: ours, and Brax's as it comes, which empties JAX's caches in each."""
    kinds = {"worldline": "worldline", "BraxEnv as it comes": "brax-default"}
    steps = config.cleared_steps
    return [rollouts(name, kind, batch, steps, config.repeats) for name, kind in kinds.items()]


def gradient_contenders(config: BridgesBench, batch: int) -> list[Contender]:
    """Rollouts of Brax's ant and their gradients: through our worlds, and through BraxEnv."""
    kinds = {SAME_ANT: "brax-worlds", "BraxEnv": "brax"}
    sizes = (batch, config.steps, config.repeats)
    return [rollouts(name, kind, *sizes, "gradient") for name, kind in kinds.items()]


def rollouts(name: str, kind: str, batch: int, steps: int, repeats: int, *more: str) -> Contender:
    """A contender that rolls out ants; its kind is one of those of `step_torchrl.py`."""
    theirs = kind in ("brax", "brax-default")
    python = (lambda: peer_python("brax")) if theirs else lambda: sys.executable
    command = (str(PEERS / "step_torchrl.py"), kind, str(batch), str(steps), *more)
    return Contender(name, python, command, batch * steps, repeats, trial=1)


def peak_memory(config: BridgesBench) -> dict[int, dict[str, float]]:
    """The most memory that a process needs for rollouts, MiB, by batch and contender."""
    peaks: dict[int, dict[str, float]] = {}
    for batch in config.memory_batches:
        ours, *_, last = torchrl_contenders(config, batch)
        for contender, python in _installed([ours] + [last] * config.peers):
            say(f"peak memory, batch {batch}: {contender.name}")
            with contextlib.closing(_worker(config, contender, python)) as worker:
                peak = worker.peak_memory_after(config.memory_rollouts)
            peaks.setdefault(batch, {})[contender.name] = peak
    return peaks


def judge_memory(peaks: Mapping[int, Mapping[str, float]]) -> Iterator[Finding]:
    """Our memory over Brax's, beside the promise that it is less."""
    for batch, peak in peaks.items():
        if "BraxEnv" not in peak:
            continue
        ratio = peak["worldline"] / peak["BraxEnv"]
        yield Finding(
            what=f"TorchRL, ant, batch {batch}: peak memory, worldline / BraxEnv",
            value=ratio,
            shown=f"{ratio:.3g}",
            detail="{worldline:,.0f} / {BraxEnv:,.0f} MiB".format(**peak),
            at_most=1.0,
        )


def gymnasium_contenders(config: BridgesBench) -> list[Contender]:
    """Batched steps of half-cheetah: ours in each mode, EnvPool's and Gymnasium's."""

    def contender(name: str, script: str, arguments: tuple[Any, ...], envs: int) -> Contender:
        python = (lambda: peer_python("envpool")) if name == "EnvPool" else lambda: sys.executable
        command = (str(PEERS / script), *map(str, arguments))
        return Contender(name, python, command, envs, config.repeats)

    many, few, task = config.num_envs, config.gymnasium_envs, "HalfCheetah-v5"
    ours = [
        contender(
            f"worldline {mode}",
            "step_make_vec.py",
            (mode, "worldline/gym-half-cheetah-v0", many),
            many,
        )
        for mode in ("SAME_STEP", "DISABLED", "NEXT_STEP")
    ]
    peers = [
        contender("Gymnasium sync", "step_gymnasium.py", ("sync", task, few), few),
        contender("Gymnasium async", "step_gymnasium.py", ("async", task, few), few),
        contender("EnvPool", "step_envpool.py", (task, many, config.threads), many),
    ]
    return ours + peers * config.peers


def measure(config: BridgesBench, part: str, contenders: list[Contender]) -> Measured:
    """All contenders in turn; a peer that is not installed is left out."""
    with contextlib.ExitStack() as stack:
        rates = dict(_start(config, contender, stack) for contender in _installed(contenders))
        repeats = min(contender.repeats for contender in contenders)
        return interleave(rates, repeats, lambda text: say(f"{part}: {text}"))


def judge_torchrl(part: str, measured: Measured) -> Iterator[Finding]:
    """Rollouts as ratios, beside what was promised of them."""
    batch = int(part.split()[-1])
    yield from _compare(part, measured, "worldline", "raw loop", RAW.get(batch))
    yield from _compare(part, measured, "worldline", "BraxEnv", BRAX.get(batch))
    yield from _compare(part, measured, EULER, "BraxEnv", BRAX_EULER if batch <= 128 else None)
    yield from _compare(part, measured, SAME_ANT, "BraxEnv", BRAX_SAME_ANT.get(batch))
    yield from _compare(part, measured, SAME_ANT, SAME_ANT_RAW, None)


def judge_gradient(part: str, measured: Measured) -> Iterator[Finding]:
    """Rollouts with gradients beside Brax's."""
    at_least = BRAX_GRADIENT.get(int(part.split()[-1]))
    yield from _compare(part, measured, SAME_ANT, "BraxEnv", at_least)


def judge_cleared(part: str, measured: Measured) -> Iterator[Finding]:
    """Rollouts beside Brax's as it comes."""
    yield from _compare(part, measured, "worldline", "BraxEnv as it comes", BRAX_DEFAULT)


def judge_gymnasium(part: str, measured: Measured) -> Iterator[Finding]:
    """Steps as ratios, beside what was promised of them."""
    modes = ("worldline SAME_STEP", "worldline DISABLED")
    yield from _compare(part, measured, *modes, SAME_MODES)
    yield from _compare(part, measured, *reversed(modes), SAME_MODES)
    yield from _compare(part, measured, modes[0], "worldline NEXT_STEP", None)
    yield from _compare(part, measured, modes[0], "EnvPool", ENVPOOL)
    vectors = [name for name in measured if name.startswith("Gymnasium")]
    if vectors:
        best = max(vectors, key=lambda name: statistics.median(measured[name]))
        yield from _compare(part, measured, modes[0], best, GYMNASIUM)


@dataclasses.dataclass(frozen=True)
class OnVector(Trainer):
    """Stable-Baselines3's PPO, with its own settings, on a vector of environments."""

    vector: Literal["worldline", "subproc"] = "worldline"

    @property
    def name(self) -> str:
        """For tables."""
        return {"worldline": "our VecEnv", "subproc": "SubprocVecEnv"}[self.vector]

    def command(self) -> list[str]:
        """Interpreter and worker; both run in our own environment, with the extra `sb3`."""
        return [sys.executable, str(PEERS / "train_vecenv.py"), self.vector]


def train_with_sb3(config: BridgesBench) -> dict[str, list[Run]]:
    """Trainings of half-cheetah on each vector, by its name: one a seed, in turn."""
    terms = Terms(task="gym/half-cheetah", budget=config.sb3_budget, interval=config.sb3_interval)
    runs: dict[str, list[Run]] = {}
    for seed in config.sb3_seeds:
        for vector in ("worldline", "subproc") if config.peers else ("worldline",):
            contender = OnVector("sb3", "published", vector)
            say(f"Stable-Baselines3's PPO on {contender.name}, seed {seed}")
            *_, run = train(Planned(contender, terms, seed))
            seconds = run.time_to(config.sb3_return)
            when = f"after {seconds:.0f} s" if math.isfinite(seconds) else "was not reached"
            say(f"  a return of {config.sb3_return:g} {when}")
            runs.setdefault(contender.name, []).append(run)
    return runs


def judge_sb3(runs: Mapping[str, list[Run]], goal: float) -> Iterator[Finding]:
    """How soon SB3's PPO has a return on our vector and on its own: medians over seeds."""
    ours, theirs = (runs.get(name, []) for name in ("our VecEnv", "SubprocVecEnv"))
    if not (ours and theirs):
        return
    reached, other = ([run.time_to(goal) for run in side] for side in (ours, theirs))
    mine, its = statistics.median(reached), statistics.median(other)
    value = its / mine if math.isfinite(mine) else 0.0
    each = " / ".join(", ".join(f"{t:.0f}" for t in side) for side in (reached, other))
    yield Finding(
        what=f"SB3, half-cheetah: SubprocVecEnv's time to a return of {goal:g} / our VecEnv's",
        value=value,
        shown=f"{value:.3g}",
        detail=f"{each} s",
        at_least=1.0,
    )
    speeds = [statistics.median(run.steps_per_second for run in side) for side in (ours, theirs)]
    yield Finding(
        what="SB3, half-cheetah: steps a second on our VecEnv / on SubprocVecEnv",
        value=speeds[0] / speeds[1],
        shown=f"{speeds[0] / speeds[1]:.3g}",
        detail="{:,.0f} / {:,.0f} steps/s".format(*speeds),
    )


def _compare(
    part: str, measured: Mapping[str, list[float]], ours: str, theirs: str, at_least: float | None
) -> Iterator[Finding]:
    """Ours over theirs, if both were measured."""
    if not {ours, theirs} <= measured.keys():
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
    worker = _worker(config, contender, python)
    stack.callback(worker.close)
    return contender.name, worker.rate


def _worker(config: BridgesBench, contender: Contender, python: str) -> StepWorker:
    command = [python, *contender.command]
    return StepWorker(command, contender.env_steps, config.seconds, contender.trial)


def _plain(config: BridgesBench) -> dict[str, Any]:
    return {**dataclasses.asdict(config), "json": None}


if __name__ == "__main__":
    main(tyro.cli(BridgesBench))
