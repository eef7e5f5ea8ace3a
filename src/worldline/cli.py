"""The command line: train, resume, eval, render, export, init, list, bench."""

from __future__ import annotations

import time

_BEGAN = time.perf_counter()  # before the heavy imports, which the run's clock counts

import contextlib
import dataclasses
import io
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from worldline.errors import (
    ConfigError,
    TaskError,
    WorldlineError,
    did_you_mean,
)

if TYPE_CHECKING:
    from worldline.env.env import Env
    from worldline.learn.policy import Policy
    from worldline.report import RunFolder
    from worldline.train import Result

T = TypeVar("T")

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

_ANY_TASK = """\
Train a policy for a TASK; `worldline list` names them. Each has defaults and further options of
its own: see `worldline train TASK --help`."""

_ANY_ALGORITHM = """

`--algorithm NAME` chooses how it learns, by default ppo, and with it what can be set."""

_HELP = ("-h", "--help")


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
    if "worldline.cluster" in sys.modules:
        from worldline.cluster import leave

        leave(status)
    return status


def _run(name: str, argv: list[str]) -> int:
    if name in (*_HELP, "help"):
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
    from worldline.cluster import join
    from worldline.interrupt import graceful_stop
    from worldline.train import make_environment, train

    name, rest = _take_task(argv)
    settings = _train_settings(name, rest)
    assert name is not None
    mesh = join(settings.cluster)
    _use_compilation_cache()
    env = make_environment(settings.task, settings.run)
    algorithm = _through_cameras(settings.algorithm, env)
    algorithm = _seeing(algorithm) if settings.run.visible else algorithm
    result = train(name, env, settings.run, algorithm, _BEGAN, graceful_stop(), mesh=mesh)
    return _tell(name, result)


def _through_cameras(algorithm: T, env: Env) -> T:
    """An algorithm whose policy reads images, where there are any, unless it says which.

    They take the place of `privileged_state` where it would read that, else of `state`.
    """
    from worldline.learn.ppo import PPOConfig
    from worldline.learn.sac import SACConfig
    from worldline.pixels.camera import image_names

    if env.cameras is None:
        return algorithm
    if not isinstance(algorithm, PPOConfig | SACConfig):
        raise ConfigError("--pixels needs --algorithm ppo or sac; shac reads numbers alone")
    read = algorithm.actor_obs
    if image_names(read):
        return algorithm
    replaced = "privileged_state" if "privileged_state" in read else "state"
    kept = [name for name in read if name != replaced]
    return dataclasses.replace(algorithm, actor_obs=(*kept, *env.cameras.specs()))


def _seeing(algorithm: T) -> T:
    """An algorithm whose policy reads the context too."""
    seen: tuple[str, ...] = algorithm.actor_obs  # type: ignore[attr-defined] # all have it
    if "context" in seen:
        return algorithm
    return dataclasses.replace(algorithm, actor_obs=(*seen, "context"))  # type: ignore[type-var]


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
    from worldline.cluster import ClusterConfig, join
    from worldline.interrupt import graceful_stop
    from worldline.report import RunFolder
    from worldline.train import resume

    unprefixed = tyro.conf.arg(name="")
    fields: list[Any] = [
        ("run", Annotated[_ResumeSettings, unprefixed]),
        ("cluster", Annotated[ClusterConfig, unprefixed], ClusterConfig()),
    ]
    both: Any = dataclasses.make_dataclass("Settings", fields, frozen=True)
    both.__doc__ = _ResumeSettings.__doc__
    parsed = _parse(both, argv, "worldline resume")
    mesh = join(parsed.cluster)
    _use_compilation_cache()
    how: _ResumeSettings = parsed.run
    result = resume(how.run, how.steps, how.quiet, _BEGAN, graceful_stop(), mesh=mesh)
    return _tell(str(RunFolder.open(how.run).config["task"]), result)


def _tell(name: str, result: Result) -> int:
    """Says what a run came to; the exit status."""
    from worldline.cluster import is_first

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
    settings = _parse(_EvalSettings, argv, "worldline eval")
    import jax

    from worldline.learn.rollout import evaluator
    from worldline.train import check_seed, find_domain

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
    from worldline.sweep import sweep
    from worldline.train import find_domain
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
    settings = _parse(_RenderSettings, argv, "worldline render")
    import jax

    from worldline.train import check_seed, make_video

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
    settings = _parse(_ExportSettings, argv, "worldline export")
    from worldline.onnx_file import save_onnx

    folder, env, policy = _open_run(settings.run)
    space = env.observation_space
    parts = dict(space.spaces) if hasattr(space, "spaces") else {"state": space}
    file = settings.out or folder.path / "policy.onnx"
    worst = save_onnx(file, policy, {name: part.shape or () for name, part in parts.items()})
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
    settings = _parse(_ListSettings, argv, "worldline list")
    from worldline.listing import fields_of, tasks

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
    settings = _parse(_InitSettings, argv, "worldline init")
    from worldline.scaffold import write_task

    file = write_task(settings.mjcf, settings.out, motors=settings.motors)
    print(f"{file}: a task for {settings.mjcf}")
    print(f"  `python {file}` checks and trains it; what to fill in is marked YOURS")
    return 0


