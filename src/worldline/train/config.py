"""The settings of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, TypeVar

from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import ConfigError, did_you_mean
from worldline.learn.config import ImageLearnerConfig
from worldline.rendering.camera import image_names
from worldline.settings import Count, Number, Range, Seed, check_settings
from worldline.train.learner_device import LearnerDevice
from worldline.variation.as_data import load_domain
from worldline.variation.domain import AbstractDomain

#: What a domain is called that is a file.
DOMAIN_FILE_ENDING = ".json"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a run, without those of its algorithm."""

    steps: Annotated[int, Range(1, 10**15)] = 2_000_000
    """Environment steps of the training, over all worlds together; with several seeds, for each
    seed."""
    seed: Seed = 0
    """The random seed. It determines every random number of the run."""
    seeds: Count = 1
    """The number of seeds to train at the same time: seed, seed + 1, ..."""
    episode_length: Number | None = None
    """Truncate the episodes of training after this number of control steps. 0: no time limit. By
    default the task's value. Evaluations always use the task's value."""
    domain: str | AbstractDomain = ""
    """Draw the physics of each episode from this domain: light, medium, hard, a domain of the task,
    or a file that ends in .json, for example one from `worldline identify`. `worldline list
    --fields TASK` shows what each domain of the task varies. In Python you can give a `Domain`."""
    context: tuple[str, ...] = ()
    """Draw context features for each episode: gravity=-12:-8 (uniform), friction=0.5,1.0 (a choice)
    or viscosity=0.1 (constant). `worldline list --fields TASK` shows their names."""
    learner_device: LearnerDevice = "auto"
    """The device that learns: auto, cpu or gpu. The engine determines where the worlds are
    simulated."""
    out: Path | None = None
    """The run folder; it must be new or empty. By default runs/<task>-<time>-s<seed>."""
    resume: bool = False
    """If the folder --out has a run with the same settings, continue it; otherwise begin a new run.
    This is for jobs that a cluster stops and starts again."""
    init_from: Path | None = None
    """Begin with the networks of the run in this folder. Of a run of several seeds, they are those
    of the seed with the highest return in its last evaluation."""
    init_parts: tuple[str, ...] = ("actor", "critic", "statistics")
    """The parts to take from the run of --init-from: actor, critic, statistics."""
    evaluations: Count = 10
    """How many times to evaluate and save the policy, at equal intervals over the run."""
    eval_episodes: Count = 16
    """The number of episodes in an evaluation, with the most likely actions."""
    video: bool = True
    """Make a video of an episode at the end."""
    track: tuple[str, ...] = ()
    """Services that get the metrics too: wandb, mlflow."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        check_settings(self)
        if isinstance(self.domain, str) and self.domain.endswith(DOMAIN_FILE_ENDING):
            # The run folder holds the domain itself: the file may change, or be gone.
            object.__setattr__(self, "domain", load_domain(Path(self.domain)))
        if self.resume and self.out is None:
            raise ConfigError("resume needs the folder of the run; give out (--out)")
        last = self.seed + self.seeds - 1
        if last >= 2**32:
            raise ConfigError(f"seed is {last}; give 0 to {2**32 - 1}")


def reading_all(algorithm: T, env: Env) -> T:
    """The algorithm with an `actor_obs` that includes the parts that the environment adds.

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
            raise ConfigError("shac cannot read images; with --pixels, give --algorithm ppo or sac")
        if not image_names(actor):
            replaced = "privileged_state" if "privileged_state" in actor else "state"
            kept = [name for name in actor if name != replaced]
            actor = (*kept, *env.cameras.specs())
    shown = {"last_action": env.last_action, "context": bool(env.context.visible)}
    actor += tuple(part for part, there in shown.items() if there and part not in named)
    return dataclasses.replace(config, actor_obs=actor)


def find_domain(task: Task, name: str | AbstractDomain) -> AbstractDomain | None:
    """A domain of a task by name, of a file, or a given domain; None for an empty name.

    Raises:
        ConfigError: the task has no such domain, or the file has none.
    """
    if isinstance(name, AbstractDomain):
        return name
    if name.endswith(DOMAIN_FILE_ENDING):
        return load_domain(Path(name))
    domains = task.domains if name else {}
    if name and name not in domains:
        raise ConfigError(f"the task has no domain {name!r}{did_you_mean(name, domains)}")
    return domains.get(name)
