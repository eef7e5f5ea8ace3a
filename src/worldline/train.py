"""A training run from start to end: what `worldline train` does."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from worldline.checkpoint import save_policy
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, RunError, TrainingDivergedError
from worldline.learn.policy import Policy
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import Evaluation, evaluator, record
from worldline.learn.run import Progress, run
from worldline.report import ProgressDisplay, RenderUnavailableError, RunFolder, render_episode
from worldline.types import Key


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A run around the algorithm."""

    steps: int = 2_000_000
    """Environment steps, over all worlds."""
    seed: int = 0
    """Decides every random number of the run."""
    physics: str = "native"
    """The engine: native or fake."""
    out: Path | None = None
    """The run folder, new or empty; by default runs/<task>-<time>-s<seed>."""
    evaluations: int = 10
    """How often the policy is evaluated, evenly over the run; the last time at its end."""
    eval_episodes: int = 16
    """Episodes of an evaluation, in worlds of their own, with the most likely actions."""
    video: bool = True
    """Whether to render an episode at the end."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        for name in ("steps", "evaluations", "eval_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give 1 or more")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; give 0 or more")


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run came to."""

    folder: Path
    steps: int
    seconds: float
    """Wall-clock, evaluations and reports included."""
    evaluation: Evaluation
    """Of the final policy."""
    interrupted: bool
    video_note: str
    """How the video was drawn, or why there is none."""


def train(
    task: str,
    env: Env,
    config: TrainConfig,
    ppo_config: PPOConfig,
    began: float | None = None,
) -> Result:
    """Trains a policy and leaves a run folder behind.

    Ctrl-C, or SIGTERM, ends the run cleanly after the update it is in.

    Args:
        task: the task's name, for the run folder.
        env: the task on an engine.
        config: the run.
        ppo_config: the algorithm.
        began: `time.perf_counter()` of the process's start, from which the run's clock counts.

    Raises:
        RunError: the run folder cannot be written.
        TrainingDivergedError: training broke down; the last good policy is in the run folder.
    """
    began = time.perf_counter() if began is None else began
    learner = ppo(Worlds(env, ppo_config.num_worlds), ppo_config)
    evaluate = evaluator(env, config.eval_episodes)
    folder = RunFolder.create(config.out, _resolved(task, env, config, ppo_config))
    init_key, eval_key, video_key = jax.random.split(jax.random.key(config.seed), 3)
    state = learner.init(init_key)
    policy = learner.policy(state)

    progress: Progress[Any] = Progress(0, state, {}, 0.0, 0.0)
    due = _evaluation_steps(config, learner.steps_per_update)
    with (
        folder,
        ProgressDisplay(config.steps, quiet=config.quiet) as display,
        _stop_signal() as stopped,
    ):
        try:
            for progress in run(learner, state, config.steps):
                policy = learner.policy(progress.state)
                metrics = progress.metrics
                metrics["speed/steps_per_s"] = learner.steps_per_update / progress.update_seconds
                if progress.step >= due[0] and not stopped():
                    due.pop(0)
                    metrics |= _measure(evaluate, policy, eval_key)
                    save_policy(folder.path, policy)
                folder.write_metrics(progress.step, time.perf_counter() - began, metrics)
                display.update(progress.step, metrics)
                if stopped():
                    display.note("stopping: saving what was learned")
                    break
        except TrainingDivergedError:
            save_policy(folder.path, policy)
            raise
        save_policy(folder.path, policy)
        evaluation = jax.device_get(evaluate(policy, eval_key))
        with contextlib.suppress(RunError):  # stopped before the first update: nothing to draw
            folder.plot()
        note = (
            "no video: --no-video"
            if not config.video
            else make_video(folder, env, policy, video_key)
        )
        interrupted = stopped()
    seconds = time.perf_counter() - began
    return Result(folder.path, progress.step, seconds, evaluation, interrupted, note)


def make_video(
    folder: RunFolder,
    env: Env,
    policy: Policy,
    key: Key,
    seconds: float = 10.0,
    deterministic: bool = True,
) -> str:
    """Renders an episode of a policy into a run folder.

    Returns:
        A line that says how it was drawn, or what to install so that it can be.
    """
    timestep = env.task.control_timestep
    limit = env.task.episode_length or round(seconds / timestep)
    steps = max(1, min(limit, round(seconds / timestep)))
    episode = record(env, policy, key, steps, deterministic=deterministic)
    try:
        clip = render_episode(
            env.model,
            np.asarray(episode.qpos),
            folder.video_file,
            folder.strip_file,
            timestep=timestep,
            camera=env.task.camera,
            variation=jax.device_get(episode.variation),
            inputs=jax.device_get(episode.inputs),
        )
    except RenderUnavailableError as error:
        return f"no video: {error}"
    return clip.note


def _resolved(task: str, env: Env, config: TrainConfig, ppo_config: PPOConfig) -> dict[str, Any]:
    """The whole configuration, from which the run can be made again."""
    return {
        "task": task,
        "options": {f.name: getattr(env.task, f.name) for f in dataclasses.fields(env.task)},
        **dataclasses.asdict(config),
        "out": None,
        "algorithm": "ppo",
        "ppo": dataclasses.asdict(ppo_config),
    }


def _evaluation_steps(config: TrainConfig, steps_per_update: int) -> list[float]:
    """The steps at which to evaluate; the last evaluation of all is after the run."""
    every = max(config.steps / config.evaluations, steps_per_update)
    return [every * n for n in range(1, config.evaluations)] + [float("inf")]


def _measure(
    evaluate: Callable[[Policy, Key], Evaluation], policy: Policy, key: Key
) -> dict[str, float]:
    evaluation = evaluate(policy, key)
    return {
        "eval/return": float(evaluation.episode_return.mean()),
        "eval/return_std": float(evaluation.episode_return.std()),
        "eval/length": float(evaluation.episode_length.mean()),
    }


@contextlib.contextmanager
def _stop_signal() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C or SIGTERM into an answer to ask for; a second one interrupts."""
    received: list[int] = []

    def receive(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    handled = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.signal(number, receive) for number in handled}
    except ValueError:  # not the main thread: signals are somebody else's
        yield lambda: False
        return
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
