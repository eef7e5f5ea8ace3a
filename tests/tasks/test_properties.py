"""What holds for every task, on the real engine and on the fake one."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten_space
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.env.env import Env, EnvState
from worldline.env.task import inputs_of
from worldline.tasks.registry import list_tasks, make

WORLDS, STEPS = 6, 25


def family(name: str) -> str:
    """What a task shares its code with."""
    if name.startswith("playground/"):
        return "playground"
    return name.partition("-")[0] if name.startswith("suite/") else name


#: One task of each of the suite's domains and of Playground, and every other task.
ONE_OF_EACH = {
    **{family(name): name for name in list_tasks()},
    "playground": "playground/go1-joystick-flat",
}.values()


def case(*values: str) -> object:
    """A test's parameters; the other tasks of a domain, which differ in a number, wait for
    `make nightly`."""
    marks = [] if values[0] in ONE_OF_EACH else [pytest.mark.exhaustive]
    return pytest.param(*values, marks=marks)


every_task = pytest.mark.parametrize("name", [case(name) for name in list_tasks()])
every_task_and_engine = pytest.mark.parametrize(
    ("name", "engine"),
    [case(name, "native") for name in list_tasks()]
    + [case(name, "fake") for name in list_tasks() if not name.startswith("suite/")]
    + [
        pytest.param(name, "fake", marks=pytest.mark.exhaustive)
        for name in list_tasks()
        if name.startswith("suite/")
    ],
)
some_seeds = settings(max_examples=4, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


@pytest.fixture(scope="module", autouse=True)
def _compile_quickly():
    """Many programs, each run a few times: XLA is not to take its time over them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


class Rollout(NamedTuple):
    """`WORLDS` worlds from their starts through `STEPS` random actions; NumPy leaves."""

    start: EnvState
    """`(WORLDS, ...)`"""
    states: EnvState
    """`(STEPS, WORLDS, ...)`"""


def in_one(state: EnvState) -> EnvState:
    """The state with all parts of its observation side by side, in the order of their names."""
    if not isinstance(state.obs, dict):
        return state
    parts = [state.obs[name] for name in sorted(state.obs)]
    return dataclasses.replace(state, obs=jnp.concatenate(parts, axis=-1))


@functools.cache
def program(name: str, engine: str):
    """The environment, and its compiled rollout of given seeds and actions."""
    env = make(name, physics=engine)

    def step(state, action):
        following = jax.vmap(env.step)(state, action)
        return following, in_one(following)

    @jax.jit
    def run(seeds, actions):
        start = jax.vmap(env.reset)(jax.vmap(jax.random.key)(seeds))
        return Rollout(in_one(start), jax.lax.scan(step, start, actions)[1])

    return env, run


