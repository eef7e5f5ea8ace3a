"""MJX beside the native engine in every task that it runs.

Two measures over 100 control steps of the same scene under the same random controls, each world
with constants of its own. *Step by step* both engines begin every step in native's state: how far
one step of MJX's float32 is from MuJoCo's float64. *Free* each goes its own way: how long the two
stay together, which in a chaotic body is not for good.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_worlds import in_mjx

from worldline.env.env import Env
from worldline.env.task import reads_of
from worldline.physics.base import PhysicsState
from worldline.physics.mjx.engine import MjxPhysics, refusal
from worldline.tasks.registry import list_tasks, load_task

STEPS, WORLDS = 100, 2


class Bound(NamedTuple):
    """How far apart the engines may be, relative to 1 + the size of a number."""

    step: float
    """In positions and velocities, after one control step from the same state."""
    free: float
    """In positions, left alone."""
    together: int = STEPS
    """Control steps for which that holds."""
    elsewhere: int = 0
    """Of all steps, how many may be further apart: MJX finds other points of contact."""


#: About five times what was measured.
BOUNDS = {
    "arm/pick-cube": Bound(2e-4, 1e-4),
    "gym/ant": Bound(6e-5, 1e-5, together=10),
    "gym/half-cheetah": Bound(2e-4, 1e-3, together=25),
    "gym/hopper": Bound(2e-4, 1e-5),
    "gym/humanoid": Bound(8e-4, 5e-5, together=50),
    "gym/humanoid-standup": Bound(2e-4, 5e-5),
    "gym/inverted-double-pendulum": Bound(1e-4, 4e-4, together=50),
    "gym/inverted-pendulum": Bound(1e-5, 6e-6),
    "gym/pusher": Bound(2e-5, 1e-3),
    "gym/reacher": Bound(2e-5, 2e-5),
    "gym/swimmer": Bound(2e-5, 1e-5),
    "gym/walker2d": Bound(2e-4, 1e-4),
    "robot/quadruped-joystick": Bound(5e-5, 2e-3),
    "robot/reach": Bound(1e-5, 5e-6),
    "robot/track-motion": Bound(5e-5, 2e-3, elsewhere=3),
    "suite/acrobot-swingup": Bound(1e-6, 5e-5),
    "suite/acrobot-swingup_sparse": Bound(1e-6, 5e-5),
    "suite/ball_in_cup-catch": Bound(2e-6, 5e-6),
    "suite/cartpole-balance": Bound(1e-6, 1e-6),
    "suite/cartpole-balance_sparse": Bound(1e-6, 1e-6),
    "suite/cartpole-swingup": Bound(1e-6, 2e-6),
    "suite/cartpole-swingup_sparse": Bound(1e-6, 2e-6),
    "suite/cartpole-three_poles": Bound(3e-6, 3e-6),
    "suite/cartpole-two_poles": Bound(1e-6, 2e-6),
    "suite/cheetah-run": Bound(3e-4, 2e-5),
    "suite/finger-spin": Bound(1e-5, 5e-6),
    "suite/finger-turn_easy": Bound(1e-5, 5e-6),
    "suite/finger-turn_hard": Bound(1e-5, 5e-6),
    "suite/hopper-hop": Bound(5e-4, 2e-3),
    "suite/hopper-stand": Bound(5e-4, 2e-3),
    "suite/humanoid-run": Bound(6e-4, 5e-5, together=10),
    "suite/humanoid-run_pure_state": Bound(6e-4, 5e-5, together=10),
    "suite/humanoid-stand": Bound(6e-4, 5e-5, together=10),
    "suite/humanoid-walk": Bound(6e-4, 5e-5, together=10),
    "suite/manipulator-bring_ball": Bound(4e-4, 1e-3),
    "suite/manipulator-bring_peg": Bound(4e-4, 3e-4, together=50),
    "suite/manipulator-insert_ball": Bound(1e-3, 2e-4),
    "suite/manipulator-insert_peg": Bound(2e-3, 1e-4, together=2, elsewhere=5),
    "suite/pendulum-swingup": Bound(1e-6, 1e-6),
    "suite/point_mass-easy": Bound(1e-6, 1e-6),
    "suite/point_mass-hard": Bound(1e-6, 1e-6),
    "suite/quadruped-fetch": Bound(5e-4, 2e-3),
    "suite/quadruped-run": Bound(3e-4, 2e-5, together=50),
    "suite/quadruped-walk": Bound(3e-4, 2e-5, together=50),
    "suite/reacher-easy": Bound(5e-6, 1e-6),
    "suite/reacher-hard": Bound(5e-6, 1e-6),
    "suite/walker-run": Bound(5e-4, 1e-4, together=25),
    "suite/walker-stand": Bound(5e-4, 1e-4, together=25),
    "suite/walker-walk": Bound(5e-4, 1e-4, together=25),
}
#: Not Playground's: their models ask for one iteration of the solver, in the middle of which no two
#: engines are at the same place.
TASKS = [name for name in list_tasks() if not name.startswith("playground/")]
#: The others take half a minute of compilation and more.
QUICK = {"gym/inverted-pendulum"}


def test_every_task_that_mjx_runs_has_its_bound() -> None:
    def runs(name: str) -> bool:
        task = load_task(name)
        reads = reads_of(task)
        return not refusal(task.model, reads)

    assert BOUNDS.keys() == {name for name in TASKS if runs(name)}


def recording(env: Env, controls: jax.Array, substeps: int) -> list[PhysicsState]:
    """Native's worlds before each control step, and after the last."""
    starts = jax.vmap(env.task.start)(jax.random.split(jax.random.key(0), WORLDS))
    scale = np.random.default_rng(1).uniform(0.8, 1.2, (WORLDS, 1, 1))
    variation = {}
    for field in ("body_mass", "body_inertia", "geom_friction", "dof_damping"):
        value = np.asarray(env.model.constant(field))
        variation[field] = jnp.float32(value * scale.reshape(-1, *[1] * value.ndim))
    start = jax.vmap(lambda one, own: env.physics.start(one.qpos, one.qvel, own, one.inputs))
    step = jax.jit(jax.vmap(lambda s, u: env.physics.step(s, {"ctrl": u}, substeps)))
    states = [start(starts, variation)]
    for ctrl in controls:
        states.append(step(states[-1], ctrl))
    return states


