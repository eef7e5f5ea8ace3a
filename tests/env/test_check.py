"""check_env passes good tasks, and says of a broken one what is wrong and what to do."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.env.check import Report, check_env
from worldline.env.env import Env
from worldline.env.task import Outcome, Start, Task
from worldline.errors import TaskError

STEPS = 12


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Good(toys.Puck):
    """A task with nothing wrong; the broken ones below change one thing each."""


def problems(task: Callable[[], Task], physics: str = "fake") -> list[str]:
    """What check_env raises about a task, line by line."""
    with pytest.raises(TaskError) as error:
        check_env(Env(task(), physics), steps=STEPS)
    return str(error.value).splitlines()


def warnings(task: Callable[[], Task]) -> tuple[str, ...]:
    return check_env(Env(task(), "fake"), steps=STEPS).warnings


def replaced(outcome: Outcome, **parts: Any) -> Outcome:
    return dataclasses.replace(outcome, **parts)


@pytest.mark.parametrize("physics", ["native", "fake"])
@pytest.mark.parametrize("task", [Good, toys.Swing])
def test_a_good_task_passes(task, physics):
    assert worldline.check_env(Env(task(), physics), steps=STEPS) == Report(())


def test_the_tasks_of_worldline_pass():
    report = check_env(worldline.make("robot/reach"), steps=STEPS)
    assert report.warnings == ()


class Unbounded(Good):
    @property
    def action_bounds(self):
        return np.array([-np.inf, -1], np.float32), np.array([1, np.inf], np.float32)


class Reversed(Good):
    @property
    def action_bounds(self):
        return np.array([1, -1], np.float32), np.array([-1, 1], np.float32)


def test_action_bounds():
    first, second = problems(Unbounded)
    assert "action_bounds are -inf and 1.0 for action 0; give finite ones" in first
    assert "-1.0 and inf for action 1" in second
    (line,) = problems(Reversed)
    assert "1.0 and -1.0 for action 0; the first must be less than" in line


class DrawsFromNumPy(Good):
    def start(self, key):
        return Start(qpos=jnp.asarray(np.random.normal(size=2), jnp.float32), qvel=jnp.zeros(2))  # noqa: NPY002

    def outcome(self, before, action, after, memory):
        return Outcome(reward=after.qpos[0], terminated=jnp.asarray(False))


class CountsInPython(Good):
    counter = itertools.count()

    def observe(self, physics, memory):
        return physics.qpos + next(self.counter)


class RewardsInPython(Good):
    counter = itertools.count()

    def outcome(self, before, action, after, memory):
        good = super().outcome(before, action, after, memory)
        return replaced(good, reward=good.reward + next(self.counter))


def test_functions_that_do_not_repeat_themselves():
    (line,) = problems(DrawsFromNumPy)
    assert (
        ".start returns two different results for the same arguments; draw random numbers" in line
    )
    (line,) = problems(CountsInPython)
    assert ".observe returns two different results" in line
    (line,) = problems(RewardsInPython)
    assert ".outcome returns two different results" in line


class GrowsInPython(Good):
    counter = itertools.count()

    def observe(self, physics, memory):
        # As large as Env saw it when it was made, and later one larger.
        return jnp.concatenate([physics.qpos, jnp.zeros(max(0, next(self.counter) - 2))])


class ObservesWhole(Good):
    counter = itertools.count()

    def observe(self, physics, memory):
        late = next(self.counter) >= 2
        return physics.qpos.astype(jnp.int32 if late else jnp.float32)


def test_observations_that_change_shape_or_dtype():
    lines = problems(GrowsInPython)
    assert "observe returns float32[3], then float32[4] for the same arguments" in lines[0]
    assert "observe returns float32[3], but at other times float32[2]" in lines[1]
    (line,) = problems(ObservesWhole)
    assert "observe returns int32[2], but at other times float32[2]" in line


class ForgetsAPart(Good):
    counter = itertools.count()

    def observe(self, physics, memory):
        parts = {"state": physics.qpos, "speed": physics.qvel}
        return parts if next(self.counter) < 2 else {"state": physics.qpos}


@pytest.mark.parametrize("context", [(), ("gravity",)])
def test_observations_that_lose_a_part(context):
    ForgetsAPart.counter = itertools.count()
    with pytest.raises(
        TaskError, match=r"observe returns \{'state': .* but at other times .*speed"
    ):
        check_env(Env(ForgetsAPart(), context=context))


class TerminatesByHalves(Good):
    def outcome(self, before, action, after, memory):
        return replaced(super().outcome(before, action, after, memory), terminated=jnp.float32(0.5))


class RewardsInSteps(Good):
    def outcome(self, before, action, after, memory):
        return replaced(super().outcome(before, action, after, memory), reward=jnp.int32(1))


def test_types_of_reward_and_terminated():
    (line,) = problems(TerminatesByHalves)
    assert "terminated of float32[]; it must be a scalar of bool" in line
    (line,) = problems(RewardsInSteps)
    assert "reward of int32[]; it must be a scalar of float32" in line


class ForgetsInPython(Good):
    counter = itertools.count()

    def outcome(self, before, action, after, memory):
        memory = memory if next(self.counter) < 1 else jnp.zeros(3)
        return Outcome(reward=after.qpos[0], terminated=jnp.asarray(False), memory=memory)


def test_a_memory_that_changes():
    lines = problems(ForgetsInPython)
    assert "outcome changes the memory from int32[] to float32[3]; keep the structure" in lines[-1]


class Weak(Good):
    def start(self, key):
        good = super().start(key)
        return Start(qpos=good.qpos, qvel=good.qvel, memory=jnp.asarray(0.0))  # weakly typed

    def outcome(self, before, action, after, memory):
        good = super().outcome(before, action, after, jnp.int32(0))
        return replaced(good, memory=after.qpos[0])


def test_a_step_that_compiles_twice():
    (line,) = problems(Weak)
    assert "makes the step compile 2 times: the memory goes from weak float32 to float32" in line
    assert "jnp.float32(0)" in line


class Named(Good):
    def outcome(self, before, action, after, memory):
        good = super().outcome(before, action, after, memory)
        return replaced(good, metrics={"episode_return": good.reward, "place": after.qpos})


def test_metrics():
    taken, shape = problems(Named)
    assert "metric 'episode_return', which every run measures itself; rename it" in taken
    assert "metric 'place' a shape of (2,); a metric is one number" in shape


class StartsNowhere(Good):
    def start(self, key):
        good = super().start(key)
        return Start(qpos=good.qpos / 0, qvel=good.qvel, memory=good.memory)


class ObservesNothingAtRest(Good):
    def observe(self, physics, memory):
        return jnp.where(memory == 0, jnp.inf, super().observe(physics, memory))


class ObservesNothing(Good):
    def observe(self, physics, memory):
        # Fine at a start; from the third step on not a number.
        return jnp.concatenate([physics.qpos, jnp.where(memory > 2, jnp.nan, physics.qvel)])


class RewardsNothing(Good):
    def outcome(self, before, action, after, memory):
        good = super().outcome(before, action, after, memory)
        return replaced(good, reward=jnp.where(memory == 1, jnp.inf, good.reward))


class MeasuresNothing(Good):
    def outcome(self, before, action, after, memory):
        good = super().outcome(before, action, after, memory)
        return replaced(good, metrics={"root": jnp.sqrt(-1 - jnp.abs(after.qpos[0]))})


def test_numbers_that_are_not_finite():
    for engine in ("native", "fake"):
        (line,) = problems(StartsNowhere, engine)
        assert (
            "start returns a state that MuJoCo cannot simulate (not finite, or above 1e10)" in line
        )
    assert any(
        "inf at index 0 at a start; an observation must be finite" in x
        for x in problems(ObservesNothingAtRest)
    )
    for line in problems(ObservesNothing):
        assert "observe returns nan at index 2 after 3 steps of" in line
    for line in problems(RewardsNothing):
        assert "outcome returns a reward of inf after 2 steps of" in line
    for line in problems(MeasuresNothing):
        assert "outcome returns the metric 'root' of nan after 1 step of" in line


class Extreme(Good):
    """Not a number at the very edge of the action space, where random actions seldom go."""

    edge = 1.0

    def outcome(self, before, action, after, memory):
        good = super().outcome(before, action, after, memory)
        return replaced(good, reward=jnp.where(action[0] == self.edge, jnp.nan, good.reward))


class OtherExtreme(Extreme):
    edge = -1.0


def test_extreme_actions():
    (line,) = problems(Extreme)
    assert "reward of nan after 1 step of the highest action" in line
    (line,) = problems(OtherExtreme)
    assert "reward of nan after 1 step of the lowest action" in line


class Explodes(Good):
    def mjcf(self):
        return toys.PUCK.replace('joint="x"', 'joint="x" gear="1e13"')

    def control(self, action, physics, memory):
        return jnp.where(action == 1, 1.0, 0.0)


def test_a_simulation_that_diverges():
    (line,) = problems(Explodes, "native")
    assert line.startswith(
        "Explodes diverges after 1 step of the highest action; lower the model's"
    )


class Bounded(Good):
    """Its space is narrower than its observations."""

    def observe(self, physics, memory):
        return {"state": physics.qpos}


def test_an_observation_outside_its_space():
    env = Env(Bounded(), "fake")
    assert check_env(env, steps=STEPS).warnings == ()
    from gymnasium import spaces

    env.observation_space = spaces.Dict({"state": spaces.Box(0, 0.1, (2,), np.float32)})
    with pytest.raises(TaskError, match=r"at a start, which is not in Dict.*; change one"):
        check_env(env, steps=STEPS)


class SeesTheCompiler(Good):
    def observe(self, physics, memory):
        traced = isinstance(physics.qpos, jax.core.Tracer)
        return physics.qpos + (1.0 if traced else 0.0)


def test_a_step_that_differs_under_jit():
    assert any(
        ".observe returns a different result inside jax.jit" in x for x in problems(SeesTheCompiler)
    )


@jax.custom_batching.custom_vmap
def crowd(x):
    return x


@crowd.def_vmap
def _average(axis_size, in_batched, x):
    return jnp.broadcast_to(x.mean(0), x.shape), True


class SeesTheOthers(Good):
    def observe(self, physics, memory):
        return crowd(physics.qpos)


def test_worlds_that_see_each_other():
    (line,) = problems(SeesTheOthers)
    assert ".observe returns a different result for a world alone than among 24 worlds" in line


LEGS = """
<mujoco>
  <option timestep="0.005" cone="elliptic" impratio="100"/>
  <worldbody>
    <geom type="plane" size="9 9 1" friction="1"/>
    <body pos="0 0 0.32"><freejoint/>
      <geom type="box" size="0.2 0.1 0.05" mass="8"/>
      {}
    </body>
  </worldbody>
  <actuator>{}</actuator>
