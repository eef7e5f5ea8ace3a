"""Training runs from start to end, for `worldline train` and `worldline resume`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, RunError
from worldline.learn.algorithms import find_algorithm, name_of_algorithm
from worldline.learn.policy import Policy
from worldline.learn.population import population
from worldline.learn.rollout import Evaluation, evaluator
from worldline.learn.run import Learner, run
from worldline.parallel.cluster import is_first, of_first, report_lost_process
from worldline.parallel.devices import computing_on
from worldline.parallel.roles import Roles
from worldline.rendering.html import card
from worldline.report import ProgressDisplay, RunFolder
from worldline.report.run_folder import library_versions
from worldline.train.begin import begin_from
from worldline.train.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    Moment,
    differences,
    restore,
)
from worldline.train.config import TrainConfig, find_domain, reading_all
from worldline.train.layout import (
    Layout,
    choose_device,
    layout_of,
    shape_in_training,
    shared_over,
    with_lag,
)
from worldline.train.memory import check_memory
from worldline.train.records import Records
from worldline.train.stored import (
    algorithm_of,
    check_environment,
    environment_of,
    keep_code,
    resolved_config,
    run_config,
)
from worldline.train.trackers import Trackers, check_trackers
from worldline.train.video import VideoOptions, make_video
from worldline.types import Key
from worldline.variation.options import read_draws

#: A context manager, entered during training; its function says whether the run should stop.
StopSignal: TypeAlias = AbstractContextManager[Callable[[], bool]]

#: Makes a learner from worlds and a configuration, as `ppo` does.
MakeLearner: TypeAlias = Callable[[Worlds, Any], Learner[Any]]

_NEVER: StopSignal = contextlib.nullcontext(lambda: False)

#: Values of `TrainConfig` that may change when a run is resumed: its numbers do not depend on them.
_MAY_CHANGE = {
    "steps", "out", "resume", "evaluations", "eval_episodes", "video", "track", "quiet",
    "learner_device",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run."""

    folder: Path
    """The run folder, which the first process writes."""
    steps: int
    """Environment steps that were taken, for each seed."""
    seconds: float
    """Wall-clock time up to the last update."""
    evaluation: Evaluation
    """The evaluation of the final policy, `(episodes,)`, or `(seeds, episodes)`."""
    interrupted: bool
    """Whether the run was asked to stop early."""
    video_note: str
    """A line that says how the video was drawn, or why there is none."""

    def _repr_html_(self) -> str:
        """What a notebook shows: the numbers, the learning curve and frames of an episode."""
        returns = self.evaluation.episode_return
        facts = {
            "return": f"{returns.mean():.4g} ± {returns.std():.2g} over {returns.size} episodes",
            "steps": f"{self.steps:,}" + " (interrupted)" * self.interrupted,
            "time": f"{self.seconds:.0f} s",
            "folder": self.folder,
        }
        return card("Result", facts, [self.folder / "curves.png", self.folder / "episode.png"])


