"""playground/go1-joystick-flat and -rough: a Go1 that goes where a joystick points."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Number, Positive
from worldline.tasks.playground import commands, costs, parts
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.go1 import SCENES, Go1Task
from worldline.tasks.playground.joystick import JoystickTask, Walk
from worldline.tasks.playground.legged import draws, noisy
from worldline.types import Array, Key

#: Hip, thigh and knee of each leg: how closely each should stay at its angle at home.
_POSE_SHARPNESS = np.tile(np.array([1.0, 1.0, 0.1], np.float32), 4)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Go1JoystickFlat(Go1Task, JoystickTask):
    """Follow commanded velocities with a Unitree Go1 on flat ground.

    Observation: a dict. `state` `(48,)`, with noise: linear and angular velocity and the direction
    of gravity in the frame of the IMU, joint angles from home and their velocities, the action
    before the last, the command. `privileged_state` `(123,)`: `state`; without noise the angular
    velocity, the acceleration, gravity, both velocities, joints; the forces of the motors, which
    feet touched the ground before, their velocities and times in the air, the push. Action `(12,)`:
    target angles of the joints, relative to home. An episode terminates when the robot is upside
    down.

    The task `Go1JoystickFlatTerrain` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    action_scale: Positive = 0.5
    """How far an action of 1 moves the target of a joint from home, rad."""
    soft_limit: NotNegative = 0.95
    """The share of each joint limit beyond which there is a cost."""
    velocity_noise: NotNegative = 0.1
    """Largest noise on the linear velocity, m/s."""
    largest_command: tuple[float, float, float] = (1.5, 0.8, 1.2)
    """Largest command: forward or back and sideways, m/s, and turning, rad/s."""
    command_probability: tuple[float, float, float] = (0.9, 0.25, 0.5)
    """Probability, for each of these directions, that a new command is not 0."""
    command_time: Positive = 5.0
    """Mean time between two commands, exponentially distributed, s."""
    swing_height: Positive = 0.1
    """How high a foot should swing, m."""
    upright_limit: Finite = 0.0
    """The vertical component of the torso's own vertical below which an episode terminates."""
    tracking_lin_vel_weight: Finite = 1.0
    """Weight of the reward for following forward and sideways."""
    tracking_ang_vel_weight: Finite = 0.5
    """Weight of the reward for following turns."""
    lin_vel_z_weight: Finite = -0.5
    """Weight of the squared vertical velocity, (m/s)^2."""
    ang_vel_xy_weight: Finite = -0.05
    """Weight of the squared angular velocity about the horizontal, (rad/s)^2."""
    orientation_weight: Finite = -5.0
    """Weight of the squared sine of the tilt."""
    dof_pos_limits_weight: Finite = -1.0
    """Weight of how far joints are beyond their soft limits, rad."""
    pose_weight: Finite = 0.5
    """Weight of the reward for joints near home."""
    termination_weight: Finite = -1.0
    """Weight of the end of an episode by a fall."""
    stand_still_weight: Finite = -1.0
    """Weight of the distance of joints from home, rad, when commanded to stand."""
    torques_weight: Finite = -0.0002
    """Weight of the motors' forces, N m."""
    action_rate_weight: Finite = -0.01
    """Weight of the squared change of the action."""
    energy_weight: Finite = -0.001
    """Weight of the motors' power, W."""
    feet_clearance_weight: Finite = -2.0
    """Weight of feet that move away from the height of a swing."""
    feet_height_weight: Finite = -0.2
    """Weight of the squared relative errors of the heights of swings."""
    feet_slip_weight: Finite = -0.1
    """Weight of the squared velocities of feet on the ground, (m/s)^2."""
    feet_air_time_weight: Finite = 0.1
    """Weight of the reward for the time in the air of feet that land, s."""

    # With less exploration it learns to stand still, which is worth a good part of the reward.
    defaults = {
        **Go1Task.defaults,
        "ppo": {
            **Go1Task.defaults["ppo"],
            "num_worlds": 256,
            "unroll_length": 24,
            "activation": "elu",
            "entropy_weight": 0.01,
            "target_kl": 0.03,
            "initial_log_std": -0.5,
        },
    }
    file = f"{SCENES}/scene_mjx_feetonly_flat_terrain.xml"
    fields = ("sensordata", "site_xpos", "site_xmat", "actuator_force")

    def start(self, key: Key) -> Start:
        """Standing somewhere near the origin, thrown a little, with a first command."""
        place_key, memory_key = jax.random.split(key)
        qpos, qvel = self.somewhere(place_key, jnp.asarray(self.home))
        ctrl = {"ctrl": jnp.asarray(self.pose)}
        return Start(qpos=qpos, qvel=qvel, memory=self.standing(memory_key), inputs=ctrl)

    def first_command(self, key: Key) -> Command:
        """Anything within bounds."""
        velocity_key, steps_key = jax.random.split(key)
        least = [-largest for largest in self.largest_command]
        velocity = commands.within(velocity_key, least, self.largest_command)
        return Command(velocity, self._command_steps(steps_key))

    def next_command(self, key: Key, command: Command) -> Command:
        """This command, or one of which some components are others."""
        velocity_key, steps_key = jax.random.split(key)
        velocity = commands.changed(
            velocity_key, command.velocity, self.largest_command, self.command_probability
        )
        return command.next(velocity, self._command_steps(steps_key))

    def _command_steps(self, key: Key) -> Array:
        return commands.exponential_steps(key, self.command_time / self.control_timestep)

    def control(
        self, action: Array, physics: PhysicsState, memory: Walk
    ) -> Array | dict[str, Array]:
        """Where to hold the joints, rad, and the forces of a push."""
        return self.moved(action, memory)

    def observe(self, physics: PhysicsState, memory: Walk) -> dict[str, Array]:
        """What such a robot can feel, with noise; and all that matters, without."""
        exact = self.measured(physics)
        scales = (
            self.velocity_noise,
            self.gyro_noise,
            self.gravity_noise,
            self.joint_noise,
            self.joint_velocity_noise,
        )
        noise_key = draws(memory.words).noise
        linear, gyro, gravity, joints, velocities = noisy(
            noise_key, list(exact.values()), scales, self.noise_level
        )
        state = [linear, gyro, gravity, joints - self.pose, velocities]
        state += [memory.last_action, memory.command.velocity]
        privileged = [
            exact["gyro"],
            self.sensor(physics, "accelerometer"),
            exact["gravity"],
            exact["linear"],
            self.sensor(physics, "global_angvel"),
            exact["joints"] - self.pose,
            exact["velocities"],
            physics.fields["actuator_force"],
            memory.feet.last_contact.astype(jnp.float32),
            self.feet_velocity(physics).ravel(),
            memory.feet.air_time,
            self.push_on_torso(memory),
            (memory.pushes.pushing & self.pushed).astype(jnp.float32)[None],
        ]
        return {
            "state": jnp.concatenate(state),
            "privileged_state": jnp.concatenate([*state, *privileged]),
        }

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        low = tuple(-largest for largest in self.largest_command)
        state = (
            *self.measured_parts(velocity_noise=self.velocity_noise),
            parts.action_before_last(self),
            parts.command(low, self.largest_command),
        )
        exact = self.exact_parts("gyro", "accelerometer", "gravity", "linear", "global_angvel")
        feet = parts.of_feet(
            self, {"last_contact": "same", "feet_velocity": "vector", "feet_air_time": "same"}
        )
        push = parts.push(), *parts.of_task({"pushed": 1})
        known = (*exact, parts.motor_force(self), *feet, *push)
        return {"state": state, "privileged_state": (*state, *known)}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Walk
    ) -> Outcome:
        """Velocities as commanded, on feet that swing; smoothly; without a fall."""
        walk, landed = self.walked(memory, action, after)
        moving, joints = commands.moving(walk.command.velocity), after.qpos[7:]
        low, high = (self.soft_limit * self.model.mj.jnt_range[1:].T).astype(np.float32)
        fallen = self.sensor(after, "upvector")[2] < self.upright_limit
        terms = self.common_terms(after, action, walk, landed)
        terms["feet_slip"] = moving * terms["feet_slip"]
        terms |= {
            "termination": fallen,
            "action_rate": costs.action_rate(action, memory.action),
            "pose": costs.closeness(joints, self.pose, _POSE_SHARPNESS),
            "stand_still": (1 - moving) * jnp.sum(jnp.abs(joints - self.pose)),
            "dof_pos_limits": costs.beyond_limits(joints, low, high),
        }
        return self.scored(terms, fallen, walk, swing_peak=walk.feet.mean_peak())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Go1JoystickRough(Go1JoystickFlat):
    """Follow commanded velocities with a Unitree Go1 on rough ground; see `Go1JoystickFlat`.

    The task `Go1JoystickRoughTerrain` of MuJoCo Playground 0.2.0.
    """

    file = f"{SCENES}/scene_mjx_feetonly_rough_terrain.xml"