def distance(ours: PhysicsState, theirs: PhysicsState, *names: str) -> float:
    pairs = [(np.asarray(getattr(ours, n)), np.asarray(getattr(theirs, n))) for n in names]
    return max(float(np.max(np.abs(x - y) / (1 + np.abs(y)))) for x, y in pairs)


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.exhaustive) for n in BOUNDS],
)
def test_a_hundred_steps_of_a_task_agree(name: str) -> None:
    env, bound = Env(load_task(name), "native"), BOUNDS[name]
    substeps = round(env.task.control_timestep / env.model.timestep)
    low, high = np.clip(env.model.ctrlrange, -1, 1).T
    random = np.random.default_rng(2)
    controls = jnp.float32(random.uniform(low, high, (1 + STEPS, WORLDS, len(low))))
    states = recording(env, controls, substeps)
    # After the first step: what is set down on a floor touches it there, or not, by a rounding.
    controls, states = controls[1:], states[1:]
    physics = MjxPhysics(env.model)
    step = jax.jit(jax.vmap(lambda s, u: physics.step(s, {"ctrl": u}, substeps)))
    free = in_mjx(physics, env.physics, states[0])
    apart = 0
    for number, ctrl in enumerate(controls, start=1):
        before, after = states[number - 1 : number + 1]
        one = step(in_mjx(physics, env.physics, before), ctrl)
        apart += distance(one, after, "qpos", "qvel") > bound.step
        free = step(free, ctrl)
        assert number > bound.together or distance(free, after, "qpos") < bound.free, number
    assert apart <= bound.elsewhere
    assert step._cache_size() == 1