def train(
    task: str,
    env: Env,
    config: TrainConfig,
    algorithm: Any,
    began: float | None = None,
    stop_signal: StopSignal = _NEVER,
    make_learner: MakeLearner | None = None,
    mesh: Mesh | Roles | None = None,
) -> Result:
    """Trains a policy and writes a run folder.

    After any kind of end, the folder has the policy of the last complete update, and `resume`
    continues from its last checkpoint.

    Args:
        task: the name of the run, for example the name of its task.
        env: the environment; the run folder stores its configuration.
        config: the configuration of the run.
        algorithm: the configuration of an algorithm, such as `PPOConfig`. The policy also reads the
            parts that the environment adds to the task's observation (images, the last action, the
            context), unless `actor_obs` or `critic_obs` names them.
        began: `time.perf_counter()` at the start of the process, where the run's clock begins.
        stop_signal: a context manager, for example `worldline.train.interrupt.graceful_stop()`.
            When its function returns True, the run ends after the current update, with a
            checkpoint.
        make_learner: makes the learner, for example `functools.partial(ppo, loss=my_loss)`; by
            default the algorithm's own function.
        mesh: devices that share the worlds, from `worldline.parallel.cluster.join` or
            `worldline.parallel.mesh.world_mesh`; or the roles of processes, from `join`. With
            several processes, each calls this function with the same arguments. None: one device.

    Raises:
        RunError: the run folder cannot be written.
        ConfigError: the number of worlds is not a multiple of the devices, there are several
            devices and several seeds, or there is no such tracker.
        MissingExtraError: the library of a tracker is not installed.
        TrainingDivergedError: training diverged; the last good policy is in the run folder.
        LostProcessError: another process has ended; start all processes again.
    """
    began = time.perf_counter() if began is None else began
    check_trackers(config.track)
    algorithm = with_lag(reading_all(algorithm, env), mesh)
    resolved = resolved_config(task, env, config, algorithm)
    if config.resume and config.out is not None and (config.out / "config.json").is_file():
        _check_same_run(config.out, resolved)
        steps, quiet = config.steps, config.quiet
        return resume(config.out, steps, quiet, began, stop_signal, env, make_learner, mesh)
    where = choose_device(config.learner_device, env, algorithm, mesh)
    with computing_on(where.device), contextlib.ExitStack() as stack:
        job = _prepare(env, config, algorithm, make_learner, mesh)
        learner = begin_from(config.init_from, job.learner, config.init_parts)
        stopped = stack.enter_context(stop_signal)
        folder = None
        if is_first():
            folder = stack.enter_context(RunFolder.create(config.out, resolved))
            keep_code(folder)
        missing = resolved["not_rebuilt"]
        note = f"this folder does not store its environment: {missing}; resume it with env="
        notes = tuple(line for line in (missing and note, where.note) if line)
        return _go_on(job, folder, lambda: _first_state(learner, config, notes), began, stopped)


def resume(
    path: str | os.PathLike[str],
    steps: int | None = None,
    quiet: bool = False,
    began: float | None = None,
    stop_signal: StopSignal = _NEVER,
    env: Env | None = None,
    make_learner: MakeLearner | None = None,
    mesh: Mesh | Roles | None = None,
    *,
    trust_code: bool = False,
) -> Result:
    """Continues a run from its last checkpoint; on the CPU with the numbers of an unbroken run.

    A run that was killed before its first checkpoint begins again, with the same numbers.

    Args:
        path: the run folder.
        steps: environment steps of the whole run; None: the configured number.
        quiet: show no progress.
        began: as in `train`.
        stop_signal: as in `train`.
        env: the environment, with the same configuration as in training. It is needed if the run
            folder does not store it, for example with an engine that your own function builds.
        make_learner: the same as in `train`.
        mesh: as in `train`. On another mesh than before, sums may have another order. Every process
            reads the run folder.
        trust_code: run the copy of the task's file in the run folder, if the file is no longer
            where it was or has changed.

    Raises:
        RunError: the folder is not a run folder, another process writes to it, all its checkpoints
            are damaged, or its configuration or `env` differs from the checkpoint.
        ConfigError: `steps` is less than the run has already taken; or as in `train`.
        TrainingDivergedError, LostProcessError: as in `train`.
    """
    began = time.perf_counter() if began is None else began
    with stop_signal as stopped, RunFolder.open(path) as folder, contextlib.ExitStack() as stack:
        if is_first():
            folder.lock()
        config = run_config(folder, steps, quiet)
        check_trackers(config.track)
        if env is None:
            env = environment_of(folder, trust_code=trust_code)
        else:
            check_environment(folder, env)
        algorithm = algorithm_of(folder)
        where = choose_device(config.learner_device, env, algorithm, mesh)
        stack.enter_context(computing_on(where.device))
        job = _prepare(env, config, algorithm, make_learner, mesh)

        def begin() -> Checkpoint:
            like = shape_in_training(_members(job.learner, config), algorithm, _keys(config)[0])
            binding = {n: value for n, value in folder.config.items() if n not in _MAY_CHANGE}
            like = job.layout.places(like)
            checkpoint = restore(folder.path, like, binding, library_versions())
            taken = -1 if checkpoint is None else checkpoint.moment.step
            if steps is not None and steps < taken:
                raise ConfigError(
                    f"steps is {steps}, but the run has already taken {taken}; give more steps"
                )
            if is_first():
                folder.replace_config(steps=config.steps)
            if checkpoint is not None:
                return checkpoint
            learner = begin_from(config.init_from, job.learner, config.init_parts)
            return _first_state(learner, config)

        return _go_on(job, folder if is_first() else None, begin, began, stopped)


