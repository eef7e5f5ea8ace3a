"""Env: a task on an engine as two pure functions, and what it refuses."""

import dataclasses
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.env.env import Env
from worldline.env.task import Outcome, Start, Task
from worldline.errors import ActionError, ConfigError, ModelError, TaskError, VariationError


@pytest.fixture(scope="module")
def env() -> Env:
    return Env(toys.Puck(wall=0.9), "fake")


def test_a_step_is_what_the_task_makes_of_the_physics(env):
    state = env.reset_to(jax.random.key(0), qpos=[0.2, 0.1], qvel=[0.5, 0.25])
    np.testing.assert_allclose(state.obs, [0.2, 0.1, 0.5, 0.25], rtol=1e-6)
    assert state.reward == 0
    assert not state.terminated
    assert state.metrics == {"x": 0, "count": 0}
    # Two steps of 0.01 s under 1 N on 1 kg: 0.02 m/s more, and 1 + 2 times 0.01 s x 0.01 m/s.
    after = env.step(state, np.array([1, 0], np.float32))
    x, y = 0.2 + 0.02 * 0.5 + 3e-4, 0.1 + 0.02 * 0.25
    np.testing.assert_allclose(after.obs, [x, y, 0.52, 0.25], rtol=1e-5)
    np.testing.assert_allclose(after.reward, x + y, rtol=1e-5)
    np.testing.assert_allclose(after.metrics["x"], x, rtol=1e-5)
    assert after.memory == 1
    assert after.metrics["count"] == 1.0
    assert not after.terminated
    beyond = env.reset_to(jax.random.key(0), qpos=[0.95, 0])
    assert env.step(beyond, np.zeros(2, np.float32)).terminated


def test_reset_and_reset_to_agree_on_what_is_not_given(env):
    drawn = env.reset(jax.random.key(1))
    given = env.reset_to(jax.random.key(1), qvel=jnp.zeros(2))
    np.testing.assert_array_equal(given.physics.qpos, drawn.physics.qpos)
    np.testing.assert_array_equal(given.physics.qvel, np.zeros(2))
    for name in ("qpos", "qvel"):
        with pytest.raises(TaskError, match=rf"{name} has shape \(3,\); the model's is \(2,\)"):
            env.reset_to(jax.random.key(1), **{name: jnp.zeros(3)})


def test_a_variation_goes_to_the_physics():
    env = Env(toys.Puck(), "native")
    mass = jnp.array([0.0, 2.0])
    state = env.reset(jax.random.key(0), {"body_mass": mass})
    np.testing.assert_array_equal(state.variation["body_mass"], mass)
    after = env.step(state, np.array([1, 0], np.float32))
    np.testing.assert_allclose(after.physics.qvel[0] - state.physics.qvel[0], 0.01, rtol=1e-4)
    for reset in (env.reset, env.reset_to):
        with pytest.raises(VariationError, match="'body_mas' is not a model field"):
            reset(jax.random.key(0), variation={"body_mas": mass})


def test_spaces_are_gymnasiums(env):
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    assert env.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    class ImageEncoder(toys.Puck):
        def observe(self, physics, memory):
            return {"state": physics.qpos, "pixels/front": jnp.zeros((4, 6, 3), jnp.uint8)}

    assert Env(ImageEncoder(), "fake").observation_space == gymnasium.spaces.Dict(
        {
            "state": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "pixels/front": gymnasium.spaces.Box(0, 255, (4, 6, 3), np.uint8),
        }
    )


def test_what_is_wrong_with_an_action(env):
    state = env.reset(jax.random.key(0))
    with pytest.raises(ActionError, match=r"shape \(3,\); this environment takes \(2,\)"):
        env.step(state, np.zeros(3, np.float32))
    with pytest.raises(ActionError, match="dtype int32; give floating point numbers"):
        env.step(state, np.zeros(2, np.int32))
    with pytest.raises(ActionError, match="dtype bool"):
        env.step(state, jnp.ones(2, bool))
    with pytest.raises(ActionError, match=r"at index \(1,\) is inf; it must be finite"):
        env.step(state, [0.0, np.inf])
    # In a program the shape and the dtype are known, the values not.
    with pytest.raises(ActionError, match="shape"):
        jax.jit(env.step)(state, np.zeros(3, np.float32))
    # Lists and float64 are welcome.
    jax.tree.map(
        np.testing.assert_array_equal,
        env.step(state, [0.25, 0.5]),
        env.step(state, np.array([0.25, 0.5])),
    )


@pytest.mark.parametrize("physics", ["native", "fake"])
def test_an_action_that_is_none_ends_the_episode(physics):
    env = Env(toys.Puck(wall=-9), physics)  # it would terminate
    state = env.reset(jax.random.key(0))
    after = jax.jit(env.step)(state, np.array([np.nan, 0], np.float32))
    assert after.diverged
    assert not after.terminated
    assert after.reward == 0
    np.testing.assert_array_equal(after.obs, state.obs)
    assert after.memory == state.memory
    assert not any(after.metrics.values())


