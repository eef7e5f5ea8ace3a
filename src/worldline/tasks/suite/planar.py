"""suite/walker, suite/hopper and suite/cheetah: stand and move on legs, in a plane."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Start
from worldline.physics.base import PhysicsState
from worldline.physics.native import NativePhysics
from worldline.tasks.rewards import tolerance
from worldline.tasks.suite.base import SuiteTask, at_least, small_control, touch_signal, variant
from worldline.types import Array, Key


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Walker(SuiteTask):
    """Stand on two legs, and move along x at a speed.

    Observation `(24,)`: orientations of the seven bodies, height of the torso, velocities. Action
    `(6,)`: torques. Reward: how high and upright the torso is, times how fast it moves.
    """

    file = "walker.xml"
    control_timestep: float = 0.025
    speed: float
    """Speed of the whole body for the full reward, m/s; 0: standing is enough."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Poses of the bodies, and the speed where it matters."""
        return ("xmat", "xpos", "sensordata") if self.speed else ("xmat", "xpos")

    def height(self, physics: PhysicsState) -> Array:
        """Of the torso, `()`, m."""
        return self.row(physics, "xpos", "torso")[2]

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """How the bodies are turned, the torso's height, all velocities."""
        return {
            "orientations": physics.fields["xmat"][1:, np.array([0, 2])].ravel(),
            "height": self.height(physics),
            "velocity": physics.qvel,
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Standing, and moving."""
        standing = tolerance(self.height(physics), (1.2, jnp.inf), margin=0.6)
        upright = (1 + self.row(physics, "xmat", "torso")[8]) / 2
        stand = (3 * standing + upright) / 4
        if not self.speed:
            return stand
        speed = self.sensors(physics, "torso_subtreelinvel")[0]
        move = at_least(speed, self.speed, margin=self.speed / 2, value_at_margin=0.5)
        return stand * (5 * move + 1) / 6


WalkerStand = variant(Walker, "WalkerStand", "Get up and stand on two legs", speed=0.0)
WalkerWalk = variant(Walker, "WalkerWalk", "Walk on two legs", speed=1.0)
WalkerRun = variant(Walker, "WalkerRun", "Run on two legs", speed=8.0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Hopper(SuiteTask):
    """Stand on one leg, or hop along x.

    Observation `(15,)`: positions but for x, velocities, the logarithm of one plus the force at toe
    and heel. Action `(4,)`: torques.
    """

    file = "hopper.xml"
    control_timestep: float = 0.02

    fields = ("xipos", "sensordata")  # centres of mass of the bodies; speed and touch

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Positions, velocities and touch."""
        return {
            "position": physics.qpos[1:],
            "velocity": physics.qvel,
            "touch": touch_signal(self.sensors(physics, "touch_toe", "touch_heel")),
        }

    def standing(self, physics: PhysicsState) -> Array:
        """Whether the torso is at least 0.6 m above the foot, `()`."""
        return tolerance(self.offset(physics, "xipos", "foot", "torso")[2], (0.6, 2.0))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HopperStand(Hopper):
    """Stand on one leg with little effort; see `Hopper`."""

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Standing, with small controls."""
        return self.standing(physics) * (small_control(action) + 4) / 5


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HopperHop(Hopper):
    """Hop on one leg at 2 m/s; see `Hopper`."""

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Standing, times how fast it moves."""
        speed = self.sensors(physics, "torso_subtreelinvel")[0]
        return self.standing(physics) * at_least(speed, 2.0, margin=1.0, value_at_margin=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CheetahRun(SuiteTask):
    """Run along x on two legs.

    Observation `(17,)`: positions but for x, then velocities. Action `(6,)`: torques. Reward: the
    forward speed over 10 m/s, at most 1.
    """

    file = "cheetah.xml"
    control_timestep: float = 0.01

    fields = ("sensordata",)  # the speed of the whole body

    @functools.cached_property
    def _settling(self) -> NativePhysics:
        return NativePhysics(self.model)

    def start(self, key: Key) -> Start:
        """Any pose, after 2 s in which it falls to the ground and comes to rest.

        The fall is simulated on the CPU, whatever engine runs the episode: there is no other way to
        the distribution of dm_control's starts. MuJoCo as a pure function of the pose, it is as
        good as any other draw; it costs as much as 200 control steps.
        """
        model = self.model.mj
        low, high = (
            np.where(model.jnt_limited, limit, 0.0).astype(np.float32)
            for limit in model.jnt_range.T
        )
        qpos = jax.random.uniform(key, (self.model.nq,), minval=low, maxval=high)
        falling = self._settling.start(qpos, jnp.zeros(self.model.nv), {}, {})
        settled = self._settling.step(falling, {}, 200)
        return Start(qpos=settled.qpos, qvel=settled.qvel)

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Positions and velocities, wherever it is along x."""
        return {"position": physics.qpos[1:], "velocity": physics.qvel}

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """How fast it runs."""
        speed = self.sensors(physics, "torso_subtreelinvel")[0]
        return at_least(speed, 10.0, margin=10.0)
