"""Errors and rewards of motion tracking against SciPy's rotations and numbers by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from worldline.tasks.tracking import sampling, terms
from worldline.tasks.tracking.reference import Bodies

ANCHOR = 1


def random_bodies(seed, tilt):
    """Four bodies at random, turned by up to so much from a random heading."""
    rng = np.random.default_rng(seed)
    heading = Rotation.from_euler("z", rng.uniform(-3, 3))
    turns = heading * Rotation.from_rotvec(rng.uniform(-tilt, tilt, (4, 3)))
    position, linear, angular = rng.normal(size=(3, 4, 3))
    return turns, position, linear, angular


def as_bodies(turns, position, linear, angular):
    quaternions = turns.as_quat(scalar_first=True)
    return Bodies(*(jnp.float32(x) for x in (position, quaternions, linear, angular)))


ROBOT, REFERENCE = random_bodies(0, 0.4), random_bodies(1, 0.4)


def test_the_reference_is_moved_and_turned_to_the_robot():
    moved = terms.moved_to(as_bodies(*ROBOT), as_bodies(*REFERENCE), ANCHOR)
    (turns, place, *_), (wanted, where, *_) = ROBOT, REFERENCE
    yaw = (turns[ANCHOR] * wanted[ANCHOR].inv()).as_euler("ZYX")[0]
    turn = Rotation.from_euler("z", yaw)
    over = np.array([*place[ANCHOR, :2], where[ANCHOR, 2]])
    np.testing.assert_allclose(moved.position, over + turn.apply(where - where[ANCHOR]), atol=1e-5)
    off = Rotation.from_quat(np.asarray(moved.orientation), scalar_first=True)
    np.testing.assert_allclose(((turn * wanted).inv() * off).magnitude(), 0, atol=1e-5)
    np.testing.assert_array_equal(moved.linear_velocity, jnp.float32(REFERENCE[2]))


def test_errors_are_those_of_scipy():
    errors = terms.squared_errors(as_bodies(*ROBOT), as_bodies(*REFERENCE), ANCHOR)
    (turns, place, linear, angular), (wanted, where, *velocities) = ROBOT, REFERENCE
    turn = Rotation.from_euler("z", (turns[ANCHOR] * wanted[ANCHOR].inv()).as_euler("ZYX")[0])
    over = np.array([*place[ANCHOR, :2], where[ANCHOR, 2]])
    moved = over + turn.apply(where - where[ANCHOR])
    expected = {
        "anchor_position": np.sum((place[ANCHOR] - where[ANCHOR]) ** 2),
        "anchor_orientation": (turns[ANCHOR].inv() * wanted[ANCHOR]).magnitude() ** 2,
        "body_position": np.mean(np.sum((moved - place) ** 2, axis=1)),
        "body_orientation": np.mean((turns.inv() * (turn * wanted)).magnitude() ** 2),
        "body_linear_velocity": np.mean(np.sum((velocities[0] - linear) ** 2, axis=1)),
        "body_angular_velocity": np.mean(np.sum((velocities[1] - angular) ** 2, axis=1)),
    }
    assert errors.keys() == expected.keys()
    for name, value in expected.items():
        assert float(errors[name]) == pytest.approx(value, rel=1e-4), name


def test_a_robot_elsewhere_with_another_heading_has_errors_of_its_anchor_alone():
    turn, way = Rotation.from_euler("z", 2.0), np.array([3.0, -1.0, 0.0])
    turns, position, *velocities = REFERENCE
    robot = as_bodies(turn * turns, turn.apply(position) + way, *velocities)
    errors = terms.squared_errors(robot, as_bodies(*REFERENCE), ANCHOR)
    assert float(errors["anchor_orientation"]) == pytest.approx(4.0, rel=1e-4)
    for name in ("body_position", "body_orientation"):
        assert float(errors[name]) < 1e-9, name


def test_kernels_by_hand():
    worth = terms.kernels({"a": 0.0, "b": 0.09, "c": 1.0}, {"a": 0.3, "b": 0.3, "c": 0.5})
    assert [float(worth[name]) for name in "abc"] == pytest.approx([1, np.exp(-1), np.exp(-4)])


def test_what_the_anchor_sees():
    robot, reference = as_bodies(*ROBOT), as_bodies(*REFERENCE)
    (turns, place, *_), (wanted, where, *_) = ROBOT, REFERENCE
    back = turns[ANCHOR].inv()
    way, axes = terms.anchor_errors(robot, reference, ANCHOR)
    np.testing.assert_allclose(way, back.apply(where[ANCHOR] - place[ANCHOR]), atol=1e-5)
    turn = (back * wanted[ANCHOR]).as_matrix()
    np.testing.assert_allclose(axes, turn[:, :2].ravel(), atol=1e-5)
    others = [0, 2, 3]
    position, axes = terms.seen_from_anchor(robot, ANCHOR)
    np.testing.assert_allclose(
        position, back.apply(place[others] - place[ANCHOR]).ravel(), atol=1e-5
    )
    turns_seen = (back * turns[others]).as_matrix()
    np.testing.assert_allclose(axes, turns_seen[:, :, :2].ravel(), atol=1e-5)
    vertical = [t[ANCHOR].inv().apply([0, 0, -1])[2] for t in (turns, wanted)]
    tilt = terms.tilt_error(robot, reference, ANCHOR)
    assert float(tilt) == pytest.approx(abs(vertical[0] - vertical[1]), abs=1e-6)


def test_joints_beyond_limits_by_hand():
    joints, low, high = (jnp.array(x) for x in ([-1.5, 0.0, 2.25], [-1.0] * 3, [2.0] * 3))
    assert float(terms.beyond_limits(joints, low, high)) == 0.75


def test_chances_by_hand():
    # Weights 0.1, 1.1, 0.1, 3.1; each with a third of the next one and two of its own.
    chances = sampling.chances(jnp.array([0.0, 1.0, 0.0, 3.0]), 0.4, 0.5, 2)
    smoothed = np.array([1.3, 2.3, 3.3, 9.3]) / 3
    np.testing.assert_allclose(chances, smoothed / smoothed.sum(), rtol=1e-6)
    np.testing.assert_allclose(sampling.chances(jnp.zeros(5), 0.1, 0.8, 3), 0.2, rtol=1e-6)


def test_failures_by_hand():
    failures = jnp.zeros(3)
    seen = []
    for failed in ([0, 2, 0], [4, 0, 0], [0, 0, 0]):
        failures = sampling.counted(failures, jnp.float32(failed), 0.25)
        seen.append(failures.tolist())
    assert seen == [[0, 0.5, 0], [1, 0.375, 0], [0.75, 0.28125, 0]]


def test_frames_are_drawn_by_the_chances_of_their_bins():
    frames, bins = 301, 7
    assert sampling.number_of_bins(301, 0.02) == bins
    chances = jnp.array([0.0, 0.5, 0.0, 0.0, 0.3, 0.0, 0.2])
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.vmap(lambda key: sampling.drawn_frame(key, chances, frames))(keys))
    index = (drawn / (frames - 1) * bins).astype(int)
    share = np.bincount(index, minlength=bins) / len(drawn)
    np.testing.assert_allclose(share, chances, atol=4 * np.sqrt(0.25 / 4000))
    assert drawn.max() <= frames - 2  # there is a frame to go to


@pytest.mark.parametrize(("frame", "index"), [(0, 0), (42, 0), (43, 1), (300, 6), (400, 6)])
def test_a_failure_is_in_the_bin_of_its_frame(frame, index):
    # 301 frames in 7 bins: 43 each.
    failure = sampling.failed_bin(jnp.int32(frame), jnp.asarray(True), 301, 7)
    assert failure.tolist() == np.eye(7)[index].tolist()
    assert not sampling.failed_bin(jnp.int32(frame), jnp.asarray(False), 301, 7).any()
