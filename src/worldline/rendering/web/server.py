"""A server for the page in a browser, and where its camera stands."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator
from typing import Any

from worldline.errors import ConfigError, MissingExtraError
from worldline.rendering.web.guard import Guard, guarding


@contextlib.contextmanager
def open_server(
    host: str = "127.0.0.1", port: int = 0, *, what: str = "a page with worlds"
) -> Iterator[tuple[Any, str]]:
    """A viser server that answers as its guard allows, and the URL to open.

    Args:
        host: the address to listen at.
        port: its port, or if that is taken the next free one; 0: any.
        what: what needs the server, for the error.

    Raises:
        MissingExtraError: viser is not installed.
        ConfigError: no port can be had.
    """
    viser = needed_viser(what)
    from viser._messages import ShareUrlRequest

    guard = Guard.of(host)
    _check_address(host)
    with guarding(guard), contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host=host, port=port, verbose=False)
    try:
        # Sharing would send the scene through a server of others.
        server._websock_server.unregister_handler(ShareUrlRequest)
        server.gui.configure_theme(show_logo=False, show_share_button=False)
        server.gui.main_panel.dock_right()
        yield server, guard.url(server.get_port())
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()


def needed_viser(what: str) -> Any:
    """The library, or an error that says what to install for that which needs it."""
    try:
        import viser
    except ImportError as error:
        raise MissingExtraError(what, "viewer") from error
    return viser


def _check_address(host: str) -> None:
    """Refuses an address that is not this machine's, for which viser would try every port."""
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {host!r}: {error.strerror or error}; give an address of "
                "this machine"
            ) from error


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
