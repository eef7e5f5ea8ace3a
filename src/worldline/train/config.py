"""The configuration of a run: its settings, and its form in the run folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from worldline.env.config import EnvConfig
from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import ConfigError, RunError, TaskError, did_you_mean
from worldline.learn.algorithms import find_algorithm, name_of_algorithm
from worldline.learn.config import ImageLearnerConfig
from worldline.rendering.camera import Camera, image_names
from worldline.report import RunFolder
from worldline.tasks.registry import list_tasks, load_task, task_class
from worldline.variation.domain import AbstractDomain

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The settings of a run beside those of its algorithm."""

    steps: int = 2_000_000
    """Environment steps over all worlds, for each seed."""
    seed: int = 0
    """Decides every random number of the run."""
    seeds: int = 1
    """The number of seeds to train in one program: `seed`, `seed + 1`, ..."""
    episode_length: int | None = None
    """Control steps after which an episode of training is cut (truncated), such as 200 of 1000, for
    more starts; 0: never; None: as in the task. Evaluations always use the task's."""
    domain: str = ""
    """The domain that each episode's physics is drawn from: light, medium or hard, or one of the
    task's own; `worldline list --fields TASK` names them. Empty: no constant varies."""
    context: tuple[str, ...] = ()
    """Context features and their distributions, from which each episode draws: gravity=-12:-8
    (uniform), friction=0.5,1.0 (a choice), viscosity=0.1 (constant)."""
    out: Path | None = None
    """The run folder, new or empty; by default runs/<task>-<time>-s<seed>."""
    init_from: Path | None = None
    """Another run whose last checkpoint this one takes its first parameters from."""
    init_parts: tuple[str, ...] = ("actor", "critic", "statistics")
    """The parts to take from it."""
    evaluations: int = 10
    """How often the policy is evaluated and saved, evenly over the run; the last time at its end.
    """
    eval_episodes: int = 16
    """Episodes of an evaluation, in worlds of their own, with the most likely actions."""
    video: bool = True
    """Whether to render an episode at the end."""
    track: tuple[str, ...] = ()
    """Services to send the metrics to: wandb, mlflow."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        for name in ("steps", "seeds", "evaluations", "eval_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give 1 or more")
        if (self.episode_length or 0) < 0:
            raise ConfigError(
                f"episode_length is {self.episode_length}; give control steps, or 0 for no limit"
            )
        check_seed(self.seed)
        check_seed(self.seed + self.seeds - 1)


def check_seed(seed: int) -> None:
    """Checks a seed.

    Raises:
        ConfigError: it is negative, or so large that JAX would silently drop its higher bits.
    """
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed is {seed}; give 0 to {2**32 - 1}")


def saved_config(folder: RunFolder) -> dict[str, Any]:
    """The configuration in a run folder, with tuples where JSON has lists.

    `load_task(config["task"], **config["options"])` makes the run's task again, and
    `find_algorithm(name).config(**config[name])`, with `name = config["algorithm"]`, the
    configuration of its algorithm.

    Raises:
        RunError: the folder is not that of a training run.
    """
    config: dict[str, Any] = _tuples(folder.config)
    missing = {"task", "options", "env", "not_rebuilt", "algorithm"} - config.keys()
    if missing:
        raise RunError(
            f"{str(folder.path)!r} is no training run: its config.json lacks {min(missing)!r}; "
            "give a folder that `worldline train` made"
        )
    return config


def algorithm_of(saved: Mapping[str, Any]) -> Any:
    """Makes the configuration of a run's algorithm from the result of `saved_config`."""
    name = saved["algorithm"]
    return find_algorithm(name).config(**saved[name])


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
    try:
        task = load_task(config["task"], **config["options"])
        return Env.from_config(task, _env_config(config["env"]))
    except (TaskError, TypeError) as error:
        version = folder.versions.get("worldline")
        raise RunError(f"{str(folder.path)!r} was made by worldline {version}: {error}") from error


def check_environment(folder: RunFolder, env: Env) -> None:
    """Checks that an environment has the configuration of a run's.

    Raises:
        RunError: it differs; the error has the name and both values.
    """
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
    cameras = {name: Camera(**camera) for name, camera in saved["cameras"].items()}
    return EnvConfig(**{**saved, "cameras": cameras})


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


def run_config(saved: Mapping[str, Any], steps: int | None, quiet: bool) -> TrainConfig:
    """Makes the `TrainConfig` from the result of `saved_config`, with other `steps` unless None."""
    names = {field.name for field in dataclasses.fields(TrainConfig)} & saved.keys()
    known = {name: saved[name] for name in names} | {"quiet": quiet}
    known["init_from"] = known.get("init_from") and Path(known["init_from"])
    return TrainConfig(**known | {"steps": steps or saved["steps"]})


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
