"""What a worker that trains for so many steps is told, and how it answers.

Plain Python: every peer's environment imports it. A worker gets one `Job` as JSON on its command
line and prints one evaluation as JSON a line.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One training run of so many steps."""

    task: str
    """Our name of the task."""
    seed: int
    """Of everything random."""
    steps: int
    """Environment steps of training."""
    every: int
    """Steps between two evaluations."""
    started: float = 0.0
    """`time.time()` when the process was started."""
    threads: int = 2
    """Torch's."""
    library: str = ""
    """Of a worker that serves several: `sb3` or `sbx`; of ours the algorithm, such as `sac`."""

    @staticmethod
    def of_command_line() -> Job:
        """The job that a worker was started with."""
        return Job(**json.loads(sys.argv[1]))


class Trial:
    """The clock of a run and its evaluations, at the same steps for every contender.

    The clock runs from the start of the process and stands still during evaluations, which are
    measurement, not training.

    Args:
        job: the run.
        evaluate: gives the mean return of deterministic episodes.
    """

    def __init__(self, job: Job, evaluate: Callable[[], float]) -> None:
        self._job, self._evaluate = job, evaluate
        self._paused = 0.0
        self._due = job.every

    def after_steps(self, steps: int) -> bool:
        """Evaluates if it is time to, and says whether to go on training.

        Args:
            steps: environment steps so far.
        """
        if steps >= self._due:
            begin = time.time()
            wall = begin - self._job.started - self._paused
            value = self._evaluate()
            self._paused += time.time() - begin
            print(json.dumps({"wall": wall, "steps": steps, "eval_return": value}), flush=True)
            self._due += self._job.every * (1 + (steps - self._due) // self._job.every)
        return steps < self._job.steps
