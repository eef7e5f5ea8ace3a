"""Training runs as processes, one at a time: who runs, with which settings, and what comes back."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Protocol, TypeAlias

import _runs
from _harness import (
    PEERS,
    SCRATCH,
    MissingPeerError,
    machine,
    peer_python,
    say,
    wait_until_quiet,
)
from peers.protocol import Job, Settings

Peer: TypeAlias = Literal["sb3", "sbx", "envpool"]
Whose: TypeAlias = Literal["published", "ours"]
Cache: TypeAlias = Literal["cold", "warm"]

#: How long to wait for a quiet machine before a run.
_PATIENCE_S = 20.0

#: The error of a run that has not come to its end; it counts for nothing.
UNFINISHED = "unfinished"

OURS: Literal["worldline"] = "worldline"

#: What each peer's authors publish for MuJoCo's tasks: the libraries' defaults, on several
#: environments; for EnvPool, CleanRL's for continuous actions, on as many as EnvPool likes.
PUBLISHED: dict[Peer, Settings] = {
    "sb3": Settings(num_envs=8, num_steps=256, minibatches=32),
    "sbx": Settings(num_envs=8, num_steps=256, minibatches=32, orthogonal=False),
    "envpool": Settings(num_envs=64, num_steps=64, minibatches=32, clip_value=True, anneal_to=0.0),
}


@dataclasses.dataclass(frozen=True)
class Contender:
    """Somebody who trains."""

    library: Peer | Literal["worldline"]
    whose: Whose
    """Whose settings it trains with."""

    @property
    def name(self) -> str:
        """For tables."""
        whose = {"published": "published", "ours": "our"}[self.whose]
        return OURS if self.library == OURS else f"{self.library}, {whose} settings"

    def settings(self, task: str) -> Settings | None:
        """PPO's settings; None for ourselves, who find them beside the task."""
        if self.library == OURS:
            return None
        return PUBLISHED[self.library] if self.whose == "published" else our_settings(task)

    def command(self) -> list[str]:
        """Interpreter and worker."""
        if self.library == OURS:
            return [sys.executable, str(PEERS / "train_worldline.py")]
        script = "train_envpool.py" if self.library == "envpool" else "train_sb3.py"
        return [peer_python(self.library), str(PEERS / script)]


def contenders(
    peers: Iterable[Peer | Literal["none"]], settings: Iterable[Whose]
) -> list[Contender]:
    """Ourselves, and each installed peer with each of the settings."""
    settings = list(settings)
    found = [Contender(OURS, "ours")]
    for peer in peers:
        if peer == "none":
            continue
        try:
            peer_python(peer)
        except MissingPeerError as error:
            say(f"without {peer}: {error}")
            continue
        found += [Contender(peer, whose) for whose in settings]
    return found


def our_settings(task: str, **replaced: Any) -> Settings:
    """Ours for a task, some of them replaced, in the terms that all libraries share."""
    from worldline.learn.ppo import PPOConfig
    from worldline.tasks.registry import task_class

    ours = PPOConfig(**{**task_class(task).defaults.get("ppo", {}), **replaced})
    return Settings(
        num_envs=ours.num_worlds,
        num_steps=ours.unroll_length,
        epochs=ours.epochs,
        minibatches=ours.minibatches,
        learning_rate=ours.learning_rate,
        anneal_to=0.1 if ours.anneal_steps else 1.0,
        anneal_steps=ours.anneal_steps,
        target_kl=ours.target_kl,
        discount=ours.discount,
        gae_lambda=ours.gae_lambda,
        clip=ours.clip,
        clip_value=ours.value_clip > 0,
        entropy=ours.entropy_weight,
        value=ours.value_weight,
        max_grad_norm=ours.max_grad_norm,
        log_std=ours.initial_log_std,
        actor_hidden=ours.actor_hidden,
        critic_hidden=ours.critic_hidden,
        activation=ours.activation,
        rescale=True,
        squash=ours.squash,
    )


@dataclasses.dataclass
class Run:
    """One training run, and its evaluations so far."""

    task: str
    contender: str
    seed: int
    settings: dict[str, Any] | None
    terms: dict[str, Any]
    """What held for all contenders."""
    machine: dict[str, Any] = dataclasses.field(default_factory=machine)
    """What it ran on, and when."""
    evaluations: list[dict[str, float]] = dataclasses.field(default_factory=list)
    """`wall`: s of training since the process began; `total`: with evaluations; `steps`;
    `eval_return`."""
    error: str = ""
    """Why it ended early, if it did."""

    @classmethod
    def of(cls, planned: Planned) -> Run:
        """A run that has not begun."""
        contender, terms, seed = planned
        settings = contender.settings(terms.task)
        fields = None if settings is None else dataclasses.asdict(settings)
        return cls(terms.task, contender.name, seed, fields, dataclasses.asdict(terms))

    @property
    def identity(self) -> str:
        """What makes two runs one and the same, also when one of them comes from a file."""
        return json.dumps([self.task, self.contender, self.seed, self.settings, self.terms])

    def time_to(self, goal: float, clock: str = "wall") -> float:
        """Seconds until an evaluation reached a return; infinite if none did."""
        return next((e[clock] for e in self.evaluations if e["eval_return"] >= goal), math.inf)

    @property
    def steps_per_second(self) -> float:
        """Between the first evaluation, when all is compiled, and the last."""
        return steps_per_second(self.evaluations)

    @property
    def final(self) -> float:
        """The mean return of the last three evaluations: one alone is noisy."""
        last = [e["eval_return"] for e in self.evaluations[-3:]]
        return statistics.mean(last) if last else math.nan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """What holds for all contenders of a task."""

    task: str
    budget: float
    """Seconds of training a run."""
    interval: float
    """Least seconds between two evaluations."""
    goal: float | None = None
    """The return at which a run ends."""
    cache: Cache = "cold"
    """Whether a run finds what JAX has compiled before; for those who use JAX."""


