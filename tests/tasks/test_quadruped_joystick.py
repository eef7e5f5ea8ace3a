"""robot/quadruped-joystick: its commands, its gait, its falls."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from worldline.env.env import Env
from worldline.errors import TaskError
from worldline.tasks.registry import make
from worldline.tasks.robot.four_legs import HEIGHT, LEGS
from worldline.tasks.robot.quadruped import QuadrupedJoystick
from worldline.tasks.terrain import Terrain


@pytest.fixture(scope="module", autouse=True)
def _compile_quickly():
    """Many programs, each run once: XLA is not to take its time over them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def env() -> Env:
    return Env(QuadrupedJoystick(command_time=0.1))


@pytest.fixture(scope="module")
def start(env):
    """A world at a start."""
    return jax.jit(env.reset)(jax.random.key(3))


@pytest.fixture(scope="module")
def standing(env):
    """Four worlds at their starts, and seventy steps in which the motors hold the stance."""

    def step(state, _):
        following = env.step(state, jnp.zeros(12))
        return following, following

    @jax.jit
    @functools.partial(jax.vmap, out_axes=(0, 1))
    def roll(key):
        start = env.reset(key)
        return start, jax.lax.scan(step, start, None, length=70)[1]

    return jax.device_get(roll(jax.random.split(jax.random.key(0), 4)))


def test_it_stands_where_the_motors_hold_it(standing):
    _, states = standing
    assert not states.terminated.any()
    height = states.physics.qpos[-1, :, 2]
    assert (np.abs(height - HEIGHT) < 0.05).all()
    assert (states.reward > 0).mean() > 0.9


@pytest.mark.parametrize(
    ("velocity", "command", "worth"),
    [
        ((0.0, 0.0), (0.3, 0.0), 0.0),
        ((0.15, 0.0), (0.3, 0.0), 0.5),
        ((0.3, 0.4), (0.3, 0.0), np.exp(-1.0)),
        ((0.9, 0.0), (0.3, 0.0), 1.0),
        ((-0.9, 0.0), (0.3, 0.0), -1.0),
        ((0.3, -0.4), (0.6, -0.8), 0.5),
        ((0.4, 0.0), (0.0, 0.0), np.exp(-1.0)),  # to stand
    ],
)
def test_progress_is_a_share_of_the_commanded_speed(velocity, command, worth, standing):
    _, states = standing
    last = jax.tree.map(lambda x: jnp.asarray(x[-1, 0]), states)
    torso = last.physics.fields["xmat"][1].reshape(3, 3)
    rewards = []
    for progress, weight in ((True, 1.0), (False, 0.0)):
        task = QuadrupedJoystick(progress=progress, linear_reward=weight, bounce_cost=0.0)
        world = torso @ jnp.array([*velocity, 0.0])
        physics = dataclasses.replace(last.physics, qvel=last.physics.qvel.at[:3].set(world))
        memory = dataclasses.replace(last.memory, command=jnp.array([*command, 0.0]))
        rewards.append(float(task.outcome(physics, jnp.zeros(12), physics, memory).reward))
    # A reward is never negative.
    assert rewards[0] == pytest.approx(max(rewards[1] + worth, 0.0), abs=1e-4)
    assert rewards[1] > 0.3


@pytest.mark.parametrize(
    ("lowest", "share"), [(0.2, 0.0), (0.08, 0.0), (0.06, 0.25), (0.0, 1.0), (-0.03, 1.0)]
)
def test_a_torso_near_the_ground_costs(lowest, share, env, standing):
    _, states = standing
    last = jax.tree.map(lambda x: jnp.asarray(x[-1, 0]), states)
    nose = env.model.id("site", "left front")
    places = last.physics.fields["site_xpos"].at[nose, 2].set(lowest)
    physics = dataclasses.replace(last.physics, fields={**last.physics.fields, "site_xpos": places})
    costs = []
    for clearance_cost in (0.0, 0.8):
        task = QuadrupedJoystick(clearance_cost=clearance_cost)
        costs.append(task.outcome(physics, jnp.zeros(12), physics, last.memory).metrics["cost"])
    assert float(costs[1] - costs[0]) == pytest.approx(0.8 * share, abs=1e-6)


def test_commands_change_within_an_episode_and_only_then(standing):
    _, states = standing
    command = states.memory.command
    changed = (command[1:] != command[:-1]).any(axis=-1)
    # Every 5 steps; two commands in a row may both be to stand, which is no change.
    assert not changed[np.arange(69) % 5 != 3].any()
    assert changed[np.arange(69) % 5 == 3].mean() > 0.9
    assert len(np.unique(command[:, :, 0])) > 30


