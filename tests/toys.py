"""Models and tasks small enough to think through, for the tests of everything above them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Outcome, Start, Task

#: One hinge with a motor.
PENDULUM = """
<mujoco model="pendulum">
  <option timestep="0.01"/>
  <worldbody>
    <body name="pole">
      <joint name="hinge" type="hinge" axis="0 1 0" damping="0.02"/>
      <geom name="rod" type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03"/>
      <site name="tip" pos="0 0 -0.5"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="motor" joint="hinge" gear="2" ctrlrange="-1 1"/>
  </actuator>
  <sensor>
    <jointpos name="angle" joint="hinge"/>
    <framelinvel name="tip velocity" objtype="site" objname="tip"/>
  </sensor>
</mujoco>
"""

#: Two free boxes that fall onto each other and the floor: contacts that come and go, nothing to
#: control.
BOXES = """
<mujoco model="boxes">
  <option timestep="0.005"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="lower" pos="0 0 0.2" euler="10 20 0">
      <freejoint/>
      <geom name="lower" type="box" size="0.1 0.1 0.1"/>
    </body>
    <body name="upper" pos="0.05 0 0.5" euler="30 0 10">
      <freejoint/>
      <geom name="upper" type="box" size="0.1 0.15 0.1"/>
      <site name="centre"/>
    </body>
  </worldbody>
  <sensor>
    <accelerometer site="centre"/>
    <subtreelinvel body="upper"/>
  </sensor>
</mujoco>
"""

#: An arm whose actuators have a state of their own (na = 2).
ARM = """
<mujoco model="arm">
  <option timestep="0.004" integrator="implicitfast"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1" pos="0 0 -0.35"/>
    <body name="upper">
      <joint name="shoulder" axis="0 1 0" range="-120 120" limited="true" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
      <body name="lower" pos="0.3 0 0">
        <joint name="elbow" axis="0 1 0" range="-90 90" limited="true" armature="0.01"
               frictionloss="0.05"/>
        <geom name="hand" type="capsule" fromto="0 0 0 0.25 0 0" size="0.025"/>
        <site name="grip" pos="0.25 0 0"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general name="muscle" joint="shoulder" dyntype="filter" dynprm="0.05" gainprm="4"
             ctrlrange="-1 1"/>
    <intvelocity name="velocity" joint="elbow" kp="6" actrange="-1 1" ctrlrange="-1 1"/>
    <position name="servo" joint="shoulder" kp="2" kv="0.1" ctrlrange="-2 2"/>
  </actuator>
  <sensor>
    <force site="grip"/>
    <actuatorfrc actuator="servo"/>
  </sensor>
</mujoco>
"""

#: What else a state can hold: a mocap body that drags a ball by a weld, tendons, an equality
#: between joints, user data; RK4.
MECHANISM = """
<mujoco model="mechanism">
  <size nuserdata="2"/>
  <option timestep="0.005" integrator="RK4"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1" pos="0 0 -0.2"/>
    <body name="handle" mocap="true" pos="0 0 0.6">
      <geom type="sphere" size="0.02" contype="0" conaffinity="0"/>
    </body>
    <body name="ball" pos="0 0 0.6">
      <joint name="ball" type="ball"/>
      <joint name="x" type="slide" axis="1 0 0" stiffness="1"/>
      <geom name="ball" type="sphere" size="0.05" pos="0 0 0.01"/>
      <site name="hook"/>
    </body>
    <body name="left" pos="-0.3 0 0.1">
      <joint name="left" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 -0.2 0 0" size="0.02"/>
      <site name="left" pos="-0.2 0 0"/>
    </body>
    <body name="right" pos="0.3 0 0.1">
      <joint name="right" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.02"/>
      <site name="right" pos="0.2 0 0"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="rope" stiffness="20" damping="0.5" springlength="0.4">
      <site site="left"/>
      <site site="hook"/>
      <site site="right"/>
    </spatial>
    <fixed name="pair">
      <joint joint="left" coef="1"/>
      <joint joint="right" coef="-0.5"/>
    </fixed>
  </tendon>
  <equality>
    <weld body1="handle" body2="ball" solref="0.05 1"/>
    <joint joint1="left" joint2="right" polycoef="0 -1 0 0 0"/>
  </equality>
  <actuator>
    <motor name="pull" tendon="pair" gear="0.5" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""

