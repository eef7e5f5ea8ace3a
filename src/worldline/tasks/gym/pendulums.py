"""gym/inverted-pendulum and gym/inverted-double-pendulum: balance poles on a cart."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.env.task import Outcome
from worldline.physics.base import PhysicsState
from worldline.settings import Count
from worldline.tasks.gym.base import Camera, NoisyStart
from worldline.types import Array, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class InvertedPendulum(NoisyStart):
    """Observation `(4,)`: position of the cart, angle of the pole, and their velocities.

    Action `(1,)`: force on the cart, in hundreds of newtons. Reward: 1 while the pole is within
    0.2 rad of upright; the episode terminates when it is not.
    """

    defaults = {
        "ppo": {"num_worlds": 32, "minibatches": 8},
        "sac": {
            "num_worlds": 8,
            "critic_steps": 64,
            "learning_starts": 1000,
            "learning_rate": 1e-3,
            "target_rate": 0.02,
            "actor_hidden": (64, 64),
            "critic_hidden": (64, 64),
            "replay_capacity": 100_000,
        },
        "train": {"steps": 200_000},
    }

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: Count = 2
    default_camera_config: Camera = dataclasses.field(
        default_factory=lambda: {"trackbodyid": 0, "distance": 2.04}
    )
    reset_noise_scale: float = 0.01

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """1 while the pole is upright."""
        finite = jnp.all(jnp.isfinite(self.observe(after, memory)))
        fallen = ~finite | (jnp.abs(after.qpos[1]) > 0.2)
        reward = (~fallen).astype(jnp.float32)
        return Outcome(reward=reward, terminated=fallen, metrics={"reward_survive": reward})


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class InvertedDoublePendulum(NoisyStart):
    """Observation `(9,)`: position of the cart, sines and cosines of the two joint angles, three
    velocities clipped to 10 m/s or rad/s, and the constraint force on the cart clipped to 10 N.

    Action `(1,)`: force on the cart, in hundreds of newtons. Reward: a bonus while the tip is above
    1 m, minus penalties for the tip's distance from upright and for the poles' velocities; the
    episode terminates when the tip is not above 1 m.
    """

    defaults = {"train": {"steps": 1_000_000}}

    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: Count = 5
    healthy_reward: float = 10.0
    """Reward for each step after which the tip is above 1 m."""
    reset_noise_scale: float = 0.1

    fields = ("site_xpos", "qfrc_constraint")  # the tip's position, the force at the rail's ends
    normal_velocity = True

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions, with angles as sines and cosines, velocities, and the force on the cart."""
        cart, angles = physics.qpos[:1], physics.qpos[1:]
        velocity = jnp.clip(physics.qvel, -10, 10)
        force = jnp.clip(physics.fields["qfrc_constraint"][:1], -10, 10)
        return jnp.concatenate([cart, jnp.sin(angles), jnp.cos(angles), velocity, force])

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """The bonus, less the penalties for distance and velocity."""
        x, _, height = after.fields["site_xpos"][0]
        _, lower, upper = after.qvel
        fallen = height <= 1
        survive = jnp.where(fallen, 0.0, self.healthy_reward)
        distance = -(0.01 * x**2 + (height - 2) ** 2)
        velocity = -(1e-3 * lower**2 + 5e-3 * upper**2)
        return Outcome(
            reward=survive + distance + velocity,
            terminated=fallen,
            metrics={
                "reward_survive": survive,
                "distance_penalty": distance,
                "velocity_penalty": velocity,
            },
        )