def _check_same_run(path: Path, resolved: Mapping[str, Any]) -> None:
    """Checks that a run folder has the settings that are given now."""
    before, now = RunFolder.open(path).config, json.loads(json.dumps(resolved, default=str))
    for name, old, new in differences(before, now):
        if name.split(".")[0] not in _MAY_CHANGE:
            raise RunError(
                f"{name} is {new!r}, but the run in {str(path)!r} has {old!r}; give the same value "
                "to continue it, or another folder to --out"
            )


class _Job(NamedTuple):
    """The parts of a run that do not change."""

    env: Env
    config: TrainConfig
    evaluate: Callable[[Policy], Evaluation]
    layout: Layout

    @property
    def learner(self) -> Learner[Any]:
        """The learner of one seed, whose states are whole."""
        return self.layout.whole_learner


def _prepare(
    env: Env,
    config: TrainConfig,
    algorithm: Any,
    make: MakeLearner | None,
    where: Mesh | Roles | None,
) -> _Job:
    """Makes the learner and the evaluation. Raises an error for settings that do not fit."""
    where = shared_over(where, env, algorithm, config.seeds)
    check_memory(env, algorithm, where.mesh if isinstance(where, Roles) else where)
    make = make or find_algorithm(name_of_algorithm(algorithm)).learner
    domain, context = find_domain(env.task, config.domain), read_draws(config.context) or None

    def learner_on(mesh: Mesh | None) -> Learner[Any]:
        drawn = config.episode_length, domain, context
        return make(Worlds(env, algorithm.num_worlds, *drawn, mesh=mesh), algorithm)

    layout = layout_of(learner_on, where, lambda learner: _members(learner, config))
    one = evaluator(env, config.eval_episodes, domain=domain, context=context)
    all_seeds = one if config.seeds == 1 else jax.vmap(one)
    key = _keys(config)[1]

    def evaluate(policy: Policy) -> Evaluation:
        """Evaluates in the same episodes each time, so that only the policy differs."""
        return jax.device_get(all_seeds(policy, jax.random.clone(key)))

    return _Job(env, config, evaluate, layout)


