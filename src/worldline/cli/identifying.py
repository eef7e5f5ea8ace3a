"""The options of `worldline identify`, and what it does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tyro

from worldline.settings import Positive, Share, check_settings


@dataclasses.dataclass(frozen=True)
class Identify:
    """Find constants of a model from a log of the robot: masses, damping, friction.

    The log is a CSV file with the columns `time`, `position.JOINT` and `control.ACTUATOR`. The
    columns `velocity.JOINT` are optional.
    """

    model: tyro.conf.Positional[str]
    """The robot's MJCF file; or a robot of the Menagerie, for example menagerie:franka_fr3."""
    log: tyro.conf.Positional[Path]
    """The CSV file."""
    fit: tuple[str, ...] = ()
    """The constants to find, separated by commas: joint_damping, joint_frictionloss,
    joint_armature, joint_stiffness, body_mass, geom_friction. Without a name they are of all
    objects; body_mass:forearm is of one object. A number of another field is, for example,
    actuator_gear:elbow[0]."""
    out: Path | None = None
    """The folder to write; by default the log's name with -identified."""
    segment: Positive = 1.0
    """Cut the log into segments of about this number of seconds. The first state of each segment is
    fitted too."""
    margin: Share = 0.05
    """Make the domain wider than the 95% intervals by this share of each value."""

    def execute(self) -> None:
        """Prints what was found, and the files with it."""
        from rich.progress import Progress

        from worldline import robots
        from worldline.identify.run import identify
        from worldline.model import Model

        check_settings(self)
        model = Model(robots.find(self.model))
        names = [name.strip() for text in self.fit for name in text.split(",") if name.strip()]
        out = self.out or self.log.with_name(f"{self.log.stem}-identified")
        options: Any = {"segment": self.segment, "margin": self.margin}
        with Progress(transient=True) as bar:
            work = bar.add_task("", total=1.0)

            def show(what: str, share: float) -> None:
                bar.update(work, description=what, completed=share)

            lines = list(identify(model, self.log, names, out, show=show, **options))
        for line in lines:
            print(line)
