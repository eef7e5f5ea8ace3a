"""Images against MuJoCo's own renderer, alone and in batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scenes
from viewers import VIEWS, cameras_of, world

from worldline import warp_library
from worldline.env import cameras as env_cameras
from worldline.env.cameras import Cameras
from worldline.errors import ConfigError, RendererUnavailableError, VariationError
from worldline.model import Model
from worldline.rendering import opengl
from worldline.rendering.camera import Camera

#: Mean absolute difference from MuJoCo's OpenGL renderer, in 255ths: how far Warp may be.
WARP_BOUND = 2.5


@functools.cache
def poses(number=5):
    random = np.random.default_rng(0)
    qpos = np.tile(np.array([0, 0, 0.5, 1, 0, 0, 0], np.float32), (number, 1))
    qpos[:, :3] += random.uniform(-0.3, 0.3, (number, 3)).astype(np.float32)
    qpos[:, 3:] += random.uniform(-0.4, 0.4, (number, 4)).astype(np.float32)
    hand = random.uniform((-0.6, -0.6, 0.1), (0.6, 0.6, 1.3), (number, 1, 3))
    return qpos, hand.astype(np.float32)


def look(cameras, *worlds):
    """The first images of worlds, one call for all."""
    batch = jax.tree.map(lambda *x: jnp.stack(x), *worlds)
    return jax.device_get(jax.vmap(cameras.first)(batch))


def worlds_of(number=5, variation=None):
    qpos, hand = poses(number)
    return [world(q, h, variation) for q, h in zip(qpos, hand, strict=True)]


def assert_as_mujoco(cameras, images, variation=None, number=5):
    qpos, hand = poses(number)
    colours, metres = scenes.mujoco_pictures(
        scenes.SHAPES, ["front"], qpos, (48, 64), variation, mocap_pos=hand
    )
    ours, theirs = images["pixels/front"][..., -3:], colours[:, 0]
    assert theirs.std() > 20  # there is something to see
    if "OpenGL" in cameras.note:
        np.testing.assert_array_equal(ours, theirs)
    else:
        apart = np.abs(ours.astype(int) - theirs).mean(axis=(1, 2, 3))
        assert apart.max() < WARP_BOUND
    seen = images["depth/front"][..., -1] / 1000
    near = (metres[:, 0] < 6) & (seen > 0)
    assert near.mean() > 0.5
    error = np.abs(seen - metres[:, 0])[near]
    # A pixel on an edge sees this or that; a ball is round for Warp, and of triangles in OpenGL.
    assert np.quantile(error, 0.97) < (0.002 if "OpenGL" in cameras.note else 0.005)
    sky = seen == 0
    assert (metres[:, 0][sky] > 6).mean() > 0.97


def test_pixels_are_those_of_mujocos_renderer(cameras):
    assert_as_mujoco(cameras, look(cameras, *worlds_of()))


def test_each_world_has_its_own_constants(cameras):
    """Colours, a lens, a lamp, sizes and places; and they leave no trace in the next picture."""
    stored = Model(scenes.SHAPES)
    changes = {
        "geom_rgba": (1, [0.1, 0.9, 0.9, 1]),
        "geom_size": ([0, 2], [[2.5, 2.5, 0.1], [0.35, 0, 0]]),
        "cam_fovy": (0, 60.0),
        "light_diffuse": (0, [0.9, 0.2, 0.2]),
        "cam_pos": (0, [0.3, -2.2, 1.1]),
        "mat_rgba": (1, [0.2, 0.2, 0.9, 1]),
        "mat_texrepeat": (0, [1.5, 2.5]),
    }
    variation = {}
    for name, (row, value) in changes.items():
        variation[name] = stored.constant(name).astype(np.float32)
        variation[name][row] = value
    plain = look(cameras, *worlds_of())
    images = look(cameras, *worlds_of(variation=variation))
    assert np.abs(images["pixels/front"].astype(int) - plain["pixels/front"]).mean() > 5
    assert_as_mujoco(cameras, images, variation)
    again = look(cameras, *worlds_of())
    for name, image in plain.items():
        np.testing.assert_array_equal(again[name], image)


def test_a_camera_that_tracks_a_body_follows_its_variation():
    """Where it stands is a constant that MuJoCo derives from others."""
    cameras = Cameras(Model(scenes.SHAPES), {"f": Camera("follow", 32, 32)})
    qpos, hand = poses()
    stored = Model(scenes.SHAPES)
    variation = {"body_pos": stored.constant("body_pos").astype(np.float32)}
    variation["body_pos"][2] += [0.4, 0.2, 0.3]
    colours, _ = scenes.mujoco_pictures(
        scenes.SHAPES, ["follow"], qpos, (32, 32), variation, mocap_pos=hand
    )
    ours = look(cameras, *worlds_of(variation=variation))["pixels/f"]
    assert np.abs(ours.astype(int) - colours[:, 0]).mean() < WARP_BOUND


def test_an_image_does_not_depend_on_the_batch(cameras):
    """Alone, in any order, in any nesting of `vmap`, more than fit at a time: the same bits."""
    worlds = worlds_of(5)
    together = look(cameras, *worlds)
    alone = [jax.device_get(jax.jit(cameras.first)(each)) for each in worlds]
    backwards = look(cameras, *reversed(worlds))
    many = look(cameras, *(worlds * 15))
    nested = jax.tree.map(lambda *x: jnp.stack(x), *worlds[:4])
    nested = jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), nested)
    nested = jax.device_get(jax.jit(jax.vmap(jax.vmap(cameras.first)))(nested))
    for name, images in together.items():
        assert images.shape[1:] == cameras.specs()[name].shape
        assert images.dtype == cameras.specs()[name].dtype
        for i, image in enumerate(images):
            np.testing.assert_array_equal(alone[i][name], image)
            np.testing.assert_array_equal(backwards[name][4 - i], image)
            np.testing.assert_array_equal(many[name][i::5], np.tile(image, (15, 1, 1, 1)))
        np.testing.assert_array_equal(nested[name].reshape(4, *images.shape[1:]), images[:4])


def test_another_instance_changes_nothing(cameras):
    before = look(cameras, *worlds_of())
    other = Cameras(
        Model("<mujoco><worldbody><camera name='c'/><geom size='1'/></worldbody></mujoco>"),
        {"c": Camera("c", 96, 96)},
        "warp" if "Warp" in cameras.note else "opengl",
    )
    assert other.first(world(np.zeros(0)))["pixels/c"].shape == (96, 96, 3)
    for name, images in look(cameras, *worlds_of()).items():
        np.testing.assert_array_equal(images, before[name])


def test_masked_worlds_are_not_drawn(cameras, monkeypatch):
    drawn = []
    draw = cameras._renderers.draw

    def count(worlds, rows):
        drawn.append(rows.tolist())
        return draw(worlds, rows)

    monkeypatch.setattr(cameras._renderers, "draw", count)
    worlds = jax.tree.map(lambda *x: jnp.stack(x), *worlds_of())
    mask = jnp.array([False, True, False, True, True])
    images = jax.device_get(jax.vmap(cameras.first)(worlds, mask))
    none = jax.vmap(cameras.first)(worlds, jnp.zeros(5, bool))
    jax.block_until_ready(none)
    assert drawn == [[1, 3, 4], []]
    whole = look(cameras, *worlds_of())
    for name, image in images.items():
        np.testing.assert_array_equal(image[mask], whole[name][mask])


def test_frames_are_stacked_oldest_first(cameras):
    worlds = worlds_of(3)
    first = cameras.first(worlds[0])
    second = cameras.following(worlds[1], first)
    third = cameras.following(worlds[2], second)
    single = look(cameras, *worlds)["pixels/front"]
    np.testing.assert_array_equal(first["pixels/front"], single[0])
    np.testing.assert_array_equal(first["pixels/front"][..., :3], single[0, ..., 3:])
    np.testing.assert_array_equal(third["pixels/front"][..., :3], single[1, ..., 3:])
    np.testing.assert_array_equal(third["pixels/front"][..., 3:], single[2, ..., 3:])


def test_what_warp_cannot_vary_is_told():
    variation = {"cam_sensorsize": np.zeros((3, 2))}
    with pytest.raises(VariationError, match="cannot vary cam_sensorsize between worlds"):
        cameras_of("warp").first(world(poses()[0][0], variation=variation))


def test_mistakes_are_told():
    model = Model(scenes.SHAPES)
    with pytest.raises(ConfigError, match=r"no camera 'fornt'; did you mean 'front'"):
        Cameras(model, {"front": Camera("fornt")})
    with pytest.raises(ConfigError, match="cameras is empty; give some"):
        Cameras(model, {})
    with pytest.raises(ConfigError, match="no renderer 'open'; did you mean 'opengl'"):
        Cameras(model, VIEWS, "open")
    with pytest.raises(ConfigError, match="camera 'front': width is 0; give 1 to 4096"):
        Camera("front", 64, 0)
    with pytest.raises(ConfigError, match="camera 'front': stack is 0"):
        Camera("front", stack=0)
    with pytest.raises(
        ConfigError, match="camera 'front' has neither colour nor depth; give rgb=True"
    ):
        Camera("front", rgb=False)


def test_a_machine_without_a_renderer(monkeypatch):
    monkeypatch.setattr(opengl, "backends", list)
    monkeypatch.setattr(warp_library, "installed", lambda: False)
    with pytest.raises(RendererUnavailableError, match=r"apt-get install libegl1.*pip install"):
        Cameras(Model(scenes.SHAPES), VIEWS)


def test_a_renderer_that_fails_gives_way(monkeypatch, capsys):
    """A driver that is installed but does not work, as on a machine without a display."""

    def broken(*_, **__):
        raise RuntimeError("no display")

    monkeypatch.setattr(opengl, "backends", lambda: ["egl"])
    monkeypatch.setattr(opengl, "OpenGLRenderer", broken)
    monkeypatch.setattr(env_cameras, "_say_once", env_cameras._say_once.__wrapped__)
    cameras = Cameras(Model(scenes.SHAPES), VIEWS)
    assert "Warp" in cameras.note
    assert capsys.readouterr().err == f"pixels are drawn by {cameras.note}\n"
    with pytest.raises(RendererUnavailableError, match="cannot be drawn: no display"):
        Cameras(Model(scenes.SHAPES), VIEWS, "opengl")
