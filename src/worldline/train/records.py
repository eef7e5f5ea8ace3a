"""Records: writes the metrics and policies of a run, of one seed or of several."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from worldline.export.policy_file import (
    BEST_FILE,
    POLICIES_FOLDER,
    policy_about,
    save_policy,
)
from worldline.files import DamagedArchiveError
from worldline.learn.policy import Policy
from worldline.learn.rollout import Evaluation
from worldline.report.run_folder import RunFolder

#: The episodes that the running mean of returns is over, or a few more.
_EPISODES = 100


class Records(AbstractContextManager["Records"]):
    """Writes the metrics and policies of a run; a context manager that closes the files.

    With a single seed, they go to the run folder. With several seeds, each seed has a run folder
    `seed-<seed>` in the run folder. The run folder itself gets the means over the seeds, their
    standard deviation as `eval/return_std`, and the policy with the best evaluation.

    Args:
        folder: the run folder; None in a process that writes nothing.
        seed: the first seed.
        seeds: the number of seeds.
    """

    def __init__(self, folder: RunFolder | None, seed: int, seeds: int) -> None:
        self._run = [] if folder is None else [folder]
        self._several = seeds > 1
        numbers = range(seed, seed + seeds) if self._several else ()
        self._members = [_member_folder(f, n) for f in self._run for n in numbers] or self._run
        self._all = dict.fromkeys([*self._run, *self._members])
        self._recent = [_Recent() for _ in self._members]

    def write(self, step: int, seconds: float, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Appends the metrics of an update: numbers, or with several seeds arrays `(seeds,)`.

        Returns:
            The metrics for the run folder itself.
        """
        if not self._run:
            return {}
        columns = {n: np.broadcast_to(x, len(self._members)) for n, x in metrics.items()}
        rows = [
            _finite({name: float(column[index]) for name, column in columns.items()})
            for index in range(len(self._members))
        ]
        rows = [row | recent.add(row) for row, recent in zip(rows, self._recent, strict=True)]
        for member, row in zip(self._members, rows, strict=True):
            member.write_metrics(step, seconds, row)
        if self._several:
            rows = [_over_seeds(rows)]
            self._run[0].write_metrics(step, seconds, rows[0])
        return rows[0]

    def save_policies(self, policy: Policy) -> None:
        """Writes the policy of each seed to its folder."""
        for index, member in enumerate(self._members):
            save_policy(member.path, self._policy_of(index, policy))

    def save_evaluated(self, policy: Policy, evaluation: Evaluation, step: int) -> Policy:
        """Writes the policy of each seed after an evaluation: also by its step, and if it is best.

        With several seeds the run folder itself gets the policy with the highest return.

        Returns:
            That policy; of one seed, its own.
        """
        scores = np.atleast_1d(np.asarray(evaluation.episode_return.mean(axis=-1), np.float64))
        scores = np.where(np.isfinite(scores), scores, -np.inf)
        first = int(scores.argmax())
        owners = list(enumerate(self._members)) + [(first, f) for f in self._run if self._several]
        for index, folder in owners:
            one, about = self._policy_of(index, policy), {"step": step, "return": scores[index]}
            save_policy(folder.path, one, **about)
            save_policy(folder.path, one, name=f"{POLICIES_FOLDER}/step-{step:012}.npz", **about)
            if scores[index] > _return_of(folder.path / BEST_FILE):
                save_policy(folder.path, one, name=BEST_FILE, **about)
        return self._policy_of(first, policy)

    def rewind(self, step: int) -> None:
        """Removes the metrics of later steps."""
        for folder in self._all:
            folder.rewind(step)
        for member, recent in zip(self._members, self._recent, strict=True):
            for row in member.read_metrics():
                recent.add(row)

    def plot(self) -> None:
        """Draws the curves of each seed and of the run."""
        for folder in self._all:
            folder.plot()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        for folder in self._all:
            folder.close_files()

    def _policy_of(self, index: int, policy: Policy) -> Policy:
        return jax.tree.map(lambda x: x[index], policy) if self._several else policy


def _return_of(file: Path) -> float:
    """The return of a policy's evaluation; minus infinity where there is no whole file."""
    try:
        return float(policy_about(file)["return"])
    except (OSError, DamagedArchiveError, KeyError, TypeError, ValueError):
        return -np.inf


def _member_path(folder: RunFolder, seed: int) -> Path:
    return folder.path / f"seed-{seed}"


def _member_folder(folder: RunFolder, seed: int) -> RunFolder:
    path = _member_path(folder, seed)
    if (path / "config.json").exists():
        return RunFolder.open(path)
    with RunFolder.create(path, folder.config | {"seed": seed, "seeds": 1}) as member:
        return member


def best_seed(folder: RunFolder) -> int:
    """Which of a run's several seeds has the highest return in its last evaluation, from 0."""
    first, seeds = (int(folder.config[name]) for name in ("seed", "seeds"))

    def last_return(seed: int) -> float:
        rows = RunFolder.open(_member_path(folder, seed)).read_metrics()
        returns = [row["eval/return"] for row in rows if "eval/return" in row]
        return returns[-1] if returns and np.isfinite(returns[-1]) else -np.inf

    return int(np.argmax([last_return(seed) for seed in range(first, first + seeds)]))


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics that are finite: not those of an update in which no episode ended."""
    return {name: value for name, value in metrics.items() if np.isfinite(value)}


class _Recent:
    """The mean return over the last updates in which `_EPISODES` episodes or more ended."""

    def __init__(self) -> None:
        self._updates: collections.deque[tuple[float, float]] = collections.deque()

    def add(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Takes an update in. Returns `train/return_recent`, or nothing before the first end."""
        episodes, mean = metrics.get("train/episodes", 0.0), metrics.get("train/return", np.nan)
        if episodes and np.isfinite(mean):
            self._updates.append((episodes, mean))
        count = sum(n for n, _ in self._updates)
        while self._updates and count - self._updates[0][0] >= _EPISODES:
            count -= self._updates.popleft()[0]
        total = sum(n * mean for n, mean in self._updates)
        return {"train/return_recent": total / count} if count else {}


def _over_seeds(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the seeds that have it, and the deviation of the returns."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row[name] for row in rows if name in row] for name in names}
    means = {name: float(np.mean(column)) for name, column in columns.items()}
    if "eval/return" in means:
        means["eval/return_std"] = float(np.std(columns["eval/return"]))
    return means
