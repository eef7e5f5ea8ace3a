"""playground/aloha-hand-over: one arm gives a box to the other, which brings it to a target."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ObservationPart as Part
from worldline.env.parts import ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Number, Positive
from worldline.tasks.playground import arm_parts
from worldline.tasks.playground.aloha import FINGERS, AlohaTask
from worldline.tasks.playground.manipulation import away, distance, total
from worldline.types import Array, ArrayLike, Key


class Memory(eqx.Module):
    """What the task carries from step to step."""

    targets: Array
    """Of the servos, `(14,)`: 6 joints, rad, and fingers, m, of each arm."""
    place: Array
    """Where the box is to be, `(3,)`, m."""
    best: Array
    """The largest sum of terms so far, over that of their weights, `()`, not below 0."""
    picked: Array
    """Whether the box has been up, `()` bool."""
    steps: Array
    """Control steps of the episode, `()` int32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AlohaHandOver(AlohaTask):
    """Pick a box up with the left arm of ALOHA, hand it over, and bring it to a target.

    Observation `(83,)`: `qpos` and `qvel` of arms, fingers and box; how much wider the opening of
    the fingers is than the box; top and bottom of the box; position and axes of each gripper; axes
    of the box; the vector from its target to it; the elapsed share of the episode. Action `(14,)`:
    changes of the servos' targets. The reward of a control step is the increase of the sum of the
    terms over its largest value so far, and a little for holding the box where it should be; the
    first step has none. An episode terminates when the box is dropped, below the table or far away.

    The task `AlohaHandOver` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 250
    """Control steps after which an episode is truncated; 0 for no limit."""
    control_timestep: Positive = 0.02
    """Seconds between two actions; a multiple of `physics_timestep`."""
    physics_timestep: Positive = 0.005
    """The model's time step, s."""
    action_scale: Positive = 0.015
    """How far an action of 1 moves the targets of the servos, rad; of the fingers, m."""
    least_opening: NotNegative = 0.01
    """Smallest opening of the left fingers, m. It helps them to find the box."""
    box_range: tuple[float, float] = (0.05, 0.1)
    """Largest distance of the box from its position in the model at a start, along x and y, m."""
    target: tuple[float, float, float] = (0.2, 0.0, 0.25)
    """The mean position of the box's target, m."""
    target_range: NotNegative = 0.15
    """Largest distance of the box's target from `target` along each axis, m."""
    least_target: Finite = 0.15
    """Smallest x of the target, m, which is on the right."""
    exchange: tuple[float, float, float] = (0.0, 0.0, 0.24)
    """The position where the box is handed over, m."""
    left_end: Finite = -0.1
    """The x up to which only the left arm is rewarded for the box, m."""
    right_begin: Finite = 0.0
    """The x from which only the right arm is rewarded for the box, m."""
    sharpness: Positive = 10.0
    """Rate at which the rewards for nearness fall with the distance, 1/m."""
    barrier_sharpness: Positive = 100.0
    """Rate at which rewards for one side of the table fall at its border, 1/m."""
    kept_place: Finite = 0.1
    """The x from which the box brings the reward for holding it, m."""
    kept_reward: Finite = 0.02
    """The share of the sum of terms that each control step with the box there adds."""
    picked_height: Positive = 0.15
    """Height from which the box counts as picked up, m."""
    dropped_height: NotNegative = 0.05
    """Height below which a box that was picked up counts as dropped, m."""
    dropped_reward: Finite = -0.1
    """Reward for a box that is dropped."""
    largest_coordinate: Positive = 1.0
    """Coordinate of the box beyond which an episode terminates, m."""
    gripper_box_weight: Finite = 1.0
    """Weight of the reward for grippers near the box."""
    box_handover_weight: Finite = 4.0
    """Weight of the reward for the box near the place of exchange."""
    handover_target_weight: Finite = 8.0
    """Weight of the reward for the box near its target, in the right gripper."""
    no_table_collision_weight: Finite = 0.3
    """Weight of the reward for fingers that do not touch the table."""

    file = "aloha/xmls/mjx_hand_over.xml"
    fields = ("site_xpos", "site_xmat", "xpos", "xmat", "sensordata")

    def start(self, key: Key) -> Start:
        """The arms at home, the box on the left of the table, its target on the right."""
        box_key, target_key = jax.random.split(key)
        first, reach = self.coordinates("box"), np.array(self.box_range, np.float32)
        aside = jax.random.uniform(box_key, (2,), jnp.float32, -reach, reach)
        far = self.target_range
        place = jnp.array(self.target, jnp.float32) + jax.random.uniform(
            target_key, (3,), jnp.float32, -far, far
        )
        memory = Memory(
            targets=jnp.asarray(self.home_targets),
            place=place.at[0].max(self.least_target),
            best=jnp.float32(0.0),
            picked=jnp.asarray(False),
            steps=jnp.int32(0),
        )
        return Start(
            qpos=jnp.asarray(self.home).at[first : first + 2].add(aside),
            qvel=jnp.zeros(self.model.nv, jnp.float32),
            memory=memory,
            inputs={"ctrl": memory.targets, "mocap_pos": memory.place[None]},
        )

    def within_range(self, controls: ArrayLike) -> Array:
        """The nearest controls that the motors can be given, `(14,)`."""
        low, high = self.model.ctrlrange.T.copy()
        low[6] = self.least_opening
        return jnp.clip(controls, low, high)

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where the servos are to be."""
        return self.moved(memory.targets, action)

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """Where everything is, and where the box is to be."""
        width = float(self.model.mj.geom("box").size[1])
        parts = [physics.qpos, physics.qvel, physics.qpos[FINGERS] - width]
        parts += [self.site(physics, "box_top"), self.site(physics, "box_bottom")]
        for arm in ("left", "right"):
            axes = self.site_axes(physics, f"{arm}/gripper")
            parts += [self.gripper(physics, arm), axes[1:].ravel()]
        parts += [self.body_axes(physics, "box")[1:].ravel()]
        parts += [self.body(physics, "box") - memory.place]
        share = memory.steps.astype(jnp.float32) / max(self.episode_length, 1)
        return jnp.concatenate([*parts, share[None]])

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        grippers = [
            part
            for arm in ("left", "right")
            for part in (
                arm_parts.site(f"{arm}_gripper_position", f"{arm}/gripper"),
                arm_parts.axes(f"{arm}_gripper_axes"),
            )
        ]
        return {
            "state": (
                *arm_parts.positions(self.model),
                *arm_parts.velocities(self.model),
                Part("finger_position_beyond_box", len(FINGERS), unit="m"),
                arm_parts.site("box_top", "box_top"),
                arm_parts.site("box_bottom", "box_bottom"),
                *grippers,
                arm_parts.axes("box_axes"),
                arm_parts.point("target_to_box"),
                Part("episode_share", 1),
            )
        }

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """What the box has gained on its way from the left to the right."""
        box, terms = self.body(after, "box"), self._terms(after, memory)
        weighted = self.weighted(terms)
        worth = total(weighted) / self.total_weight(terms)
        there = self._left_of_middle(after) * self._barrier(box[0] - self.kept_place)
        reward = jnp.maximum(worth - memory.best, 0.0) + self.kept_reward * worth * there
        picked = memory.picked | (box[2] > self.picked_height)
        dropped, gone = picked & (box[2] < self.dropped_height), away(box, self.largest_coordinate)
        reward = jnp.where(memory.steps > 0, reward, 0.0)
        return Outcome(
            reward=reward + jnp.where(dropped, self.dropped_reward, 0.0),
            terminated=gone | dropped,
            memory=Memory(
                targets=self.moved(memory.targets, action),
                place=memory.place,
                best=jnp.maximum(worth, memory.best),
                picked=picked,
                steps=memory.steps + 1,
            ),
            metrics={**weighted, "out_of_bounds": gone.astype(jnp.float32)},
        )

    def _barrier(self, way: Array) -> Array:
        """From 0 to 1 across a border, `()`."""
        return jax.nn.sigmoid(self.barrier_sharpness * way)

    def _left_of_middle(self, physics: PhysicsState) -> Array:
        """1 with the left gripper on its own side, less and less of it beyond, `()`."""
        return self._barrier(-self.gripper(physics, "left")[0])

    def _near(self, one: ArrayLike, other: Array) -> Array:
        """How near two points are, in (0, 1]."""
        return jnp.exp(-self.sharpness * distance(one, other))

    def _terms(self, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """The terms of the reward, without their weights."""
        box, exchange = self.body(physics, "box"), np.array(self.exchange, np.float32)
        left, right = (self.gripper(physics, arm) for arm in ("left", "right"))
        pre = (box[0] < self.left_end).astype(jnp.float32)
        past = (box[0] >= self.right_begin).astype(jnp.float32)
        between = (1 - pre) * (1 - past)
        at_top = self._near(self.site(physics, "box_top"), left)
        at_bottom = self._near(self.site(physics, "box_bottom"), right)
        # The right gripper counts twice once the left one no longer does.
        held = at_bottom * (between + 2 * past)
        return {
            "gripper_box": at_top * (pre + between) + held,
            "box_handover": jnp.maximum(
                self._near(exchange, box), self._near(exchange, left) * past
            ),
            "handover_target": self._near(memory.place, box) * held * self._left_of_middle(physics),
            "no_table_collision": self.off_table(physics),
        }
