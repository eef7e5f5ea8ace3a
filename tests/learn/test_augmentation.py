"""Augmentation against shifts, colours and squares worked out by hand or in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import ConfigError
from worldline.learn.augmentation import Augmentation, augment, cut_out, draw, jittered, shifted

LADDER = np.arange(12, dtype=np.uint8).reshape(1, 3, 4, 1)


def test_a_shift_by_hand():
    moved = shifted(jnp.asarray(LADDER), jnp.array([[1, -1]]))
    assert moved.dtype == jnp.uint8
    assert np.array_equal(moved[0, :, :, 0], [[1, 2, 3, 3], [1, 2, 3, 3], [5, 6, 7, 7]])


@given(st.integers(-3, 3), st.integers(-3, 3))
def test_a_shift_is_a_crop_of_the_padded_image(down, right):
    padded = np.pad(LADDER[0], ((3, 3), (3, 3), (0, 0)), mode="edge")
    crop = padded[3 - down : 6 - down, 3 - right : 7 - right]
    moved = shifted(jnp.asarray(LADDER), jnp.array([[down, right]]))
    assert np.array_equal(moved[0], crop)


def test_colours_by_hand():
    image = jnp.array([[[[100]], [[200]]]], jnp.uint8)  # mean 150
    changed = jittered(image, jnp.array([0.1]), jnp.array([0.5]))  # + 25.5, half the distance
    assert np.array_equal(jnp.ravel(changed), [round(150 - 25 + 25.5), 200])  # 200.5 to even
    assert jnp.ravel(jittered(image, jnp.array([1.0]), jnp.array([1.0]))).tolist() == [255, 255]


def test_a_square_is_cut_out():
    images = jnp.zeros((2, 4, 5, 3), jnp.uint8)
    cut = np.asarray(cut_out(images, jnp.array([[0.0, 0.0], [0.99, 0.99]]), 2))
    assert (cut[0, :2, :2] == 127).all()
    assert (cut[1, 2:, 3:] == 127).all()
    assert (cut == 127).sum() == 2 * 2 * 2 * 3
    depth = cut_out(jnp.full((1, 4, 5, 1), 9, jnp.uint16), jnp.zeros((1, 2)), 2)
    assert depth.dtype == jnp.uint16
    assert int((depth == 0).sum()) == 4


def test_draws_are_independent_and_reach_everything():
    augmentation = Augmentation(shift=2, brightness=0.2, contrast=0.3)
    draws = draw(augmentation, jax.random.key(0), 2000)
    for axis in range(2):
        values, counts = np.unique(draws.shift[:, axis], return_counts=True)
        assert values.tolist() == [-2, -1, 0, 1, 2]
        assert counts.min() > 300  # 400 each, give or take 5 standard deviations
    assert abs(np.corrcoef(draws.shift.T)[0, 1]) < 0.1
    assert -0.2 <= float(draws.brightness.min()) < -0.19 < 0.19 < float(draws.brightness.max())
    assert 0.7 <= float(draws.contrast.min()) < 0.71 < 1.29 < float(draws.contrast.max()) <= 1.3


def test_nothing_is_changed_by_default_and_distances_keep_their_values():
    assert not Augmentation()
    images = jax.random.randint(jax.random.key(0), (3, 4, 5, 1), 1, 60000).astype(jnp.uint16)
    plain = Augmentation()
    assert np.array_equal(augment(plain, draw(plain, jax.random.key(1), 3), images), images)
    strong = Augmentation(brightness=1.0, contrast=1.0)
    assert np.array_equal(augment(strong, draw(strong, jax.random.key(1), 3), images), images)


def test_one_draw_serves_a_whole_segment():
    """Frames with the same draw are moved alike: what moves in a trajectory is what moved in it."""
    augmentation = Augmentation(shift=2)
    draws = draw(augmentation, jax.random.key(3), 1)
    alike = jax.tree.map(lambda x: jnp.repeat(x, 4, axis=0), draws)
    frames = jnp.repeat(jnp.asarray(LADDER), 4, axis=0)
    moved = augment(augmentation, alike, frames)
    assert (moved == moved[:1]).all()


def test_negative_numbers_are_refused():
    with pytest.raises(ConfigError, match="shift is -1; give 0 or more"):
        Augmentation(shift=-1)
