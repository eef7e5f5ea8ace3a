"""What Playground's arms and hands are made of, by hand or beside MuJoCo and SciPy.

`make parity` compares whole steps.
"""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.transform import Rotation

from worldline.env.task import reads_of
from worldline.errors import TaskError
from worldline.physics.base import blank_state
from worldline.tasks.playground import rotations
from worldline.tasks.playground.jolts import Jolts
from worldline.tasks.playground.panda_kinematics import forward, joints_for
from worldline.tasks.registry import load_task

#: Chance of a false alarm of one comparison; the seeds are fixed, so it is met once, or never.
ALPHA = 1e-5


def many(draw, count=2000):
    """Draws from many keys."""
    keys = jax.random.split(jax.random.key(0), count)
    return jax.device_get(jax.jit(jax.vmap(draw))(keys))


def test_rotations_are_those_of_scipy():
    given = Rotation.random(2, random_state=1)
    one, other = (jnp.asarray(r.as_quat(scalar_first=True), jnp.float32) for r in given)
    both = given[0] * given[1]
    np.testing.assert_allclose(rotations.matrix(one), given[0].as_matrix(), atol=1e-6)
    product = rotations.matrix(rotations.product(one, other))
    np.testing.assert_allclose(product, both.as_matrix(), atol=1e-6)
    back = rotations.matrix(rotations.inverse(one))
    np.testing.assert_allclose(back, given[0].inv().as_matrix(), atol=1e-6)
    angle = (given[0] * given[1].inv()).magnitude()
    np.testing.assert_allclose(rotations.angle_between(one, other), angle, rtol=1e-5)
    assert rotations.angle_between(one, -one) < 1e-3
    spin = np.array([0.3, -2.0, 1.0])
    wanted = (given[0] * Rotation.from_rotvec(0.1 * spin)).as_matrix()
    turned = rotations.turned(one, jnp.asarray(spin, jnp.float32), 0.1)
    np.testing.assert_allclose(rotations.matrix(turned), wanted, atol=1e-6)
    np.testing.assert_allclose(rotations.turned(one, jnp.zeros(3), 0.1), one, atol=1e-6)


def test_any_orientation_is_as_likely():
    """The first axis is anywhere on a sphere: each of its components is uniform."""
    axes = many(lambda key: rotations.matrix(rotations.anywhere(key))[:, 0])
    assert all(stats.kstest(column, "uniform", (-1, 2)).pvalue > ALPHA for column in axes.T)


def test_the_kinematics_are_those_of_the_model():
    model = load_task("playground/panda-pick-cube").model
    data, low, high = mujoco.MjData(model.mj), *model.mj.jnt_range[:7].T
    for joints in np.random.default_rng(0).uniform(low, high, (4, 7)):
        data.qpos[:7] = joints
        mujoco.mj_kinematics(model.mj, data)
        frames = forward(jnp.asarray(joints, jnp.float32))
        for number, (axes, place) in enumerate(frames[:7], start=1):
            link = data.body(f"link{number}")
            np.testing.assert_allclose(place, link.xpos, atol=1e-5)
            np.testing.assert_allclose(axes, link.xmat.reshape(3, 3), atol=1e-5)
        hand = data.body("hand")
        tip = hand.xpos + 0.1034 * hand.xmat.reshape(3, 3)[:, 2]
        np.testing.assert_allclose(frames[7][1], tip, atol=1e-5)
        np.testing.assert_allclose(frames[7][0], hand.xmat.reshape(3, 3), atol=1e-5)


def test_joint_angles_hold_the_hand_where_it_should_be():
    home = jnp.array([0.0, 0.478, 0.0, -1.813, 0.0, 2.346, 0.785])
    solve, place_hand = jax.jit(joints_for), jax.jit(lambda joints: forward(joints)[-1])
    for noise in np.random.default_rng(1).normal(0, 0.2, (8, 7)):
        now = home + jnp.asarray(noise, jnp.float32)
        axes, place = place_hand(now)
        same, reachable = solve(place, axes, now)
        assert reachable
        np.testing.assert_allclose(same, now, atol=2e-3)
        moved, reachable = solve(place + jnp.array([0.0, 0.05, -0.03]), axes, now)
        assert reachable
        found_axes, found = place_hand(moved)
        np.testing.assert_allclose(found, place + np.array([0.0, 0.05, -0.03]), atol=1e-4)
        np.testing.assert_allclose(found_axes, axes, atol=1e-3)
    axes, place = place_hand(home)
    angles, reachable = solve(place + 1.0, axes, home)
    assert not reachable
    assert jnp.isfinite(angles).all()