def _bench(argv: list[str]) -> int:
    folder = Path(__file__).resolve().parents[2] / "bench"
    names = sorted(f.stem for f in folder.glob("*.py") if not f.stem.startswith("_"))
    if not names:
        raise ConfigError("the benchmarks are in the source; run this from a checkout of Worldline")
    name, *rest = argv or [""]
    if name in _HELP:
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


def _take_task(argv: list[str]) -> tuple[str | None, list[str]]:
    """The task among the arguments, wherever it stands, and the other arguments."""
    from worldline.tasks.registry import list_tasks

    known = [index for index, argument in enumerate(argv) if argument in list_tasks()]
    # One that is misspelt is the first argument that is no option, nor follows one.
    follows = [a.startswith("-") and "=" not in a for a in ("", *argv)]
    alone = [i for i, argument in enumerate(argv) if argument[:1] != "-" and not follows[i]]
    for index in (*known, *alone):
        return argv[index], argv[:index] + argv[index + 1 :]
    if set(_HELP) & set(argv):
        return None, argv
    raise TaskError("worldline train needs a TASK, such as gym/ant; `worldline list` names them")


def _train_settings(name: str | None, argv: list[str]) -> Any:
    """`run`, `algorithm`, `cluster` and `task` from the arguments, over the task's own defaults."""
    from worldline.cluster import ClusterConfig
    from worldline.learn.algorithms import find_algorithm
    from worldline.tasks.registry import task_class
    from worldline.train import TrainConfig

    chosen, rest = _take_algorithm(argv)
    task = None if name is None else task_class(name)
    defaults = {} if task is None else task.defaults
    config = find_algorithm(chosen).config
    unprefixed = tyro.conf.arg(name="")
    run = TrainConfig(**defaults.get("train", {}))
    algorithm = config(**defaults.get(chosen, {}))
    fields: list[Any] = [
        ("run", Annotated[TrainConfig, unprefixed], dataclasses.field(default=run)),
        ("algorithm", Annotated[config, unprefixed], dataclasses.field(default=algorithm)),
    ]
    cluster = Annotated[ClusterConfig, unprefixed]
    fields.append(("cluster", cluster, dataclasses.field(default=ClusterConfig())))
    if task is not None:
        fields.append(("task", task))
    settings = dataclasses.make_dataclass("Settings", fields, frozen=True, kw_only=True)
    settings.__doc__ = (f"Train a policy for {name}." if name else _ANY_TASK) + _ANY_ALGORITHM
    return _parse(settings, rest, f"worldline train {name or 'TASK'}")


def _take_algorithm(argv: list[str]) -> tuple[str, list[str]]:
    """The algorithm among the arguments, and the other arguments.

    It decides which options there are, and so is read before them.
    """
    for index, argument in enumerate(argv):
        option, is_one, value = argument.partition("=")
        if option == "--algorithm":
            after = index + 1 if is_one else index + 2
            value = value if is_one else "".join(argv[index + 1 : after])
            return value, argv[:index] + argv[after:]
    return "ppo", argv


def _parse(settings: type[T], argv: list[str], prog: str) -> T:
    """Settings from arguments by tyro, with its boxed complaints as errors of one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, unknown = tyro.cli(
                settings,
                args=argv,
                prog=prog,
                return_unknown_args=True,
            )
    except SystemExit as exit_:
        if not exit_.code:  # help was asked for, and given
            raise
        raise ConfigError(f"{_unboxed(complaint.getvalue())}; see `{prog} --help`") from None
    if unknown:
        given = next((a for a in unknown if a.startswith("-")), unknown[0])
        near = did_you_mean(given, _options(settings)) if given.startswith("--") else ""
        raise ConfigError(f"{prog} takes no {given!r}{near or f'; see `{prog} --help`'}")
    return parsed


def _unboxed(box: str) -> str:
    """What tyro says in a box, from under the title to the first rule, in one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [row.strip("│ ") for row in plain.splitlines()[1:]]
    parts = itertools.groupby(rows, key=lambda row: bool(row.strip("╰╯─-")))
    return next((" ".join(part).rstrip(".") for has_words, part in parts if has_words), plain)


def _options(settings: Any, prefix: str = "--") -> Iterator[str]:
    """The options that stand for the fields of a dataclass that have defaults."""
    for field in dataclasses.fields(settings):
        kind: Any = getattr(field.type, "__origin__", field.type)  # what an Annotated type is of
        if dataclasses.is_dataclass(kind):
            yield from _options(kind, f"{prefix}task." if field.name == "task" else prefix)
        elif field.default is not field.default_factory:
            yield prefix + field.name.replace("_", "-")


def _open_run(path: Path) -> tuple[RunFolder, Env, Policy]:
    """A run folder, the environment that it was trained in, and its policy."""
    from worldline.policy_file import load_policy
    from worldline.report import RunFolder
    from worldline.train import environment_of, saved_config

    _use_compilation_cache()
    folder = RunFolder.open(path)
    saved_config(folder)  # before what is wrong with its policy
    policy = load_policy(folder.path)
    return folder, environment_of(folder), policy


def _use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder, for the next process."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = _cache_folder() / "worldline" / "jax"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return  # everything works without
        jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _cache_folder() -> Path:
    """Where this platform has programs keep what they can make again."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


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
