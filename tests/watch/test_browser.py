"""The page in a real browser, with two viewers: Chromium, driven by Playwright."""

import re
import shutil
import threading
import time

import imageio.v3 as imageio
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.export.policy_file import save_policy
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.watch.policies import PolicyFollower
from worldline.watch.run import WatchConfig, open_server, point_camera
from worldline.watch.source import open_source
from worldline.watch.watcher import Watcher

sync_api = pytest.importorskip("playwright.sync_api")
pytest.importorskip("viser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")

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


@pytest.fixture(scope="module")
def watcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    (folder / "box.xml").write_text(MJCF)
    source = open_source(str(folder / "box.xml"))
    stop = threading.Event()
    with open_server(WatchConfig(worlds=2, port=0)) as (server, url):
        watcher = Watcher(server, "box.xml", source, 2, 0, folder)
        watcher.follower = PolicyFollower(folder)
        watcher.url = url
        point_camera(server, watcher.model, watcher.stage)
        watcher.step()  # compiles
        loop = threading.Thread(target=watcher.run, args=(stop,))
        loop.start()
        yield watcher
        stop.set()
        loop.join()


@pytest.fixture(scope="module")
def browser():
    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def asked():
    return []


@pytest.fixture(scope="module")
def page(browser, watcher, asked):
    page = browser.new_page(viewport={"width": 1000, "height": 700})
    page.on("request", lambda request: asked.append(request.url))
    page.goto(watcher.url)
    page.get_by_role("button", name="Pause", exact=True).wait_for(timeout=60_000)
    until(lambda: watcher._server.get_clients())
    return page


def do(watcher, *what):
    """Has the loop do things between two steps, and waits until it has."""
    done = threading.Event()
    for each in what:
        watcher.post(each)
    watcher.post(done.set)
    assert done.wait(60)


def until(what, seconds=30.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def picture(page):
    """The scene without the panel and the notices, `(height, width, 3)`."""
    return imageio.imread(page.screenshot())[200:, :650, :3].astype(float)


def difference(one, other):
    return np.abs(one - other).max()


def test_the_robot_moves_and_pause_freezes(page, watcher):
    do(watcher, lambda: watcher.act("random"))
    taken = watcher.session.taken
    first = picture(page)
    until(lambda: watcher.session.taken > taken + 20)
    assert difference(first, picture(page)) > 50
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Go on").wait_for()
    page.wait_for_timeout(500)
    taken, still = watcher.session.taken, picture(page)
    page.wait_for_timeout(500)
    assert watcher.session.taken == taken
    assert difference(still, picture(page)) < 10
    page.get_by_role("button", name="One step").click()
    until(lambda: watcher.session.taken == taken + 1)
    page.get_by_role("button", name="Go on").click()
    until(lambda: watcher.session.taken > taken + 5)


def test_a_slider_changes_the_variation_and_the_way(page, watcher):
    ways = []
    page.get_by_role("tab", name="Physics").click()
    for friction in ("0.8", "0"):
        label = page.locator("label", has_text=re.compile("^friction$"))
        box = label.locator("xpath=ancestor::*[.//input[@type='text']][1]//input[@type='text']")
        box.first.fill(friction)
        box.first.press("Enter")
        until(lambda f=friction: watcher.session.knobs.values["context/friction"][0] == float(f))
        watcher.push_newtons = 30.0
        do(watcher, watcher.reset, lambda: watcher.push(0, 1, [1.0, 0, 0]))
        until(lambda: watcher.session.taken > 40)
        ways.append(watcher.session.seen.qpos[0, 0])
    assert np.asarray(watcher.session.state.variation["geom_friction"])[0, 1, 0] == 0
    assert ways[1] > 2 * ways[0]
    page.get_by_role("tab", name="Play").click()


def test_a_click_pushes_the_body(page, watcher):
    do(watcher, watcher.reset)
    until(lambda: watcher.session.taken > 5)
    page.wait_for_timeout(1000)  # until the page shows it
    image = imageio.imread(page.screenshot())[200:, :650, :3].astype(int)
    orange = (image[..., 0] > 150) & (image[..., 0] - image[..., 2] > 60)
    y, x = np.nonzero(orange)
    right = x > x.mean()  # the box of world 1
    x, y = int(np.median(x[right])), 200 + int(np.median(y[right]))
    before = watcher.session.seen.qpos[:, :2].copy()
    page.mouse.click(x, y)
    until(lambda: np.abs(watcher.session.seen.qpos[:, :2] - before).max() > 0.05)


def test_a_new_policy_is_taken_up(page, watcher):
    env = watcher.session.env
    nobs = env.observation_space.shape[0]
    for action in (0.5, -0.5):
        network = MLP.initial(jax.random.key(0), (nobs, 4, 1), "tanh", last_gain=0.0)
        biases = [*network.biases[:-1], jnp.full(1, action, jnp.float32)]
        actor = Actor(MLP(network.weights, biases, "tanh"), jnp.zeros(1, jnp.float32))
        low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)
        policy = Policy(actor, RunningStatistics.zero((nobs,)), low, high, "clip")
        save_policy(watcher.follower._folder, policy, step=1000)
        do(watcher, lambda: watcher.act("policy"))
        until(lambda a=action: np.allclose(watcher.session.seen.action, a))
    assert page.get_by_text("after 1,000 steps").is_visible()


def test_two_viewers_see_the_same(page, browser, watcher):
    second = browser.new_page(viewport={"width": 1000, "height": 700})
    second.goto(watcher.url)
    until(lambda: len(watcher._server.get_clients()) == 2)
    second.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Go on").wait_for()
    second.close()
    until(lambda: len(watcher._server.get_clients()) == 1)
    page.get_by_role("button", name="Go on").click()


def test_a_divergence_is_a_banner(page, watcher):
    do(watcher, lambda: watcher.say("world 1 diverged, and begins again"))
    page.get_by_text("world 1 diverged").wait_for()


def test_nothing_comes_from_the_network(asked, watcher):
    assert asked
    assert all(url.removeprefix("blob:").startswith(watcher.url) for url in asked)
