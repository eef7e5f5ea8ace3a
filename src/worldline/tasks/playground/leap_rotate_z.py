"""playground/leap-cube-rotate-z: a hand that spins a cube about the vertical."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.parts import ObservationPart as Part
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, Number, Positive
from worldline.tasks.playground import costs
from worldline.tasks.playground.leap import JOINTS, LeapTask
from worldline.tasks.playground.legged import draws, noisy
from worldline.tasks.playground.manipulation import total
from worldline.types import Array, Key

#: Where the target is shown of which this task has none, m.
_OUT_OF_SIGHT = np.full((1, 3), -100.0, np.float32)


class Memory(eqx.Module):
    """What the task carries from step to step, as it was when the present state was observed."""

    action: Array
    """The last action, `(16,)`."""
    last_action: Array
    """The action before it, `(16,)`."""
    frames: Array
    """What was observed in the control steps before, newest first, `(n - 1, 32)`."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LeapCubeRotateZ(LeapTask):
    """Spin a cube about the vertical on the palm of a LEAP hand, as fast as possible.

    Observation: a dict. `state` `(32,)`: joint angles with noise, the action before the last.
    `privileged_state` `(105,)`: both; without noise joint angles, their velocities, the forces of
    the motors, the positions of the fingertips, the vector from the cube to the palm, the cube's
    orientation and velocities. Action `(16,)`: target angles of the joints, relative to home. An
    episode
    terminates when the cube falls.

    The task `LeapCubeRotateZAxis` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 500
    """Control steps after which an episode is truncated; 0 for no limit."""
    action_scale: Positive = 0.6
    """How far an action of 1 moves the target of a joint from home, rad."""
    history_length: Count = 1
    """The number of control steps in `state`, newest first."""
    angvel_weight: Finite = 1.0
    """Weight of the reward for the cube's angular velocity about the vertical, rad/s."""
    linvel_weight: Finite = 0.0
    """Weight of the sum of the sizes of its velocity along each axis, m/s."""
    pose_weight: Finite = 0.0
    """Weight of the squared distance of joints from home, rad^2."""
    torques_weight: Finite = 0.0
    """Weight of the squared forces of the motors, (N m)^2."""
    energy_weight: Finite = 0.0
    """Weight of the motors' power, W."""
    termination_weight: Finite = -100.0
    """Weight of a cube that falls."""
    action_rate_weight: Finite = 0.0
    """Weight of the squared change of the action."""

    def start(self, key: Key) -> Start:
        """The hand about home, the cube above it in any orientation."""
        where_key, memory_key = jax.random.split(key)
        qpos, nothing = self.somehow(where_key), jnp.zeros(JOINTS, jnp.float32)
        frames = jnp.zeros((self.history_length - 1, 2 * JOINTS), jnp.float32)
        return Start(
            qpos=qpos,
            qvel=jnp.zeros(self.model.nv, jnp.float32),
            memory=Memory(nothing, nothing, frames, jax.random.key_data(memory_key)),
            inputs={"ctrl": qpos[:JOINTS], "mocap_pos": jnp.asarray(_OUT_OF_SIGHT)},
        )

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        return self.within_range(self.pose + self.action_scale * action)

    def frame(self, physics: PhysicsState, memory: Memory) -> Array:
        """What a control step adds to `state`, `(32,)`."""
        key, joints = draws(memory.words).noise, physics.qpos[:JOINTS]
        felt = noisy(key, [joints], [self.joint_noise], self.noise_level)
        return jnp.concatenate([*felt, memory.last_action])

    def observe(self, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """What such a hand can feel, with noise; and all that matters, without."""
        frame = self.frame(physics, memory)
        privileged = [
            frame,
            physics.qpos[:JOINTS],
            physics.qvel[:JOINTS],
            physics.fields["actuator_force"],
            self.fingertips(physics),
            self.cube_from_palm(physics),
        ]
        names = ("cube_orientation", "cube_angvel", "cube_linvel")
        privileged += [self.sensor(physics, name) for name in names]
        return {
            "state": jnp.concatenate([frame, memory.frames.ravel()]),
            "privileged_state": jnp.concatenate(privileged),
        }

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        frame = (self.felt_joints, Part("action_before_last", JOINTS, "action", ago=2))
        before = [
            Part(f"{name}_{steps}_before", JOINTS, unit=unit)
            for steps in range(1, self.history_length)
            for name, unit in (("joint_position", "rad"), ("action_before_last", ""))
        ]
        linear, angular = self.cube_velocities
        return {
            "state": (*frame, *before),
            "privileged_state": (
                *frame,
                *self.exact_joints,
                Part("motor_force", JOINTS, unit="N m"),
                *self.exact_places,
                Part("cube_orientation", 4, "sensor", ("cube_orientation",)),
                angular,
                linear,
            ),
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        servos = tuple(self.model.names("actuator"))
        pose = tuple(self.pose.tolist())
        return (
            ActionPart(
                "joint_position_target", JOINTS, "position", servos, pose, self.action_scale, "rad"
            ),
        )

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """To turn the cube, and keep it."""
        fallen, forces = self.fallen(after), after.fields["actuator_force"]
        terms = self.weighted(
            {
                "angvel": self.sensor(after, "cube_angvel")[2],
                "linvel": jnp.sum(jnp.abs(self.sensor(after, "cube_linvel"))),
                "termination": fallen,
                "action_rate": costs.action_rate(action, memory.action),
                "pose": costs.squared(after.qpos[:JOINTS] - self.pose),
                "torques": costs.squared(forces),
                "energy": costs.energy(after.qvel[:JOINTS], forces),
            }
        )
        frames = jnp.concatenate([self.frame(before, memory)[None], memory.frames])
        following = Memory(
            action=action,
            last_action=memory.action,
            frames=frames[: self.history_length - 1],
            words=draws(memory.words).words,
        )
        return Outcome(self.control_timestep * total(terms), fallen, following, terms)
