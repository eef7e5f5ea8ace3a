"""The command line: train, eval, render, list, bench."""

from __future__ import annotations

import time

_BEGAN = time.perf_counter()  # before the heavy imports, which the run's clock counts

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from worldline.errors import ConfigError, RunError, WorldlineError, did_you_mean

if TYPE_CHECKING:
    from worldline.env.env import Env
    from worldline.env.task import Task
    from worldline.report import RunFolder

_USAGE = """\
usage: worldline COMMAND ...

  train TASK     train a policy, and leave a run folder with curves and a video
  eval RUN       evaluate a run's policy on fresh episodes
  render RUN     make a video and a strip of pictures of a run's policy
  list           the tasks
  bench NAME     a published figure, measured here against its peers (from a checkout)

`worldline COMMAND --help` tells more; `worldline train TASK --help` shows every setting."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: the arguments, by default those of the process.

    Returns:
        The exit status: 0, or 2 after an error of one line, or 130 after a second Ctrl-C.
    """
    name, *rest = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    if name in ("-h", "--help", "help"):
        print(_USAGE)
        return 0
    if name == "--version":
        from worldline import __version__

        print(f"worldline {__version__}")
        return 0
    try:
        if name not in _COMMANDS:
            raise ConfigError(f"there is no command {name!r}{did_you_mean(name, _COMMANDS)}")
        return _COMMANDS[name](rest)
    except WorldlineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _train(argv: list[str]) -> int:
    task, rest = _positional(argv, "train", "TASK, such as gym/half-cheetah")
    from worldline.env.env import Env
    from worldline.tasks.registry import task_class
    from worldline.train import train

    settings = _train_settings(task, task_class(task), rest)
    _use_compilation_cache()
    env = Env(settings.task, settings.run.physics)
    result = train(task, env, settings.run, settings.ppo, _BEGAN)
    returns = result.evaluation.episode_return
    print(
        f"{task}: return {returns.mean():.0f} +- {returns.std():.0f} "
        f"({len(returns)} episodes, deterministic) after {result.steps:,} steps "
        f"in {result.seconds:.0f} s" + (", interrupted" if result.interrupted else "")
    )
    for what, file in (("curve", "curves.png"), ("video", "episode.mp4"), ("strip", "episode.png")):
        if (result.folder / file).exists():
            print(f"  {what:7}{result.folder / file}")
    print(f"  policy {result.folder}/policy.npz")
    print(f"  {result.video_note}")
    return 0