</mujoco>"""
LEG = """
<body pos="{} {} 0"><joint name="hip {}" axis="0 1 0" damping="1"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.28" size="0.03" mass="0.8"/></body>"""
PLACES = list(itertools.product((0.18, -0.18), (0.1, -0.1)))


class Stiff(Good):
    """Four legs on the ground, whose controls a compiled program rounds in another way."""

    def mjcf(self):
        legs = "".join(LEG.format(x, y, n) for n, (x, y) in enumerate(PLACES))
        servos = "".join(f'<position joint="hip {n}" kp="500"/>' for n in range(4))
        return LEGS.format(legs, servos)

    def start(self, key):
        qpos = jnp.asarray(self.model.qpos0).at[7:].add(0.1 * jax.random.normal(key, (4,)))
        return Start(qpos=qpos, qvel=jnp.zeros(10), memory=jnp.int32(0))

    @property
    def action_bounds(self):
        return -np.ones(4, np.float32), np.ones(4, np.float32)

    def control(self, action, physics, memory):
        # Stands for what compilers round in other ways: half a digit of a number near 1000.
        rounded = 3e-5 if isinstance(action, jax.core.Tracer) else 0.0
        return 0.3 * action + rounded

    def observe(self, physics, memory):
        return jnp.concatenate([physics.qpos[2:], physics.qvel])

    def outcome(self, before, action, after, memory):
        return Outcome(reward=after.qvel[0], terminated=jnp.asarray(False), memory=memory + 1)


