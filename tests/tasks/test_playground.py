"""What Playground's tasks are made of, by hand, where `make parity` compares whole steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import worldline
from worldline.errors import MissingExtraError, TaskError
from worldline.tasks.playground import assets, commands, costs, feet, gait
from worldline.tasks.playground.barkour import Kicks
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.feet import Feet
from worldline.tasks.playground.legged import noisy
from worldline.tasks.playground.pushes import Knocks, Pushes, knock
from worldline.tasks.registry import load_task

#: Chance of a false alarm of one comparison; the seeds are fixed, so it is met once, or never.
ALPHA = 1e-5


def many(draw, count=2000):
    """Draws from many keys."""
    return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), count)))


def test_without_the_packages_one_line_names_the_install(monkeypatch):
    monkeypatch.setattr(assets, "PACKAGES", ("packages_that_nobody_has",))
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    for name in ("playground/go1-joystick-flat", "playground/barkour-joystick"):
        with pytest.raises(MissingExtraError, match=r"pip install .*\[robots\]'") as caught:
            _ = load_task(name).model
        assert "\n" not in str(caught.value)


def test_a_menagerie_of_ones_own_comes_first(monkeypatch, tmp_path):
    packaged = assets.menagerie("google_barkour_vb/scene_mjx.xml")
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    assert assets.menagerie("google_barkour_vb/scene_mjx.xml") == packaged  # not there yet
    own = tmp_path / "google_barkour_vb" / "scene_mjx.xml"
    own.parent.mkdir()
    own.write_text("<mujoco/>")
    assert assets.menagerie("google_barkour_vb/scene_mjx.xml") == own


def test_feet_by_hand():
    """Two feet, of which one steps: off the ground for two steps, then down."""
    walked = Feet.at_start(2)
    heights = [[0.0, 0.1], [0.0, 0.3], [0.0, 0.02], [0.0, 0.02]]
    touches = [[True, False], [True, False], [True, True], [True, True]]
    seen = []
    for touching, height in zip(touches, heights, strict=True):
        walked, landed = walked.step(jnp.array(touching), jnp.array(height), 0.02)
        seen.append((walked.air_time[1], walked.swing_peak[1], landed[1], walked.last_contact[1]))
    seconds, peaks, landings, before = np.transpose(seen)
    np.testing.assert_allclose(seconds, [0.02, 0.04, 0.06, 0.02], rtol=1e-5)
    np.testing.assert_allclose(peaks, [0.1, 0.3, 0.3, 0.02], rtol=1e-6)
    np.testing.assert_array_equal(landings, [False, False, True, False])
    np.testing.assert_array_equal(before, [False, False, False, True])
    assert walked.mean_peak() == 0


def test_terms_of_feet_by_hand():
    velocity, height = jnp.array([[3.0, 4.0, 9.0], [0.0, 0.0, 1.0]]), jnp.array([0.3, 0.0])
    on_ground = jnp.array([True, True])
    assert feet.slip(velocity, on_ground) == 25
    np.testing.assert_allclose(feet.clearance(velocity, height, 0.1), 0.2 * np.sqrt(5), rtol=1e-5)
    np.testing.assert_allclose(feet.swing_height(height, on_ground, 0.1), 4 + 1, rtol=1e-5)
    landed = jnp.array([True, False])
    np.testing.assert_allclose(feet.air_time(height, landed, 0.1), 0.2, rtol=1e-5)
    np.testing.assert_allclose(feet.air_time(height, landed, 0.1, 0.25), 0.15, rtol=1e-5)
    np.testing.assert_allclose(feet.root_speed(velocity), [np.sqrt(5), 0], rtol=1e-6)
    # At rest no derivative is infinite.
    slope = jax.grad(lambda v: feet.clearance(v, height, 0.1))(jnp.zeros((2, 3)))
    np.testing.assert_array_equal(slope, np.zeros((2, 3)))


def test_costs_by_hand():
    forces = jnp.array([3.0, -4.0])
    assert costs.torques(forces) == 5 + 7
    assert costs.energy(jnp.array([-2.0, 1.0]), forces) == 10
    assert costs.beyond_limits(jnp.array([-2.0, 0.5, 4.0]), -1.0, 1.0) == 1 + 3
    ones = jnp.ones(2)
    assert costs.action_rate(3 * ones, ones) == 8
    assert costs.action_smoothness(3 * ones, ones, 0 * ones) == 8 + 2
    command, velocity = jnp.array([1.0, 0.0, 2.0]), jnp.array([0.5, 0.5, 9.0])
    np.testing.assert_allclose(costs.linear_tracking(command, velocity, 0.25), np.exp(-2))
    np.testing.assert_allclose(costs.angular_tracking(command, 0 * velocity, 0.5), np.exp(-8))
    assert jnp.isfinite(jax.grad(costs.torques)(jnp.zeros(2))).all()


def test_a_command_lasts_as_long_as_it_says():
    command, fresh = Command(jnp.ones(3), jnp.int32(2)), 2 * jnp.ones(3)
    values = []
    for _ in range(6):
        command = command.next(fresh * len(values), jnp.int32(3))
        values.append(float(command.velocity[0]))
    assert values == [1, 1, 4, 4, 4, 10]


def test_commands_are_distributed_as_they_say():
    low, high = [-1.0, 0.0, 2.0], [1.0, 0.5, 3.0]
    drawn = many(lambda key: commands.within(key, low, high, 0.25))
    still = (drawn == 0).all(axis=1)
    assert stats.binomtest(int(still.sum()), len(drawn), 0.25).pvalue > ALPHA
    shares = (drawn[~still] - low) / np.subtract(high, low)
    assert all(stats.kstest(column, "uniform").pvalue > ALPHA for column in shares.T)
    kept = many(lambda key: commands.changed(key, 9 * jnp.ones(3), [1.0] * 3, [0.9, 0.25, 0.5]))
    for column, keep in zip(kept.T, [0.9, 0.25, 0.5], strict=True):
        counts = [(column == 9).sum(), (column == 0).sum(), (np.abs(column) < 1).sum()]
        counts[2] -= counts[1]
        wanted = len(column) * np.array([0.5, 0.5 * (1 - keep), 0.5 * keep])
        assert stats.chisquare(counts, wanted).pvalue > ALPHA
    steps = many(lambda key: commands.exponential_steps(key, 250.0))
    assert steps.min() >= 1
    assert stats.kstest(steps / 250.0, "expon").pvalue > ALPHA


def test_noise_is_uniform_up_to_its_size():
    drawn = many(lambda key: jnp.concatenate(noisy(key, [jnp.ones(2), jnp.zeros(1)], [0.5, 2], 3)))
    shares = (drawn - [1, 1, 0]) / [1.5, 1.5, 6.0]
    assert all(stats.kstest(column, "uniform", (-1, 2)).pvalue > ALPHA for column in shares.T)
    assert abs(np.corrcoef(shares.T)[np.triu_indices(3, 1)]).max() < 0.1


def test_a_push_comes_when_it_should_and_adds_its_speed():
    """A half sine wave of a fifth of a second, each 10 steps; a third of the speed stays."""
    pushes = Pushes.at_start(jax.random.key(0), (0.2, 0.2), (0.2, 0.2), (3.0, 3.0), 0.02)
    keys, seen = jax.random.split(jax.random.key(1), 50), []
    for key in keys:
        pushes = pushes.step(key, 0.02)
        seen.append(np.asarray(pushes.acceleration))
    size = np.linalg.norm(seen, axis=1)
    first = size[10:21]  # the step in which the tenth has been waited for is the last without
    np.testing.assert_allclose(first, 7.5 * np.sin(np.pi * np.arange(11) / 10), atol=1e-4)
    assert (size[:10] == 0).all()
    np.testing.assert_allclose(0.02 * first.sum(), 3 / np.pi, rtol=0.01)
    assert np.asarray(seen)[:, 2].max() == 0
    assert (size[21:30] == 0).all()
    assert size[31:40].max() > 7


def test_kicks_come_by_the_clock_and_the_clock_begins_anew():
    kicks = Kicks(
        wait=jnp.int32(4), steps=jnp.int32(2), speed=jnp.float32(1.0), clock=jnp.int32(0),
        last=jnp.int32(-1_000_000), direction=jnp.zeros(3),
    )  # fmt: skip
    pushed, clocks = [], []
    for key in jax.random.split(jax.random.key(0), 12):
        kicks = kicks.next(key)
        pushed.append(float(jnp.linalg.norm(kicks.acceleration(0.02))))
        kicks = kicks.counted(7)
        clocks.append(int(kicks.clock))
    assert clocks == [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(pushed, [0.0] * 5 + [12.5] + [0.0] * 6, atol=1e-4)


def test_a_knock_comes_each_time_that_has_been_waited_for():
    knocks, seen = Knocks(wait=jnp.int32(3), clock=jnp.int32(0)), []
    for _ in range(7):
        seen.append(float(knocks.change(jnp.array([2.0, 0.0]))[0]))
        knocks = knocks.counted()
    assert seen == [0, 0, 2, 0, 0, 2, 0]
    drawn = many(lambda key: knock(key, (0.5, 1.5)))
    assert stats.kstest(np.linalg.norm(drawn, axis=1), "uniform", (0.5, 1)).pvalue > ALPHA
    angles = np.arctan2(*drawn.T)
    assert stats.kstest(angles, "uniform", (-np.pi, 2 * np.pi)).pvalue > ALPHA
    waits = many(lambda key: Knocks.at_start(key, (1.0, 2.0), 0.02).wait)
    assert (waits.min(), waits.max()) == (50, 100)


@pytest.mark.exhaustive
def test_a_humanoid_that_gets_a_knock_has_its_velocity():
    """`control` asks for the velocity in the one step of two in which a knock comes."""
    options = {"push_wait": (0.04, 0.04), "push_speed": (3.0, 3.0)}
    env = worldline.make("playground/g1-joystick-flat", **options)
    step, action = jax.jit(env.step), jnp.zeros(29)
    first = jax.jit(env.reset)(jax.random.key(0))
    second = step(first, action)
    inputs = [env.task.control(action, s.physics, s.memory) for s in (first, second)]
    for state, given, speed in zip((first, second), inputs, (0, 3), strict=True):
        change = given["qvel"] - state.physics.qvel
        np.testing.assert_allclose(np.linalg.norm(change[:2]), speed, atol=1e-5)
        np.testing.assert_array_equal(change[2:], 0)
    # The speed of the whole robot's base, of which the legs take some within the step.
    moved = step(second, action).physics.qvel[:2] - second.physics.qvel[:2]
    assert np.linalg.norm(moved) > 1.5


def test_a_g1_with_narrow_ranges_of_its_legs():
    wide, narrow = (
        load_task("playground/g1-joystick-flat", restricted_joint_range=narrow).model.mj
        for narrow in (False, True)
    )
    np.testing.assert_array_equal(narrow.joint("right_knee_joint").range, [0, 1.57])
    np.testing.assert_allclose(narrow.jnt_range[1:], narrow.actuator_ctrlrange, rtol=1e-12)
    np.testing.assert_array_equal(narrow.jnt_range[13:], wide.jnt_range[13:])  # waist, arms


def test_the_domain_of_a_g1_has_one_friction_of_both_feet():
    task = load_task("playground/g1-joystick-flat")
    domain, stored = task.domains["playground"], task.model.constant("pair_friction")
    drawn = np.asarray(domain(jax.random.key(0), task.model, domain.ranges)["pair_friction"])
    assert 0.4 < drawn[0, 0] < 1.0
    np.testing.assert_array_equal(drawn[:2, :2], drawn[0, 0])
    np.testing.assert_allclose(drawn[:2, 2:], stored[:2, 2:], rtol=1e-6)
    np.testing.assert_allclose(drawn[2:], stored[2:], rtol=1e-6)


def test_gaits_by_hand():
    height = gait.foot_height(jnp.array([-np.pi, -np.pi / 2, 0.0, np.pi / 2, np.pi]), 0.1)
    np.testing.assert_allclose(height, [0, 0.05, 0.1, 0.05, 0], atol=1e-6)
    phases = gait.advanced(jnp.array([3.0, -1.0]), jnp.float32(0.5))
    np.testing.assert_allclose(phases, [3.5 - 2 * np.pi, -0.5], rtol=1e-5)
    with pytest.raises(TaskError, match="no gait is called 'trott'; did you mean 'trot'"):
        load_task("playground/spot-gait-tracking", gaits=("trott",))
    with pytest.raises(TaskError, match="no gait is called 'jumpp'; did you mean 'jump'"):
        load_task("playground/h1-inplace-gait-tracking", gaits=("jumpp",))


def test_the_model_is_the_one_that_playground_trains_with():
    """Gains of 35 and 0.5 in place of the file's, four contacts, one iteration of the solver."""
    model = load_task("playground/go1-joystick-flat", stiffness=20.0).model.mj
    np.testing.assert_array_equal(model.actuator_gainprm[:, 0], 20)
    np.testing.assert_array_equal(model.actuator_biasprm[:, 1], -20)
    np.testing.assert_array_equal(model.dof_damping, [0] * 6 + [0.5] * 12)
    options = model.opt
    assert (options.timestep, options.iterations, options.ccd_iterations) == (0.004, 1, 20)
    assert (model.geom_conaffinity > 0).sum() == 4


