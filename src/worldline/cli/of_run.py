"""What the commands that use a run's policy share: their options, and how they open the run."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import tyro

from worldline.settings import check_settings

if TYPE_CHECKING:
    from worldline.env.env import Env
    from worldline.learn.policy import Policy
    from worldline.report import RunFolder

RunPath: TypeAlias = tyro.conf.Positional[Path]

TRUST_CODE = """Run the copy of the task's file in the run folder, if the original file has changed
or is gone. Use this only for folders from people that you trust."""


@dataclasses.dataclass(frozen=True)
class OfRun:
    """The options of a command that uses a run's policy."""

    run: RunPath
    """The run folder."""
    checkpoint: str = "last"
    """The policy to use: last, best (the highest evaluation), or the number of environment steps of
    an evaluation."""
    task: tuple[str, ...] = ()
    """Give options of the task other values than in training, for example fast=False."""
    trust_code: Annotated[bool, tyro.conf.arg(help=TRUST_CODE)] = False

    def open(self) -> tuple[RunFolder, Env, Policy]:
        """The run folder, its environment and the policy; prints which one."""
        from worldline.export.policy_file import load_policy, policy_about, policy_file
        from worldline.report import RunFolder
        from worldline.train.options import with_task_options
        from worldline.train.stored import environment_of, saved_config

        check_settings(self)
        folder = RunFolder.open(self.run)
        saved_config(folder)  # an error of the configuration comes before one of the policy
        policy = load_policy(folder.path, checkpoint=self.checkpoint)
        env = environment_of(folder, trust_code=self.trust_code)
        env = with_task_options(env, self.task)
        file = policy_file(folder.path, self.checkpoint)
        about = policy_about(file)
        if "step" in about:
            when = f", after {about['step']:,} steps, evaluated at {about['return']:.1f}"
        else:
            when = ""
        print(f"policy {file}{when}", file=sys.stderr)
        return folder, env, policy