@dataclasses.dataclass(frozen=True)
class _EvalSettings:
    """Evaluate a run's policy on fresh episodes."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    episodes: int = 20
    """Episodes, each in a world of its own."""
    seed: int = 1
    """Decides where they begin."""


def _eval(argv: list[str]) -> int:
    settings = tyro.cli(_EvalSettings, args=argv, prog="worldline eval")
    if settings.episodes < 1:
        raise ConfigError(f"episodes is {settings.episodes}; give 1 or more")
    _use_compilation_cache()
    import jax

    from worldline.checkpoint import load_policy
    from worldline.learn.rollout import evaluator

    folder, env = _open_run(settings.run)
    policy = load_policy(folder.path)
    keys = jax.random.split(jax.random.key(settings.seed), 2)
    for name, key, deterministic in zip(
        ("deterministic", "stochastic"), keys, (True, False), strict=True
    ):
        evaluate = evaluator(env, settings.episodes, deterministic=deterministic)
        result = jax.device_get(evaluate(policy, key))
        print(
            f"{name:14} return {result.episode_return.mean():9.2f} "
            f"+- {result.episode_return.std():.2f}   "
            f"length {result.episode_length.mean():.0f}   {settings.episodes} episodes"
        )
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
    settings = tyro.cli(_RenderSettings, args=argv, prog="worldline render")
    if not settings.seconds > 0:
        raise ConfigError(f"seconds is {settings.seconds}; give more than 0")
    _use_compilation_cache()
    import jax

    from worldline.checkpoint import load_policy
    from worldline.train import make_video

    folder, env = _open_run(settings.run)
    policy = load_policy(folder.path)
    key = jax.random.key(settings.seed)
    note = make_video(folder, env, policy, key, settings.seconds, not settings.stochastic)
    print(note)
    for file in (folder.video_file, folder.strip_file):
        if file.exists():
            print(f"  {file}")
    return 0


@dataclasses.dataclass(frozen=True)
class _ListSettings:
    """List the tasks."""


def _list(argv: list[str]) -> int:
    tyro.cli(_ListSettings, args=argv, prog="worldline list")
    from worldline.tasks.registry import list_tasks, make

    row = "{:32} {:>12} {:>8} {:>10} {:>9}"
    print(row.format("task", "observation", "action", "control", "episode"))
    for name in list_tasks():
        env = make(name)
        shape = getattr(env.observation_space, "shape", None) or "dict"
        rate = f"{1 / env.task.control_timestep:.0f} Hz"
        length = env.task.episode_length or "-"
        print(row.format(name, str(shape), str(env.action_space.shape), rate, str(length)))
    return 0


def _bench(argv: list[str]) -> int:
    folder = Path(__file__).resolve().parents[2] / "bench"
    names = sorted(f.stem for f in folder.glob("*.py") if not f.stem.startswith("_"))
    if not names:
        raise ConfigError("the benchmarks are in the source; run this from a checkout of Worldline")
    name, rest = _positional(argv, "bench", f"NAME: {', '.join(names)}")
    if name not in names:
        raise ConfigError(f"there is no benchmark {name!r}{did_you_mean(name, names)}")
    return subprocess.call([sys.executable, str(folder / f"{name}.py"), *rest])


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "eval": _eval,
    "render": _render,
    "list": _list,
    "bench": _bench,
}


def _train_settings(name: str, task: type[Task], argv: list[str]) -> Any:
    """`run`, `ppo` and `task` from the arguments, over the task's own defaults."""
    from worldline.learn.ppo import PPOConfig
    from worldline.train import TrainConfig

    unprefixed = tyro.conf.arg(name="")
    settings = dataclasses.make_dataclass(
        "Settings",
        [
            ("run", Annotated[TrainConfig, unprefixed]),
            ("ppo", Annotated[PPOConfig, unprefixed]),
            ("task", task),
        ],
        frozen=True,
    )
    default = settings(
        run=TrainConfig(**task.defaults.get("train", {})),
        ppo=PPOConfig(**task.defaults.get("ppo", {})),
        task=task(),
    )
    description = f"Train a policy for {name}."
    prog = f"worldline train {name}"
    return tyro.cli(settings, args=argv, default=default, prog=prog, description=description)


def _positional(argv: list[str], command: str, what: str) -> tuple[str, list[str]]:
    """The first argument that is no option, and all the others."""
    for index, argument in enumerate(argv):
        if not argument.startswith("-") and (index == 0 or not argv[index - 1].startswith("-")):
            return argument, argv[:index] + argv[index + 1 :]
    if "-h" in argv or "--help" in argv:
        print(f"usage: worldline {command} {what} ...")
        raise SystemExit(0)
    raise ConfigError(f"worldline {command} needs a {what}")


def _open_run(path: Path) -> tuple[RunFolder, Env]:
    """A run folder, and the environment that it was trained in."""
    from worldline.env.env import Env
    from worldline.report import RunFolder
    from worldline.tasks.registry import load_task

    folder = RunFolder.open(path)
    config = folder.config
    try:
        task = load_task(config["task"], **config["options"])
        return folder, Env(task, config["physics"])
    except KeyError as error:
        raise RunError(
            f"{str(path)!r} is no training run: its config.json lacks {error}"
        ) from error


def _use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder, for the next process."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
        jax.config.update("jax_compilation_cache_dir", str(cache / "worldline" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


if __name__ == "__main__":
    sys.exit(main())
