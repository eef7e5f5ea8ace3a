"""A training run from start to end: what `worldline train` does."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from worldline.checkpoint import save_policy
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, RunError
from worldline.learn.policy import Policy
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import Evaluation, evaluator, record
from worldline.learn.run import run
from worldline.report import ProgressDisplay, RenderUnavailableError, RunFolder, render_episode
from worldline.types import Key

#: Entered for the time of training, it gives the question "should I stop?".
StopSignal: TypeAlias = AbstractContextManager[Callable[[], bool]]

_NEVER: StopSignal = contextlib.nullcontext(lambda: False)


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
    """How often the policy is evaluated and saved, evenly over the run; the last time at its end.
    """
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
        check_seed(self.seed)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run came to."""

    folder: Path
    steps: int
    seconds: float
    """Wall-clock until the last evaluation was done."""
    evaluation: Evaluation
    """Of the final policy."""
    interrupted: bool
    """Whether it was asked to stop early."""
    video_note: str
    """How the video was drawn, or why there is none."""


def train(
    task: str,
    env: Env,
    config: TrainConfig,
    ppo_config: PPOConfig,
    began: float | None = None,
    stop_signal: StopSignal = _NEVER,
) -> Result:
    """Trains a policy and leaves a run folder behind.

    However it ends, the policy of the last update that was done is in the folder.

    Args:
        task: the task's name, for the run folder.
        env: the task on an engine.
        config: the run.
        ppo_config: the algorithm.
        began: `time.perf_counter()` of the process's start, from which the run's clock counts.
        stop_signal: when the function that it gives says True, the run ends well after the update
            it is in, with one more evaluation; see `worldline.interrupt.graceful_stop`.

    Raises:
        RunError: the run folder cannot be written.
        TrainingDivergedError: training broke down; the last good policy is in the run folder.
    """
    began = time.perf_counter() if began is None else began
    learner = ppo(Worlds(env, ppo_config.num_worlds), ppo_config)
    evaluate = evaluator(env, config.eval_episodes)
    init_key, eval_key, video_key = jax.random.split(jax.random.key(config.seed), 3)
    every = config.steps / config.evaluations
    due = every
    with (
        stop_signal as stopped,
        RunFolder.create(config.out, _resolved(task, env, config, ppo_config)) as folder,
        ProgressDisplay(config.steps, quiet=config.quiet) as display,
    ):
        state = learner.init(init_key)
        policy = learner.policy(state)
        try:
            for progress in run(learner, state, config.steps):
                policy, metrics = learner.policy(progress.state), _measured(progress.metrics)
                last = progress.step >= config.steps or stopped()
                if last or progress.step >= due:
                    due += every
                    save_policy(folder.path, policy)
                    # Each time the same episodes, so that they differ by the policy alone.
                    evaluation = jax.device_get(evaluate(policy, jax.random.clone(eval_key)))
                    metrics |= _summary(evaluation)
                    last |= stopped()
                metrics["speed/steps_per_s"] = learner.steps_per_update / progress.update_seconds
                seconds = time.perf_counter() - began
                folder.write_metrics(progress.step, seconds, metrics)
                display.update(progress.step, metrics)
                if last:
                    break
        except BaseException:
            with contextlib.suppress(RunError):
                save_policy(folder.path, policy)
                folder.plot()
            raise
        folder.plot()
        interrupted = stopped()
    note = _video(config, folder, env, policy, video_key, interrupted)
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


def check_seed(seed: int) -> None:
    """Refuses what is no seed.

    Raises:
        ConfigError: it is negative, or so large that JAX would drop its higher bits without a word.
    """
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed is {seed}; give 0 to {2**32 - 1}")


def saved_config(folder: RunFolder) -> dict[str, Any]:
    """The configuration of a run, with tuples where JSON has lists.

    So `load_task(config["task"], **config["options"])` makes the run's task again, and
    `PPOConfig(**config["ppo"])` its algorithm.

    Raises:
        RunError: the folder's configuration is none of a training run.
    """
    config: dict[str, Any] = _tuples(folder.config)
    missing = {"task", "options", "physics", "ppo"} - config.keys()
    if missing:
        raise RunError(
            f"{str(folder.path)!r} is no training run: its config.json lacks {min(missing)!r}; "
            "give a folder that `worldline train` made"
        )
    return config


def _resolved(task: str, env: Env, config: TrainConfig, ppo_config: PPOConfig) -> dict[str, Any]:
    """The whole configuration, from which the run can be made again."""
    options = {f.name: getattr(env.task, f.name) for f in dataclasses.fields(env.task) if f.init}
    return {
        "task": task,
        "options": options,
        **dataclasses.asdict(config),
        "out": None,
        "algorithm": "ppo",
        "ppo": dataclasses.asdict(ppo_config),
    }


def _tuples(value: Any) -> Any:
    """A JSON value with a tuple for every list."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _measured(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics of an update; without means over episodes where none ended."""
    unknown = () if metrics["train/episodes"] else ("train/return", "train/episode_length")
    return {name: value for name, value in metrics.items() if name not in unknown}


def _summary(evaluation: Evaluation) -> dict[str, float]:
    return {
        "eval/return": float(evaluation.episode_return.mean()),
        "eval/return_std": float(evaluation.episode_return.std()),
        "eval/length": float(evaluation.episode_length.mean()),
    }


def _video(
    config: TrainConfig, folder: RunFolder, env: Env, policy: Policy, key: Key, interrupted: bool
) -> str:
    """The video at the end of a run; a line on how it went."""
    if not config.video:
        return "no video: --no-video"
    if not interrupted:
        with contextlib.suppress(KeyboardInterrupt):
            return make_video(folder, env, policy, key)
    return f"no video: interrupted; `worldline render {folder.path}` makes one"
