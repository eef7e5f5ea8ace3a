"""playground/aloha-single-peg-insertion: two arms put a peg into a socket."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Number, Positive
from worldline.tasks.playground import arm_parts
from worldline.tasks.playground.aloha import ARMS, AlohaTask
from worldline.tasks.playground.manipulation import distance, total
from worldline.tasks.rewards import tolerance
from worldline.types import Array, Key


class Memory(eqx.Module):
    """What the task carries from step to step."""

    targets: Array
    """Of the servos, `(14,)`: 6 joints, rad, and fingers, m, of each arm."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AlohaPegInsertion(AlohaTask):
    """Lift a socket with the left arm of ALOHA and a peg with the right one, and insert the peg.

    Observation `(82,)`: `qpos` and `qvel` of arms, fingers, socket and peg; the positions of the
    left gripper, the socket, the right gripper, the peg, the socket's entrance and the peg's end;
    the vertical as seen by socket and peg. Action `(14,)`: changes of the servos' targets. The
    reward is the sum of the terms divided by the sum of their weights. An episode terminates when
    the socket or the peg is far away.

    The task `AlohaSinglePegInsertion` of MuJoCo Playground 0.2.0, which repeats each action for two
    control steps in training: `action_repeat=2`.
    """

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    control_timestep: Positive = 0.0025
    """Seconds between two actions; a multiple of `physics_timestep`."""
    physics_timestep: Positive = 0.0025
    """The model's time step, s."""
    action_scale: Positive = 0.005
    """How far an action of 1 moves the targets of the servos, rad; of the fingers, m."""
    thing_range: NotNegative = 0.1
    """Largest distance of socket and peg from their positions in the model at a start, along x and
    y, m."""
    socket_goal: tuple[float, float, float] = (-0.05, 0.0, 0.15)
    """The position to which the socket should be lifted, m."""
    peg_goal: tuple[float, float, float] = (0.05, 0.0, 0.15)
    """The position to which the peg should be lifted, m."""
    aligned_distance: Positive = 0.005
    """Distance from the peg's end to the axis of the socket below which insertion is rewarded, m.
    """
    grip_margin: Positive = 0.3
    """Distance of a gripper from its object at which a tenth of its reward is left, m."""
    lift_margin: Positive = 0.15
    """Distance of an object from its goal at which a tenth of its reward is left, m."""
    insertion_margin: Positive = 0.1
    """Distance of the peg's end from the end of the socket at which a tenth of the reward is left,
    m."""
    pose_margin: Positive = 2.0
    """Distance of an arm from its start at which a tenth of its reward is left, rad."""
    largest_coordinate: Positive = 1.0
    """Coordinate of socket or peg beyond which an episode terminates, m."""
    left_reward_weight: Finite = 1.0
    """Weight of the reward for the left gripper at the socket."""
    right_reward_weight: Finite = 1.0
    """Weight of the reward for the right gripper at the peg."""
    left_target_qpos_weight: Finite = 0.3
    """Weight of the reward for a left arm near its start, with both grippers at their things."""
    right_target_qpos_weight: Finite = 0.3
    """Weight of the same reward for the right arm."""
    no_table_collision_weight: Finite = 0.3
    """Weight of the reward for fingers that do not touch the table."""
    socket_z_up_weight: Finite = 0.5
    """Weight of the reward for a socket that is upright where it should be."""
    peg_z_up_weight: Finite = 0.5
    """Weight of the reward for a peg that is upright where it should be."""
    socket_entrance_reward_weight: Finite = 4.0
    """Weight of the reward for the socket where it should be."""
    peg_end2_reward_weight: Finite = 4.0
    """Weight of the reward for the peg where it should be."""
    peg_insertion_reward_weight: Finite = 8.0
    """Weight of the reward for a peg on the socket's axis, near the end of the socket."""

    file = "aloha/xmls/mjx_single_peg_insertion.xml"
    fields = ("site_xpos", "xpos", "xmat", "sensordata")

    def start(self, key: Key) -> Start:
        """The arms at home, socket and peg on the table."""
        qpos, reach = jnp.asarray(self.home), self.thing_range
        for thing, thing_key in zip(("peg", "socket"), jax.random.split(key), strict=True):
            first = self.coordinates(thing)
            aside = jax.random.uniform(thing_key, (2,), jnp.float32, -reach, reach)
            qpos = qpos.at[first : first + 2].add(aside)
        targets = jnp.asarray(self.home_targets)
        qvel = jnp.zeros(self.model.nv, jnp.float32)
        return Start(qpos=qpos, qvel=qvel, memory=Memory(targets), inputs={"ctrl": targets})

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where the servos are to be."""
        return self.moved(memory.targets, action)

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """Where everything is."""
        return jnp.concatenate(
            [
                physics.qpos,
                physics.qvel,
                self.gripper(physics, "left"),
                self.body(physics, "socket"),
                self.gripper(physics, "right"),
                self.body(physics, "peg"),
                self.site(physics, "socket_entrance"),
                self.site(physics, "peg_end2"),
                self.body_axes(physics, "socket")[2],
                self.body_axes(physics, "peg")[2],
            ]
        )

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        return {
            "state": (
                *arm_parts.positions(self.model),
                *arm_parts.velocities(self.model),
                arm_parts.site("left_gripper_position", "left/gripper"),
                arm_parts.point("socket_origin"),
                arm_parts.site("right_gripper_position", "right/gripper"),
                arm_parts.point("peg_origin"),
                arm_parts.site("socket_entrance_position", "socket_entrance"),
                arm_parts.site("peg_end_position", "peg_end2"),
                arm_parts.axes("socket_axis", 3),
                arm_parts.axes("peg_axis", 3),
            )
        }

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """Both lifted, the peg on the axis of the socket, then in it."""
        rear, end = (self.site(after, name) for name in ("socket_rear", "peg_end2"))
        axis = self.site(after, "socket_entrance") - rear
        share = jnp.dot(end - rear, axis) / (jnp.dot(axis, axis) + 1e-6)
        off_axis = distance(end, rear + share * axis)
        inserted = tolerance(distance(end, rear), (0, 0.001), self.insertion_margin, "linear")
        terms = self._terms(after)
        terms["peg_insertion_reward"] = jnp.where(off_axis < self.aligned_distance, inserted, 0.0)
        weighted = self.weighted(terms)
        things = jnp.stack([self.body(after, thing) for thing in ("socket", "peg")])
        gone = (jnp.abs(things) > self.largest_coordinate).any()
        return Outcome(
            reward=total(weighted) / self.total_weight(terms),
            terminated=gone,
            memory=Memory(self.moved(memory.targets, action)),
            metrics={
                **weighted,
                "peg_end2_dist_to_line": off_axis,
                "out_of_bounds": gone.astype(jnp.float32),
            },
        )

    def _terms(self, physics: PhysicsState) -> dict[str, Array]:
        """The terms of the reward other than insertion, without their weights."""
        terms: dict[str, Array] = {"no_table_collision": self.off_table(physics)}
        things = {"left": "socket", "right": "peg"}
        for arm, thing in things.items():
            gap = distance(self.body(physics, thing), self.gripper(physics, arm))
            terms[f"{arm}_reward"] = tolerance(gap, (0, 0.001), self.grip_margin, "linear")
        both = terms["left_reward"] * terms["right_reward"]
        for arm, joints in zip(things, ARMS, strict=True):
            off = distance(physics.qpos[joints], self.home[joints])
            terms[f"{arm}_target_qpos"] = tolerance(off, (0, 0.01), self.pose_margin) * both
        for thing, goal, name in (
            ("socket", self.socket_goal, "socket_entrance_reward"),
            ("peg", self.peg_goal, "peg_end2_reward"),
        ):
            gap = distance(np.array(goal, np.float32), self.body(physics, thing))
            terms[name] = tolerance(gap, (0, 0.01), self.lift_margin, "linear")
            upright = self.body_axes(physics, thing)[2, 2]
            terms[f"{thing}_z_up"] = terms[name] * tolerance(upright, (0.99, 1.0), 0.03, "linear")
        return terms