@pytest.mark.parametrize("slowest", [None, (0.3, -0.1, -0.5)])
def test_commands_are_distributed_as_stated(slowest):
    most = (1.0, 0.5, 2.0)
    task = QuadrupedJoystick(fastest=most, slowest=slowest, stand_probability=0.25)
    commands = np.asarray(jax.vmap(task.command)(jax.random.split(jax.random.key(1), 4000)))
    still = (commands == 0).all(axis=1)
    assert stats.binomtest(int(still.sum()), 4000, 0.25).pvalue > 1e-4
    least = slowest or (-1.0, -0.5, -2.0)
    (command,) = [part for part in task.observation_parts["state"] if part.name == "command"]
    assert (command.low, command.high) == (least, most)
    for column, low, high in zip(commands[~still].T, least, most, strict=True):
        assert stats.kstest(column, stats.uniform(low, high - low).cdf).pvalue > 1e-4


def test_commands_out_of_order_are_refused():
    with pytest.raises(TaskError, match=r"slowest is \(0.9, 0, 0\), in part above fastest"):
        QuadrupedJoystick(slowest=(0.9, 0, 0))
    with pytest.raises(TaskError, match="heading_gain is -1"):
        QuadrupedJoystick(heading_gain=-1)
    for slowest in [(0.3, 0, 0), (0.3, 0, 0.1)]:
        with pytest.raises(TaskError, match=f"turning velocity is {slowest[2]:g} to 0.8 rad/s"):
            QuadrupedJoystick(heading_gain=1.0, slowest=slowest)


