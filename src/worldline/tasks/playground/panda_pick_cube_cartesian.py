"""playground/panda-pick-cube-cartesian: lift a cube with a gripper that moves in a plane."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.parts import ObservationPart as Part
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Number, Positive, Share
from worldline.tasks.playground.legged import draws
from worldline.tasks.playground.manipulation import NDArray, away, distance, total
from worldline.tasks.playground.panda import SCENES, UPRIGHT, PandaCubeTask
from worldline.tasks.playground.panda_kinematics import forward, joints_for
from worldline.types import Array, Key


class Memory(eqx.Module):
    """What the task carries from step to step."""

    targets: Array
    """Of the servos, `(8,)`: 7 joints, rad, and how far the fingers open, m."""
    tip: Array
    """Where the point between the fingertips is to be, `(3,)`, m."""
    place: Array
    """Where the cube is to be, `(3,)`, m."""
    action: Array
    """The last action as it was taken, `(3,)`."""
    past: Array
    """What was asked of the fingers in the control steps before, newest first, `(n - 1,)`."""
    unreachable: Array
    """Whether the last action led out of the arm's reach, `()` bool."""
    reached: Array
    """Whether the gripper has been at the cube, `()` bool."""
    best: Array
    """The largest sum of terms so far, `()`, not below 0."""
    begun: Array
    """Whether the episode has had a control step, `()` bool."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PandaPickCubeCartesian(PandaCubeTask):
    """Lift a cube with a Franka Emika Panda whose gripper points down and moves along y and z.

    Observation `(70,)`: as in `PandaPickCube`; whether the last action led out of the arm's reach,
    and that action. Action `(3,)`: changes of the gripper's position along y and z; and a number
    that closes the fingers below 0, and opens them otherwise. The reward of a control step is the
    increase of the sum of the terms over its largest value so far; the first step has none. An
    episode terminates when the cube is at its target, below the floor or far away.

    The task `PandaPickCubeCartesian` of MuJoCo Playground 0.2.0, with numbers as observation.
    """

    episode_length: Number = 200
    """Control steps after which an episode is truncated; 0 for no limit."""
    control_timestep: Positive = 0.05
    """Seconds between two actions; a multiple of `physics_timestep`."""
    action_scale: Positive = 0.005
    """How far an action of 1 moves the gripper, m."""
    finger_step: Positive = 0.02
    """How far the target of the fingers moves in a control step, m."""
    lowest_tip: tuple[float, float, float] = (0.25, -0.32, 0.02)
    """The smallest coordinates of the gripper's target, m."""
    highest_tip: tuple[float, float, float] = (0.77, 0.32, 0.5)
    """The largest coordinates of the gripper's target, m."""
    sag: Finite = 0.03
    """How much closer along x the gripper is than its target, m, because the servos yield."""
    cube_range: NotNegative = 0.05
    """Largest distance of the cube from the middle at a start, along y, m."""
    cube_height: Finite = 0.0
    """Height of the cube's centre at a start, m. Half of the cube is in the floor, which pushes it
    up."""
    target_height: Positive = 0.2
    """Height of the cube's target, m."""
    lifted_height: Positive = 0.05
    """Height of the cube's centre above which it counts as lifted, m."""
    success_distance: Positive = 0.05
    """Between the cube and its target, below which the episode ends well, m."""
    grasped_probability: Share = 0.05
    """Probability that an episode starts with the cube in the hand, which helps exploration."""
    finger_delays: Count = 1
    """The number of possible delays of the fingers' action, including 0 control steps."""
    robot_target_qpos_weight: Finite = 0.0
    """Weight of the reward for an arm near its start."""
    action_rate_weight: Finite = -0.0005
    """Weight of the change of the action."""
    no_solution_weight: Finite = -0.01
    """Weight of actions that lead out of the arm's reach."""
    lifted_weight: Finite = 0.5
    """Weight of the reward for a cube that is lifted."""
    success_weight: Finite = 2.0
    """Weight of the reward for a cube at its target."""

    file = f"{SCENES}/mjx_single_cube_camera.xml"
    keyframe = "low_home"

    def mjcf(self) -> mujoco.MjSpec:
        """The scene with white fingertips, which cameras see better."""
        spec = super().mjcf()
        for geom in spec.geoms:
            if geom.meshname == "finger_1":
                geom.material = "off_white"
        return spec

    @property
    def action_bounds(self) -> tuple[NDArray, NDArray]:
        """From -1 to 1 along y and z and for the fingers."""
        return -np.ones(3, np.float32), np.ones(3, np.float32)

    def start(self, key: Key) -> Start:
        """The gripper before the cube, seldom around it."""
        place_key, grasped_key, memory_key = jax.random.split(key, 3)
        _, tip = forward(jnp.asarray(self.home_targets[:7]))[-1]
        ahead, first = tip[0] - self.sag, self.coordinates(self.thing)
        aside = jax.random.uniform(place_key, (), jnp.float32, -self.cube_range, self.cube_range)
        height = jnp.full_like(ahead, self.cube_height)
        away_from = jnp.asarray(self.home).at[first : first + 3]
        picked = self.model.mj.key("picked")
        grasped = jax.random.bernoulli(grasped_key, self.grasped_probability)
        qpos, targets = (
            jnp.where(grasped, jnp.asarray(with_cube, jnp.float32), without)
            for with_cube, without in (
                (picked.qpos, away_from.set(jnp.stack([ahead, aside, height]))),
                (picked.ctrl, jnp.asarray(self.home_targets)),
            )
        )
        nothing, no = jnp.zeros(3, jnp.float32), jnp.asarray(False)
        memory = Memory(
            targets=targets,
            tip=tip,
            place=jnp.stack(
                [ahead, jnp.zeros_like(ahead), jnp.full_like(ahead, self.target_height)]
            ),
            action=nothing,
            past=jnp.zeros(self.finger_delays - 1, jnp.float32),
            unreachable=no,
            reached=no,
            best=jnp.float32(0.0),
            begun=no,
            words=jax.random.key_data(memory_key),
        )
        return Start(
            qpos=qpos,
            qvel=jnp.zeros(self.model.nv, jnp.float32),
            memory=memory,
            inputs={"ctrl": targets, "mocap_pos": memory.place[None]},
        )

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where the servos are to be."""
        targets, _, _ = self._moved(self._taken(action, memory), memory)
        return targets

    def _taken(self, action: Array, memory: Memory) -> Array:
        """The action, `(3,)`, with what was asked of the fingers a random time ago."""
        asked = jnp.concatenate([action[2:], memory.past])
        delay = jax.random.randint(draws(memory.words).command, (), 0, self.finger_delays)
        return jnp.concatenate([action[:2], asked[delay][None]])

    def _moved(self, action: Array, memory: Memory) -> tuple[Array, Array, Array]:
        """After an action the targets of servos and gripper, and whether that is out of reach."""
        step = jnp.concatenate([jnp.zeros(1), self.action_scale * action[:2]])
        low, high = np.array([self.lowest_tip, self.highest_tip], np.float32)
        tip = jnp.clip(memory.tip + step, low, high)
        axes, _ = forward(jnp.asarray(self.home_targets[:7]))[-1]
        joints, reachable = joints_for(tip, axes, memory.targets[:7])
        joints = jnp.where(reachable, joints, memory.targets[:7])
        fingers = memory.targets[7:] + jnp.where(action[2:] < 0, -1.0, 1.0) * self.finger_step
        return self.within_range(jnp.concatenate([joints, fingers])), tip, ~reachable

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """Where everything is, and where it is to be."""
        seen = self.seen(physics, memory.targets, memory.place, UPRIGHT)
        return jnp.concatenate([seen, memory.unreachable.astype(jnp.float32)[None], memory.action])

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        return {
            "state": (
                *self.seen_parts,
                Part("target_out_of_reach", 1),
                Part("last_action", 3, "action"),
            )
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return (
            ActionPart("gripper_target_change", 2, scale=self.action_scale, unit="m"),
            ActionPart("finger_direction", 1),
        )

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """What the cube has gained on its way to the target."""
        taken = self._taken(action, memory)
        targets, tip, unreachable = self._moved(taken, memory)
        cube, reached = self.body(after, self.thing), self.grasped(after, memory.reached)
        success = distance(memory.place, cube) < self.success_distance
        terms = self.weighted(
            {
                **self.terms(after, memory.place, UPRIGHT, reached),
                "action_rate": distance(taken, memory.action),
                "no_solution": unreachable,
                "lifted": cube[2] > self.lifted_height,
                "success": success,
            }
        )
        worth, gone = total(terms), away(cube, self.largest_coordinate)
        gained = jnp.maximum(worth - memory.best, 0.0)
        following = Memory(
            targets=targets,
            tip=tip,
            place=memory.place,
            action=taken,
            past=jnp.concatenate([action[2:], memory.past])[: self.finger_delays - 1],
            unreachable=unreachable,
            reached=reached,
            best=jnp.maximum(worth, memory.best),
            begun=jnp.asarray(True),
            words=draws(memory.words).words,
        )
        metrics = {**terms, "out_of_bounds": gone.astype(jnp.float32)}
        return Outcome(jnp.where(memory.begun, gained, 0.0), gone | success, following, metrics)