def _go_on(
    job: _Job,
    folder: RunFolder | None,
    begin: Callable[[], Checkpoint],
    began: float,
    stopped: Callable[[], bool],
) -> Result:
    """Trains from a checkpoint, or from the beginning, to the end of the run.

    Several processes do all of this at the same time, but those without a folder write nothing
    but their shares of checkpoints.
    Only `run` holds the training state, so that the next update may reuse its memory.
    """
    config, learner = job.config, job.layout.learner
    state, (step, seconds, _), notes = begin()
    path = Path(of_first(str(folder and folder.path)))
    resolved = folder.config if folder else {}
    earlier = seconds - began
    with (
        report_lost_process(f"`worldline resume {path}`"),
        Records(folder, config.seed, config.seeds) as records,
        Trackers(folder, config.track) as trackers,
        CheckpointWriter(path, resolved, library_versions(), learner.parts) as checkpoints,
        ProgressDisplay(config.steps, quiet=config.quiet or folder is None) as display,
    ):
        records.rewind(step)
        for note in notes:
            display.note(note)
        state = job.layout.place(state)
        policy, evaluation = _copied(learner.policy(state)), None
        updates = run(learner, state, config.steps, step)
        del state
        try:
            for progress in updates:
                step, policy = progress.step, _copied(learner.policy(progress.state))
                metrics, evaluation = dict(progress.metrics), None
                if _is_evaluated(step, learner.steps_per_update, config):
                    evaluation = job.evaluate(policy)
                    best = records.save_evaluated(policy, evaluation, step)
                    metrics |= _summary(evaluation)
                metrics["speed/steps_per_s"] = learner.steps_per_update / progress.update_seconds
                seconds = earlier + time.perf_counter()
                shown = records.write(step, seconds, metrics)
                trackers.write(step, shown)
                display.update(step, shown)
                stop, due = checkpoints.agree(stopped(), progress.update_seconds)
                if stop or due or evaluation is not None:
                    moment = Moment(step, seconds, shown.get("eval/return"))
                    checkpoints.save(job.layout.to_save(progress.state), moment, at_once=due)
                if stop:
                    break
            checkpoints.wait()
            if evaluation is None:  # for the result of an interrupted run
                evaluation = job.evaluate(policy)
                best = records.save_evaluated(policy, evaluation, step)
        except BaseException:
            with contextlib.suppress(RunError):
                records.save_policies(policy)
                records.plot()
            raise
        records.plot()
    interrupted = step < config.steps or stopped()
    note = _video(job, folder, best, interrupted)
    return Result(path, step, seconds, evaluation, interrupted, note)


def _members(learner: Learner[Any], config: TrainConfig) -> Learner[Any]:
    """The learner of one seed, or with several seeds a population of them."""
    return learner if config.seeds == 1 else population(learner)


def _keys(config: TrainConfig) -> tuple[Key, Key, Key]:
    """Keys for the first state and the evaluations, `()` or `(seeds,)`, and the video, `()`."""
    seeds = range(config.seed, config.seed + config.seeds)
    of_each = [tuple(jax.random.split(jax.random.key(seed), 3)) for seed in seeds]
    first_state, evaluations, video = of_each[0]
    if config.seeds > 1:
        first_state, evaluations, _ = map(jnp.stack, zip(*of_each, strict=True))
    return first_state, evaluations, video


def _first_state(
    learner: Learner[Any], config: TrainConfig, notes: tuple[str, ...] = ()
) -> Checkpoint:
    """The training state at the start of a run, in the form of a checkpoint."""
    state = _members(learner, config).init(_keys(config)[0])
    return Checkpoint(state, Moment(0, 0.0, None), notes)


def _copied(policy: Policy) -> Policy:
    """A copy of a policy, which stays valid when an update reuses the training state."""
    return jax.tree.map(jnp.copy, policy)


def _is_evaluated(step: int, steps_per_update: int, config: TrainConfig) -> bool:
    """Whether one of the evaluations, which are even over the run, falls into the last update."""
    before = (step - steps_per_update) * config.evaluations // config.steps
    return step * config.evaluations // config.steps > before


def _summary(evaluation: Evaluation) -> dict[str, Any]:
    """The metrics of an evaluation, `()` or `(seeds,)` each."""
    return {
        "eval/return": evaluation.episode_return.mean(axis=-1),
        "eval/return_std": evaluation.episode_return.std(axis=-1),
        "eval/length": evaluation.episode_length.mean(axis=-1),
        **{f"eval/{name}": mean.mean(axis=-1) for name, mean in evaluation.metrics.items()},
    }


def _video(job: _Job, folder: RunFolder | None, policy: Policy, interrupted: bool) -> str:
    """Makes the video at the end of a run, and returns a line about it for the user."""
    if folder is None:
        return "no video: the first process makes it"
    if not job.config.video:
        return "no video: --no-video"
    if not interrupted:
        with contextlib.suppress(KeyboardInterrupt):
            options = VideoOptions(quiet=job.config.quiet)
            return make_video(folder, job.env, policy, _keys(job.config)[2], options=options)
    return f"no video: interrupted; `worldline render {folder.path}` makes one"