class Planned(NamedTuple):
    """A run to make."""

    contender: Contender
    terms: Terms
    seed: int


def seed_by_seed(
    everyone: Sequence[Contender], tasks: Iterable[Terms], seeds: Sequence[int]
) -> Iterator[Planned]:
    """Runs of each contender: all of a seed in a row, since a slow hour then slows them all."""
    for terms in tasks:
        for seed in seeds:
            for contender in everyone:
                yield Planned(contender, terms, seed)


def in_turn(
    config: Any, plan: Iterable[Planned], after: Callable[[Sequence[Run]], None]
) -> list[Run]:
    """The planned runs, one at a time; see `_runs.in_turn`."""
    begun = ((Run.of(planned), functools.partial(train, planned)) for planned in plan)
    return _runs.in_turn(Run, config, begun, after)


#: Everything so far into the benchmark's file: configuration, runs, findings.
write = functools.partial(_runs.write, Run)


def train(planned: Planned) -> Iterator[Run]:
    """Runs one contender; yields the run before it begins, after each evaluation and at its end."""
    contender, terms, seed = planned
    run = Run.of(planned)
    run.error = UNFINISHED
    yield run
    with _jax_cache(contender, terms) as cache:
        if not wait_until_quiet(_PATIENCE_S):
            say("  others use the machine: the times will be too long")
        job = Job(
            task=terms.task,
            seed=seed,
            budget=terms.budget,
            interval=terms.interval,
            goal=terms.goal,
            started=time.time(),
            library=contender.library,
            settings=contender.settings(terms.task),
        )
        for evaluation in evaluations(contender, job, cache, run):
            run.evaluations.append(evaluation)
            yield run
    if run.error == UNFINISHED:
        run.error = ""
    yield run


@contextlib.contextmanager
def _jax_cache(contender: Contender, terms: Terms) -> Iterator[Path]:
    """A folder for JAX's compilation cache: empty, or filled by a short run before."""
    (SCRATCH / "cache").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=SCRATCH / "cache"))
    try:
        if terms.cache == "warm" and contender.library in (OURS, "sbx"):
            settings = contender.settings(terms.task)
            job = Job(
                task=terms.task,
                seed=0,
                budget=1e-6,  # one update, one evaluation
                interval=0.0,
                started=time.time(),
                library=contender.library,
                settings=settings,
            )
            rehearsal = Run.of(Planned(contender, terms, 0))
            for _ in evaluations(contender, job, folder, rehearsal):
                pass
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def steps_per_second(evaluations: Sequence[Mapping[str, Any]]) -> float:
    """The speed of training between the first evaluation and the last; NaN if there is only one."""
    if len(evaluations) < 2:
        return math.nan
    first, last = evaluations[0], evaluations[-1]
    return float((last["steps"] - first["steps"]) / (last["wall"] - first["wall"]))


class Worker(Protocol):
    """Somebody who trains, in a process of his own."""

    @property
    def name(self) -> str:
        """For messages."""

    def command(self) -> list[str]:
        """Interpreter and worker."""


class Failing(Protocol):
    """A run that may end early."""

    error: str
    """Why it did."""


def evaluations(contender: Worker, job: Job, cache: Path, run: Failing) -> Iterator[dict[str, Any]]:
    """Starts the worker and yields what it prints; puts into `run.error` how it failed."""
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    # Evaluations may take as long as the training itself, and a worker looks at the clock only
    # between updates.
    limit = 3 * job.budget + 300
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*contender.command(), json.dumps(dataclasses.asdict(job))],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=SCRATCH,
            env=environment,
        )
        watchdog = threading.Timer(limit, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            if process.wait() != 0:
                run.error = f"exit status {process.returncode}: {_last_line(log)}"
                say(f"{contender.name} failed: {run.error}")
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()


def _last_line(log: IO[str]) -> str:
    log.seek(0)
    lines = [line for line in log.read().splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def median_speed(runs: Iterable[Run]) -> float:
    """Steps a second, over the runs that had two evaluations."""
    speeds = [run.steps_per_second for run in runs if len(run.evaluations) > 1]
    return statistics.median(speeds) if speeds else math.nan
