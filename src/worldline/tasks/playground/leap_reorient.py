"""playground/leap-cube-reorient: a hand that turns a cube to one orientation after the other."""

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
from worldline.settings import Count, Finite, NotNegative, Number, Positive, PositiveShare, Share
from worldline.tasks.playground import costs, rotations
from worldline.tasks.playground.jolts import Jolts
from worldline.tasks.playground.leap import JOINTS, LeapTask
from worldline.tasks.playground.legged import draws, noisy
from worldline.tasks.playground.manipulation import total
from worldline.tasks.rewards import tolerance
from worldline.types import Array, Key

#: Numbers of the history that a control step adds: errors of joints, place and axes.
_PARTS = (JOINTS, 3, 6)


class Memory(eqx.Module):
    """What the task carries from step to step, as it was when the present state was observed."""

    targets: Array
    """Of the joints, `(16,)`, rad."""
    goal: Array
    """How the cube is to be turned in the next control step, `(4,)`, a quaternion."""
    goal_velocity: Array
    """Half of the goal's angular velocity, `(3,)`, rad/s: fast after a success, then slower and
    slower."""
    action: Array
    """The last action, `(16,)`."""
    last_action: Array
    """The action before it, `(16,)`."""
    frames: Array
    """What was observed of errors in the control steps before, newest first, `(n - 1, 25)`."""
    since: Array
    """Control steps since the last success, `()` int32."""
    successes: Array
    """Of the episode, `()` int32."""
    jolts: Jolts
    """Of the cube."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LeapCubeReorient(LeapTask):
    """Turn a cube in a LEAP hand to a goal orientation, then to the next, without dropping it.

    Observation: a dict. `state` `(57,)`, with noise: joint angles, their position errors, the
    vector from the cube to the palm, the cube's axes as seen from the goal, the action before the
    last. `privileged_state` `(128,)`: `state`; without noise joint angles, their velocities, the
    positions of the fingertips, the vector from the cube to the palm, the cube's axes as seen from
    the goal, its velocities, direction and force of a push. Action `(16,)`: changes of
    the joints' targets. An episode terminates when the cube falls.

    The task `LeapCubeReorient` of MuJoCo Playground 0.2.0.
    """

    defaults = {**LeapTask.defaults, "ppo": {**LeapTask.defaults["ppo"], "discount": 0.99}}

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    action_scale: Positive = 0.5
    """How far an action of 1 moves the target of a joint, rad."""
    target_share: PositiveShare = 1.0
    """The share of the new target in the target of the servos; the rest is the target of the last
    step."""
    history_length: Count = 1
    """The number of control steps of errors in `state`, newest first."""
    cube_noise: NotNegative = 0.02
    """Largest noise on the place of the cube, m."""
    turn_noise: NotNegative = 0.1
    """Standard deviation of the noise on the quaternion of the cube."""
    lost_probability: Share = 0.0
    """Probability that the cube is observed at a random position, in a random orientation."""
    success_angle: Positive = 0.1
    """Between the cube and its goal, below which it succeeds, rad."""
    goal_speed: NotNegative = 3.0
    """Half of the angular velocity of a goal after a success about each of its axes, about,
    rad/s."""
    goal_speed_range: NotNegative = 2.0
    """Largest difference from there, rad/s."""
    goal_slowing: Share = 0.8
    """Factor of this speed after each control step."""
    jolted: bool = False
    """Whether the cube is pushed at random times."""
    jolt_velocity: tuple[float, float] = (0.0, 3.0)
    """What a jolt adds to the cube's velocity: least and most, m/s."""
    jolt_spin: tuple[float, float] = (0.0, 0.5)
    """What it adds to its angular velocity: least and most, as if its inertia were its mass."""
    jolt_steps: tuple[int, int] = (1, 99)
    """Control steps that a jolt lasts: fewest and most."""
    jolt_wait: tuple[int, int] = (60, 149)
    """Control steps from a jolt to the next: fewest and most."""
    fastest_joint: Positive = 4.0
    """The velocity of a joint that costs 1, rad/s."""
    orientation_weight: Finite = 5.0
    """Weight of the reward for a cube turned as its goal."""
    position_weight: Finite = 0.5
    """Weight of the reward for a cube on the palm."""
    termination_weight: Finite = -100.0
    """Weight of a cube that falls."""
    hand_pose_weight: Finite = -0.5
    """Weight of the squared distance of joints from home, rad^2."""
    action_rate_weight: Finite = -0.001
    """Weight of the squared first and second differences of actions."""
    joint_vel_weight: Finite = 0.0
    """Weight of the squared velocities of joints, in units of `fastest_joint`."""
    energy_weight: Finite = -0.001
    """Weight of the motors' power, W."""
    success_reward: Finite = 100.0
    """Reward for a success, independent of the control time step."""

    def start(self, key: Key) -> Start:
        """The hand about home, the cube above it and its goal in any orientation."""
        where_key, goal_key, jolt_key, memory_key = jax.random.split(key, 4)
        qpos, nothing = self.somehow(where_key), jnp.zeros(JOINTS, jnp.float32)
        memory = Memory(
            targets=qpos[:JOINTS],
            goal=rotations.anywhere(goal_key),
            goal_velocity=jnp.zeros(3, jnp.float32),
            action=nothing,
            last_action=nothing,
            frames=jnp.zeros((self.history_length - 1, sum(_PARTS)), jnp.float32),
            since=jnp.int32(0),
            successes=jnp.int32(0),
            jolts=Jolts.at_start(
                jolt_key, self.jolt_wait, self.jolt_steps, self.jolt_velocity, self.jolt_spin
            ),
            words=jax.random.key_data(memory_key),
        )
        return Start(
            qpos=qpos,
            qvel=jnp.zeros(self.model.nv, jnp.float32),
            memory=memory,
            inputs={"ctrl": memory.targets, "mocap_quat": memory.goal[None]},
        )

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """Where to hold the joints, rad; the goal, and the force of a jolt."""
        forces = jnp.zeros((self.model.mj.nbody, 6), jnp.float32)
        force = self._jolted(memory).force(self._cube_mass, self.control_timestep)
        return {
            "ctrl": self._moved(action, memory),
            "mocap_quat": memory.goal[None],
            "xfrc_applied": forces.at[self.model.id("body", "cube")].set(force),
        }

    @property
    def _cube_mass(self) -> float:
        return float(self.model.mj.body_subtreemass[self.model.id("body", "cube")])

    def _jolted(self, memory: Memory) -> Jolts:
        """The jolts of the next control step."""
        return memory.jolts.next(draws(memory.words).push) if self.jolted else memory.jolts

    def _moved(self, action: Array, memory: Memory) -> Array:
        """The targets of the joints after an action, `(16,)`, rad."""
        asked = self.within_range(memory.targets + self.action_scale * action)
        return self.target_share * asked + (1 - self.target_share) * memory.targets

    def felt(self, physics: PhysicsState, memory: Memory) -> tuple[Array, Array]:
        """Joint angles with noise, `(16,)`, rad, and the errors of a control step, `(25,)`."""
        joints_key, turn_key, lost_key = jax.random.split(draws(memory.words).noise, 3)
        joints, place = noisy(
            joints_key,
            [physics.qpos[:JOINTS], self.sensor(physics, "cube_position")],
            [self.joint_noise, self.cube_noise],
            self.noise_level,
        )
        shaken = self.noise_level * self.turn_noise * jax.random.normal(turn_key, (4,), jnp.float32)
        turn = rotations.normalised(self.sensor(physics, "cube_orientation") + shaken)
        turn_key, place_key, chance_key = jax.random.split(lost_key, 3)
        lost = jax.random.bernoulli(chance_key, self.lost_probability)
        lost = self.noise_level * lost.astype(jnp.float32)
        anywhere = jax.random.uniform(place_key, (3,), jnp.float32, -0.5, 0.5)
        place = (1 - lost) * place + lost * anywhere
        turn = (1 - lost) * turn + lost * rotations.anywhere(turn_key)
        way = self.sensor(physics, "palm_position") - place
        errors = [joints - memory.targets, way, self._from_goal(physics, turn)]
        return joints, jnp.concatenate(errors)

    def _from_goal(self, physics: PhysicsState, turn: Array) -> Array:
        """The cube's axes as seen from its goal, without the first row, `(6,)`."""
        goal = self.sensor(physics, "cube_goal_orientation")
        return rotations.matrix(rotations.product(turn, rotations.inverse(goal)))[1:].ravel()

    def observe(self, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """What such a hand can feel and see, with noise; and all that matters, without."""
        joints, frame = self.felt(physics, memory)
        history = jnp.concatenate([frame[None], memory.frames])
        columns = jnp.split(history, np.cumsum(_PARTS)[:-1], axis=1)
        state = [joints, *(column.ravel() for column in columns), memory.last_action]
        turn = self.sensor(physics, "cube_orientation")
        privileged = [
            physics.qpos[:JOINTS],
            physics.qvel[:JOINTS],
            self.fingertips(physics),
            self.cube_from_palm(physics),
            self._from_goal(physics, turn),
            self.sensor(physics, "cube_linvel"),
            self.sensor(physics, "cube_angvel"),
            memory.jolts.direction,
            memory.jolts.force(self._cube_mass, self.control_timestep),
        ]
        return {
            "state": jnp.concatenate(state),
            "privileged_state": jnp.concatenate([*state, *privileged]),
        }

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        steps = self.history_length
        state = (
            self.felt_joints,
            Part("joint_position_to_target", steps * JOINTS, unit="rad"),
            Part("cube_to_palm", steps * 3, unit="m", noise=self.noise_level * self.cube_noise),
            Part("cube_axes_from_goal", steps * 6),
            Part("action_before_last", JOINTS, "action", ago=2),
        )
        tips, palm = self.exact_places
        return {
            "state": state,
            "privileged_state": (
                *state,
                *self.exact_joints,
                tips,
                dataclasses.replace(palm, name="exact_cube_to_palm"),
                Part("exact_cube_axes_from_goal", 6),
                *self.cube_velocities,
                Part("jolt_direction", 6, frame="world"),
                Part("jolt_force", 6, unit="N, N m", frame="world"),
            ),
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return (ActionPart("joint_target_change", JOINTS, scale=self.action_scale, unit="rad"),)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """To turn the cube as its goal, then to another goal; and keep it."""
        turn, goal = (self.sensor(after, f"cube{which}_orientation") for which in ("", "_goal"))
        angle, fallen = rotations.angle_between(turn, goal), self.fallen(after)
        success = angle < self.success_angle
        speeds, way = after.qvel[:JOINTS], costs.length(self.cube_from_palm(after))
        terms = self.weighted(
            {
                "orientation": tolerance(angle, (0, 0.2), float(np.pi), "linear"),
                "position": tolerance(way, (0, 0.02), 0.05, "linear"),
                "termination": fallen,
                "hand_pose": costs.squared(after.qpos[:JOINTS] - self.pose),
                "action_rate": costs.action_smoothness(action, memory.action, memory.last_action),
                "joint_vel": costs.squared(speeds / self.fastest_joint),
                "energy": costs.energy(speeds, after.fields["actuator_force"]),
            }
        )
        won = jnp.where(success, self.success_reward, 0.0)
        following = self._following(before, action, memory, success)
        return Outcome(
            reward=self.control_timestep * total(terms) + won,
            terminated=fallen,
            memory=following,
            metrics={
                **terms,
                "reward/success": won,
                "success_count": following.successes.astype(jnp.float32),
                "steps_since_last_success": following.since.astype(jnp.float32),
            },
        )

    def _following(
        self, before: PhysicsState, action: Array, memory: Memory, success: Array
    ) -> Memory:
        """The memory after a step, with a goal that moves on after a success."""
        keys, spread = draws(memory.words), self.goal_speed_range
        away = jax.random.uniform(keys.command, (3,), jnp.float32, -spread, spread)
        slower = self.goal_slowing * memory.goal_velocity
        velocity = jnp.where(success, self.goal_speed + away, slower)
        _, frame = self.felt(before, memory)
        frames = jnp.concatenate([frame[None], memory.frames])
        return Memory(
            targets=self._moved(action, memory),
            goal=rotations.turned(memory.goal, velocity, 2 * self.control_timestep),
            goal_velocity=velocity,
            action=action,
            last_action=memory.action,
            frames=frames[: self.history_length - 1],
            since=jnp.where(success, 0, memory.since + 1),
            successes=memory.successes + success.astype(jnp.int32),
            jolts=self._jolted(memory).counted(),
            words=keys.words,
        )
