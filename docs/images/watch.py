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

WORLDS = 9
WINDOW = {"width": 1280, "height": 720}
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
HERE = Path(__file__).parent


def photograph(page: Page, watcher: Watcher) -> None:
    """Walks three seconds and takes the first picture, slips on ice, and takes the second."""

    def after(seconds: float, name: str) -> None:
        done = threading.Event()
        for _ in range(round(seconds / watcher.timestep)):
            watcher.post(watcher.step)
        for last in (watcher.show, watcher.panel.plots.refresh, done.set):
            watcher.post(last)
        done.wait()
        page.wait_for_timeout(5000)  # the page draws
        page.screenshot(path=HERE / name)

    page.get_by_text(re.compile(f"{WORLDS} worlds")).wait_for(timeout=120_000)
    after(3, "watch.png")
    page.get_by_role("tab", name="Physics").dispatch_event("click")
    page.get_by_text("friction", exact=True).first.wait_for()
    watcher.post(lambda: watcher.session.knobs.spread("context/friction"))
    watcher.post(watcher.session.vary)
    watcher.post(watcher.panel.physics.refresh)
    after(2, "watch-physics.png")


source, stop = open_source(sys.argv[1], trust_code=True), threading.Event()
with open_server(WatchConfig(worlds=WORLDS, port=0)) as (server, url), sync_playwright() as driver:
    watcher = Watcher(server, sys.argv[1], source, WORLDS, 0, Path())
    point_camera(server, watcher.model, watcher.stage)
    watcher.toggle()
    loop = threading.Thread(target=watcher.run, args=(stop,))
    loop.start()
    browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
    page = browser.new_page(viewport=WINDOW)
    page.goto(url)
    photograph(page, watcher)
    stop.set()
    loop.join()
    browser.close()
