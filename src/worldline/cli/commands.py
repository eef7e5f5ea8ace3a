"""The function of each command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from rich.progress import Progress

from worldline.cli import BEGAN
from worldline.cli import settings as of
from worldline.env.env import Env
from worldline.errors import ConfigError
from worldline.export.policy_file import load_policy
from worldline.learn.policy import Policy
from worldline.learn.rollout import evaluator
from worldline.parallel.cluster import is_first, join
from worldline.report import RunFolder
from worldline.report.context_map import plot_contexts
from worldline.train import Result
from worldline.train import resume as resume_run
from worldline.train import train as train_run
from worldline.train.config import (
    check_seed,
    environment_of,
    find_domain,
    make_environment,
    saved_config,
)
from worldline.train.interrupt import graceful_stop
from worldline.train.run import make_video
from worldline.train.sweep import sweep
from worldline.variation.options import read_draws, read_grid


def train(settings: Any) -> None:
    """Trains a policy for a task, with the result of `train_settings`."""
    mesh = join(settings.cluster)
    env = make_environment(settings.task, settings.env, settings.run.context)
    what = (settings.name, env, settings.run, settings.algorithm)
    _print_result(settings.name, train_run(*what, BEGAN, graceful_stop(), mesh=mesh))


def resume(settings: of.ResumeSettings) -> None:
    """Continues a run."""
    mesh = join(settings.cluster)
    how = (settings.run, settings.steps, settings.quiet)
    result = resume_run(*how, BEGAN, graceful_stop(), mesh=mesh)
    _print_result(str(RunFolder.open(settings.run).config["task"]), result)


def evaluate(settings: of.EvalSettings) -> None:
    """Prints the returns of a run's policy with the most likely actions and with random ones."""
    if settings.episodes < 1:
        raise ConfigError(f"episodes is {settings.episodes}; give 1 or more")
    check_seed(settings.seed)
    folder, env, policy = _open_run(settings.run)
    if settings.context:
        _evaluate_contexts(settings, folder, env, policy)
        return
    domain = find_domain(env.task, settings.domain)
    keys = jax.random.split(jax.random.key(settings.seed), 2)
    for name, key in zip(("deterministic", "stochastic"), keys, strict=True):
        deterministic = name == "deterministic"
        measure = evaluator(env, settings.episodes, deterministic=deterministic, domain=domain)
        result = jax.device_get(measure(policy, key))
        print(
            f"{name:14} return {result.episode_return.mean():9.2f} "
            f"+- {result.episode_return.std():.2f}   "
            f"length {result.episode_length.mean():.0f}   {settings.episodes} episodes"
        )


def _evaluate_contexts(
    settings: of.EvalSettings, folder: RunFolder, env: Env, policy: Policy
) -> None:
    """Prints a table of the return over a grid of contexts; plots one or two axes."""
    axes, domain = read_grid(settings.context), find_domain(env.task, settings.domain)
    key = jax.random.key(settings.seed)
    with Progress(transient=True) as bar:
        work = bar.add_task("episodes", total=1.0)

        def show(share: float) -> None:
            bar.update(work, completed=share)

        result = sweep(env, policy, axes, settings.episodes, key, show, domain)
    print("  ".join(f"{name:>12}" for name in [*axes, "return", "+-"]))
    for row in result.rows():
        print("  ".join(f"{value:12.4g}" for value in row.values()))
    if len(axes) <= 2:
        trained = read_draws(folder.config.get("context", ()))
        supports = {name: draws.support() for name, draws in trained.items()}
        ranges = {name: (float(low), float(high)) for name, (low, high) in supports.items()}
        picture = folder.path / f"context-{'-'.join(axes)}.png"
        plot_contexts(axes, result.returns, picture, str(folder.config["task"]), ranges)
        print(f"  picture  {picture}")


def render(settings: of.RenderSettings) -> None:
    """Makes a video of a run's policy."""
    if not 0 < settings.seconds < float("inf"):
        raise ConfigError(f"seconds is {settings.seconds}; give more than 0")
    check_seed(settings.seed)
    folder, env, policy = _open_run(settings.run)
    key = jax.random.key(settings.seed)
    print(make_video(folder, env, policy, key, settings.seconds, not settings.stochastic))
    for file in (folder.video_file, folder.strip_file, folder.inputs_file):
        if file.exists():
            print(f"  {file}")


def export(settings: of.ExportSettings) -> None:
    """Writes a run's policy as an ONNX file, and prints its inputs and its output."""
    from worldline.export.onnx_file import save_onnx

    folder, env, policy = _open_run(settings.run)
    space = env.observation_space
    parts = dict(space.spaces) if hasattr(space, "spaces") else {"state": space}
    file = settings.out or folder.path / "policy.onnx"
    worst = save_onnx(file, policy, space)
    print(f"{file}: its actions differ from the policy's by {worst:.1g} at most")
    for name in policy.obs_keys:
        print(f"  {name}, of each world {parts[name].shape}")
    print(f"  -> action, of each world {policy.low.shape}")


def init(settings: of.InitSettings) -> None:
    """Writes a task file for a robot."""
    from worldline.cli.scaffold import write_task

    file = write_task(settings.mjcf, settings.out, motors=settings.motors)
    print(f"{file}: a task for {settings.mjcf}")
    print(f"  `python {file}` checks and trains it; what to fill in is marked YOURS")


def show_list(settings: of.ListSettings) -> None:
    """Prints the tasks, or what can vary in the worlds of one task."""
    from worldline.cli.listing import fields_of, tasks

    for line in fields_of(settings.fields) if settings.fields else tasks():
        print(line)


def _open_run(path: Path) -> tuple[RunFolder, Env, Policy]:
    """A run folder, its environment and its policy."""
    folder = RunFolder.open(path)
    saved_config(folder)  # an error of the configuration comes before one of the policy
    policy = load_policy(folder.path)
    return folder, environment_of(folder), policy


def _print_result(name: str, result: Result) -> None:
    """Prints the result of a run, in the first process only."""
    if not is_first():
        return
    returns = result.evaluation.episode_return  # (episodes,) or (seeds, episodes)
    mean, deviation = float(returns.mean()), float(returns.std())
    each = f" of each of {returns.shape[0]} seeds" if returns.ndim > 1 else ""
    print(
        f"{name}: return {_number(mean)} +- {_number(deviation)} "
        f"({returns.shape[-1]} episodes{each}, deterministic) after {result.steps:,} steps "
        f"in {result.seconds:.0f} s" + (", interrupted" if result.interrupted else "")
    )
    files = {"curve": "curves.png", "video": "episode.mp4", "strip": "episode.png"}
    for what, file in {**files, "policy": "policy.npz"}.items():
        if (result.folder / file).exists():
            print(f"  {what:7}{result.folder / file}")
    print(f"  {result.video_note}")


def _number(value: float) -> str:
    """A return with its significant digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


#: The function of each command by its name; each takes the settings of that command.
COMMANDS: dict[str, Callable[[Any], None]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "render": render,
    "export": export,
    "init": init,
    "list": show_list,
}
