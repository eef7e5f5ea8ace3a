"""The pictures of the guide to `worldline watch`, of a run that you trained:
`python docs/images/watch.py RUN`. They are taken in Chromium, of the page as it is.
"""

import re
import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from worldline.watch.run import WatchConfig, open_server, point_camera
from worldline.watch.source import open_source
from worldline.watch.watcher import Watcher

WORLDS = 6
WINDOW = {"width": 1120, "height": 660}
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
HERE = Path(__file__).parent


def photograph(page: Page, watcher: Watcher) -> None:
    """Takes a picture of robots that walk, and one of robots on floors of many frictions."""

    def after(seconds: float, name: str) -> None:
        done = threading.Event()
        for _ in range(round(seconds / watcher.timestep)):
            watcher.post(watcher.step)
        for last in (watcher.show, watcher.panel.plots.refresh, done.set):
            watcher.post(last)
        done.wait()
        page.wait_for_timeout(20_000)  # the page draws
        page.screenshot(path=HERE / name)

    page.get_by_text(re.compile(f"{WORLDS} worlds")).wait_for()
    page.locator(".mantine-Notification-closeButton").dispatch_event("click")  # of software WebGL
    after(1.5, "watch.png")
    page.get_by_role("tab", name="Physics").click(force=True)
    page.locator("label", has_text=re.compile("^friction$")).first.wait_for()
    physics = watcher.panel.physics
    physics._one_of.value = "context/friction"
    watcher.post(lambda: physics._several("spread"))
    watcher.post(watcher.reset)
    after(0.8, "watch-physics.png")


source, stop = open_source(sys.argv[1], trust_code=True), threading.Event()
with open_server(WatchConfig(worlds=WORLDS, port=0)) as (server, url), sync_playwright() as driver:
    watcher = Watcher(server, sys.argv[1], source, WORLDS, 0, Path())
    point_camera(server, watcher.model, watcher.stage)
    watcher.toggle()
    loop = threading.Thread(target=watcher.run, args=(stop,), daemon=True)
    loop.start()
    browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
    page = browser.new_page(viewport=WINDOW)
    page.set_default_timeout(120_000)
    page.goto(url)
    photograph(page, watcher)
    stop.set()
    loop.join()
    browser.close()
