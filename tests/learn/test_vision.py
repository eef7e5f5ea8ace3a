"""Encoders against PyTorch's convolutions and against arithmetic by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.errors import ConfigError
from worldline.learn.networks import vision
from worldline.learn.networks.vision import Encoder, ImageEncoder


def images_of(shape, seed=0, dtype=jnp.uint8, most=256):
    return jax.random.randint(jax.random.key(seed), shape, 0, most).astype(dtype)


def in_torch(encoder, images, strides):
    """The same network of PyTorch's own layers."""
    torch = pytest.importorskip("torch")

    def normalized(x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

    x = torch.tensor(np.asarray(images), dtype=torch.float32).permute(0, 3, 1, 2) / 255 - 0.5
    for layer, (size, stride) in zip(encoder.layers, strides, strict=True):
        weight = np.asarray(layer.weights[0]).reshape(size, size, x.shape[1], -1)
        kernel = torch.tensor(weight.transpose(3, 2, 0, 1))
        bias = torch.tensor(np.asarray(layer.biases[0]))
        x = torch.nn.functional.conv2d(x, kernel, bias, stride)
        if encoder.architecture == "nature":
            x = torch.relu(x)
        else:
            x = torch.relu(normalized(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
    flat = x.permute(0, 2, 3, 1).reshape(len(x), -1)
    last = encoder.last
    weight, bias = (torch.tensor(np.asarray(p[0])) for p in (last.weights, last.biases))
    return torch.tanh(normalized(flat @ weight + bias)).numpy()


@pytest.mark.parametrize(
    ("kind", "strides"),
    [("nature", ((8, 4), (4, 2), (3, 1))), ("patches", ((4, 4), (2, 2), (2, 2)))],
)
def test_an_encoder_is_pytorchs(kind, strides):
    encoder = Encoder.initial(jax.random.key(1), (48, 64, 6), kind, 10)
    images = images_of((3, 48, 64, 6))
    features = encoder(images)
    assert features.shape == (3, 10)
    np.testing.assert_allclose(features, in_torch(encoder, images, strides), atol=2e-5)


def test_sides_that_do_not_divide_repeat_their_edge():
    encoder = Encoder.initial(jax.random.key(1), (9, 6, 1), "patches", 4)
    image = images_of((1, 9, 6, 1))
    whole = jnp.pad(image, ((0, 0), (0, 3), (0, 2), (0, 0)), mode="edge")
    first = vision._patches(vision._unit_range(image), 4)
    assert first.shape == (1, 3, 2, 16)
    np.testing.assert_array_equal(first, vision._patches(vision._unit_range(whole), 4))
    assert encoder(image).shape == (1, 4)


def test_many_images_are_encoded_a_part_at_a_time(monkeypatch):
    encoder = Encoder.initial(jax.random.key(1), (8, 8, 1), "patches", 4)
    images = images_of((5, 3, 8, 8, 1))
    whole = encoder(images)
    monkeypatch.setattr(vision, "_AT_A_TIME", 4)
    np.testing.assert_allclose(encoder(images), whole, atol=1e-5)


def test_channels_are_normalised_each_on_its_own():
    """Another brightness or contrast of a channel then changes nothing."""
    encoder = Encoder.initial(jax.random.key(1), (16, 16, 2), "patches", 8, normalize_channels=True)
    image = images_of((1, 16, 16, 2), most=100)
    other = image.at[..., 1].set(2 * image[..., 1] + 30)
    np.testing.assert_allclose(encoder(image), encoder(other), atol=1e-3)
    plain = dataclasses.replace(encoder, normalize_channels=False)
    assert float(jnp.abs(plain(image) - plain(other)).max()) > 0.01


def test_a_still_scene_does_not_drown_what_moves_in_it():
    """A dot of 4 x 4 pixels on a still background, somewhere else in each image."""
    background = images_of((1, 32, 32, 3))
    images = jnp.concatenate(
        [background.at[:, y : y + 4, 8:12].set(255) for y in range(0, 28, 4)], axis=0
    )
    eyes = ImageEncoder.initial(jax.random.key(1), {"pixels/a": (32, 32, 3)}, "patches", 32)
    obs = {"state": jnp.zeros((len(images), 0)), "pixels/a": images}
    plain, centred = (np.asarray(each(obs)) for each in (eyes, eyes.centred(obs)))
    assert centred.std(axis=0).mean() > 3 * plain.std(axis=0).mean()
    mean = eyes.centred(obs).encoders[0].mean_image
    np.testing.assert_allclose(mean, images.mean(axis=0) / 255 - 0.5, atol=1e-5)


@pytest.mark.exhaustive
def test_the_mean_image_is_not_learned():
    eyes = ImageEncoder.initial(jax.random.key(1), {"pixels/a": (16, 16, 3)}, "patches", 8)
    obs = {"state": jnp.zeros((4, 0)), "pixels/a": images_of((4, 16, 16, 3))}
    gradient = jax.grad(lambda eyes: eyes(obs).sum())(eyes.centred(obs))
    assert not gradient.encoders[0].mean_image.any()
    assert gradient.encoders[0].layers[0].weights[0].any()


def test_what_a_network_sees_of_numbers():
    colours = jnp.array([0, 255, 51], jnp.uint8)
    np.testing.assert_allclose(vision._unit_range(colours), [-0.5, 0.5, -0.3], atol=1e-6)
    depth = jnp.array([0, 1000, 3000], jnp.uint16)  # nothing, 1 m, 3 m
    np.testing.assert_allclose(vision._unit_range(depth), [0.0, 0.5, 0.25], atol=1e-6)


def test_each_view_has_its_own_encoder_beside_the_numbers():
    shapes = {"pixels/b": (8, 8, 3), "depth/a": (8, 12, 1)}
    eyes = ImageEncoder.initial(jax.random.key(0), shapes, "patches", 5)
    obs = {
        "state": jnp.ones((2, 3)),
        "pixels/b": images_of((2, 8, 8, 3)),
        "depth/a": images_of((2, 8, 12, 1), dtype=jnp.uint16, most=5000),
    }
    seen = eyes(obs)
    assert seen.shape == (2, 3 + 5 + 5)
    assert (seen[:, :3] == 1).all()
    other = eyes({**obs, "pixels/b": images_of((2, 8, 8, 3), seed=1)})
    changed = np.abs(np.asarray(other - seen)).max(axis=0) > 0
    assert not changed[:8].any()
    assert changed[8:].all()


def test_mistakes_are_told():
    with pytest.raises(ConfigError, match="no encoder 'natur'; did you mean 'nature'"):
        Encoder.initial(jax.random.key(0), (64, 64, 3), "natur", 8)
    with pytest.raises(ConfigError, match="20 x 64 pixels is too small for the encoder 'nature'"):
        Encoder.initial(jax.random.key(0), (20, 64, 3), "nature", 8)
