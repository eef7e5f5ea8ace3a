"""suite/manipulator: bring a ball or a peg to a place, or insert it, with an arm in a plane."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Start
from worldline.physics.base import PhysicsState
from worldline.tasks.rewards import tolerance
from worldline.tasks.suite.base import (
    XML,
    SuiteTask,
    first_accepted,
    joint_places,
    remove,
    touch_signal,
    variant,
)
from worldline.tasks.suite.contacts import kinematics, matrix
from worldline.types import Array, Key

_ARM = (
    "arm_root",
    "arm_shoulder",
    "arm_elbow",
    "arm_wrist",
    "finger",
    "fingertip",
    "thumb",
    "thumbtip",
)
_TOUCH = ("palm_touch", "finger_touch", "thumb_touch", "fingertip_touch", "thumbtip_touch")
_PROPS = ("ball", "target_ball", "cup", "peg", "target_peg", "slot")
_IN_HAND, _IN_TARGET = 0.1, 0.1
#: Distances that float32 cannot tell from none, m.
_ROUNDING = 1e-6
_XZ, _WY = np.array([0, 2]), np.array([0, 2])


class _Scene(NamedTuple):
    """A start that may be rejected."""

    qpos: Array
    """`(nq,)`"""
    poses: dict[str, Array]
    """`body_pos` `(nbody, 3)` and `body_quat` `(nbody, 4)` with the target in its place."""
    thrown: Array
    """Whether the object has a velocity, `()` bool."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Manipulator(SuiteTask):
    """Bring an object to a target with a hand on an arm.

    Observation `(44,)` with a ball or a peg: sines and cosines of the arm's angles, its velocities,
    touch; poses of hand, object and target, the object's velocity. Action `(5,)`: torques of four
    joints, grasp. Reward: how near the object is to the target; with a peg, also a third for a good
    grip.
    """

    file = "manipulator.xml"
    control_timestep: float = 0.01
    peg: bool
    """The object is a peg, not a ball."""
    insert: bool
    """The target is in a slot or a cup."""
    fully_observable: bool = True
    """Observe where hand, object and target are, not the arm's own sensors alone."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Poses of bodies and sites; touch."""
        seen = ("xpos", "xquat") if self.fully_observable else ()
        return ("site_xpos", "sensordata", *seen)

    @property
    def thing(self) -> str:
        """The name of the object."""
        return "peg" if self.peg else "ball"

    @property
    def target(self) -> str:
        """The name of the target."""
        return f"target_{self.thing}"

    @property
    def receptacle(self) -> str | None:
        """The name of what the object is to be inserted in."""
        return ("slot" if self.peg else "cup") if self.insert else None

    def edit(self, root: XML) -> None:
        """Takes away what plays no part."""
        for prop in _PROPS:
            if prop not in (self.thing, self.target, self.receptacle):
                remove(root, "body", prop)

    def start(self, key: Key) -> Start:
        """Any pose in which nothing touches; the object in the hand, in the target or thrown."""
        scene_key, push_key = jax.random.split(key)

        def free(scene: _Scene) -> Array:
            # A ball that is in its cup touches it just so, and a peg its slot.
            return self._contacts.gap(scene.qpos, scene.poses) > -_ROUNDING

        def inherit(scene: _Scene, rejected: _Scene) -> _Scene:
            # dm_control does not stop an object that a rejected scene has thrown.
            return scene._replace(thrown=scene.thrown | rejected.thrown)

        scene = first_accepted(scene_key, self._scene, free, inherit)
        speed = jax.random.uniform(push_key, minval=-5.0, maxval=5.0)
        along = int(self.model.mj.jnt_dofadr[self.model.id("joint", f"{self.thing}_x")])
        return Start(
            qpos=scene.qpos,
            qvel=jnp.zeros(self.model.nv).at[along].set(jnp.where(scene.thrown, speed, 0.0)),
            variation=scene.poses,
        )

    def _scene(self, key: Key) -> _Scene:
        """Arm, target and object anywhere."""
        arm_key, target_key, kind_key, object_key = jax.random.split(key, 4)
        qpos = self._arm(arm_key)
        steepest = np.pi / 3 if self.insert else np.pi

        def within(key: Key, low: list[float], high: list[float]) -> Array:
            return jax.random.uniform(key, (3,), minval=jnp.array(low), maxval=jnp.array(high))

        target = within(target_key, [-0.4, 0.1, -steepest], [0.4, 0.4, steepest])
        anywhere = within(object_key, [-0.5, 0.0, 0.0], [0.5, 0.7, 2 * np.pi])
        kind = jax.random.uniform(kind_key)
        in_hand, in_target = kind < _IN_HAND, kind >= 1 - _IN_TARGET
        place = jnp.where(in_hand, self._grasp(qpos), jnp.where(in_target, target, anywhere))
        return _Scene(
            qpos=qpos.at[joint_places(self.model, *self._thing_joints)].set(place),
            poses=self._placed(target),
            thrown=~(in_hand | in_target),
        )

    def _arm(self, key: Key) -> Array:
        """`qpos` with the arm anywhere, and a hand whose two sides are alike."""
        joints = [self.model.id("joint", name) for name in _ARM]
        limited = self.model.mj.jnt_limited[joints].astype(bool)[:, None]
        low, high = np.where(limited, self.model.mj.jnt_range[joints], [-np.pi, np.pi]).T
        angles = jax.random.uniform(
            key, (len(_ARM),), minval=jnp.asarray(low), maxval=jnp.asarray(high)
        )
        qpos = jnp.asarray(self.model.qpos0, float).at[joint_places(self.model, *_ARM)].set(angles)
        finger, thumb = joint_places(self.model, "finger", "thumb")
        return qpos.at[finger].set(qpos[thumb])

    def _grasp(self, qpos: Array) -> Array:
        """Place (x, z; m) and angle (rad) of an object in the hand, `(3,)`."""
        site = self.model.id("site", "grasp")
        hand = int(self.model.mj.site_bodyid[site])
        xpos, xmat = (field[hand] for field in kinematics(self.model, qpos))
        place = xpos + xmat @ jnp.asarray(self.model.mj.site_pos[site], jnp.float32)
        turn = xmat @ matrix(jnp.asarray(self.model.mj.site_quat[site], jnp.float32))
        angle = jnp.pi - jnp.arctan2(turn[2, 0], turn[0, 0])
        return jnp.stack([place[0], place[2], angle])

    def _placed(self, target: Array) -> dict[str, Array]:
        """The poses of all bodies with the target, and what it is in, at x, z and an angle."""
        pos, quat = (jnp.asarray(self.model.constant(f), float) for f in ("body_pos", "body_quat"))
        turn = jnp.stack([jnp.cos(target[2] / 2), jnp.sin(target[2] / 2)])
        for name in filter(None, (self.target, self.receptacle)):
            body = self.model.id("body", name)
            pos = pos.at[body, _XZ].set(target[:2])
            quat = quat.at[body, _WY].set(turn)
        return {"body_pos": pos, "body_quat": quat}

    @property
    def _thing_joints(self) -> tuple[str, ...]:
        return tuple(f"{self.thing}_{way}" for way in "xzy")

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """The arm and its touch; the hand, the object and the target."""
        angles = physics.qpos[joint_places(self.model, *_ARM)]
        own = {
            "arm_pos": jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=1),
            "arm_vel": self._velocities(physics, *_ARM),
            "touch": touch_signal(self.sensors(physics, *_TOUCH)),
        }
        if not self.fully_observable:
            return own
        return own | {
            "hand_pos": self._pose(physics, "hand"),
            "object_pos": self._pose(physics, self.thing),
            "object_vel": self._velocities(physics, *self._thing_joints),
            "target_pos": self._pose(physics, self.target),
        }

    def _velocities(self, physics: PhysicsState, *joints: str) -> Array:
        mj = self.model.mj
        dofs = np.array([mj.jnt_dofadr[self.model.id("joint", name)] for name in joints])
        return physics.qvel[dofs]

    def _pose(self, physics: PhysicsState, body: str) -> Array:
        """Place (x, z) and orientation (w and y of the quaternion) of a body, `(4,)`."""
        position, quaternion = (self.row(physics, field, body) for field in ("xpos", "xquat"))
        return jnp.concatenate([position[_XZ], quaternion[_WY]])

    def _close(self, physics: PhysicsState, one: str, other: str) -> Array:
        """1 where two sites are within 1 cm, less with the distance."""
        distance = jnp.linalg.norm(self.offset(physics, "site_xpos", other, one))
        return tolerance(distance, (0.0, 0.01), margin=0.02)

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Nearness to the target; with a peg, of both its ends, or of the hand to it."""
        if not self.peg:
            return self._close(physics, "ball", "target_ball")
        grasp = self._close(physics, "peg_grasp", "grasp")
        pinch = self._close(physics, "peg_pinch", "pinch")
        middle = self._close(physics, "peg", "target_peg")
        tip = self._close(physics, "target_peg_tip", "peg_tip")
        return jnp.maximum((middle + tip) / 2, (grasp + pinch) / 6)


ManipulatorBringBall = variant(
    Manipulator, "ManipulatorBringBall", "Bring a ball to a target", peg=False, insert=False
)
ManipulatorBringPeg = variant(
    Manipulator, "ManipulatorBringPeg", "Bring a peg to a target", peg=True, insert=False
)
ManipulatorInsertBall = variant(
    Manipulator, "ManipulatorInsertBall", "Bring a ball into a cup", peg=False, insert=True
)
ManipulatorInsertPeg = variant(
    Manipulator, "ManipulatorInsertPeg", "Bring a peg into a slot", peg=True, insert=True
)
