"""What a peer's process is told, and how it answers. Plain Python: every environment imports it.

A training worker gets one `Job` as JSON on its command line and prints one `Evaluation` as JSON a
line. A stepping worker prints `ready`, then reads a number of batched steps a line and answers each
with the seconds that they took.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Our tasks by Gymnasium's names, which all peers use.
GYMNASIUM = {
    "gym/ant": "Ant-v5",
    "gym/half-cheetah": "HalfCheetah-v5",
    "gym/hopper": "Hopper-v5",
    "gym/humanoid": "Humanoid-v5",
    "gym/inverted-double-pendulum": "InvertedDoublePendulum-v5",
    "gym/inverted-pendulum": "InvertedPendulum-v5",
    "gym/reacher": "Reacher-v5",
    "gym/swimmer": "Swimmer-v5",
    "gym/walker2d": "Walker2d-v5",
}

#: Our tasks by EnvPool's names, of those that are not Gymnasium's.
ENVPOOL = {
    "playground/berkeley-joystick-flat": "BerkeleyHumanoidJoystickFlatTerrain",
    "playground/g1-joystick-flat": "G1JoystickFlatTerrain",
    "playground/go1-getup": "Go1Getup",
    "playground/go1-joystick-flat": "Go1JoystickFlatTerrain",
    "playground/go1-joystick-rough": "Go1JoystickRoughTerrain",
    "playground/leap-cube-rotate-z": "LeapCubeRotateZAxis",
    "playground/panda-pick-cube": "PandaPickCube",
    "playground/spot-flat": "SpotFlatTerrainJoystick",
    "playground/t1-joystick-flat": "T1JoystickFlatTerrain",
}


def envpool_name(task: str) -> str:
    """EnvPool's name of one of our tasks."""
    return GYMNASIUM.get(task) or f"MuJoCoPlayground/{ENVPOOL[task]}-v1"


