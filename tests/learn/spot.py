"""A task that only a picture tells: for the tests of learners that see."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from worldline.env.env import Env
from worldline.env.task import Outcome, Start, Task
from worldline.rendering.camera import Camera

SPOT = """
<mujoco>
  <option timestep="0.1" gravity="0 0 0"/>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="top" pos="0 0 3"/>
    <body>
      <joint name="x" type="slide" axis="1 0 0"/>
      <geom type="sphere" size=".3" rgba="1 .3 .1 1"/>
    </body>
  </worldbody>
  <actuator><motor joint="x" ctrlrange="-1 1" gear="0"/></actuator>
</mujoco>"""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Spot(Task):
    """A ball left or right; the best action is its place. The numbers observed do not tell it."""

    control_timestep: float = 0.1
    episode_length: int = 4

    def mjcf(self):
        return SPOT

    def start(self, key):
        return Start(qpos=jax.random.uniform(key, (1,), minval=-0.8, maxval=0.8), qvel=jnp.zeros(1))

    def observe(self, physics, memory):
        return physics.qvel

    def outcome(self, before, action, after, memory):
        error = action[0] - after.qpos[0]
        return Outcome(reward=1 - error**2, terminated=jnp.asarray(False))


class Told(Spot):
    """It, with the place among the observations, for a critic alone to read."""

    def observe(self, physics, memory):
        return {"state": physics.qvel, "privileged_state": physics.qpos}


@functools.cache
def spot_env(task=Spot):
    """Its worlds, seen from above in two frames of 16 x 16 pixels."""
    return Env(task(), cameras={"top": Camera("top", 16, 16, stack=2)})
