"""The command line: train, resume, eval, render, export, init, list, bench."""

from __future__ import annotations

import time

_BEGAN = time.perf_counter()  # before the heavy imports, which the run's clock counts

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from worldline.cli.arguments import HELP, parse, take_task, train_settings
from worldline.errors import ConfigError, WorldlineError, did_you_mean
from worldline.tuning import tune_process

if TYPE_CHECKING:
    from worldline.env.env import Env
    from worldline.learn.policy import Policy
    from worldline.report import RunFolder
    from worldline.train import Result

_USAGE = """\
usage: worldline COMMAND ...

  train TASK     train a policy, and leave a run folder with curves and a video
  resume RUN     go on with a run that was stopped or killed, from its last checkpoint
  eval RUN       evaluate a run's policy on fresh episodes
  render RUN     make a video and a strip of pictures of a run's policy
  export RUN     write a run's policy as an ONNX file
  init MJCF      write a task file for a robot of your own, ready to train
  list           the tasks
  bench NAME     a published figure, measured here against its peers (from a checkout)

`worldline COMMAND --help` tells more; `worldline train TASK --help` shows every setting."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: the arguments, by default those of the process.

    Returns:
        The exit status: 0, also after a training that Ctrl-C ended; 2 after an error of one line;
        130 for a command that Ctrl-C broke off.
    """
    name, *rest = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    try:
        with _sigterm_as_ctrl_c():
            status = _run(name, rest)
            sys.stdout.flush()
        return status
    except WorldlineError as error:
        print(f"error: {error}", file=sys.stderr)
        return _leave(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _leave(130)
    except BrokenPipeError:  # the reader of a pipe has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _leave(status: int) -> int:
    """The exit status of a failure; of one of several processes, its end there and then."""
    if "worldline.parallel.cluster" in sys.modules:
        from worldline.parallel.cluster import leave

        leave(status)
    return status


def _run(name: str, argv: list[str]) -> int:
    if name in (*HELP, "help"):
        print(_USAGE)
        return 0
    if name == "--version":
        from worldline import __version__

        print(f"worldline {__version__}")
        return 0
    if name not in _COMMANDS:
        raise ConfigError(f"there is no command {name!r}{did_you_mean(name, _COMMANDS)}")
    return _COMMANDS[name](argv)


def _train(argv: list[str]) -> int:
    from worldline.parallel.cluster import join
    from worldline.train import train
    from worldline.train.config import make_environment, sighted
    from worldline.train.interrupt import graceful_stop

    name, rest = take_task(argv)
    settings = train_settings(name, rest)
    assert name is not None
    mesh = join(settings.cluster)
    tune_process()
    env = make_environment(settings.task, settings.run)
    algorithm = sighted(settings.algorithm, env, settings.run)
    result = train(name, env, settings.run, algorithm, _BEGAN, graceful_stop(), mesh=mesh)
    return _tell(name, result)


@dataclasses.dataclass(frozen=True)
class _ResumeSettings:
    """Go on with a run that was stopped or killed, exactly, from its last checkpoint."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    steps: int | None = None
    """Environment steps of the whole run, if they are to be more than it was begun with."""
    quiet: bool = False
    """Show no progress."""


def _resume(argv: list[str]) -> int:
    from worldline.parallel.cluster import ClusterConfig, join
    from worldline.report import RunFolder
    from worldline.train import resume
    from worldline.train.interrupt import graceful_stop

    unprefixed = tyro.conf.arg(name="")
    fields: list[Any] = [
        ("run", Annotated[_ResumeSettings, unprefixed]),
        ("cluster", Annotated[ClusterConfig, unprefixed], ClusterConfig()),
    ]
    both: Any = dataclasses.make_dataclass("Settings", fields, frozen=True)
    both.__doc__ = _ResumeSettings.__doc__
    parsed = parse(both, argv, "worldline resume")
    mesh = join(parsed.cluster)
    tune_process()
    how: _ResumeSettings = parsed.run
    result = resume(how.run, how.steps, how.quiet, _BEGAN, graceful_stop(), mesh=mesh)
    return _tell(str(RunFolder.open(how.run).config["task"]), result)


def _tell(name: str, result: Result) -> int:
    """Says what a run came to; the exit status."""
    from worldline.parallel.cluster import is_first

    if not is_first():
        return 0
    returns = result.evaluation.episode_return
    mean, deviation = float(returns.mean()), float(returns.std())
    print(
        f"{name}: return {_number(mean)} +- {_number(deviation)} "
        f"({_episodes(returns)}, deterministic) after {result.steps:,} steps "
        f"in {result.seconds:.0f} s" + (", interrupted" if result.interrupted else "")
    )
    files = {"curve": "curves.png", "video": "episode.mp4", "strip": "episode.png"}
    for what, file in {**files, "policy": "policy.npz"}.items():
        if (result.folder / file).exists():
            print(f"  {what:7}{result.folder / file}")
    print(f"  {result.video_note}")
    return 0


@dataclasses.dataclass(frozen=True)
class _EvalSettings:
    """Evaluate a run's policy on fresh episodes."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    episodes: int = 20
    """Episodes, each in a world of its own; with a context, at each point of the grid."""
    seed: int = 1
    """Decides where they begin."""
    domain: str = ""
    """What each episode's physics is drawn from, as in `worldline train`."""
    context: tuple[str, ...] = ()
    """Context features to go through, as gravity=-5:-15:11 (11 values) or friction=0.5,1; a table,
    and a picture of one or two."""


def _eval(argv: list[str]) -> int:
    settings = parse(_EvalSettings, argv, "worldline eval")
    import jax

    from worldline.learn.rollout import evaluator
    from worldline.train.config import check_seed, find_domain

    if settings.episodes < 1:
        raise ConfigError(f"episodes is {settings.episodes}; give 1 or more")
    check_seed(settings.seed)

    folder, env, policy = _open_run(settings.run)
    if settings.context:
        return _eval_contexts(settings, folder, env, policy)
    domain = find_domain(env.task, settings.domain)
    keys = jax.random.split(jax.random.key(settings.seed), 2)
    for name, key, deterministic in zip(
        ("deterministic", "stochastic"), keys, (True, False), strict=True
    ):
        evaluate = evaluator(env, settings.episodes, deterministic=deterministic, domain=domain)
        result = jax.device_get(evaluate(policy, key))
        print(
            f"{name:14} return {result.episode_return.mean():9.2f} "
            f"+- {result.episode_return.std():.2f}   "
            f"length {result.episode_length.mean():.0f}   {settings.episodes} episodes"
        )
    return 0


def _eval_contexts(settings: _EvalSettings, folder: RunFolder, env: Env, policy: Policy) -> int:
    """A table and a picture of the return over a grid of contexts."""
    import jax
    from rich.progress import Progress

    from worldline.report.context_map import plot_contexts
    from worldline.train.config import find_domain
    from worldline.train.sweep import sweep
    from worldline.variation.options import read_draws, read_grid

    axes = read_grid(settings.context)
    with Progress(transient=True) as bar:
        work = bar.add_task("episodes", total=1.0)
        result = sweep(
            env,
            policy,
            axes,
            settings.episodes,
            jax.random.key(settings.seed),
            lambda share: bar.update(work, completed=share),
            find_domain(env.task, settings.domain),
        )
    print("  ".join(f"{name:>12}" for name in [*axes, "return", "+-"]))
    for row in result.rows():
        print("  ".join(f"{value:12.4g}" for value in row.values()))
    if len(axes) <= 2:
        trained = read_draws(folder.config.get("context", ()))
        ranges = {
            name: (float(low), float(high))
            for name, (low, high) in ((name, draws.support()) for name, draws in trained.items())
        }
        picture = folder.path / f"context-{'-'.join(axes)}.png"
        plot_contexts(axes, result.returns, picture, str(folder.config["task"]), ranges)
        print(f"  picture  {picture}")
    return 0


@dataclasses.dataclass(frozen=True)
class _RenderSettings:
    """Make a video and a strip of pictures of a run's policy."""

    run: tyro.conf.Positional[Path]
    """The run folder, where the files go."""
    seconds: float = 10.0
    """Length of the episode shown, at the most."""
    seed: int = 1
    """Decides where it begins."""
    stochastic: bool = False
    """Draw the actions, rather than take the most likely."""


def _render(argv: list[str]) -> int:
    settings = parse(_RenderSettings, argv, "worldline render")
    import jax

    from worldline.train.config import check_seed
    from worldline.train.run import make_video

    if not 0 < settings.seconds < float("inf"):
        raise ConfigError(f"seconds is {settings.seconds}; give more than 0")
    check_seed(settings.seed)
    folder, env, policy = _open_run(settings.run)
    key = jax.random.key(settings.seed)
    note = make_video(folder, env, policy, key, settings.seconds, not settings.stochastic)
    print(note)
    for file in (folder.video_file, folder.strip_file, folder.inputs_file):
        if file.exists():
            print(f"  {file}")
    return 0


@dataclasses.dataclass(frozen=True)
class _ExportSettings:
    """Write a run's policy as an ONNX file, its normaliser and action bounds included."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    out: Path | None = None
    """The file; by default policy.onnx in the run folder."""


def _export(argv: list[str]) -> int:
    settings = parse(_ExportSettings, argv, "worldline export")
    from worldline.export.onnx_file import save_onnx

    folder, env, policy = _open_run(settings.run)
    space = env.observation_space
    parts = dict(space.spaces) if hasattr(space, "spaces") else {"state": space}
    file = settings.out or folder.path / "policy.onnx"
    worst = save_onnx(file, policy, space)
    print(f"{file}: its actions are the policy's, but for {worst:.1g}")
    for name in policy.obs_keys:
        print(f"  {name}, of each world {parts[name].shape}")
    print(f"  -> action, of each world {policy.low.shape}")
    return 0


@dataclasses.dataclass(frozen=True)
class _ListSettings:
    """List the tasks: sizes of observation and action, actions a second, steps an episode."""

    fields: str = ""
    """A task whose domains, context features and model fields to list instead."""


def _list(argv: list[str]) -> int:
    settings = parse(_ListSettings, argv, "worldline list")
    from worldline.cli.listing import fields_of, tasks

    for line in fields_of(settings.fields) if settings.fields else tasks():
        print(line)
    return 0


@dataclasses.dataclass(frozen=True)
class _InitSettings:
    """Write a task file for a robot of your own: it trains at once, and is yours to fill in."""

    mjcf: tyro.conf.Positional[Path]
    """The robot's MJCF file."""
    out: Path | None = None
    """The Python file to write; by default named after the MJCF, in this folder."""
    motors: bool = False
    """Put a motor on every hinge and slide of a model without actuators."""


def _init(argv: list[str]) -> int:
    settings = parse(_InitSettings, argv, "worldline init")
    from worldline.cli.scaffold import write_task

    file = write_task(settings.mjcf, settings.out, motors=settings.motors)
    print(f"{file}: a task for {settings.mjcf}")
    print(f"  `python {file}` checks and trains it; what to fill in is marked YOURS")
    return 0


def _bench(argv: list[str]) -> int:
    folder = Path(__file__).resolve().parents[3] / "bench"
    names = sorted(f.stem for f in folder.glob("*.py") if not f.stem.startswith("_"))
    if not names:
        raise ConfigError("the benchmarks are in the source; run this from a checkout of Worldline")
    name, *rest = argv or [""]
    if name in HELP:
        print(f"usage: worldline bench NAME ...\n\nNAME is one of {', '.join(names)}.")
        return 0
    if name not in names:
        raise ConfigError(f"there is no benchmark {name!r}{did_you_mean(name, names)}")
    return subprocess.call([sys.executable, str(folder / f"{name}.py"), *rest])


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "resume": _resume,
    "eval": _eval,
    "render": _render,
    "export": _export,
    "init": _init,
    "list": _list,
    "bench": _bench,
}


def _open_run(path: Path) -> tuple[RunFolder, Env, Policy]:
    """A run folder, the environment that it was trained in, and its policy."""
    from worldline.export.policy_file import load_policy
    from worldline.report import RunFolder
    from worldline.train.config import environment_of, saved_config

    tune_process()
    folder = RunFolder.open(path)
    saved_config(folder)  # before what is wrong with its policy
    policy = load_policy(folder.path)
    return folder, environment_of(folder), policy


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM end a command as Ctrl-C does: with what it holds cleaned up."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _episodes(returns: Any) -> str:
    """How many episodes returns `(episodes,)` or `(seeds, episodes)` are of."""
    each = f" of each of {returns.shape[0]} seeds" if returns.ndim > 1 else ""
    return f"{returns.shape[-1]} episodes{each}"


def _number(value: float) -> str:
    """A return with as many digits as tell something."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
