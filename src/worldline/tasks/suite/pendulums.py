"""suite/pendulum, suite/acrobot and suite/cartpole: swing up, and balance."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count
from worldline.tasks.rewards import tolerance
from worldline.tasks.suite.base import XML, SuiteTask, found, variant
from worldline.types import Array, Key

# Elements of a row of `xmat`: of a body's axes x and z, the world's component that is named second
# in dm_control, whose "xz" is the first row and third column.
_XZ, _ZZ = 2, 8


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PendulumSwingup(SuiteTask):
    """Swing a pole up with a motor too weak to lift it, and hold it there.

    Observation `(3,)`: height and side of the pole's end, angular velocity. Action `(1,)`: torque.
    Reward: 1 within 8 degrees of upright.
    """

    file = "pendulum.xml"
    control_timestep: float = 0.02

    fields = ("xmat",)  # the pole's orientation

    def pose(self, key: Key) -> Array:
        """Any angle, `(1,)`, rad."""
        return jax.random.uniform(key, (1,), minval=-jnp.pi, maxval=jnp.pi)

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Orientation and velocity of the pole."""
        pole = self.row(physics, "xmat", "pole")
        return {"orientation": jnp.stack([pole[_ZZ], pole[_XZ]]), "velocity": physics.qvel}

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Whether the pole is upright."""
        height = self.row(physics, "xmat", "pole")[_ZZ]
        return tolerance(height, (float(np.cos(np.deg2rad(8))), 1.0))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AcrobotSwingup(SuiteTask):
    """Swing two links up with a motor at the elbow, and bring their tip to a target above.

    Observation `(6,)`: sides, then heights, to which the two links point; their velocities. Action
    `(1,)`: torque. Reward: 1 where the tip is within the target, less with the distance.
    """

    file = "acrobot.xml"
    control_timestep: float = 0.01
    margin: float = 1.0
    """Distance from the target at which the reward has fallen to 0.1, m. 0: no reward outside."""

    fields = ("xmat", "site_xpos")  # orientations of the links, positions of tip and target

    def pose(self, key: Key) -> Array:
        """Any two angles, `(2,)`, rad."""
        return jax.random.uniform(key, (2,), minval=-jnp.pi, maxval=jnp.pi)

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Where the links point, and how fast they turn."""
        links = np.array([self.model.id("body", name) for name in ("upper_arm", "lower_arm")])
        xmat = physics.fields["xmat"][links]
        return {
            "orientations": jnp.concatenate([xmat[:, _XZ], xmat[:, _ZZ]]),
            "velocity": physics.qvel,
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """How near the tip is to the target."""
        distance = jnp.linalg.norm(self.offset(physics, "site_xpos", "tip", "target"))
        return tolerance(distance, (0.0, self.size("site_size", "target")), self.margin)


AcrobotSwingupSparse = variant(
    AcrobotSwingup, "AcrobotSwingupSparse", "Swing up; no reward outside the target", margin=0.0
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cartpole(SuiteTask):
    """Keep poles upright on a cart that a motor pushes along a rail.

    Observation `(2 + 3 poles,)`: the cart's place; height and side to which each pole points; all
    velocities. Action `(1,)`: force. Reward: the product of how upright the poles are, how near the
    cart is to the middle, how small the force is and how slow the poles turn.
    """

    file = "cartpole.xml"
    # Long segments and much noise: what a push does shows late, and only a swing finds the top.
    defaults = {
        **SuiteTask.defaults,
        "shac": {
            "num_worlds": 32,
            "unroll_length": 32,
            "critic_epochs": 16,
            "target_rate": 0.2,
            "initial_log_std": 0.0,
        },
    }
    control_timestep: float = 0.01
    poles: Count = 1
    """Poles, one on top of the other."""
    swing_up: bool
    """Begin with the first pole hanging, not nearly upright."""
    sparse: bool = False
    """Reward 1 where the cart is within 0.25 m of the middle and all poles are upright, else 0."""

    fields = ("xmat",)  # the poles' orientations

    def edit(self, root: XML) -> None:
        """Puts further poles on the first; lowers the floor and moves the cameras back."""
        if self.poles == 1:
            return
        parent = found(root, "./worldbody/body/body")
        for number in range(2, self.poles + 1):
            pole = ElementTree.SubElement(
                parent, "body", name=f"pole_{number}", pos="0 0 1", childclass="pole"
            )
            ElementTree.SubElement(pole, "joint", name=f"hinge_{number}")
            ElementTree.SubElement(pole, "geom", name=f"pole_{number}")
            parent = pole
        found(root, "./worldbody/geom").set("pos", f"0 0 {1 - self.poles - 0.05}")
        fixed, follows = root.findall("./worldbody/camera")
        fixed.set("pos", f"0 {-1 - 2 * self.poles} 1")
        follows.set("pos", f"0 {-2 * self.poles} 2")

    def start(self, key: Key) -> Start:
        """Hanging or nearly upright, with small velocities."""
        position, velocity = jax.random.split(key)
        nv = self.model.nv
        if self.swing_up:
            scale = jnp.concatenate([jnp.full(2, 0.01), jnp.full(nv - 2, 0.1)])
            qpos = (scale * jax.random.normal(position, (nv,))).at[1].add(jnp.pi)
        else:
            scale = jnp.concatenate([jnp.full(1, 0.1), jnp.full(nv - 1, 0.034)])
            qpos = scale * jax.random.uniform(position, (nv,), minval=-1.0, maxval=1.0)
        return Start(qpos=qpos, qvel=0.01 * jax.random.normal(velocity, (nv,)))

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """The cart's place, where the poles point, all velocities."""
        poles = physics.fields["xmat"][2:, np.array([_ZZ, _XZ])]  # the world and the cart are first
        return {
            "position": jnp.concatenate([physics.qpos[:1], poles.ravel()]),
            "velocity": physics.qvel,
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Smooth, or of the goal alone."""
        place, heights = physics.qpos[0], physics.fields["xmat"][2:, _ZZ]
        if self.sparse:
            upright = tolerance(heights, (0.995, 1.0)).prod()
            return tolerance(place, (-0.25, 0.25)) * upright
        centered = (1 + tolerance(place, margin=2.0)) / 2
        effort = tolerance(action[0], margin=1.0, sigmoid="quadratic", value_at_margin=0.0)
        slow = (1 + tolerance(physics.qvel[1:], margin=5.0).min()) / 2
        return (heights + 1).mean() / 2 * (4 + effort) / 5 * slow * centered


CartpoleBalance = variant(
    Cartpole, "CartpoleBalance", "Keep a pole upright on a cart", swing_up=False
)
CartpoleBalanceSparse = variant(
    CartpoleBalance, "CartpoleBalanceSparse", "Balance, with a reward of 0 or 1", sparse=True
)
CartpoleSwingup = variant(
    Cartpole, "CartpoleSwingup", "Swing a pole up on a cart and keep it upright", swing_up=True
)
CartpoleSwingupSparse = variant(
    CartpoleSwingup, "CartpoleSwingupSparse", "Swing up, with a reward of 0 or 1", sparse=True
)
CartpoleTwoPoles = variant(
    CartpoleSwingup, "CartpoleTwoPoles", "Swing up two poles, one on top of the other", poles=2
)
CartpoleThreePoles = variant(
    CartpoleSwingup, "CartpoleThreePoles", "Swing up three poles, one on top of the other", poles=3
)
