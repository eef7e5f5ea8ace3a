"""gym/swimmer: three links in a viscous plane; push against the fluid to move along x."""

from __future__ import annotations

import dataclasses

from worldline.settings import Count
from worldline.tasks.gym.base import Runner


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Swimmer(Runner):
    """Observation `(8,)`: heading and two joint angles, then all five velocities.

    Action `(2,)`: torques of the two joints. Reward: forward velocity less a cost of control. An
    episode never terminates.
    """

    defaults = {"ppo": {"discount": 0.999}, "train": {"steps": 1_000_000}}

    xml_file: str = "swimmer.xml"
    frame_skip: Count = 4
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1

    position_size = 2