def test_controls_may_be_any_inputs():
    class Wind(toys.Puck):
        def control(self, action, physics, memory):
            force = jnp.zeros((2, 6)).at[1, :2].set(action)
            return {"ctrl": jnp.zeros(2), "xfrc_applied": force}

    env = Env(Wind(), "native")
    state = env.reset_to(jax.random.key(0), qvel=jnp.zeros(2))
    after = env.step(state, np.array([0, 1], np.float32))
    np.testing.assert_allclose(after.physics.qvel, [0, 0.02], rtol=1e-5)
    assert env.physics.reads.inputs == ("ctrl", "xfrc_applied")


def test_a_start_may_give_any_inputs():
    class Armed(toys.Swing):
        def mjcf(self):
            return toys.ARM

        def start(self, key):
            act = jnp.array([0.5, -0.5])
            return Start(qpos=jnp.zeros(2), qvel=jnp.zeros(2), inputs={"act": act})

    env = Env(Armed(), "native")
    np.testing.assert_array_equal(env.reset(jax.random.key(0)).physics.act, [0.5, -0.5])


def test_control_steps_are_whole_physics_steps():
    assert Env(toys.Puck(), "fake").substeps == 2
    with pytest.raises(
        ModelError, match=r"0\.025 s is no multiple of the model's time step 0\.01 s; choose"
    ):
        Env(toys.Puck(control_timestep=0.025), "fake")
    with pytest.raises(ModelError, match=r"0\.001 s is no multiple"):
        Env(toys.Puck(control_timestep=0.001), "fake")


def test_engines():
    assert "native" in repr(worldline.Env(toys.Puck()))
    with pytest.raises(ConfigError, match="no physics engine 'nativ'; did you mean 'native'"):
        Env(toys.Puck(), "nativ")
    from worldline.physics.fake import FakePhysics

    assert isinstance(Env(toys.Puck(), FakePhysics).physics, FakePhysics)


def broken(**functions: Any) -> Task:
    """The puck with some of its functions replaced."""
    return type("Broken", (toys.Puck,), functions)()


def good_outcome(**parts: Any) -> Outcome:
    return Outcome(**{"reward": jnp.zeros(()), "terminated": jnp.asarray(False), **parts})


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"start": lambda self, key: (0, 0)}, r"start returns a tuple; it must return a Start"),
        (
            {"start": lambda self, key: Start(qpos=jnp.zeros(3), qvel=jnp.zeros(2))},
            r"start returns qpos of shape \(3,\); the model needs \(2,\)",
        ),
        (
            {"start": lambda self, key: Start(qpos=jnp.zeros(2), qvel=jnp.zeros(1))},
            r"start returns qvel of shape \(1,\); the model needs \(2,\)",
        ),
        (
            {
                "start": lambda self, key: Start(
                    qpos=jnp.zeros(2), qvel=jnp.zeros(2), inputs={"ctrl": jnp.zeros(3)}
                )
            },
            r"start returns ctrl of shape \(3,\); the model needs \(2,\)",
        ),
        (
            {"control": lambda self, action, physics, memory: action[:1]},
            r"control returns ctrl of shape \(1,\); the model needs \(2,\)",
        ),
        (
            {"outcome": lambda self, *_: (0.0, False)},
            "outcome returns a tuple; it must return an Outcome",
        ),
        (
            {"outcome": lambda self, *_: good_outcome(reward=jnp.zeros(2), memory=jnp.int32(0))},
            r"outcome returns a reward of shape \(2,\); it must be a scalar",
        ),
        (
            {
                "outcome": lambda self, *_: good_outcome(
                    terminated=jnp.zeros(1), memory=jnp.int32(0)
                )
            },
            r"outcome returns a terminated of shape \(1,\); it must be a scalar",
        ),
        (
            {"outcome": lambda self, *_: good_outcome(memory=jnp.float32(0))},
            r"outcome changes the memory's structure from int32\[\] to float32\[\]; it must",
        ),
        (
            {"outcome": lambda self, *_: good_outcome(memory={"a": jnp.int32(0)})},
            "outcome changes the memory's structure",
        ),
    ],
)
def test_a_task_that_breaks_its_contract(functions, message):
    with pytest.raises(TaskError, match=f"Broken.{message}"):
        Env(broken(**functions), "fake")


def test_a_field_or_an_input_that_does_not_exist():
    with pytest.raises(ModelError, match=r"'xpo' is not an MjData field.*'xpos'"):
        Env(broken(fields=("xpo",)), "fake")
    with pytest.raises(ModelError, match=r"the physics has no input 'ctl'.*'ctrl'"):
        Env(broken(control=lambda self, action, physics, memory: {"ctl": action}), "fake")


def test_a_task_is_its_configuration():
    task = toys.Puck(wall=2.0)
    assert dataclasses.asdict(task)["wall"] == 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.wall = 3.0
    assert task.model is task.model
    assert task.fields == task.changes == ()
    low, high = task.action_bounds
    np.testing.assert_array_equal([low, high], [[-1, -1], [1, 1]])
    assert dict(task.camera) == {}
    with pytest.raises(TypeError, match="abstract"):
        Task()


def test_a_python_number_may_be_a_memory():
    class Python(toys.Puck):
        def start(self, key):
            good = super().start(key)
            return Start(qpos=good.qpos, qvel=good.qvel, memory=0)

    env = Env(Python(), "fake")
    step = jax.jit(env.step)
    state = env.reset(jax.random.key(0))
    for _ in range(3):
        state = step(state, np.zeros(2, np.float32))
    assert state.memory == 3
    assert step._cache_size() == 1
