"""The page to share plays from a disk, in a real browser."""

import jax
import numpy as np
import pytest

pytest.importorskip("viser")

from worldline.cli.main import main
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.watch.page import save_page
from worldline.watch.source import open_source

#: A box that slides along, over and over.
MJCF = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="box" pos="0 0 0.2">
      <joint name="rail" type="slide" axis="1 0 0" stiffness="10"/>
      <geom type="box" size="0.2 0.2 0.2" mass="1" rgba="1 0.3 0 1"/>
    </body>
  </worldbody>
  <keyframe><key name="away" qpos="0.5"/></keyframe>
</mujoco>
"""


def test_it_plays_pauses_and_scrubs_and_asks_nobody(tmp_path, new_page, until, moves):
    (tmp_path / "box.xml").write_text(MJCF)
    file = tmp_path / "shared" / "box.html"
    size = save_page(file, open_source(str(tmp_path / "box.xml")), None, num_worlds=2, seconds=3.0)
    assert size == file.stat().st_size < 2e6
    asked, errors = [], []
    page = new_page(file.as_uri(), asked)
    page.on("pageerror", lambda error: errors.append(error))
    slider = page.locator("[role=slider]")
    slider.wait_for(state="attached")
    assert float(slider.get_attribute("aria-valuemax")) == pytest.approx(3.0, abs=0.1)

    def now():
        return float(slider.get_attribute("aria-valuenow"))

    first = now()
    until(lambda: now() != first)
    until(lambda: moves(page))
    page.locator("button:has(.tabler-icon-player-pause-filled)").dispatch_event("click")
    page.locator("button:has(.tabler-icon-player-play-filled)").wait_for()
    until(lambda: not moves(page))
    for place in (0.5, 2.5):
        page.locator(".mantine-NumberInput-input").fill(str(place))
        until(lambda p=place: now() == pytest.approx(p))
    assert asked == [file.as_uri()]
    assert not errors


def test_what_it_is_written_to_ends_in_html(capsys):
    assert main(["export", "runs/nothing", "--html", "page.txt"]) == 2
    error = "error: html is 'page.txt'; give a file that ends in .html\n"
    assert capsys.readouterr().err == error


@pytest.mark.exhaustive
def test_twenty_seconds_of_a_quadruped_fit_into_five_megabytes(tmp_path):
    source = open_source("robot/quadruped-joystick")
    env = source.env
    sizes = (env.observation_space.shape[0], 32, len(env.action_low))
    mean = MLP.initial(jax.random.key(0), sizes, "tanh", last_gain=1.0)
    actor = Actor(mean, np.zeros(sizes[-1], np.float32))
    policy = Policy(
        actor, RunningStatistics.zero(sizes[:1]), env.action_low, env.action_high, "clip"
    )
    assert save_page(tmp_path / "page.html", source, policy) < 5e6
