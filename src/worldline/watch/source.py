"""What to watch: a run, a task or a model, as an environment and where its policies are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from worldline.env.disturb import undisturbed
from worldline.env.env import Env
from worldline.errors import ConfigError, RunError, did_you_mean
from worldline.report import RunFolder
from worldline.tasks.registry import environment, find_task, list_tasks, load_task
from worldline.train.config import find_domain
from worldline.train.stored import environment_of, run_config
from worldline.variation.domain import AbstractDomain
from worldline.watch.bare import BareModel
from worldline.watch.curves import COLOURS
from worldline.watch.hand import Hand

#: The suffixes of files that MuJoCo reads.
_MODELS = (".xml", ".mjcf", ".mjb", ".urdf")

#: The settings that make the environment of a run.
_OF_ENVIRONMENT = ("code", "options", "env")


@dataclasses.dataclass(frozen=True)
class Source:
    """What `worldline watch` was given."""

    title: str
    """What to call it, for a person."""
    env: Env
    """The environment to watch: on the CPU, with a `Hand` as its last disturbance."""
    domains: tuple[AbstractDomain, ...] = ()
    """Domains whose ranges become sliders: the run's, and those that its task offers."""
    folder: RunFolder | None = None
    """The run's folder; None: there is no policy."""


def open_source(name: str, *, trust_code: bool = False) -> Source:
    """Opens a run folder, a task by its name or reference, or an MJCF file.

    Args:
        name: which one.
        trust_code: as in `worldline.train.stored.environment_of`.

    Raises:
        WorldlineError: it is none of them, or cannot be used.
    """
    path = Path(name)
    if path.suffix.lower() in _MODELS:
        env = Env(BareModel(file=name))
        return Source(path.stem, watchable(env), tuple(env.task.domains.values()))
    if (path / "config.json").is_file() or (path.is_dir() and name not in list_tasks()):
        return _of_run(path, trust_code)
    if name not in list_tasks() and ":" not in name and path.suffix != ".py":
        runs = [str(file.parent) for file in path.parent.glob("*/config.json")]
        hint = did_you_mean(name, [*list_tasks(), *runs])
        raise ConfigError(f"{name!r} is not a run folder, a task or an MJCF file{hint}")
    found = find_task(name)
    env = Env(load_task(name)) if isinstance(found, type) else environment(found, name)
    return Source(name, watchable(env), tuple(env.task.domains.values()))


def open_others(names: Sequence[str]) -> list[RunFolder]:
    """Opens more runs, for their curves.

    Raises:
        WorldlineError: one is no run folder, or there are more than there are colours.
    """
    if len(names) >= len(COLOURS):
        raise ConfigError(f"you gave {len(names) + 1} runs; give at most {len(COLOURS)}")
    return [RunFolder.open(name) for name in names]


def alike(one: RunFolder, other: RunFolder) -> bool:
    """Whether the policies of one run can act in the environment of the other."""
    ours, its = one.config, other.config
    return all(ours.get(name) == its.get(name) for name in _OF_ENVIRONMENT)


def _of_run(path: Path, trust_code: bool) -> Source:
    folder = RunFolder.open(path)
    if folder.config.get("seeds", 1) != 1:
        raise RunError(
            f"{str(path)!r} holds several runs; give one of them: {str(path / 'seed-0')!r}"
        )
    env = environment_of(folder, trust_code=trust_code)
    trained = find_domain(env.task, run_config(folder, None, quiet=True).domain)
    domains = (*([trained] if trained else []), *env.task.domains.values())
    return Source(path.resolve().name, watchable(env), domains, folder)


def watchable(env: Env) -> Env:
    """The same environment on the native engine, with a `Hand` as its last disturbance.

    Training may have the accelerator, and worlds on the CPU need none.
    """
    task, disturbances = undisturbed(env.task)
    return Env(
        task,
        "native",
        env.context,
        env.cameras,
        env.action_repeat,
        env.last_action,
        (*disturbances, Hand()),
    )
