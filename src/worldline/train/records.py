"""Records: writes the metrics and policies of a run, of one seed or of several."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from worldline.export.policy_file import save_policy
from worldline.learn.policy import Policy
from worldline.learn.rollout import Evaluation
from worldline.report.run_folder import RunFolder


class Records(AbstractContextManager["Records"]):
    """Writes the metrics and policies of a run; a context manager that closes the files.

    Those of a single seed go to the run folder. With several, each seed has a run folder
    `seed-<seed>` in the run folder, which itself gets the means over the seeds, with the standard
    deviation over them as `eval/return_std`, and the policy with the best evaluation.

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

    def write(self, step: int, seconds: float, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Appends the metrics of an update: numbers, or with several seeds arrays `(seeds,)`.

        Returns:
            What the run folder itself gets.
        """
        if not self._run:
            return {}
        columns = {n: np.broadcast_to(x, len(self._members)) for n, x in metrics.items()}
        rows = [
            _finite({name: float(column[index]) for name, column in columns.items()})
            for index in range(len(self._members))
        ]
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

    def save_best(self, policy: Policy, evaluation: Evaluation) -> Policy:
        """Writes the policy with the best evaluation to the run folder, and returns it."""
        if not self._several:
            return policy
        best = self._policy_of(int(evaluation.episode_return.mean(axis=-1).argmax()), policy)
        for folder in self._run:
            save_policy(folder.path, best)
        return best

    def rewind(self, step: int) -> None:
        """Removes the metrics of later steps."""
        for folder in self._all:
            folder.rewind(step)

    def plot(self) -> None:
        """Draws the curves of each seed and of the run."""
        for folder in self._all:
            folder.plot()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        for folder in self._all:
            folder.close_files()

    def _policy_of(self, index: int, policy: Policy) -> Policy:
        return jax.tree.map(lambda x: x[index], policy) if self._several else policy


def _member_folder(folder: RunFolder, seed: int) -> RunFolder:
    path = folder.path / f"seed-{seed}"
    if (path / "config.json").exists():
        return RunFolder.open(path)
    with RunFolder.create(path, folder.config | {"seed": seed, "seeds": 1}) as member:
        return member


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics of an update without means over no episodes, and without what is not finite."""
    empty = () if metrics.get("train/episodes") else ("train/return", "train/episode_length")
    return {n: value for n, value in metrics.items() if n not in empty and np.isfinite(value)}


def _over_seeds(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the seeds that have it, and the deviation of the returns."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row[name] for row in rows if name in row] for name in names}
    means = {name: float(np.mean(column)) for name, column in columns.items()}
    if "eval/return" in means:
        means["eval/return_std"] = float(np.std(columns["eval/return"]))
    return means
