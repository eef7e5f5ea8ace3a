"""suite/humanoid: stand, walk and run on two legs."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.physics.base import PhysicsState
from worldline.tasks.rewards import tolerance
from worldline.tasks.suite.base import SuiteTask, at_least, first_accepted, small_control, variant
from worldline.types import Array, Key

_LIMBS = ("left_hand", "left_foot", "right_hand", "right_foot")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Humanoid(SuiteTask):
    """Stand on two legs, and move in any direction at a speed.

    Observation `(67,)`: joint angles, height of the head, hands and feet as the torso sees them,
    the vertical in the torso's frame, velocity of the whole body, all velocities. Action `(21,)`:
    torques. Reward: how high and upright it stands, times small controls, times its speed.
    """

    file = "humanoid.xml"
    control_timestep: float = 0.025
    speed: float
    """Speed of the whole body for the full reward, m/s; 0: stand still."""
    pure_state: bool = False
    """Observe `qpos` and `qvel` instead, `(55,)`."""

    fields = ("xmat", "xpos", "sensordata")  # poses of the bodies, speed of the whole

    def pose(self, key: Key) -> Array:
        """Any pose without contact, 1.5 m above the ground, `(28,)`."""
        return first_accepted(key, super().pose, self._contacts.free)

    def velocity(self, physics: PhysicsState) -> Array:
        """Of the centre of mass, `(3,)`, m/s."""
        return self.sensors(physics, "torso_subtreelinvel")

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """What the humanoid feels of itself, or the state."""
        if self.pure_state:
            return super().features(physics)
        torso = self.row(physics, "xmat", "torso").reshape(3, 3)
        center = self.row(physics, "xpos", "torso")
        limbs = [(self.row(physics, "xpos", limb) - center) @ torso for limb in _LIMBS]
        return {
            "joint_angles": physics.qpos[7:],
            "head_height": self.row(physics, "xpos", "head")[2],
            "extremities": jnp.concatenate(limbs),
            "torso_vertical": torso[2],
            "com_velocity": self.velocity(physics),
            "velocity": physics.qvel,
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Standing, small controls, and moving or keeping still."""
        head = self.row(physics, "xpos", "head")[2]
        standing = tolerance(head, (1.4, jnp.inf), margin=0.35)
        upright = at_least(self.row(physics, "xmat", "torso")[8], 0.9, margin=1.9)
        velocity = self.velocity(physics)[:2]
        if not self.speed:
            moving = tolerance(velocity, margin=2.0).mean()
        else:
            fast = at_least(jnp.linalg.norm(velocity), self.speed, margin=self.speed)
            moving = (5 * fast + 1) / 6
        return (4 + small_control(action)) / 5 * standing * upright * moving


HumanoidStand = variant(Humanoid, "HumanoidStand", "Stand still on two legs", speed=0.0)
HumanoidWalk = variant(Humanoid, "HumanoidWalk", "Walk on two legs", speed=1.0)
HumanoidRun = variant(Humanoid, "HumanoidRun", "Run on two legs", speed=10.0)
HumanoidRunPureState = variant(
    HumanoidRun, "HumanoidRunPureState", "Run; observe `qpos` and `qvel`, `(55,)`", pure_state=True
)
