"""arm/pick-cube: an arm that finds a cube on a table, grasps it and holds it up.

The same task from numbers and from cameras: `state` is what an arm feels of itself, and where the
cube is stands in `privileged_state`, for a policy that may know it or for a critic alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.parts import ObservationPart as Part
from worldline.env.task import Outcome, Start, Task
from worldline.physics.base import PhysicsState
from worldline.settings import Number
from worldline.tasks.robot.arm import HOME, OPEN, arm_mjcf
from worldline.types import Array, Key
from worldline.variation.distributions import LogUniform, Uniform
from worldline.variation.domain import AbstractDomain, Domain, add, scale, set_
from worldline.variation.presets import presets
from worldline.variation.targets import body, camera, geom, light

#: Half an edge of the cube, m.
HALF = 0.02

#: Where the gripper may be told to go, m: lowest and highest x, y, z. Over the table, in reach.
WORKSPACE = np.array([[0.35, -0.3, 0.015], [0.65, 0.3, 0.35]], np.float32)

_WORLD = f"""
    <light name="sun" pos="0.4 -0.6 1.8" dir="0.1 0.4 -1" directional="true"
           diffuse="0.6 0.6 0.6" specular="0.1 0.1 0.1"/>
    <camera name="front" pos="1.1 0 0.42" xyaxes="0 1 0 -0.32 0 0.6" fovy="45"/>
    <geom name="table" type="plane" size="2 2 0.1" contype="1" friction="1 0.01 0.0005"
          rgba="0.55 0.6 0.65 1"/>
    <body name="cube" pos="0.5 0 {HALF}">
      <freejoint name="cube"/>
      <geom name="cube" type="box" size="{HALF} {HALF} {HALF}" mass="0.1" contype="2"
            conaffinity="1" condim="4" friction="1 0.01 0.0005" rgba="0.85 0.2 0.15 1"/>
    </body>"""

# Elliptic cones, and friction harder than contact: what is grasped does not slip.
MJCF = arm_mjcf('timestep="0.01" integrator="implicitfast" cone="elliptic" impratio="10"', _WORLD)

#: The middle of where cubes start, and what the gripper's axes are when it points down.
_MIDDLE = (0.5, 0.0)
_DOWN = np.diag([1.0, -1.0, -1.0]).astype(np.float32)

#: Of the inverse kinematics, m and rad alike.
_DAMPING = 0.05


class Memory(eqx.Module):
    """What the task carries from step to step."""

    target: Array
    """Where the gripper is told to be, `(3,)`, m."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PickCube(Task):
    """Grasp a cube on a table with an arm, and hold it up.

    Observation: a dict. `state` `(22,)`: joint angles from their home and velocities, the opening
    of the fingers, the position of the gripper, and the vector to its target. `privileged_state`
    `(12,)`: the cube relative to the gripper, its position and orientation, and the touch sensors
    of the fingertips. Action `(4,)`: velocity of the gripper along x, y and z, and its opening; the
    hand points down. An episode terminates when the cube is out of reach.

    Reward, in the stages that robosuite gives its task Lift (Zhu et al. 2020, "robosuite: A modular
    simulation framework and benchmark for robot learning"): being near the cube, having it between
    the fingertips, its height, and holding it at `target_height`.
    """

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "unroll_length": 25,
            "minibatches": 8,
            "discount": 0.97,
            "actor_obs": ("state", "privileged_state"),
            "critic_obs": ("state", "privileged_state"),
            "initial_log_std": -0.5,
        },
        "train": {"steps": 500_000},
    }

    control_timestep: float = 0.04
    """Seconds between two actions."""
    episode_length: Number = 100
    """Control steps after which an episode is truncated; 0 for no limit."""
    speed: float = 0.4
    """Velocity of the gripper along each axis for an action of 1, m/s."""
    lead: float = 0.04
    """How far the gripper's target may be ahead of it, m."""
    spread: tuple[float, float] = (0.1, 0.15)
    """Largest distance of the cube from (0.5, 0) at a start, along x and y, m."""
    success_height: float = 0.1
    """Height above the table from which the metric `success` is true, m."""
    target_height: float = 0.15
    """Where to hold the cube, m above the table."""
    reach_reward: float = 0.5
    """Reward for fingertips at the cube."""
    grasp_reward: float = 0.5
    """Reward for a cube that both fingertips touch."""
    lift_reward: float = 2.0
    """Reward for a grasped cube at `target_height`; below it the reward is proportional to the
    height."""
    hold_reward: float = 2.0
    """Reward for a cube within about `hold_width` of `target_height`."""
    hold_width: float = 0.03
    """Error of the height at which `exp(-1)` of its reward is left, m."""
    effort_cost: float = 0.01
    """Cost of the squared action."""

    # Where the joints, the gripper and the cube are, and what the fingertips feel.
    fields = ("xanchor", "xaxis", "site_xpos", "site_xmat", "xmat", "sensordata")
    # All of the arm, from the side; what the model's cameras see may stand beside it.
    camera = {"lookat": (0.3, 0.0, 0.3), "distance": 1.6, "azimuth": 120.0, "elevation": -20.0}

    def mjcf(self) -> str:
        """The text above."""
        return MJCF

    def start(self, key: Key) -> Start:
        """The arm about its home, the gripper open, the cube somewhere before it."""
        joints_key, fingers_key, place_key, yaw_key = jax.random.split(key, 4)
        joints = jnp.array(HOME) + 0.02 * jax.random.normal(joints_key, (7,))
        fingers = jax.random.uniform(fingers_key, (1,), minval=0.5 * OPEN, maxval=OPEN)
        reach = jnp.array(self.spread)
        place = jax.random.uniform(place_key, (2,), minval=-reach, maxval=reach)
        yaw = jax.random.uniform(yaw_key, (1,), minval=-jnp.pi / 4, maxval=jnp.pi / 4)
        turn = [jnp.cos(yaw / 2), jnp.zeros(2), jnp.sin(yaw / 2)]
        cube = [jnp.array(_MIDDLE) + place, jnp.full(1, HALF), *turn]
        return Start(
            qpos=jnp.concatenate([joints, fingers, fingers, *cube]),
            qvel=jnp.zeros(15),
            memory=Memory(target=jnp.array([*_MIDDLE, 0.2])),
        )

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """From -1 to 1 for each."""
        return -np.ones(4, np.float32), np.ones(4, np.float32)

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where the servos are to be: towards the gripper's target, and the fingers."""
        step = self._way(self._next_target(action, physics, memory), physics)
        ctrl = jnp.concatenate([physics.qpos[:7] + step, 0.5 * OPEN * (1 + action[3:])])
        low, high = self.model.ctrlrange.T
        return jnp.clip(ctrl, low, high)

    def gripper(self, physics: PhysicsState) -> Array:
        """The point between the fingertips, `(3,)`, m."""
        return physics.fields["site_xpos"][self.model.id("site", "grip")]

    def touches(self, physics: PhysicsState) -> Array:
        """The force on each fingertip, `(2,)`, N."""
        return physics.fields["sensordata"]

    def height(self, physics: PhysicsState) -> Array:
        """Of the cube above its place on the table, `()`, m."""
        return physics.qpos[11] - HALF

    def observe(self, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """What the arm feels of itself; and the cube."""
        gripper, cube = self.gripper(physics), physics.qpos[9:12]
        axes = physics.fields["xmat"][self.model.id("body", "cube")].reshape(3, 3)
        return {
            "state": jnp.concatenate(
                [
                    physics.qpos[:7] - jnp.array(HOME),
                    0.2 * physics.qvel[:7],
                    20 * physics.qpos[7:9],
                    5 * (gripper - jnp.array([*_MIDDLE, 0.1])),
                    20 * (memory.target - gripper),
                ]
            ),
            "privileged_state": jnp.concatenate(
                [
                    10 * (cube - gripper),
                    5 * (cube - jnp.array([*_MIDDLE, 0.1])),
                    axes[0, :2],
                    axes[2, :2],
                    0.1 * jnp.minimum(self.touches(physics), 30.0),
                ]
            ),
        }

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        joints = tuple(f"joint{number}" for number in range(1, 8))
        middle = (*_MIDDLE, 0.1)
        return {
            "state": (
                Part("joint_position", 7, "joint_position", joints, HOME, unit="rad"),
                Part("joint_velocity", 7, "joint_velocity", joints, scale=0.2, unit="rad/s"),
                Part(
                    "finger_position",
                    2,
                    "joint_position",
                    ("left finger", "right finger"),
                    scale=20.0,
                    unit="m",
                ),
                Part(
                    "gripper_position",
                    3,
                    "site_position",
                    ("grip",),
                    middle,
                    5.0,
                    unit="m",
                    frame="world",
                ),
                Part("gripper_to_target", 3, "task", (), 0.0, 20.0, unit="m", frame="world"),
            ),
            "privileged_state": (
                Part("gripper_to_cube", 3, "task", (), 0.0, 10.0, unit="m", frame="world"),
                Part("cube_position", 3, "task", (), middle, 5.0, unit="m", frame="world"),
                Part("cube_axes", 4, "task", frame="world"),
                Part("fingertip_force", 2, "task", scale=0.1, unit="N"),
            ),
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`: inverse kinematics make the joints' targets of them."""
        return (
            ActionPart("gripper_velocity", 3, scale=self.speed, unit="m/s"),
            ActionPart("finger_opening", 1, offset=0.5 * OPEN, scale=0.5 * OPEN, unit="m"),
        )

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """Near, grasped, lifted, held: each a stage that the next one needs."""
        height = self.height(after)
        distance = jnp.linalg.norm(after.qpos[9:12] - self.gripper(after))
        grasped = (self.touches(after) > 0.5).all().astype(jnp.float32)
        error = jnp.abs(height - self.target_height)
        reward = (
            self.reach_reward * (1 - jnp.tanh(10 * distance))
            + self.grasp_reward * grasped
            + self.lift_reward * grasped * jnp.clip(height / self.target_height, 0, 1)
            + self.hold_reward * grasped * jnp.exp(-((error / self.hold_width) ** 2))
            - self.effort_cost * jnp.sum(action[:3] ** 2)
        )
        away = jnp.abs(after.qpos[9:11] - jnp.array(_MIDDLE))
        return Outcome(
            reward=reward,
            terminated=(away > jnp.array([0.25, 0.35])).any() | (height < -HALF),
            memory=Memory(target=self._next_target(action, before, memory)),
            metrics={
                "success": height > self.success_height,
                "grasped": grasped,
                "distance": distance,
                "height": height,
            },
        )

    def _next_target(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where the gripper is told to be after an action: within reach, and not far ahead."""
        gripper = self.gripper(physics)
        moved = memory.target + self.control_timestep * self.speed * action[:3]
        near = gripper + jnp.clip(moved - gripper, -self.lead, self.lead)
        return jnp.clip(near, *WORKSPACE)

    def _way(self, target: Array, physics: PhysicsState) -> Array:
        """How far the joints turn to bring the gripper to a target, pointing down, `(7,)`, rad.

        Damped least squares (Wampler 1986, "Manipulator inverse kinematic solutions based on vector
        formulations and damped least-squares methods"), near a step that would bring the joints
        home: of the ways to hold the gripper, the arm drifts to the one that is nearest home.
        """
        gripper = self.gripper(physics)
        axes = physics.fields["site_xmat"][self.model.id("site", "grip")].reshape(3, 3)
        # Half the sine of each axis's angle from where it should be.
        turn = 0.5 * jnp.cross(axes.T, jnp.array(_DOWN)).sum(axis=0)
        xaxis, xanchor = physics.fields["xaxis"][:7], physics.fields["xanchor"][:7]
        jacobian = jnp.concatenate([jnp.cross(xaxis, gripper - xanchor), xaxis], axis=1).T
        homewards = 0.1 * (jnp.array(HOME) - physics.qpos[:7])
        lacking = jnp.concatenate([target - gripper, turn]) - jacobian @ homewards
        damped = jacobian @ jacobian.T + _DAMPING**2 * jnp.eye(6)
        return homewards + jacobian.T @ jnp.linalg.solve(damped, lacking)

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """The usual ones, `cube` and `look`, and `pick`, which is both."""
        cube, look = cube_domain(), look_domain()
        return {**presets(self.model), "cube": cube, "look": look, "pick": Domain(cube, look)}


def cube_domain() -> Domain:
    """Cubes of other sizes, weights and surfaces, at every episode another."""
    return Domain(
        scale(geom("cube").size, Uniform(0.75, 1.0), name="cube_size"),
        scale((body("cube").mass, body("cube").inertia), LogUniform(0.5, 2.0), name="cube_mass"),
        scale(geom("cube").friction, LogUniform(0.6, 1.5), name="cube_friction"),
    )


def look_domain() -> Domain:
    """Other light, colours and places of the front camera, at every episode another."""
    return Domain(
        add(light("sun").dir, Uniform([-0.4, -0.4, 0.0], [0.4, 0.4, 0.0]), name="sun_direction"),
        scale(light("sun").diffuse, Uniform(0.5, 1.5), name="sun_strength"),
        set_(
            geom("cube").rgba,
            Uniform([0.6, 0.0, 0.0, 1.0], [1.0, 0.35, 0.35, 1.0]),
            name="cube_colour",
        ),
        set_(
            geom("table").rgba,
            Uniform([0.2, 0.3, 0.3, 1.0], [0.7, 0.9, 0.9, 1.0]),
            name="table_colour",
        ),
        add(camera("front").pos, Uniform(-0.03, 0.03), name="camera_place"),
        scale(camera("front").fovy, Uniform(0.95, 1.05), name="camera_angle"),
    )
