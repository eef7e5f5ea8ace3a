"""The commands: the options of each, from which tyro makes its help, and what it does.

A command imports what it needs when it runs, since that takes seconds: so a wrong option is
reported at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import tyro

from worldline.cli import BEGAN
from worldline.parallel.cluster import ClusterConfig, is_first, join
from worldline.settings import Count, Positive, Range, Seed, check_settings

if TYPE_CHECKING:
    from worldline.env.env import Env
    from worldline.learn.policy import Policy
    from worldline.report import RunFolder
    from worldline.train import Result

RunPath: TypeAlias = tyro.conf.Positional[Path]


def train(settings: Any) -> None:
    """Trains a policy with the settings that `arguments.train_settings` read."""
    from worldline.train import train as train_run
    from worldline.train.interrupt import graceful_stop

    mesh = join(settings.cluster)
    env = settings.env.environment(settings.task, settings.run.context)
    what = (settings.name, env, settings.run, settings.algorithm)
    _print_result(settings.name, train_run(*what, BEGAN, graceful_stop(), mesh=mesh))


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped or killed. On the CPU the result is the same, bit for bit."""

    run: RunPath
    """The run folder."""
    steps: Annotated[int, Range(1, 10**15)] | None = None
    """Train until this number of environment steps in all. By default the number that the run began
    with."""
    quiet: bool = False
    """Show no progress."""
    cluster: Annotated[ClusterConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=ClusterConfig
    )

    def execute(self) -> None:
        """Continues the run."""
        from worldline.report import RunFolder
        from worldline.train import resume
        from worldline.train.interrupt import graceful_stop

        check_settings(self)
        if cores := RunFolder.open(self.run).versions.get("cores"):
            # XLA reads it when JAX begins: it divides its sums among so many threads.
            os.environ.setdefault("NPROC", cores)
        mesh = join(self.cluster)
        result = resume(self.run, self.steps, self.quiet, BEGAN, graceful_stop(), mesh=mesh)
        _print_result(str(RunFolder.open(self.run).config["task"]), result)


@dataclasses.dataclass(frozen=True)
class Eval:
    """Evaluate a run's policy on fresh episodes."""

    run: RunPath
    """The run folder."""
    episodes: Count = 20
    """The number of episodes. With --context, at each point of the grid."""
    seed: Seed = 1
    """The random seed of the episodes."""
    domain: str = ""
    """Draw the physics of each episode from this domain, as in `worldline train`."""
    context: tuple[str, ...] = ()
    """Evaluate over a grid of context features: gravity=-5:-15:11 (11 values) or friction=0.5,1.
    The result is a table; with one or two features, a picture too."""

    def execute(self) -> None:
        """Prints the returns with the most likely actions and with random ones."""
        import jax

        from worldline.learn.rollout import evaluator
        from worldline.train.config import find_domain

        check_settings(self)
        folder, env, policy = _open_run(self.run)
        if self.context:
            self._sweep(folder, env, policy)
            return
        domain = find_domain(env.task, self.domain)
        keys = jax.random.split(jax.random.key(self.seed), 2)
        for name, key in zip(("deterministic", "stochastic"), keys, strict=True):
            deterministic = name == "deterministic"
            measure = evaluator(env, self.episodes, deterministic=deterministic, domain=domain)
            result = jax.device_get(measure(policy, key))
            print(
                f"{name:14} return {result.episode_return.mean():9.2f} "
                f"+- {result.episode_return.std():.2f}   "
                f"length {result.episode_length.mean():.0f}   {self.episodes} episodes"
            )

    def _sweep(self, folder: RunFolder, env: Env, policy: Policy) -> None:
        """Prints a table of the return over a grid of contexts; plots one or two axes."""
        import jax
        from rich.progress import Progress

        from worldline.report.figures import plot_contexts
        from worldline.train.config import find_domain
        from worldline.train.sweep import sweep
        from worldline.variation.options import read_draws, read_grid

        axes, domain = read_grid(self.context), find_domain(env.task, self.domain)
        with Progress(transient=True) as bar:
            work = bar.add_task("episodes", total=1.0)

            def show(share: float) -> None:
                bar.update(work, completed=share)

            key = jax.random.key(self.seed)
            returns = sweep(env, policy, axes, self.episodes, key, show, domain)
        print("  ".join(f"{name:>12}" for name in [*axes, "return", "+-"]))
        points = itertools.product(*axes.values())
        for point, each in zip(points, returns.reshape(-1, self.episodes), strict=True):
            print("  ".join(f"{value:12.4g}" for value in (*point, each.mean(), each.std())))
        if len(axes) <= 2:
            trained = read_draws(folder.config.get("context", ()))
            supports = {name: draws.support() for name, draws in trained.items()}
            ranges = {name: (float(low), float(high)) for name, (low, high) in supports.items()}
            picture = folder.path / f"context-{'-'.join(axes)}.png"
            plot_contexts(axes, returns, picture, str(folder.config["task"]), ranges)
            print(f"  picture  {picture}")