def envpool_options(options: dict[str, Any]) -> dict[str, Any]:
    """Constants of the reward of one of our tasks, by EnvPool's names."""
    renamed = {"swing_height": "max_foot_height"}
    return {
        renamed.get(name, name.replace("_weight", "_scale")): value
        for name, value in options.items()
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """PPO's settings, in the terms that all libraries share."""

    num_envs: int
    """Simulations in a batch."""
    num_steps: int
    """Steps of each simulation between two updates."""
    epochs: int = 10
    """Passes over the data of an update."""
    minibatches: int = 32
    """Gradient steps a pass."""
    learning_rate: float = 3e-4
    """Adam's."""
    anneal_to: float = 1.0
    """The fraction of itself that the learning rate falls to, linearly; 1: it stays."""
    anneal_steps: int = 0
    """Environment steps that this takes; 0: the budget of time."""
    target_kl: float = 0.0
    """KL divergence that the learning rate is led to; 0: it is not."""
    discount: float = 0.99
    """Of future rewards."""
    gae_lambda: float = 0.95
    """Of generalised advantage estimation."""
    clip: float = 0.2
    """Of the probability ratio."""
    clip_value: bool = False
    """Whether the value loss is clipped too, by the same number."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    value: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Longer gradients are shortened to it."""
    log_std: float = 0.0
    """Initial logarithm of the action's standard deviation."""
    actor_hidden: tuple[int, ...] = (64, 64)
    """Widths of the policy's hidden layers."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Widths of the value function's hidden layers."""
    activation: str = "tanh"
    """`tanh`, `relu`, `elu` or `swish`."""
    orthogonal: bool = True
    """Whether weights start orthogonal, the policy's last layer near zero."""
    rescale: bool = False
    """Whether the policy acts in [-1, 1], scaled to the bounds, rather than in their own units."""
    squash: str = "clip"
    """`clip`, or `tanh`: how actions come into the bounds."""

    @property
    def batch_size(self) -> int:
        """Transitions in a minibatch."""
        return self.num_envs * self.num_steps // self.minibatches


class LearningRate:
    """Adam's learning rate through a run: fixed, falling, or led by the policy's KL divergence."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._led = settings.learning_rate

    def at(self, steps: int, left: float) -> float:
        """The rate after `steps` environment steps, `left` of the budget (a fraction) to come."""
        settings = self._settings
        if settings.target_kl:
            return self._led
        progress = steps / settings.anneal_steps if settings.anneal_steps else 1.0 - left
        return settings.learning_rate * (1.0 - (1.0 - settings.anneal_to) * min(1.0, progress))

    def follow(self, kl: float) -> None:
        """Moves towards the target, by our own rule; SBX has its own, whose limit is 1e-2."""
        target, most = self._settings.target_kl, 2.0 * self._settings.learning_rate
        if target:
            factor = 1 / 1.5 if kl > 2.0 * target else 1.5 if kl < 0.5 * target else 1.0
            self._led = min(max(self._led * factor, 1e-5), most)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One training run."""

    task: str
    """Our name of the task."""
    seed: int
    """Of everything random."""
    budget: float
    """Seconds of training, on the clock below."""
    interval: float
    """Least seconds between two evaluations."""
    goal: float | None = None
    """The evaluation's return at which the run may end."""
    started: float
    """`time.time()` when the process was started."""
    threads: int = 1
    """Torch's."""
    library: str = ""
    """`sb3` or `sbx`, for the worker that serves both."""
    settings: Settings | None = None
    """PPO's, for a peer; our own worker takes those of the task."""
    folder: str = ""
    """Where a worker of `robots` keeps its policies."""
    task_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Of the task in which a worker of `robots` trains."""
    ppo: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Our worker of `robots` replaces the task's own settings of PPO by these."""
    domain: str = ""
    """The domain over which our worker of `robots` trains; empty: none."""

    @staticmethod
    def of_command_line() -> Job:
        """The job that a worker was started with."""
        fields = json.loads(sys.argv[1])
        if fields["settings"] is not None:
            listed = fields["settings"].items()
            settings: dict[str, Any] = {
                name: tuple(v) if isinstance(v, list) else v for name, v in listed
            }
            fields["settings"] = Settings(**settings)
        return Job(**fields)


#: Deterministic episodes in an evaluation; its return is their mean.
EPISODES = 20


class Trial:
    """The clock of a run and the schedule of its evaluations: the same for every contender.

    The clock runs from the start of the process and stands still during evaluations, which are
    measurement, not training. An evaluation is due `Job.interval` seconds after the last one, or
    after a twentieth of the time so far if that is longer.

    Args:
        job: the run.
        evaluate: gives the mean return of `EPISODES` deterministic episodes; or something else to
            print, by name.
    """

    def __init__(self, job: Job, evaluate: Callable[[], float | dict[str, Any]]) -> None:
        self._job, self._evaluate = job, evaluate
        self._paused = 0.0
        self._due = job.interval
        self._finished = False

    @property
    def wall(self) -> float:
        """Seconds since the process was started, without those spent in evaluations."""
        return time.time() - self._job.started - self._paused

    @property
    def left(self) -> float:
        """The fraction of the budget that is left, 1 to 0."""
        return max(0.0, 1.0 - self.wall / self._job.budget)

    def after_update(self, steps: int) -> bool:
        """Evaluates if it is time to, and says whether to go on training.

        Args:
            steps: environment steps so far.
        """
        wall = self.wall
        over = wall >= self._job.budget
        if self._finished or not (over or wall >= self._due):
            return not self._finished
        with self._pause():
            value = self._evaluate()
        found = value if isinstance(value, dict) else {"eval_return": value}
        _print({"wall": wall, "total": wall + self._paused, "steps": steps, **found})
        self._due = wall + max(self._job.interval, 0.05 * wall)
        reached = self._job.goal is not None and found.get("eval_return", -1e9) >= self._job.goal
        self._finished = over or reached
        return not self._finished

    @contextlib.contextmanager
    def _pause(self) -> Iterator[None]:
        begin = time.time()
        try:
            yield
        finally:
            self._paused += time.time() - begin


def serve_steps(step: Callable[[], Any]) -> None:
    """The life of a stepping worker: times `step` as often as each line of its input says."""
    step()
    print("ready", flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - begin, flush=True)


def _print(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)
