"""The configuration of a run: as it is given, as it is kept, and the environment that it makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from worldline.env.cameras import Cameras
from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import ConfigError, RunError, TaskError, did_you_mean
from worldline.learn.algorithms import find_algorithm, name_of_algorithm
from worldline.learn.ppo import PPOConfig
from worldline.learn.sac import SACConfig
from worldline.rendering.camera import image_names, read_cameras
from worldline.report import RunFolder
from worldline.tasks.registry import load_task
from worldline.variation.context import Context
from worldline.variation.domain import AbstractDomain
from worldline.variation.options import read_draws

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A run around the algorithm."""

    steps: int = 2_000_000
    """Environment steps, over all worlds; of each seed."""
    seed: int = 0
    """Decides every random number of the run."""
    seeds: int = 1
    """Train so many seeds in one program: `seed`, `seed + 1`, ..."""
    physics: str = "native"
    """The engine: native, mjx, warp or fake."""
    action_repeat: int = 1
    """Control steps of the task for which each action is taken: one of the run's steps. Rewards add
    up, and images are drawn once."""
    last_action: bool = False
    """Whether the policy sees what it did last: images show the effect only one step later."""
    episode_length: int | None = None
    """Control steps after which an episode of training is cut (truncated), such as 200 of 1000, for
    more starts; None: as the task says, and as evaluations always run. 0: never."""
    domain: str = ""
    """What each episode's physics is drawn from: light, medium or hard, or a domain of the task's
    own; `worldline list --fields TASK` names them. Empty: every world is as the model says."""
    context: tuple[str, ...] = ()
    """Context features, and what they are drawn from in each episode: gravity=-12:-8 (uniform),
    friction=0.5,1.0 (a choice), viscosity=0.1."""
    visible: bool = False
    """Whether the policy sees the context."""
    pixels: tuple[str, ...] = ()
    """Cameras of the model through which the policy sees, and unless `actor_obs` says otherwise
    sees alone: fixed, or front=84x84 (height x width; by default 64x64)."""
    frames: int = 3
    """How many of the latest images it sees at once."""
    depth: bool = False
    """Whether it sees distances beside colours."""
    renderer: Literal["auto", "opengl", "warp"] = "auto"
    """What draws the images."""
    out: Path | None = None
    """The run folder, new or empty; by default runs/<task>-<time>-s<seed>."""
    init_from: Path | None = None
    """A run to begin from: parts of its last checkpoint."""
    init_parts: tuple[str, ...] = ("actor", "critic", "statistics")
    """Which parts."""
    evaluations: int = 10
    """How often the policy is evaluated and saved, evenly over the run; the last time at its end.
    """
    eval_episodes: int = 16
    """Episodes of an evaluation, in worlds of their own, with the most likely actions."""
    video: bool = True
    """Whether to render an episode at the end."""
    track: tuple[str, ...] = ()
    """Where to send the numbers as well: wandb, mlflow."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        for name in ("steps", "seeds", "action_repeat", "evaluations", "eval_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give 1 or more")
        if (self.episode_length or 0) < 0:
            raise ConfigError(
                f"episode_length is {self.episode_length}; give control steps, or 0 for no limit"
            )
        check_seed(self.seed)
        check_seed(self.seed + self.seeds - 1)


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
    `find_algorithm(name).config(**config[name])`, with `name = config["algorithm"]`, its algorithm.

    Raises:
        RunError: the folder's configuration is none of a training run.
    """
    config: dict[str, Any] = _tuples(folder.config)
    missing = {"task", "options", "physics", "algorithm"} - config.keys()
    if missing:
        raise RunError(
            f"{str(folder.path)!r} is no training run: its config.json lacks {min(missing)!r}; "
            "give a folder that `worldline train` made"
        )
    return config


def algorithm_of(saved: Mapping[str, Any]) -> Any:
    """The algorithm's configuration in that of a run, from `saved_config`."""
    name = saved["algorithm"]
    return find_algorithm(name).config(**saved[name])


def environment_of(folder: RunFolder) -> Env:
    """The environment that a run was trained in.

    Raises:
        RunError: this version has no such task, or it has other options.
    """
    config = saved_config(folder)
    try:
        task = load_task(config["task"], **config["options"])
    except (TaskError, TypeError) as error:
        version = folder.versions.get("worldline")
        raise RunError(f"{str(folder.path)!r} was made by worldline {version}: {error}") from error
    return make_environment(task, run_config(config, None, quiet=True))


def make_environment(task: Task, config: TrainConfig) -> Env:
    """The environment of a run: the task on its engine, with the run's context and cameras."""
    names = read_draws(config.context)
    context = Context(names, visible=names if config.visible else ())
    views = read_cameras(config.pixels, stack=config.frames, depth=config.depth)
    cameras = Cameras(task.model, views, config.renderer) if views else None
    return Env(task, config.physics, context, cameras, config.action_repeat, config.last_action)


def sighted(algorithm: T, env: Env, config: TrainConfig) -> T:
    """An algorithm whose policy reads what the run shows it: images, the last action, the context.

    Raises:
        ConfigError: there are cameras, and the algorithm cannot read images.
    """
    algorithm = _through_cameras(algorithm, env)
    if config.last_action:
        algorithm = _reading(algorithm, "last_action")
    return _reading(algorithm, "context") if config.visible else algorithm


def _through_cameras(algorithm: T, env: Env) -> T:
    """An algorithm whose policy reads images, where there are any, unless it says which.

    They take the place of `privileged_state` where it would read that, else of `state`.
    """
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


def _reading(algorithm: T, part: str) -> T:
    """An algorithm whose policy reads this part of the observation too."""
    seen: tuple[str, ...] = algorithm.actor_obs  # type: ignore[attr-defined] # all have it
    if part in seen:
        return algorithm
    return dataclasses.replace(algorithm, actor_obs=(*seen, part))  # type: ignore[type-var]


def find_domain(task: Task, name: str) -> AbstractDomain | None:
    """A domain of a task by name; none by an empty one.

    Raises:
        ConfigError: the task has no such domain.
    """
    domains = task.domains if name else {}
    if name and name not in domains:
        raise ConfigError(f"the task has no domain {name!r}{did_you_mean(name, domains)}")
    return domains.get(name)


def run_config(saved: Mapping[str, Any], steps: int | None, quiet: bool) -> TrainConfig:
    """The run's configuration, from `saved_config`, with other steps if they are given."""
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    known = {name: saved[name] for name in names if name in saved}
    init_from = known.get("init_from") and Path(known["init_from"])
    given = known | {"init_from": init_from, "steps": steps or saved["steps"], "quiet": quiet}
    return TrainConfig(**given)


def resolved_config(task: str, env: Env, config: TrainConfig, algorithm: Any) -> dict[str, Any]:
    """The whole configuration, from which the run can be made again."""
    name = name_of_algorithm(algorithm)
    options = {f.name: getattr(env.task, f.name) for f in dataclasses.fields(env.task) if f.init}
    return {
        "task": task,
        "options": options,
        **dataclasses.asdict(config),
        "out": None,
        "algorithm": name,
        name: dataclasses.asdict(algorithm),
    }


def _tuples(value: Any) -> Any:
    """A JSON value with a tuple for every list."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
