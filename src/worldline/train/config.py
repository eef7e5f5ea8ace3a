"""The configuration of a run: its settings, and its form in the run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from worldline.env.config import EnvConfig
from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import (
    ConfigError,
    ModelError,
    RunError,
    TaskError,
    VariationError,
    did_you_mean,
)
from worldline.learn.algorithms import find_algorithm, name_of_algorithm
from worldline.learn.config import ImageLearnerConfig
from worldline.rendering.camera import Camera, image_names
from worldline.report import RunFolder
from worldline.settings import Count, Number, Range, Seed, check_settings
from worldline.tasks.registry import list_tasks, task_class
from worldline.train.learner_device import LearnerDevice
from worldline.variation.domain import AbstractDomain

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a run, apart from those of its algorithm."""

    steps: Annotated[int, Range(1, 10**15)] = 2_000_000
    """Environment steps to train for, over all worlds together; with several seeds, for each."""
    seed: Seed = 0
    """The random seed. It decides every random number of the run."""
    seeds: Count = 1
    """The number of seeds to train at the same time: seed, seed + 1, ..."""
    episode_length: Number | None = None
    """Truncate the episodes of training after so many control steps. 0: never. By default the task
    decides. Evaluations always use the task's value."""
    domain: str = ""
    """Draw the physics of each episode from this domain: light, medium, hard, or one that the task
    has. `worldline list --fields TASK` shows what each of them varies."""
    context: tuple[str, ...] = ()
    """Draw context features for each episode: gravity=-12:-8 (uniform), friction=0.5,1.0 (a choice)
    or viscosity=0.1 (constant). `worldline list --fields TASK` shows their names."""
    learner_device: LearnerDevice = "auto"
    """The device that learns: auto, cpu or gpu. The engine decides where the worlds are simulated.
    """
    out: Path | None = None
    """The run folder; it must be new or empty. By default runs/<task>-<time>-s<seed>."""
    init_from: Path | None = None
    """Start with the networks of another run: its folder."""
    init_parts: tuple[str, ...] = ("actor", "critic", "statistics")
    """What to take from the run of --init-from: actor, critic, statistics."""
    evaluations: Count = 10
    """How many times to evaluate and save the policy, evenly over the run."""
    eval_episodes: Count = 16
    """Episodes in an evaluation, without exploration."""
    video: bool = True
    """Make a video of an episode at the end."""
    track: tuple[str, ...] = ()
    """Services that get the metrics too: wandb, mlflow."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        check_settings(self)
        last = self.seed + self.seeds - 1
        if last >= 2**32:
            raise ConfigError(f"seed is {last}; give 0 to {2**32 - 1}")


def saved_config(folder: RunFolder) -> dict[str, Any]:
    """The configuration in a run folder, with tuples where JSON has lists.

    Raises:
        RunError: the folder is not that of a training run, or a part of it is missing.
    """
    config: dict[str, Any] = _tuples(folder.config)
    parts = {"task": str, "options": dict, "env": dict, "not_rebuilt": str, "algorithm": str}
    for name, kind in parts.items():
        if not isinstance(config.get(name), kind):
            raise RunError(
                f"{str(folder.path)!r} is no training run: its config.json lacks {name!r}; "
                "give a folder that `worldline train` made"
            )
    return config


def algorithm_of(folder: RunFolder) -> Any:
    """Makes the configuration of a run's algorithm again.

    Raises:
        RunError: the folder does not describe it completely.
    """
    config = saved_config(folder)
    name = config["algorithm"]
    with _damage(folder):
        return _made(find_algorithm(name).config, config.get(name), name)


def run_config(folder: RunFolder, steps: int | None, quiet: bool) -> TrainConfig:
    """Makes the `TrainConfig` of a run again, with other `steps` unless None.

    Raises:
        RunError: the folder does not describe it completely.
        ConfigError: `steps` is out of its range.
    """
    saved = saved_config(folder)
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    known = {name: value for name, value in saved.items() if name in names}
    with _damage(folder):
        if isinstance(known.get("init_from"), str):
            known["init_from"] = Path(known["init_from"])
        config = _made(TrainConfig, known, "the run")
    return dataclasses.replace(config, quiet=quiet, steps=config.steps if steps is None else steps)


@contextlib.contextmanager
def _damage(folder: RunFolder) -> Iterator[None]:
    """Turns what is wrong with a configuration that was stored into a `RunError`."""
    try:
        yield
    except (ConfigError, TaskError, ModelError, VariationError, TypeError) as error:
        version = folder.versions.get("worldline")
        raise RunError(
            f"the config.json of {str(folder.path)!r} (worldline {version}) does not fit: {error}"
        ) from error


def _made(kind: Callable[..., T], saved: Any, what: str) -> T:
    """Makes a dataclass from the values of all its fields, and of no others."""
    names = {field.name for field in dataclasses.fields(cast(Any, kind)) if field.init}
    saved = saved if isinstance(saved, Mapping) else {}
    for name in sorted(names ^ saved.keys()):
        raise ConfigError(f"{name!r} of {what} is {'missing' if name in names else 'unknown'}")
    return kind(**saved)


def environment_of(folder: RunFolder) -> Env:
    """Makes the environment of a run again.

    Raises:
        RunError: the folder does not describe it completely, this version has no such task, or the
            task has other options.
    """
    config = saved_config(folder)
    if config["not_rebuilt"]:
        raise RunError(
            f"{str(folder.path)!r} cannot make its environment again: {config['not_rebuilt']}; "
            "make it in Python, and give it as env="
        )
    with _damage(folder):
        task = _made(task_class(config["task"]), config["options"], "the task")
        return Env.from_config(task, _env_config(config["env"]))


def check_environment(folder: RunFolder, env: Env) -> None:
    """Checks that an environment has the configuration of a run's.

    Raises:
        RunError: it differs; the error has the name and both values.
    """
    with _damage(folder):
        before, now = _env_config(saved_config(folder)["env"]), env.config
    for field in dataclasses.fields(before):
        old, new = getattr(before, field.name), getattr(now, field.name)
        if old != new:
            raise RunError(
                f"{str(folder.path)!r} was trained with {field.name} {old!r}, and the env that is "
                f"given has {new!r}; give an env as it was"
            )


def _env_config(saved: Mapping[str, Any]) -> EnvConfig:
    """Makes the `EnvConfig` from its part of the result of `saved_config`."""
    stored = saved.get("cameras")
    if not isinstance(stored, Mapping):
        raise ConfigError("'cameras' of the environment are missing")
    cameras = {name: _made(Camera, camera, f"camera {name!r}") for name, camera in stored.items()}
    return _made(EnvConfig, {**saved, "cameras": cameras}, "the environment")


def reading_all(algorithm: T, env: Env) -> T:
    """The algorithm with an `actor_obs` that includes what the environment adds to observations.

    Images replace `privileged_state` if the policy reads it, else `state`. The last action and the
    visible context are added, unless `actor_obs` or `critic_obs` names them already.

    Raises:
        ConfigError: there are cameras, and the algorithm cannot read images.
    """
    config: Any = algorithm
    actor = tuple(config.actor_obs)
    named = {*actor, *(getattr(config, "critic_obs", None) or ())}
    if env.cameras is not None:
        if not isinstance(algorithm, ImageLearnerConfig):
            raise ConfigError("--pixels needs --algorithm ppo or sac; shac reads numbers alone")
        if not image_names(actor):
            replaced = "privileged_state" if "privileged_state" in actor else "state"
            kept = [name for name in actor if name != replaced]
            actor = (*kept, *env.cameras.specs())
    shown = {"last_action": env.last_action, "context": bool(env.context.visible)}
    actor += tuple(part for part, there in shown.items() if there and part not in named)
    return dataclasses.replace(config, actor_obs=actor)


def find_domain(task: Task, name: str) -> AbstractDomain | None:
    """A domain of a task by name; None for an empty name.

    Raises:
        ConfigError: the task has no such domain.
    """
    domains = task.domains if name else {}
    if name and name not in domains:
        raise ConfigError(f"the task has no domain {name!r}{did_you_mean(name, domains)}")
    return domains.get(name)


def resolved_config(task: str, env: Env, config: TrainConfig, algorithm: Any) -> dict[str, Any]:
    """The whole configuration of a run, for its folder."""
    name = name_of_algorithm(algorithm)
    return {
        "task": task,
        "options": _options(env.task),
        "env": dataclasses.asdict(env.config),
        "not_rebuilt": _not_rebuilt(task, env),
        **dataclasses.asdict(config),
        "out": None,
        "algorithm": name,
        name: dataclasses.asdict(algorithm),
    }


def _options(task: Task) -> dict[str, Any]:
    return {f.name: getattr(task, f.name) for f in dataclasses.fields(task) if f.init}


def _not_rebuilt(name: str, env: Env) -> str:
    """Why the environment cannot be made again from a file; empty where it can."""
    if env.config.not_stored:
        return f"a file cannot hold {env.config.not_stored[0]}"
    kind = type(env.task)
    if name not in list_tasks() or task_class(name) is not kind:
        return f"its task, {kind.__name__}, is not registered as {name!r}"
    options = _options(env.task)
    try:
        if _tuples(json.loads(json.dumps(options))) == options:
            return ""
    except TypeError:
        pass
    return f"a file cannot hold the options of its task, {kind.__name__}"


def _tuples(value: Any) -> Any:
    """A JSON value with a tuple for every list."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
