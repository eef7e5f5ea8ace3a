"""Pictures for people: one look in videos and in this process."""

import imageio.v2 as imageio
import numpy as np
import pytest

from worldline.errors import ConfigError
from worldline.model import Model
from worldline.rendering import opengl
from worldline.rendering.base import View
from worldline.rendering.frames import FrameRenderer
from worldline.rendering.pool import RAYS, camera_ways, open_pool
from worldline.report import render_episode

SIZE = (96, 128)

#: A ball that rolls as far as it likes over a chequered floor of 40 m.
BALL = Model("""
<mujoco>
  <asset>
    <texture name="grid" type="2d" builtin="checker" rgb1=".1 .2 .3" rgb2=".8 .9 .9"
             width="64" height="64"/>
    <material name="grid" texture="grid" texrepeat="30 30"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 3" dir="0.3 0.2 -1"/>
    <geom name="floor" type="plane" size="20 20 1" material="grid"/>
    <body pos="0 0 0.5">
      <joint type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.5" rgba="0.9 0.1 0.1 1"/>
    </body>
  </worldbody>
</mujoco>
""")
ROLLED = np.array([[0.0], [300.0], [1.0], [301.0]])


def without_time(picture):
    """A picture below the time that a video's frame has on it."""
    return picture[12:]


@pytest.mark.parametrize("ways", [["egl"], []])
def test_a_picture_is_the_frame_of_the_video(ways, tmp_path, monkeypatch):
    """Whichever world was drawn before, and where the floor is made endless or is not."""
    if ways and "egl" not in opengl.backends():
        pytest.skip("no EGL here")
    monkeypatch.setattr(opengl, "backends", lambda: ways)
    renderer = FrameRenderer(BALL, {}, SIZE, worlds=2)
    pictures = renderer.draw(ROLLED, {}, {})
    renderer.close()
    for qpos, picture in zip(ROLLED, pictures, strict=True):
        way = ways[0] if ways else "rays"
        png = tmp_path / "a.png"
        render_episode(BALL, qpos[None], None, png, timestep=1, size=SIZE, renderer=way)
        video = imageio.imread(png)
        apart = np.abs(without_time(picture).astype(int) - without_time(video))
        assert np.quantile(apart, 0.999) <= 2
        assert picture[-1].any(axis=-1).all(), "there is floor below, however far the ball is"
    assert pictures.std() > 20


def test_a_world_has_its_own_constants():
    sizes = np.stack([BALL.constant("geom_size")] * 3)
    sizes[2, 1] *= 0.5
    renderer = FrameRenderer(BALL, {"lookat": (0, 0, 0.5), "distance": 4.0}, SIZE, worlds=3)
    first, second, third = renderer.draw(np.zeros((3, 1)), {"geom_size": sizes}, {})
    renderer.close()
    np.testing.assert_array_equal(first, second)
    assert (first != third).mean() > 0.01


def test_mujoco_gl_chooses_or_forbids_opengl(monkeypatch):
    for text, found in {"EGL": ["egl"], "glx": ["glfw"], "disable": [], "0": []}.items():
        monkeypatch.setenv("MUJOCO_GL", text)
        assert opengl.backends() == found
        assert opengl.disabled() == (not found)
        assert camera_ways("opengl") == found
        assert set(camera_ways("auto")) == {*found, "warp"}
    with pytest.raises(ConfigError, match="there is no renderer 'rays'"):
        camera_ways("rays")


def test_the_first_way_that_works_draws():
    pool, note = open_pool(["osmesa-of-nobody", RAYS], BALL.mj, [View(-1, 8, 8)], most=2)
    assert note.startswith("ray casting (")
    view = np.array([[0.0, 0, 0.5, 4, 90, -10]] * 3)
    ((colours, _),) = pool.draw({"qpos": ROLLED[:3], "view": view}, np.array([0, 2]))
    assert colours[[0, 2]].any(axis=(1, 2, 3)).all()
    assert not colours[1].any()
    pool.close()
