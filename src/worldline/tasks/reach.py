"""robot/reach: the file to copy for a task of your own.

A task is an MJCF model, a few numbers to choose, and four functions:

    start     where an episode begins
    control   what an action does to the actuators
    observe   what the policy sees
    outcome   what a step was worth, and whether the episode is over

They are written for one world, with `jax.numpy`; Worldline runs them in thousands at once, on any
engine. So they hold no state and call no simulator: what the simulator knows arrives as `physics`,
and what the task itself must remember from step to step, here the target, travels as `memory`.

To use yours: `worldline.register("my/task", MyTask)`, then `worldline.make("my/task")`; or without
a name, `worldline.Env(MyTask())`. `worldline.check_env` says what is wrong with it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationPart, ObservationParts
from worldline.env.task import Outcome, Start, Task
from worldline.physics.base import PhysicsState
from worldline.settings import Number
from worldline.types import Array, Key

# Two links of 0.2 m, moved by two motors in a horizontal plane. The ball that marks the target is a
# mocap body: it is seen, and stays where it is put, but touches nothing.
MJCF = """
<mujoco model="reach">
  <option timestep="0.01" integrator="implicitfast"/>
  <default>
    <geom type="capsule" size="0.02" density="1000" contype="0" conaffinity="0"/>
    <joint type="hinge" axis="0 0 1" damping="0.1" armature="0.01"/>
    <motor ctrlrange="-0.8 0.8"/>
  </default>
  <worldbody>
    <light pos="0 0 1.5"/>
    <camera name="above" pos="0 0 1.2"/>
    <geom type="plane" size="0.5 0.5 0.1" pos="0 0 -0.05" rgba="0.8 0.8 0.8 1"/>
    <body name="upper arm">
      <joint name="shoulder"/>
      <geom fromto="0 0 0 0.2 0 0" rgba="0.2 0.4 0.7 1"/>
      <body name="forearm" pos="0.2 0 0">
        <joint name="elbow" limited="true" range="-150 150"/>
        <geom fromto="0 0 0 0.2 0 0" rgba="0.3 0.6 0.9 1"/>
        <site name="tip" pos="0.2 0 0"/>
      </body>
    </body>
    <body name="target" mocap="true">
      <geom type="sphere" rgba="0.9 0.3 0.2 0.6"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="shoulder" joint="shoulder"/>
    <motor name="elbow" joint="elbow"/>
  </actuator>
</mujoco>
"""


# Every task is a frozen dataclass. Its fields are its options, in `make("robot/reach", ...)` and on
# the command line, where the line under a field is its help.
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reach(Task):
    """Bring the tip of an arm to a target, and keep it there.

    Observation `(5,)`: the elbow's angle (rad), the velocities of shoulder and elbow (rad/s), and
    the vector from tip to target, along and across the forearm (m). Action `(2,)`: the torque of
    each motor, from -1 to 1 of its range. Reward: minus the distance to the target and minus a cost
    of effort, so at most 0.
    """

    # What `worldline train` takes where the command line says nothing.
    defaults = {"ppo": {"discount": 0.95}, "train": {"steps": 250_000}}

    control_timestep: float = 0.04
    """Seconds between two actions; a multiple of the model's time step of 0.01 s."""
    episode_length: Number = 50
    """Control steps after which an episode is truncated; 0 for no limit."""
    effort_cost: float = 0.01
    """Cost of the sum of the squared actions."""
    tolerance: float = 0.02
    """Distance below which the target counts as reached, m."""

    # MuJoCo computes hundreds of quantities. The task names those that it reads, by their names in
    # MjData, and finds them in `physics.fields`; `qpos`, `qvel`, `act` and `time` are always there.
    @property
    def fields(self) -> tuple[str, ...]:
        """Position and orientation of the sites, of which the tip is one."""
        return ("site_xpos", "site_xmat")

    def mjcf(self) -> str:
        """The text above; a path to a file would do as well."""
        return MJCF

    def start(self, key: Key) -> Start:
        """Any pose, at rest; a target anywhere that the arm can reach."""
        # A key is good for one draw: split it into as many as there are draws.
        pose_key, radius_key, angle_key = jax.random.split(key, 3)
        qpos = jax.random.uniform(pose_key, (2,), minval=-2.5, maxval=2.5)
        radius = jax.random.uniform(radius_key, minval=0.15, maxval=0.38)
        angle = jax.random.uniform(angle_key, minval=-jnp.pi, maxval=jnp.pi)
        target = radius * jnp.array([jnp.cos(angle), jnp.sin(angle), 0.0])
        return Start(
            qpos=qpos,
            qvel=jnp.zeros(2),
            memory=target,
            inputs={"mocap_pos": target[None]},  # one row for each mocap body of the model
        )

    # Policies like actions between -1 and 1; motors have limits of their own. Without the next two,
    # an action would go to the actuators as it is, within their control ranges.
    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """From -1 to 1 for each motor."""
        return -np.ones(2, np.float32), np.ones(2, np.float32)

    def control(self, action: Array, physics: PhysicsState, memory: Array) -> Array:
        """Scales an action to the motors' range, N m."""
        return action * self.model.ctrlrange[:, 1]

    def to_target(self, physics: PhysicsState, target: Array) -> Array:
        """The way from tip to target as the tip sees it: along the forearm, across it, up; m."""
        # Objects are found by name, once, while the program is traced: a look-up costs nothing.
        tip = self.model.id("site", "tip")
        way = target - physics.fields["site_xpos"][tip]
        return way @ physics.fields["site_xmat"][tip].reshape(3, 3)

    def observe(self, physics: PhysicsState, memory: Array) -> Array:
        """How the arm is bent, how it moves, and where it should go."""
        # Seen from the tip the task is the same in every direction, so a policy has less to learn
        # than from angles and positions in the room; the angle of the shoulder does not matter.
        return jnp.concatenate(
            [physics.qpos[1:], physics.qvel, self.to_target(physics, memory)[:2]]
        )

    # What each number is, by name: for whoever runs the policy on a robot. A task may leave it out.
    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        joints = ("shoulder", "elbow")
        return {
            "state": (
                ObservationPart("elbow_position", 1, "joint_position", joints[1:], unit="rad"),
                ObservationPart("joint_velocity", 2, "joint_velocity", joints, unit="rad/s"),
                ObservationPart(
                    "tip_to_target", 2, "site_to_body", ("tip", "target"), unit="m", frame="tip"
                ),
            )
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        strength = tuple(self.model.ctrlrange[:, 1].tolist())
        motors = ("shoulder", "elbow")
        return (ActionPart("joint_torque", 2, "torque", motors, scale=strength, unit="N m"),)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Array
    ) -> Outcome:
        """What the step from `before` to `after` was worth."""
        distance = jnp.linalg.norm(self.to_target(after, memory))
        effort = jnp.sum(jnp.square(action))
        return Outcome(
            reward=-distance - self.effort_cost * effort,
            # True ends the episode for good, with no more return to come: a fall, a goal. To be
            # stopped by the clock is no such end; `episode_length` sees to that.
            terminated=jnp.asarray(False),
            memory=memory,  # carried on unchanged; a new target could go here
            metrics={"distance": distance, "reached": distance < self.tolerance},
        )

    @property
    def camera(self) -> dict[str, str]:
        """How videos look at the task: the camera of this name in the model."""
        return {"name": "above"}
