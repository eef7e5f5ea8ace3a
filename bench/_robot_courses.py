"""The named robots that are trained, for how long, with what, and what was promised of them."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

#: The name of a task.
Robot: TypeAlias = str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """How one robot is trained and judged."""

    minutes: float
    """From the start of the process, a run."""
    seeds: tuple[int, ...] = (0,)
    task_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of the task in which we train; all are measured in the task without options."""
    rewards: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Constants of the reward with which everyone trains, ourselves and the peer."""
    ppo: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """In place of the task's own settings, as far as the peer has them, for the peer too."""
    measures: tuple[str, ...]
    """What is compared with the peer."""
    promised: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """A measure to the value that it reaches."""
    elsewhere: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """Options of the task with which the last policies are measured, too, by a name."""
    most_simulations: int = 256
    """Of the peer: it has a model for each, 50 MB of a Go1, and machines of 24 GB have to do."""

    def more_is_better(self, measure: str) -> bool:
        """Whether a larger value is better; of an error a smaller one is."""
        return measure in ("lifted", "return")

    def reached(self, evaluations: Sequence[Mapping[str, float]]) -> float:
        """Seconds until one policy kept all that was promised; infinite if none did."""
        for found in evaluations:
            if all(self.kept(name, found[name]) for name in self.promised):
                return found["wall"]
        return math.inf

    def soonest(self, runs: Iterable[Sequence[Mapping[str, float]]]) -> float:
        """The median over runs of what `reached` gives of their evaluations."""
        return statistics.median(map(self.reached, runs))

    def kept(self, measure: str, value: float) -> bool:
        """Whether a value is as promised."""
        promised = self.promised[measure]
        return value >= promised if self.more_is_better(measure) else value <= promised


_ERRORS = ("linear", "angular")
#: Humanoids are pushed by up to 2 m/s in their tasks; then errors say little of how they walk.
_UNPUSHED = {"without pushes": {"pushed": False}}
#: How robots with legs are trained.
_LEGS: dict[str, Any] = {"task_options": {"fast": True}, "ppo": {"symmetry": True}}
#: A quarter of a speed of 1 m/s is worth half of the reward for following it; with Playground's own
#: width, 0.25, it is worth 11%, and the robot learns late to walk.
_FOLLOW = {
    "tracking_sigma": 0.8,
    "tracking_lin_vel_weight": 2.0,
    "tracking_ang_vel_weight": 1.0,
}
#: Its own rewards pay for the stance, and hardly for a step: it stands.
_SPOT = {
    **_FOLLOW,
    "tracking_lin_vel_weight": 4.0,
    "tracking_ang_vel_weight": 2.0,
    "posture_weight": 0.2,
    "feet_clearance_weight": 0.0,
    "feet_air_time_weight": 1.0,
}
#: How robots with four legs learn to follow commands.
_FOUR_LEGS: dict[str, Any] = {
    "measures": _ERRORS,
    "rewards": _FOLLOW,
    "task_options": _LEGS["task_options"],
    # With these rewards they need less exploration, and they fall less with larger batches.
    "ppo": {**_LEGS["ppo"], "num_worlds": 512, "entropy_weight": 0.004},
}


def _humanoid(ppo: Mapping[str, Any] | None = None, **rewards: float) -> dict[str, Any]:
    """How humanoids are trained, with other settings of PPO and constants of the reward."""
    return {
        "measures": (*_ERRORS, "ended"),
        "elsewhere": _UNPUSHED,
        # With its own rewards it is worth most to fall soon: their sum is negative.
        "rewards": {
            "alive_weight": 1.0,
            "tracking_sigma": 0.4,
            "tracking_lin_vel_weight": 12.0,
            "tracking_ang_vel_weight": 8.0,
            "feet_phase_weight": 2.0,
            "swing_height": 0.1,
            "ang_vel_xy_weight": -0.03,
            **rewards,
        },
        # These EnvPool does not have.
        "task_options": {
            **_LEGS["task_options"],
            "gradual": True,
            "first_steps_weight": 120.0,
            "first_following": 0.25,
            "upright_limit": 0.7,
            "phase_sigma": 0.005,
        },
        "ppo": {
            **_LEGS["ppo"],
            "num_worlds": 256,
            "unroll_length": 24,
            "discount": 0.99,
            "actor_hidden": (256, 128),
            "critic_hidden": (256, 128),
            "initial_log_std": -1.2,
            "entropy_weight": 0.001,
            **(ppo or {}),
        },
    }


COURSES: dict[Robot, Course] = {
    "playground/go1-joystick-flat": Course(
        minutes=4, seeds=(0, 1, 2), promised={"linear": 0.15, "angular": 0.15}, **_FOUR_LEGS
    ),
    "playground/panda-pick-cube": Course(
        minutes=10, measures=("lifted", "return"), promised={"lifted": 0.8}
    ),
    "playground/g1-joystick-flat": Course(
        minutes=20,
        seeds=(0, 1, 2),
        **_humanoid(contact_force_weight=0.0, stand_still_weight=-0.1),
    ),
    "playground/spot-flat": Course(minutes=15, **{**_FOUR_LEGS, "rewards": _SPOT}),
    "playground/t1-joystick-flat": Course(
        minutes=15,
        # Its servos are soft: with the G1's noise, 0.15 rad, it does not learn to step.
        **_humanoid({"initial_log_std": -1.0}),
    ),
    "playground/berkeley-joystick-flat": Course(
        minutes=15,
        # A model has 110 MB.
        most_simulations=128,
        **_humanoid({"initial_log_std": -0.7, "entropy_weight": 0.002}),
    ),
    "playground/go1-joystick-rough": Course(minutes=15, **_FOUR_LEGS),
    "playground/go1-getup": Course(
        minutes=15,
        measures=("return",),
        # With its own, robots turn upright and lie. With this they tilt: no good course yet.
        rewards={"torso_height_weight": 5.0},
        task_options=_LEGS["task_options"],
        ppo={**_LEGS["ppo"], "entropy_weight": 0.008},
    ),
    "playground/leap-cube-rotate-z": Course(minutes=15, measures=("return",)),
}