def random_inputs(env: Env, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Different seeds of worlds, `(WORLDS,)`, and uniform actions, `(STEPS, WORLDS, nact)`."""
    rng = np.random.default_rng(seed)
    worlds = rng.choice(2**31, WORLDS, replace=False)
    low, high = env.action_low, env.action_high
    return worlds, rng.uniform(low, high, (STEPS, WORLDS, low.size)).astype(np.float32)


def roll(name: str, engine: str, seed: int) -> tuple[Env, Rollout]:
    env, run = program(name, engine)
    return env, jax.device_get(run(*random_inputs(env, seed)))


def assert_same(left, right) -> None:
    """Bit for bit."""
    jax.tree.map(np.testing.assert_array_equal, left, right)


@every_task_and_engine
@given(seed=seeds)
@some_seeds
def test_a_world_is_its_key(name, engine, seed):
    _, once = roll(name, engine, seed)
    _, again = roll(name, engine, seed)
    assert_same(once, again)
    # Worlds of other keys are other worlds.
    for obs in (once.start.obs, once.states.obs[-1]):
        assert len(np.unique(obs, axis=0)) == WORLDS


@every_task_and_engine
@given(seed=seeds, changed=st.integers(0, WORLDS - 1))
@some_seeds
def test_worlds_share_nothing(name, engine, seed, changed):
    env, run = program(name, engine)
    worlds, actions = random_inputs(env, seed)
    first = jax.device_get(run(worlds, actions))
    others = np.arange(WORLDS) != changed
    worlds[changed] += 1
    actions[:, changed] *= 0.5
    second = jax.device_get(run(worlds, actions))
    assert_same(
        jax.tree.map(lambda x: x[others], first.start),
        jax.tree.map(lambda x: x[others], second.start),
    )
    assert_same(
        jax.tree.map(lambda x: x[:, others], first.states),
        jax.tree.map(lambda x: x[:, others], second.states),
    )
    assert (first.start.obs[changed] != second.start.obs[changed]).any()
    assert (first.states.obs[-1, changed] != second.states.obs[-1, changed]).any()


@every_task_and_engine
@given(seed=seeds)
@some_seeds
def test_all_is_finite_and_in_its_space(name, engine, seed):
    env, rollout = roll(name, engine, seed)
    space = flatten_space(env.observation_space)
    for states in (rollout.start, rollout.states):
        assert states.obs.dtype == space.dtype
        assert states.obs.shape[-1:] == space.shape
        assert states.reward.dtype == np.float32
        assert states.terminated.dtype == bool
        for leaf in (states.obs, states.reward, *states.metrics.values()):
            assert np.isfinite(leaf).all()
        assert not states.diverged.any()


@every_task
def test_the_largest_actions_are_within_the_motors_limits(name):
    env, rollout = roll(name, "native", 0)
    physics, memory = rollout.start.physics, rollout.start.memory
    low, high = env.model.ctrlrange.T
    for action in (env.action_low, env.action_high):
        inputs = jax.vmap(functools.partial(inputs_of, env.task, action))(physics, memory)
        ctrl = np.asarray(inputs["ctrl"])
        assert ((low <= ctrl) & (ctrl <= high)).all()


@every_task
@given(seed=seeds, data=st.data())
@some_seeds
def test_every_motor_moves_the_world(name, seed, data):
    env, run = program(name, "native")
    motor = data.draw(st.integers(0, env.action_low.size - 1))
    worlds, actions = random_inputs(env, seed)
    moved = jax.device_get(run(worlds, actions).states.physics.qvel[0])
    actions[:, :, motor] = 0.0
    still = jax.device_get(run(worlds, actions).states.physics.qvel[0])
    assert (moved != still).any(axis=-1).all()


def constant_by_design(env: Env, name: str) -> set[int]:
    """Components of an observation that random motion from a start need not change, and why."""
    if name == "gym/inverted-double-pendulum":
        return {8}  # the force at the ends of the rail, which the cart does not reach
    if name == "gym/pusher":
        return {19, 20, 21, 22}  # the object stays on the table; the goal stays where it is
    if name == "arm/pick-cube":
        return {5, 10, 11}  # the height of a cube that nobody lifts; fingertips that touch nothing
    if name in ("gym/ant", "gym/humanoid", "gym/humanoid-standup"):
        return body_constants(env, name)
    if name.startswith("suite/"):
        return unfelt(env)
    if name.startswith("playground/go1-joystick"):
        return {119, 120, 121, 122}  # the push, which is off
    return set()


def unfelt(env: Env) -> set[int]:
    """What is felt at a touch alone, or seen near by, in the suite's tasks."""
    features = env.task.features(env.reset(jax.random.key(0)).physics)
    names = np.concatenate([np.full(np.size(value), name) for name, value in features.items()])
    return set(np.flatnonzero(np.isin(names, ["touch", "force_torque", "rangefinder"])).tolist())


def body_constants(env: Env, name: str) -> set[int]:
    """What never changes of the bodies: no contact, no actuator, or a mass."""
    model, constant = env.model, set()
    nbody, nv = model.mj.nbody, model.nv
    column = model.nq - 2 + nv
    if name != "gym/ant":
        # The tenth number of `cinert` is the mass.
        constant |= {column + 10 * body + 9 for body in range(nbody - 1)}
        column += 10 * (nbody - 1) + 6 * (nbody - 1) + nv - 6
    # The last are forces on bodies, of which in few steps not all touch anything.
    return constant | set(range(column, env.observation_space.shape[0]))


@pytest.mark.parametrize("name", [case(n) for n in list_tasks() if n.startswith("suite/")])
@given(seed=seeds)
@some_seeds
def test_the_suites_rewards_are_between_zero_and_one(name, seed):
    _, rollout = roll(name, "native", seed)
    assert (rollout.states.reward >= 0).all()
    assert (rollout.states.reward <= 1 + 1e-6).all()
    assert not rollout.states.terminated.any()


# All fields of the fake engine move alike, so that what the suite sees of two is constant there.
@pytest.mark.parametrize(
    ("name", "engine"),
    [case(name, "native") for name in list_tasks()]
    # On it nothing touches, which robots with legs observe.
    + [case(name, "fake") for name in list_tasks() if not name.startswith(("suite/", "playg"))],
)
def test_no_observation_is_constant(name, engine):
    env, rollout = roll(name, engine, 0)
    constant = set(np.flatnonzero(np.ptp(rollout.states.obs, axis=(0, 1)) == 0).tolist())
    assert constant <= constant_by_design(env, name)


@pytest.mark.parametrize("name", ["gym/ant", "gym/humanoid", "gym/humanoid-standup"])
def test_contacts_are_felt(name):
    env, rollout = roll(name, "native", 0)
    forces = rollout.states.obs[..., -6 * (env.model.mj.nbody - 1) :]
    assert (forces != 0).any()
    # Gymnasium computes them after a step, and not at a start.
    assert (rollout.start.obs[..., -6 * (env.model.mj.nbody - 1) :] == 0).all()


@every_task
def test_the_names_of_metrics_are_not_those_of_worlds(name):
    _, rollout = roll(name, "fake", 0)
    assert not {"episode_return", "episode_length", "diverged"} & set(rollout.states.metrics)
    assert all(value.shape == (STEPS, WORLDS) for value in rollout.states.metrics.values())
    assert rollout.states.reward.shape == (STEPS, WORLDS)


@every_task
def test_the_task_reads_no_more_than_it_uses(name):
    env, _ = program(name, "fake")
    state = jax.eval_shape(env.reset, jax.random.key(0))
    physics, memory = state.physics, state.memory
    action = jnp.zeros(env.action_low.shape)

    def use(physics, memory):
        return (
            env.task.control(action, physics, memory),
            env.task.observe(physics, memory),
            env.task.outcome(physics, action, physics, memory),
        )

    used = jax.make_jaxpr(use)(physics, memory).jaxpr
    read = {id(var) for equation in used.eqns for var in equation.invars} | {
        id(var) for var in used.outvars
    }
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path((physics, memory))]
    for path, var in zip(names, used.invars, strict=True):
        if ".fields" in path or ".changes" in path:
            assert id(var) in read, path