@pytest.mark.parametrize(
    ("heading", "yaw", "command", "steps", "turning"),
    [
        (0.0, 0.0, (0.5, 0.0, 0.0), 9, 0.0),
        (0.3, 0.1, (0.5, 0.0, 0.0), 9, 0.4),  # 2 for each of 0.2 rad to the left
        (0.0, 0.1, (0.0, 0.1, 0.4), 9, -0.2),  # to the right
        (2.0, 0.0, (0.5, 0.0, 0.0), 9, 0.5),  # as fast as allowed
        (0.0, 2.0, (0.5, 0.0, 0.0), 9, -0.3),
        (3.1, -3.1, (0.5, 0.0, 0.0), 9, 2 * (6.2 - 2 * np.pi)),  # the shorter way round
        (2.0, 0.0, (0.0, 0.0, 0.0), 9, 0.0),  # to stand
        (2.0, 1.5, (0.5, 0.0, 0.0), 1, 0.0),  # a new command, and a new heading with it
    ],
)
def test_it_is_told_to_turn_back_to_its_heading(start, heading, yaw, command, steps, turning):
    task = QuadrupedJoystick(
        heading_gain=2.0,
        slowest=(0.3, -0.1, -0.3),
        fastest=(0.8, 0.1, 0.5),
        stand_probability=0.0,
    )
    torso = jnp.array([[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])
    xmat = start.physics.fields["xmat"]
    turned = xmat.at[1].set(torso.reshape(xmat[1].shape))
    physics = eqx.tree_at(lambda p: p.fields["xmat"], start.physics, turned)
    memory = dataclasses.replace(
        start.memory,
        command=jnp.array(command),
        steps=jnp.int32(steps),
        heading=jnp.float32(heading),
    )
    after = task.outcome(physics, jnp.zeros(12), physics, memory).memory
    assert float(after.command[2]) == pytest.approx(turning, abs=1e-5)
    new = steps == 1
    assert float(after.heading) == pytest.approx(yaw if new else heading, abs=1e-5)
    assert new != bool((after.command[:2] == jnp.array(command)[:2]).all())


def test_it_first_keeps_the_heading_of_its_start():
    task = QuadrupedJoystick(heading_gain=2.0)
    first = task.start(jax.random.key(3))
    half = np.arctan2(first.qpos[6], first.qpos[3])
    assert float(first.memory.heading) == pytest.approx(2 * half, abs=1e-5)
    assert float(first.memory.command[2]) == 0.0
    assert QuadrupedJoystick().start(jax.random.key(3)).memory.heading is None


@pytest.mark.parametrize(
    ("heading", "velocity", "error"),
    [
        (0.0, (0.5, 0.0), 0.0),
        (np.pi / 2, (0.0, 0.5), 0.0),  # it headed along y, and still goes there
        (np.pi / 2, (0.5, 0.0), 0.5 * np.sqrt(2)),  # now it goes where it heads
        (np.pi / 6, (0.25 * np.sqrt(3), 0.25), 0.0),
        (np.pi, (0.3, 0.4), np.hypot(0.8, 0.4)),
    ],
)
def test_forward_is_where_it_headed_at_the_last_command(start, heading, velocity, error):
    moving = eqx.tree_at(lambda p: p.qvel, start.physics, jnp.zeros(18).at[:2].set(velocity))
    memory = dataclasses.replace(
        start.memory, command=jnp.array([0.5, 0.0, 0.0]), heading=jnp.float32(heading)
    )
    task = QuadrupedJoystick(heading_gain=1.0)
    found = task.outcome(moving, jnp.zeros(12), moving, memory).metrics["linear_error"]
    assert float(found) == pytest.approx(error, abs=1e-5)


def test_following_is_worth_most(env, start):
    task, physics, memory = env.task, start.physics, start.memory

    def reward(command, velocity):
        moving = eqx.tree_at(lambda p: p.qvel, physics, jnp.zeros(18).at[:3].set(velocity))
        asked = eqx.tree_at(lambda m: m.command, memory, jnp.asarray(command))
        return float(task.outcome(physics, memory.action, moving, asked).reward)

    ahead = task.torso(physics)[:, 0]
    following = reward([0.5, 0.0, 0.0], 0.5 * ahead)
    assert following > reward([0.5, 0.0, 0.0], 0.2 * ahead) > reward([0.5, 0.0, 0.0], -0.5 * ahead)
    assert following > reward([-0.5, 0.0, 0.0], 0.5 * ahead)


def test_the_gait_asks_diagonal_feet_up_in_turn(env, start):
    task, physics = env.task, start.physics
    feet = [env.model.id("site", f"{leg} foot") for leg in LEGS]
    quarter = 0.25 / task.gait_frequency

    def gait(heights, time, command=(0.5, 0.0, 0.0)):
        sites = jnp.zeros_like(physics.fields["site_xpos"])
        sites = sites.at[jnp.array(feet), 2].set(0.025 + jnp.asarray(heights))
        at = eqx.tree_at(lambda p: (p.fields["site_xpos"], p.time), physics, (sites, time))
        return float(task._gait(at, jnp.asarray(command)))

    up = task.step_height
    assert gait([up, 0, 0, up], quarter) == pytest.approx(1)
    assert gait([0, up, up, 0], 3 * quarter) == pytest.approx(1)
    assert gait([0, up, up, 0], quarter) < 0.05
    assert gait([0.0] * 4, quarter, (0.0, 0.0, 0.0)) == pytest.approx(1)


def test_a_fall_ends_the_episode(env, start):
    low = start.physics.qpos.at[2].set(0.1)
    tipped = jnp.zeros((env.model.mj.nbody, 9)).at[:, 8].set(0.3)
    for part, value in (("qpos", low), ("xmat", tipped)):
        where = (lambda p: p.qpos) if part == "qpos" else (lambda p: p.fields["xmat"])
        fallen = eqx.tree_at(where, start.physics, value)
        assert env.task.outcome(start.physics, jnp.zeros(12), fallen, start.memory).terminated


@pytest.mark.parametrize(("height", "falls"), [(0.07, False), (0.05, True)])
def test_how_low_it_may_be_is_an_option(start, height, falls):
    task = QuadrupedJoystick(fallen_height=0.06)
    low = eqx.tree_at(lambda p: p.qpos, start.physics, start.physics.qpos.at[2].set(height))
    outcome = task.outcome(start.physics, jnp.zeros(12), low, start.memory)
    assert bool(outcome.terminated) == falls


@pytest.mark.parametrize(("nose", "falls"), [(-0.05, False), (0.05, True)])
def test_a_torso_that_runs_into_a_step_has_fallen(nose, falls):
    """Level, 15 cm above the platform of a pit, with its nose before or in a step of 20 cm."""
    pit = Terrain(kinds=("stairs_up",), levels=1, tile=4.0, platform=1.0, cell=0.02)
    env = make("robot/quadruped-joystick", terrain=pit, clearance=0.01)
    x, y = map(float, env.task.tiles.middle(0.0, 0.0))
    platform = float(env.task.ground.height(jnp.array([x, y])))
    qpos = env.model.qpos0.copy()
    step = 4.0 / 2 - pit.margin - 2 * pit.step_depth  # the lowest of three, from the middle
    qpos[:3] = x + step + nose - 0.2, y, platform + 0.15 + 0.05
    physics = env.reset_to(jax.random.key(0), qpos=qpos).physics
    seen = env.task.above_ground(physics)
    assert bool(env.task.task._fallen(seen, jnp.ones(3))) == falls
