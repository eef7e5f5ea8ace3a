"""`worldline watch`: opens what to watch, a server for browsers, and steps until Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from worldline.errors import ConfigError, MissingExtraError
from worldline.settings import Count, Range, Seed, check_settings
from worldline.watch.guard import Guard, guarding


@dataclasses.dataclass(frozen=True)
class WatchConfig:
    """How to watch."""

    worlds: Count = 1
    """How many worlds, side by side."""
    port: Annotated[int, Range(0, 65535)] = 8080
    """The port of the page; if it is taken, the next free one. 0: any."""
    host: str = "127.0.0.1"
    """The address to listen at: by default this machine alone can open the page. With another one,
    such as 0.0.0.0, the URL that is printed has a token without which nothing is answered."""
    seed: Seed = 0
    """Decides the starts of the episodes."""

    def __post_init__(self) -> None:
        check_settings(self)


@contextlib.contextmanager
def open_server(config: WatchConfig) -> Iterator[tuple[Any, str]]:
    """A viser server that answers as its guard allows, and the URL to open.

    Raises:
        MissingExtraError: viser is not installed.
        ConfigError: no port can be had.
    """
    viser = _viser()
    from viser._messages import ShareUrlRequest

    guard = Guard.of(config.host)
    _check_address(config)
    with guarding(guard), contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host=config.host, port=config.port, verbose=False)
    try:
        # Sharing would send the scene through a server of others.
        server._websock_server.unregister_handler(ShareUrlRequest)
        server.gui.configure_theme(show_logo=False, show_share_button=False)
        server.gui.main_panel.dock_right()
        yield server, guard.url(server.get_port())
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()


def _viser() -> Any:
    """The library, or an error that says what to install."""
    try:
        import viser
    except ImportError as error:
        raise MissingExtraError("worldline watch", "viewer") from error
    return viser


def _check_address(config: WatchConfig) -> None:
    """Refuses an address that is not this machine's, for which viser would try every port."""
    import socket

    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((config.host, 0))
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {config.host!r}: {error.strerror or error}; give an address of "
                "this machine"
            ) from error


def watch(
    name: str,
    config: WatchConfig,
    tell: Callable[[str], None],
    *,
    others: Sequence[str] = (),
    trust_code: bool = False,
    stop: threading.Event | None = None,
) -> None:
    """Shows a run, a task or a model in browsers until Ctrl-C.

    Args:
        name: a run folder, a task or an MJCF file.
        config: how.
        tell: takes each line for the person who started it.
        others: more run folders, whose curves are shown too.
        trust_code: as in `worldline.train.stored.environment_of`.
        stop: ends it when it is set.
    """
    import jax

    from worldline.watch.source import open_others, open_source

    _viser()  # first of all, for it is what a newcomer lacks
    jax.config.update("jax_platforms", "cpu")  # the accelerator is for those who train
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)
    source = open_source(name, trust_code=trust_code)
    runs = open_others(others)
    with open_server(config) as (server, url):
        from worldline.watch.watcher import Watcher

        out = Path() if source.folder is None else source.folder.path / "watch"
        watcher = Watcher(server, name, source, config.worlds, config.seed, out, runs)
        point_camera(server, watcher.model, watcher.stage)
        if config.port and server.get_port() != config.port:
            tell(f"port {config.port} is taken; the next free one is {server.get_port()}")
        worlds = "1 world" if config.worlds == 1 else f"{config.worlds} worlds"
        tell(f"{source.title}: {worlds} at {url} (Ctrl-C ends it)")
        if watcher.follower is not None and watcher.session.policy is None:
            tell(f"  {watcher.follower.note}")
        with contextlib.suppress(KeyboardInterrupt):
            watcher.run(stop or threading.Event())


def point_camera(server: Any, model: Any, stage: Any) -> None:
    """Lets new browsers see all worlds.

    Args:
        server: the viser server.
        model: the `mujoco.MjModel`.
        stage: the `Stage`, which knows where the worlds are.
    """
    import numpy as np

    body = min(float(model.stat.extent), 1.2 * stage.spacing)
    side = float(np.ptp(stage.offsets[:, :2], axis=0).max())
    distance = 0.9 * side + 1.4 * body
    camera = server.initial_camera
    camera.position = (0.35 * distance, -0.85 * distance, 0.25 * body + 0.5 * distance)
    camera.look_at = (0.0, 0.0, 0.25 * body)
    camera.up = (0.0, 0.0, 1.0)
    camera.fov = math.radians(55)
