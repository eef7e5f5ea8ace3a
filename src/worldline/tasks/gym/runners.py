"""gym/half-cheetah and gym/swimmer: move along x in a plane, where nothing can go wrong."""

from __future__ import annotations

import dataclasses

from worldline.settings import Count
from worldline.tasks.gym.base import Camera, Runner


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HalfCheetah(Runner):
    """Observation `(17,)`: height, pitch and six joint angles, then all nine velocities.

    Action `(6,)`: motor torques, back leg then front leg. Reward: forward velocity minus a cost of
    control. An episode never terminates.
    """

    defaults = {
        "ppo": {"num_worlds": 256, "unroll_length": 32, "epochs": 4, "target_kl": 0.06},
        "sac": {"layer_norm": False},
        # Few worlds, for many steps of the policy. Little noise: a cheetah on its nose stays there.
        "shac": {
            "num_worlds": 32,
            "learning_rate": 1e-3,
            "anneal_steps": 200_000,
            "reward_scale": 0.1,
            "initial_log_std": -1.5,
        },
    }

    xml_file: str = "half_cheetah.xml"
    frame_skip: Count = 5
    default_camera_config: Camera = dataclasses.field(default_factory=lambda: {"distance": 4.0})
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1

    position_size = 1
    normal_velocity = True


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Swimmer(Runner):
    """Observation `(8,)`: heading and two joint angles, then all five velocities.

    Action `(2,)`: torques of the two joints. Reward: forward velocity minus a cost of control. An
    episode never terminates.
    """

    defaults = {"ppo": {"discount": 0.999}, "train": {"steps": 1_000_000}}

    xml_file: str = "swimmer.xml"
    frame_skip: Count = 4
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1

    position_size = 2
