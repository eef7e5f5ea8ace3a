"""Chromium, for what only a browser shows."""

import shutil
import time

import imageio.v3 as imageio
import numpy as np
import pytest

#: Its WebGL is drawn by the CPU, which may take a second a frame where other tests run: so the
#: window is small, and a test waits for what it wants to see.
WINDOW = {"width": 800, "height": 450}
PATIENCE_S = 120.0
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.fail("there is no Chromium to test the page in; apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def new_page(browser):
    """Opens an address in a new tab; `asked` gets the address of each request."""

    def opened(url, asked):
        page = browser.new_page(viewport=WINDOW)
        page.set_default_timeout(1000 * PATIENCE_S)
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        page.goto(url)
        return page

    return opened


@pytest.fixture(scope="session")
def until():
    """Waits until a function gives something true."""

    def wait(what):
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.05)

    return wait


@pytest.fixture(scope="session")
def moves():
    """Says whether the scene of a page changes from one picture to the next."""

    def picture(page):
        return imageio.imread(page.screenshot())[100:400, :450, :3].astype(float)

    return lambda page: np.abs(picture(page) - picture(page)).max() > 50
