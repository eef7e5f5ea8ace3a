"""Other libraries' learners, unchanged, on our environments: a time and a return of each."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import statistics
import sys
from collections.abc import Iterator, Sequence

from _harness import PEERS, Finding, say
from _trials import Contender, Planned, Run, Settings, Terms, train


@dataclasses.dataclass(frozen=True)
class Learner:
    """A library's own learner, and what it is to reach."""

    name: str
    """For tables."""
    module: str
    """The library; its worker is `peers/learn_MODULE.py`."""
    install: str
    """What brings it."""
    task: str
    goal: float
    """The return at which a run ends."""
    budget: float
    """Seconds of training that it may take."""
    interval: float
    """Least seconds between two evaluations."""


#: By the names of the parts of `bench bridges`.
LEARNERS = {
    "brax": Learner(
        "Brax's PPO", "brax", "'worldline[brax]'", "gym/half-cheetah", 2000.0, 240.0, 5.0
    ),
    "rejax": Learner(
        "rejax's PPO",
        "rejax",
        "--no-deps rejax distrax tfp-nightly decorator gast",
        "gym/inverted-pendulum",
        950.0,
        120.0,
        1.0,
    ),
    "rsl_rl": Learner(
        "rsl_rl's OnPolicyRunner",
        "rsl_rl",
        "'worldline[rsl-rl]'",
        "robot/quadruped-joystick",
        1300.0,
        600.0,
        10.0,
    ),
}


@dataclasses.dataclass(frozen=True)
class OnOurs(Contender):
    """A learner in a process of its own, in our environment."""

    learner: Learner

    @property
    def name(self) -> str:
        """For tables."""
        return self.learner.name

    def settings(self, task: str) -> Settings | None:
        """None: the worker has those that its library publishes, or likes."""
        return None

    def command(self) -> list[str]:
        """Interpreter and worker."""
        return [sys.executable, str(PEERS / f"learn_{self.learner.module}.py")]


def train_with(learner: Learner, seeds: Sequence[int]) -> list[Run]:
    """One run a seed; none where the library is not installed."""
    if importlib.util.find_spec(learner.module) is None:
        say(f"without {learner.name}: pip install {learner.install}")
        return []
    terms = Terms(
        task=learner.task, budget=learner.budget, interval=learner.interval, goal=learner.goal
    )
    runs = []
    for seed in seeds:
        say(f"{learner.name} on {learner.task}, seed {seed}")
        *_, run = train(Planned(OnOurs("worldline", "published", learner), terms, seed))
        say(f"  {_told(run, learner.goal)}{f': {run.error}' if run.error else ''}")
        runs.append(run)
    return runs


def judge(learner: Learner, runs: Sequence[Run]) -> Iterator[Finding]:
    """How soon a learner reaches its return, the median over seeds, and with what in the end."""
    if not runs:
        return
    times = [run.time_to(learner.goal) for run in runs]
    yield Finding(
        what=f"{learner.name}, {learner.task}: seconds to a return of {learner.goal:g}",
        value=statistics.median(times),
        shown=f"{statistics.median(times):.3g}",
        detail="; ".join(_told(run, learner.goal) for run in runs),
        at_most=learner.budget,
    )
    for name in (name for name in _last(runs[0]) if name.endswith("_error")):  # of commands
        values = [_last(run).get(name, math.nan) for run in runs]
        yield Finding(
            what=f"{learner.name}, {learner.task}: {name} of that policy, mean over steps",
            value=statistics.median(values),
            shown=f"{statistics.median(values):.3g}",
            detail=", ".join(f"{value:.3g}" for value in values),
        )


def _last(run: Run) -> dict[str, float]:
    return run.evaluations[-1] if run.evaluations else {}


def _told(run: Run, goal: float) -> str:
    """The last evaluation in words."""
    if not run.evaluations:
        return "no evaluation"
    last = _last(run)
    return f"{last['eval_return']:.0f} after {last['wall']:.0f} s and {last['steps']:,.0f} steps"