@dataclasses.dataclass(frozen=True)
class Render:
    """Make a video and a strip of pictures of a run's policy."""

    run: RunPath
    """The run folder; the files go there."""
    seconds: Positive = 10.0
    """The longest duration of the video."""
    seed: Seed = 1
    """The random seed of the episode."""
    stochastic: bool = False
    """Explore: draw the actions from the policy. By default it takes the most likely ones."""

    def execute(self) -> None:
        """Makes the files, and prints their names."""
        import jax

        from worldline.train.run import make_video

        check_settings(self)
        folder, env, policy = _open_run(self.run)
        key = jax.random.key(self.seed)
        print(make_video(folder, env, policy, key, self.seconds, not self.stochastic))
        for file in (folder.video_file, folder.strip_file, folder.inputs_file):
            if file.exists():
                print(f"  {file}")


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a run's policy as an ONNX file, with its normalisation and its action bounds."""

    run: RunPath
    """The run folder."""
    out: Path | None = None
    """The file; by default policy.onnx in the run folder."""

    def execute(self) -> None:
        """Writes the file, and prints its inputs and its output."""
        from worldline.export.onnx_file import save_onnx

        folder, env, policy = _open_run(self.run)
        space = env.observation_space
        parts = dict(space.spaces) if hasattr(space, "spaces") else {"state": space}
        file = self.out or folder.path / "policy.onnx"
        worst = save_onnx(file, policy, space)
        print(f"{file}: its actions differ from the policy's by {worst:.1g} at most")
        for name in policy.obs_keys:
            print(f"  {name}, of each world {parts[name].shape}")
        print(f"  -> action, of each world {policy.low.shape}")


@dataclasses.dataclass(frozen=True)
class Init:
    """Write a Python file with a task for your robot. It trains at once, and is yours to change."""

    mjcf: tyro.conf.Positional[Path]
    """The robot's MJCF file."""
    out: Path | None = None
    """The Python file to write. By default it is in this folder and has the name of the MJCF."""
    motors: bool = False
    """Add a motor to every hinge and slide, for a model without actuators."""

    def execute(self) -> None:
        """Writes the file, and prints its name."""
        from worldline.cli.scaffold import write_task

        file = write_task(self.mjcf, self.out, motors=self.motors)
        print(f"{file}: a task for {self.mjcf}")
        print(f"  `python {file}` checks it and trains it; the places to change are marked YOURS")


@dataclasses.dataclass(frozen=True)
class List:
    """List the tasks: their observation, action, control rate and episode length."""

    fields: str = ""
    """Show what can vary in this task instead: its domains, context features and model fields."""

    def execute(self) -> None:
        """Prints the list."""
        from worldline.cli.listing import fields_of, tasks

        for line in fields_of(self.fields) if self.fields else tasks():
            print(line)


def _open_run(path: Path) -> tuple[RunFolder, Env, Policy]:
    from worldline.export.policy_file import load_policy
    from worldline.report import RunFolder
    from worldline.train.config import environment_of, saved_config

    folder = RunFolder.open(path)
    saved_config(folder)  # an error of the configuration comes before one of the policy
    policy = load_policy(folder.path)
    return folder, environment_of(folder), policy


def _print_result(name: str, result: Result) -> None:
    from worldline.export.policy_file import POLICY_FILE
    from worldline.report import RunFolder
    from worldline.report.progress import short

    if not is_first():
        return
    returns = result.evaluation.episode_return  # (episodes,) or (seeds, episodes)
    each = f" of each of {returns.shape[0]} seeds" if returns.ndim > 1 else ""
    print(
        f"{name}: return {short(float(returns.mean()))} +- {short(float(returns.std()))} "
        f"({returns.shape[-1]} episodes{each}, deterministic) after {result.steps:,} steps "
        f"in {result.seconds:.0f} s" + (", interrupted" if result.interrupted else "")
    )
    run = RunFolder(result.folder)
    files = {"curve": run.curves_file, "video": run.video_file, "strip": run.strip_file}
    for what, file in {**files, "policy": run.path / POLICY_FILE}.items():
        if file.exists():
            print(f"  {what:7}{file}")
    print(f"  {result.video_note}")