#: Two slides that carry a puck, each with a motor; no gravity, no contact.
PUCK = """
<mujoco model="puck">
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <body name="puck">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="y" type="slide" axis="0 1 0"/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="x" ctrlrange="-1 1"/>
    <motor joint="y" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Puck(Task):
    """A puck pushed over a plane from a random place.

    The reward is x plus y, the episode terminates where x passes `wall`, and the memory counts
    steps. Every number is a sum or a product of two: XLA may add up more of them in another order
    in another batch.
    """

    control_timestep: float = 0.02
    episode_length: int = 10
    wall: float = np.inf
    mjcf_text: str = PUCK

    def mjcf(self) -> str:
        return self.mjcf_text

    def start(self, key: Any) -> Start:
        position, velocity = jax.random.uniform(key, (2, 2), minval=-1.0, maxval=1.0)
        return Start(qpos=position, qvel=velocity, memory=jnp.int32(0))

    def observe(self, physics: Any, memory: Any) -> Any:
        return jnp.concatenate([physics.qpos, physics.qvel])

    def outcome(self, before: Any, action: Any, after: Any, memory: Any) -> Outcome:
        x, y = after.qpos
        return Outcome(
            reward=x + y,
            terminated=x > self.wall,
            memory=memory + 1,
            metrics={"x": x, "count": memory + 1},
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BadStart(Puck):
    """The puck, of which a start far to the right is bad."""

    bad: str = ""

    def start(self, key: Any) -> Start:
        good = super().start(key)
        hit = good.qpos[0] > 0.3
        number = {"qpos": jnp.nan, "qvel": jnp.inf, "too large": 1e11}.get(self.bad)
        if number is None:
            return good
        field = "qvel" if self.bad == "qvel" else "qpos"
        values = jnp.where(hit, number, getattr(good, field))
        return dataclasses.replace(good, **{field: values})

    def observe(self, physics: Any, memory: Any) -> Any:
        hit = (memory == 0) & (physics.qpos[0] > 0.3) & (self.bad == "obs")
        return jnp.where(hit, jnp.nan, super().observe(physics, memory))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Swing(Task):
    """The pendulum, its angle and velocity observed; a reward for hanging still."""

    control_timestep: float = 0.02
    episode_length: int = 20

    def mjcf(self) -> str:
        return PENDULUM

    def start(self, key: Any) -> Start:
        return Start(qpos=jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0), qvel=jnp.zeros(1))

    def observe(self, physics: Any, memory: Any) -> Any:
        return jnp.concatenate([physics.qpos, physics.qvel])

    def outcome(self, before: Any, action: Any, after: Any, memory: Any) -> Outcome:
        return Outcome(reward=-jnp.abs(after.qpos[0]), terminated=jnp.asarray(False))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Doors(Task):
    """An episode begins at one of three doors, and ends after as many steps as its number."""

    control_timestep: float = 0.01

    def mjcf(self) -> str:
        return PENDULUM

    @property
    def start_ranges(self):
        return {"falls": np.zeros(3, np.float32)}

    def start(self, key):
        return self.start_within(key, self.start_ranges)

    def start_within(self, key, ranges):
        """The door where most have fallen so far, the first of several."""
        door = jnp.argmax(ranges["falls"]).astype(jnp.int32)
        return Start(jnp.zeros(1), jnp.zeros(1), memory=(door, jnp.int32(0)))

    def tally(self, memory, terminated):
        return jnp.where(terminated, jax.nn.one_hot(memory[1], 3), 0.0)

    def adapt(self, ranges, total):
        return {"falls": ranges["falls"] / 2 + total}

    def observe(self, physics, memory):
        return jnp.concatenate([physics.qpos, physics.qvel])

    def outcome(self, before, action, after, memory):
        steps = memory[1] + 1
        return Outcome(jnp.zeros(()), action[0] > 0.5, memory=(memory[0], steps))
