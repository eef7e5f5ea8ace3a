"""Curves of runs on the page, which grow while the runs go on."""

import numpy as np
import pytest

pytest.importorskip("viser")

from worldline.errors import ConfigError, RunError
from worldline.rendering.web.server import open_server
from worldline.report import RunFolder
from worldline.watch.source import alike, open_others
from worldline.watch.training import TrainingTab, fitting, named, overlaid


def write(folder, step, gain):
    """A row of a run whose return grows."""
    metrics = {"train/return_recent": gain * step, "speed/steps_per_s": 1234.0, "ppo/kl": 0.01}
    evaluation = {"eval/return": gain * step + 7} if step % 2000 == 0 else {}
    folder.write_metrics(step, step / 1000, {**metrics, **evaluation})


def made(path, steps=10_000):
    return RunFolder.create(path, {"task": "t", "seed": 0, "steps": steps})


def test_a_new_point_arrives_in_the_browser(tmp_path, new_page, until):
    with (
        made(tmp_path / "slow") as slow,
        made(tmp_path / "fast") as fast,
        open_server() as (server, url),
    ):
        for step in range(1000, 5000, 1000):
            write(slow, step, 0.01)
        write(fast, 1000, 0.02)
        tab = TrainingTab(server.gui, named([slow, fast]), lambda what: what())
        page = new_page(url, [])
        page.get_by_text("4k of 10k steps, 0:00:06 left").wait_for()
        page.get_by_text("1k of 10k steps, just started").wait_for()
        plot = page.locator("canvas:visible").nth(-1)
        plot = page.locator(".uplot:visible").first
        before = plot.screenshot()
        write(fast, 2000, 0.02)
        tab.refresh()
        page.get_by_text("2k of 10k steps").wait_for()
        until(lambda: plot.screenshot() != before)


def test_curves_of_runs_meet_at_common_places():
    places, first, second = overlaid([(np.r_[0.0, 2], np.r_[0.0, 4]), (np.r_[1.0], np.r_[5.0])], 9)
    np.testing.assert_array_equal(places, [0, 1, 2])
    np.testing.assert_array_equal(first, [0, 2, 4])
    np.testing.assert_array_equal(second, [np.nan, 5, np.nan])
    long = np.arange(1001.0)
    places, values = overlaid([(long, 2 * long)], 100)
    assert len(places) <= 100
    assert (places[-1], values[-1]) == (1000, 2000)
    places, values = overlaid([(np.zeros(0), np.zeros(0))], 100)
    assert np.isnan(values).all()


def test_an_axis_stays_while_its_curves_fit():
    first = fitting(np.r_[0.0, 10.0, np.nan], None)
    assert first == (-1, 11)
    assert fitting(np.r_[0.0, 10.9], first) == first
    assert fitting(np.r_[0.0, 20.0], first) == (-2, 22)
    assert fitting(np.r_[0.0, 1.0], first) == (-0.1, 1.1)
    assert fitting(np.r_[3.0], None) == (1.5, 4.5)
    assert fitting(np.r_[np.nan], None) == (0, 1)


def test_runs_are_named_by_what_tells_them_apart(tmp_path):
    with made(tmp_path / "a" / "s0") as one, made(tmp_path / "b" / "s0") as two:
        assert [*named([one, two])] == ["a/s0", "b/s0"]
        assert [*named([one])] == ["s0"]
        assert len(named([one, one])) == 1
    assert named([]) == {}


def test_runs_of_one_environment_can_play_each_other(tmp_path):
    folders = [
        RunFolder.create(
            tmp_path / str(n), {"task": "t", "code": {}, "env": {}, "options": options}
        )
        for n, options in enumerate(({"wall": 1}, {"wall": 1}, {"wall": 2}))
    ]
    assert alike(*folders[:2])
    assert not alike(*folders[1:])


def test_other_runs_are_run_folders_and_not_too_many(tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        open_others([str(tmp_path)])
    with pytest.raises(ConfigError, match="you gave 13 runs; give at most 12"):
        open_others(["run"] * 12)
