"""The page in a real browser, with two viewers. Worlds that need not move are paused."""

import re
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("viser")

from worldline.export.policy_file import save_policy
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.rendering.web.server import open_server, point_camera
from worldline.watch.policies import PolicyFollower
from worldline.watch.source import open_source
from worldline.watch.watcher import Watcher

#: A box on a floor, and an arm with a motor.
MJCF = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" friction="0.8"/>
    <body name="box" pos="0 0 0.2">
      <freejoint/>
      <geom name="box" type="box" size="0.2 0.2 0.2" mass="1" friction="0.8" rgba="1 0.3 0 1"/>
    </body>
    <body name="arm" pos="0 0.8 0.6">
      <joint name="hinge" axis="0 1 0" damping="0.01"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.06" rgba="0 0.3 1 1"/>
    </body>
  </worldbody>
  <actuator><motor name="turn" joint="hinge" gear="2" ctrlrange="-1 1"/></actuator>
</mujoco>
"""

BOX = 1
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def watcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    (folder / "box.xml").write_text(MJCF)
    source = open_source(str(folder / "box.xml"))
    stop = threading.Event()
    with pytest.MonkeyPatch.context() as patch, open_server() as it:
        patch.setattr("worldline.watch.watcher._FRAMES", 5.0)  # the CPU draws each of them
        server, url = it
        watcher = Watcher(server, "box.xml", source, 2, 0, folder)
        watcher.follower = PolicyFollower(folder)
        watcher.url = url
        point_camera(server, watcher.model, watcher.stage)
        watcher.step()  # compiles
        watcher.toggle()
        loop = threading.Thread(target=watcher.run, args=(stop,))
        loop.start()
        yield watcher
        stop.set()
        loop.join()


@pytest.fixture(scope="module")
def asked():
    """The address of each request of the first page."""
    return []


@pytest.fixture(scope="module")
def view(new_page, watcher, until):
    """Opens the page in a new tab, and waits until the server knows it."""

    def opened(asked):
        known = set(watcher._server.get_clients())
        page = new_page(watcher.url, asked)
        page.get_by_text("2 worlds").wait_for()
        until(lambda: set(watcher._server.get_clients()) - known)
        return page

    return opened


@pytest.fixture(scope="module")
def page(view, asked):
    return view(asked)


def press(page, name):
    """Presses a button, also one that moves while the page draws slowly."""
    page.get_by_role("button", name=name, exact=True).dispatch_event("click")


def do(watcher, *what):
    """Has the loop do things between two steps, and waits until it has."""
    done = threading.Event()
    for each in what:
        watcher.post(each)
    watcher.post(done.set)
    assert done.wait(PATIENCE_S)


def test_the_robot_moves_and_pause_freezes(page, watcher, until, moves):
    do(watcher, lambda: watcher.act("random"))
    press(page, "Continue")
    until(lambda: moves(page))
    assert watcher.session.taken > 1
    press(page, "Pause")
    page.get_by_role("button", name="Continue").wait_for()
    taken = watcher.session.taken
    until(lambda: not moves(page))
    assert watcher.session.taken == taken
    press(page, "One step")
    until(lambda: watcher.session.taken == taken + 1)


def test_a_slider_changes_the_variation_and_the_way(page, watcher, until):
    page.get_by_role("tab", name="Physics").click(force=True)
    label = page.locator("label", has_text=re.compile("^friction$")).first
    box = label.locator("xpath=ancestor::*[.//input[@type='text']][1]//input[@type='text']").first
    watcher.push_newtons = 30.0
    ways = []
    for friction in (0.8, 0.0):
        box.fill(str(friction))
        box.press("Enter")
        until(lambda f=friction: (watcher.session.knobs.values["context/friction"] == f).all())
        push = [lambda w=world: watcher.push(w, BOX, [1.0, 0, 0]) for world in (0, 1)]
        do(watcher, watcher.reset, *push, *[watcher.step] * 40)
        ways.append(watcher.session.seen.qpos[:, 0])
    assert (np.asarray(watcher.session.state.variation["geom_friction"])[:, 1, 0] == 0).all()
    assert (ways[1] > 2 * ways[0]).all()
    assert (ways[0] > 0.01).all()
    page.get_by_role("tab", name="Play").click(force=True)


def test_a_click_pushes_the_body_that_is_seen_there(page, watcher, until, moves):
    do(watcher, watcher.reset)
    until(lambda: not watcher.stage.frame.position.any())  # the view is back at the start too
    until(lambda: not moves(page))
    (client,) = watcher._server.get_clients().values()
    canvas = page.locator("canvas").first.bounding_box()
    until(lambda: client.camera.image_width == canvas["width"])  # it knows how large it is
    place = watcher.stage.offsets[1] + watcher.stage.frame.position + [0, 0, 0.2]
    x, y = seen_at(client.camera, place)
    end = time.monotonic() + PATIENCE_S
    while not watcher.session.forces.any():
        assert time.monotonic() < end, "the click did not arrive"
        page.mouse.click(canvas["x"] + x, canvas["y"] + y)
        page.wait_for_timeout(500)
    force = watcher.session.forces[1, BOX, :3]
    assert np.count_nonzero(watcher.session.forces.any(axis=2)) == 1
    away = place - client.camera.position
    assert force[:2] @ away[:2] > 0.9 * np.linalg.norm(force[:2]) * np.linalg.norm(away[:2])
    before = watcher.session.seen.qpos[:, :2].copy()
    do(watcher, *[watcher.step] * 20)
    way = np.linalg.norm(watcher.session.seen.qpos[:, :2] - before, axis=1)
    assert way[0] < 0.01 < 0.05 < way[1]


def seen_at(camera, point):
    """Where on its picture a camera sees a point: to the right and down, in pixels."""
    w, x, y, z = camera.wxyz
    turned = np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip
    right, down, ahead = turned.T @ (point - camera.position)
    focal = camera.image_height / 2 / np.tan(camera.fov / 2)
    return camera.image_width / 2 + focal * right / ahead, (
        camera.image_height / 2 + focal * down / ahead
    )


def test_a_new_policy_is_taken_up(page, watcher):
    env = watcher.session.env
    nobs = env.observation_space.shape[0]
    for step, action in ((1000, 0.5), (2000, -0.5)):
        network = MLP.initial(jax.random.key(0), (nobs, 4, 1), "tanh", last_gain=0.0)
        biases = [*network.biases[:-1], jnp.full(1, action, jnp.float32)]
        actor = Actor(MLP(network.weights, biases, "tanh"), jnp.zeros(1, jnp.float32))
        low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)
        policy = Policy(actor, RunningStatistics.zero((nobs,)), low, high, "clip")
        save_policy(watcher.follower._folder, policy, step=step)
        page.get_by_text(f"after {step:,} steps").wait_for()
        do(watcher, lambda: watcher.act("policy"), watcher.step)
        np.testing.assert_allclose(watcher.session.seen.action, action)


@pytest.mark.exhaustive
def test_two_viewers_see_the_same(page, view, watcher, until):
    (first,) = watcher._server.get_clients()
    second = view([])
    (other,) = set(watcher._server.get_clients()) - {first}
    press(second, "Continue")
    page.get_by_role("button", name="Pause", exact=True).wait_for()
    press(page, "Pause")
    second.get_by_role("button", name="Continue").wait_for()
    second.close()
    until(lambda: other not in watcher._server.get_clients())
    assert first in watcher._server.get_clients()


def test_a_divergence_is_a_banner(page, watcher, monkeypatch):
    monkeypatch.setattr("worldline.watch.watcher._BANNER_S", 1000.0)  # a slow page shows it too
    do(watcher, lambda: watcher.say("world 1 diverged and was reset"))
    page.get_by_text("world 1 diverged").wait_for()


def test_nothing_comes_from_the_network(asked, page, watcher):
    own = (watcher.url, watcher.url.replace("http", "ws"), f"blob:{watcher.url}", "data:")
    assert any(url.startswith("ws") for url in asked)
    assert all(url.startswith(own) for url in asked)
