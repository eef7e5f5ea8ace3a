"""What a policy saw: the frames of its observations, in the video and as a strip."""

import functools
import subprocess

import imageio.v2 as imageio
import imageio_ffmpeg
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline.errors import ConfigError
from worldline.learn.augmentation import Augmentation
from worldline.learn.rollout import Trajectory
from worldline.rendering.camera import Camera
from worldline.report import render_episode
from worldline.report.inputs import as_picture, seen_frames, write_inputs

VIEWS = {"front": Camera("front", 24, 32, rgb=True, depth=True, stack=2)}


@functools.cache
def episode():
    """An arm that moves in a world of its own colours: what it observed, and what was recorded."""
    env = worldline.Env(worldline.make("arm/pick-cube").task, cameras=VIEWS)
    red = jnp.asarray(env.model.constant("geom_rgba")).at[:, 0].set(1.0)
    state = env.reset(jax.random.key(0), {"geom_rgba": red})
    step, states = jax.jit(env.step), [state]
    for _ in range(4):
        states.append(step(states[-1], jnp.array([0.5, 1.0, -1.0, 0.0])))
    recorded = Trajectory(
        qpos=jnp.stack([s.physics.qpos for s in states]),
        inputs={},
        reward=jnp.stack([s.reward for s in states]),
        variation=state.variation,
    )
    return env, [s.obs for s in states], recorded


def test_they_are_the_newest_frames_of_the_observations():
    env, observed, recorded = episode()
    seen = seen_frames(env, recorded)
    assert {name: frames.shape for name, frames in seen.items()} == {
        "pixels/front": (5, 24, 32, 3),
        "depth/front": (5, 24, 32, 1),
    }
    for name, frames in seen.items():
        newest = np.stack([np.asarray(obs[name]) for obs in observed])[..., -frames.shape[-1] :]
        np.testing.assert_array_equal(frames, newest)
    assert (seen["pixels/front"][0] != seen["pixels/front"][-1]).any()


def test_distances_are_shown_as_nearness():
    depth = np.array([[0], [1000], [3000]], np.uint16)
    np.testing.assert_array_equal(as_picture(depth), [[0] * 3, [127] * 3, [63] * 3])


def test_the_video_shows_them_beside_the_scene(tmp_path, monkeypatch):
    """A view of four colours stands on the right, each pixel of it a square of 24 x 24."""
    monkeypatch.setenv("MUJOCO_GL", "disable")
    env, _, recorded = episode()
    colours = np.array([[[250, 0, 0], [0, 250, 0]], [[0, 0, 250], [250, 250, 250]]], np.uint8)
    view = np.stack([colours] * 5)
    view[-1] = 0
    render_episode(
        env.model,
        np.asarray(recorded.qpos),
        tmp_path / "a.mp4",
        tmp_path / "a.png",
        timestep=0.04,
        size=(96, 128),
        views={"pixels/a": view, "pixels/b": view[::-1]},
    )
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(tmp_path / "a.mp4")]
    about = subprocess.run(program, capture_output=True, text=True).stderr
    assert f"{128 + 48}x96" in about
    still = imageio.imread(tmp_path / "a.png")[:96, : 128 + 48]
    for row in range(2):
        for column in range(2):
            square = still[24 * row :, 128 + 24 * column :][:24, :24]
            np.testing.assert_array_equal(
                square, np.broadcast_to(colours[row, column], (24, 24, 3))
            )
    assert (still[48:, 128:] == 0).all()  # the other view's first frame


def test_a_view_of_another_length_is_refused(tmp_path):
    env, _, recorded = episode()
    views = {"pixels/a": np.zeros((4, 2, 2, 3), np.uint8)}
    with pytest.raises(ConfigError, match=r"give uint8 of shape \(5, height, width, 3\)"):
        render_episode(
            env.model, np.asarray(recorded.qpos), tmp_path / "a.mp4", timestep=0.04, views=views
        )


def test_the_strip_has_them_with_and_without_augmentation(tmp_path):
    """Pictures of 24 x 32 pixels, four times as large, in rows of eight; shifted ones below."""
    env, _, recorded = episode()
    seen = {"pixels/front": seen_frames(env, recorded)["pixels/front"]}
    write_inputs(tmp_path / "plain.png", seen, Augmentation())
    write_inputs(tmp_path / "shifted.png", seen, Augmentation(shift=3))
    plain, both = (np.asarray(imageio.imread(tmp_path / f"{n}.png")) for n in ("plain", "shifted"))
    assert plain.shape == (96, 8 * 128 + 7 * 4, 3)
    assert both.shape == (96 + 4 + 96, 8 * 128 + 7 * 4, 3)
    np.testing.assert_array_equal(both[:96], plain)
    np.testing.assert_array_equal(plain[::4, :128:4], seen["pixels/front"][0])
    np.testing.assert_array_equal(plain[::4, -128::4], seen["pixels/front"][-1])
    small = both[100::4, :128:4]
    padded = np.pad(seen["pixels/front"][0], ((3, 3), (3, 3), (0, 0)), "edge")
    shifts = [padded[y : y + 24, x : x + 32] for y in range(7) for x in range(7)]
    assert any((small == shift).all() for shift in shifts)
    assert (both[100:] != plain).any()
