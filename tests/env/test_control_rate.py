"""A task's control at physics rate is a loop over `mj_step` that sets the control each time."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from worldline.env.disturb import ActionNoise
from worldline.env.env import Env
from worldline.env.task import Outcome, Start, Task
from worldline.env.worlds import Worlds

SUBSTEPS, STEPS = 5, 20
MJCF = """
<mujoco>
  <option timestep="0.00390625"/>
  <size nuserdata="1"/>
  <worldbody>
    <body>
      <joint name="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge"/></actuator>
</mujoco>"""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Servo(Task):
    """A servo with a filter; its gains are powers of two, whose products are exact."""

    control_timestep: float = SUBSTEPS / 256
    control_at_physics_rate = True
    fields = ("userdata",)
    changes = ("qpos",)

    def mjcf(self):
        return MJCF

    @property
    def action_bounds(self):
        return -np.ones(1, np.float32), np.ones(1, np.float32)

    def start(self, key):
        start = jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)
        return Start(start, jnp.zeros(1), inputs={"userdata": jnp.zeros(1)})

    def control(self, action, physics, memory):
        wanted = 8.0 * (action - physics.qpos)
        filtered = 0.5 * physics.fields["userdata"] + 0.5 * wanted
        return {"ctrl": filtered, "userdata": filtered}

    def observe(self, physics, memory):
        return jnp.concatenate([physics.qpos, physics.qvel])

    def outcome(self, before, action, after, memory):
        return Outcome(reward=after.changes["qpos"][0], terminated=jnp.asarray(False))


class Fragile(Servo):
    """Its third control in a step is one that MuJoCo refuses, if the action is above 0.5."""

    def control(self, action, physics, memory):
        given = super().control(action, physics, memory)
        late = physics.time > 2.5 / 256
        return {**given, "ctrl": jnp.where((action > 0.5) & late, 1e30, given["ctrl"])}


def by_hand(qpos, actions):
    model = mujoco.MjModel.from_xml_string(MJCF)
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    found, last, eight, half = [], np.zeros(1, np.float32), np.float32(8), np.float32(0.5)
    for action in actions:
        for _ in range(SUBSTEPS):
            wanted = eight * (action - data.qpos.astype(np.float32))
            last = half * last + half * wanted
            data.ctrl[:] = data.userdata[:] = last
            mujoco.mj_step(model, data)
        found.append(np.concatenate([data.qpos, data.qvel]))
    return np.float32(found)


def test_it_is_a_loop_over_physics_steps():
    worlds = Worlds(Env(Servo()), 3)
    state = worlds.reset(jax.random.key(0))
    begin, ours = np.asarray(state.env.physics.qpos), []
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, 3, 1)).astype(np.float32)
    step = jax.jit(worlds.step)
    for action in actions:
        before = state.env.physics.qpos
        state, result = step(state, action)
        ours.append(np.concatenate([state.env.physics.qpos, state.env.physics.qvel], axis=1))
        moved = (state.env.physics.qpos - before)[:, 0]
        np.testing.assert_allclose(result.reward, moved, atol=1e-6)
    for world in range(3):
        np.testing.assert_array_equal(
            np.array(ours)[:, world], by_hand(begin[world], actions[:, world])
        )


def test_a_world_that_is_masked_stays():
    env = Env(Servo())
    state = env.step(env.reset(jax.random.key(1)), jnp.ones(1))
    same = env.step(state, jnp.ones(1), mask=False)
    jax.tree.map(np.testing.assert_array_equal, same.physics, state.physics)


def test_a_failure_in_the_middle_of_a_step_is_told():
    env = Env(Fragile())
    start = env.reset(jax.random.key(2))
    assert env.step(start, jnp.ones(1)).diverged
    assert not env.step(start, jnp.zeros(1)).diverged


@pytest.mark.parametrize("std", [0.0, 0.5])
def test_disturbances_keep_the_rate(std):
    plain, noisy = Env(Servo()), Env(Servo(), disturbances=(ActionNoise(std=std),))
    assert noisy.task.control_at_physics_rate
    qpos = {"qpos": jnp.ones(1)}
    ends = [e.step(e.reset_to(jax.random.key(3), **qpos), jnp.zeros(1)) for e in (plain, noisy)]
    same = np.array_equal(ends[0].physics.qvel, ends[1].physics.qvel)
    assert same == (std == 0)


@pytest.mark.exhaustive  # MJX and Warp compile for long
@pytest.mark.parametrize("engine", ["mjx", "warp"])
def test_other_engines_agree(engine):
    ends = []
    for name in (engine, "native"):
        env = Env(Servo(), name)
        state = env.reset_to(jax.random.key(0), qpos=jnp.ones(1))
        step = jax.jit(env.step)
        for _ in range(4):
            state = step(state, jnp.full(1, 0.25))
        ends.append((state.physics.qpos, state.physics.qvel, state.physics.fields, state.reward))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), *ends)