def test_a_domain_moves_the_angle_that_a_joint_reads():
    """The zero of an angle is a constant of each world: the leg is elsewhere at the same `qpos`."""
    env = worldline.make("playground/go1-joystick-flat")
    domain = env.task.domains["playground"]
    drawn = domain(jax.random.key(0), env.model, domain.ranges)
    offsets = drawn["qpos0"] - env.model.qpos0
    np.testing.assert_array_equal(offsets[:7], 0)
    assert ((np.abs(offsets[7:]) > 0) & (np.abs(offsets[7:]) < 0.05)).all()
    qpos, only = env.task.home, {"qpos0": drawn["qpos0"]}
    places = [
        env.reset_to(jax.random.key(0), qpos=qpos, variation=own).physics.fields["site_xpos"]
        for own in ({}, only)
    ]
    assert np.abs(places[0] - places[1]).max() > 1e-3


@pytest.mark.parametrize("name", ["go1", "barkour", "apollo", "g1", "berkeley"])
def test_a_robot_that_tilts_beyond_the_limit_has_fallen(name):
    """At home and tilted by 0.4 rad, of which the cosine is 0.921."""
    name = f"playground/{name}-joystick" + ("" if name == "barkour" else "-flat")
    for limit, falls in [(0.93, True), (0.91, False)]:
        env = worldline.make(name, upright_limit=limit)
        home = env.model.mj.key(env.task.keyframe).qpos.copy()
        home[2] += 0.2
        home[3:7] = np.cos(0.2), np.sin(0.2), 0.0, 0.0
        state = env.reset_to(jax.random.key(0), qpos=home, qvel=np.zeros(env.model.nv))
        action = jnp.zeros(env.action_low.size)
        outcome = env.task.outcome(state.physics, action, state.physics, state.memory)
        assert bool(outcome.terminated) == falls