def test_rounding_of_a_robot_in_contact_is_no_fault():
    """One step, compiled and not, differs there by much more than what a function rounds."""
    assert check_env(Env(Stiff(), "native"), steps=STEPS).warnings == ()


class SameStart(Good):
    def start(self, key):
        return Start(qpos=jnp.zeros(2), qvel=jnp.zeros(2), memory=jnp.int32(0))


class Constant(Good):
    def observe(self, physics, memory):
        return {"state": jnp.concatenate([jnp.ones(1), physics.qpos, jnp.zeros(2)])}


def test_warnings():
    (line,) = warnings(SameStart)
    assert (
        line == "SameStart.start returns the same start for every key; draw some of it with the key"
    )
    (line,) = warnings(Constant)
    assert "always returns the same number at index 0, 3, 4 of 'state'" in line
    (line,) = warnings(functools.partial(Good, wall=-10.0))
    assert "ends 24 of 24 episodes at their first step" in line


class Several(Named, RewardsInSteps):
    def outcome(self, before, action, after, memory):
        return replaced(super().outcome(before, action, after, memory), reward=jnp.int32(1))


def test_every_problem_is_named_on_a_line_of_its_own():
    lines = problems(Several)
    assert len(lines) == 3
    assert all(line.startswith("Several.") for line in lines)