def test_a_cube_starts_in_the_hand_as_often_as_it_says():
    task = load_task("playground/panda-pick-cube-cartesian", grasped_probability=0.3)
    heights = many(lambda key: task.start(key).qpos[11])
    assert set(np.round(np.unique(heights), 3)) == {np.float32(0.0), np.float32(0.118)}
    assert stats.binomtest(int((heights > 0.1).sum()), len(heights), 0.3).pvalue > ALPHA


def test_the_fingers_are_late_by_a_random_time():
    task = load_task("playground/panda-pick-cube-cartesian", finger_delays=3)
    start = jax.jit(task.start)(jax.random.key(0)).memory
    memory = dataclasses.replace(start, past=jnp.array([2.0, 3.0]))

    def taken(key):
        own = dataclasses.replace(memory, words=jax.random.key_data(key))
        return task._taken(jnp.array([0.5, -0.5, 1.0]), own)

    actions = many(taken)
    np.testing.assert_array_equal(actions[:, :2], np.tile([0.5, -0.5], (2000, 1)))
    counts = [(actions[:, 2] == asked).sum() for asked in (1, 2, 3)]
    assert sum(counts) == 2000
    assert stats.chisquare(counts).pvalue > ALPHA


def test_what_is_pushed_is_seen_and_done_late():
    """By any number of control steps from the fewest to the most; a start is seen at once."""
    task = load_task("playground/panda-robotiq-push-cube")
    physics = blank_state(task.model, reads_of(task), {})
    start = jax.jit(task.start)(jax.random.key(0)).memory
    memory = dataclasses.replace(
        start,
        asked=jnp.arange(1.0, 3.0)[:, None] * jnp.ones(7),
        frames=jnp.arange(1.0, 12.0)[:, None] * jnp.ones(48),
    )

    def late(key):
        own = dataclasses.replace(memory, words=jax.random.key_data(key), begun=jnp.asarray(True))
        return task._taken(jnp.zeros(7), own)[0], task.observe(physics, own)[0]

    for values, fewest, most in zip(many(late), (1, 6), (2, 11), strict=True):
        steps, counts = np.unique(values, return_counts=True)
        np.testing.assert_array_equal(steps, np.arange(fewest, most + 1))
        assert stats.chisquare(counts).pvalue > ALPHA
    seen, frame = jax.jit(lambda m: (task.observe(physics, m), task.frame(physics, m)))(memory)
    np.testing.assert_array_equal(seen, frame)
    with pytest.raises(TaskError, match=r"action_delay is \(2, 1\)"):
        load_task("playground/panda-robotiq-push-cube", action_delay=(2, 1))
    with pytest.raises(TaskError, match="target_ranges"):
        load_task("playground/panda-robotiq-push-cube", target_ranges=(0.1,))


def test_a_jolt_comes_by_the_clock():
    """A half sine wave of 4 control steps after 3, in a direction of length 1."""
    jolts = Jolts.at_start(jax.random.key(0), (3, 3), (4, 4), (2.0, 2.0), (1.0, 1.0))
    forces, directions = [], []
    for key in jax.random.split(jax.random.key(1), 6):
        jolts = jolts.next(key)
        forces.append(jolts.force(0.5, 0.1))
        directions.append(jolts.direction)
        jolts = jolts.counted()
    np.testing.assert_array_equal(forces[:3], np.zeros((3, 6)))
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), [0, 0, 0, 1, 1, 1], rtol=1e-5)
    for step, force in enumerate(forces[3:]):
        size = 0.5 * np.sin(np.pi * step / 4) * 0.5 * np.array([2, 2, 2, 1, 1, 1]) / (4 * 0.1)
        np.testing.assert_allclose(force, size * directions[3], atol=1e-6)
    assert (directions[3] == directions[5]).all()
