"""`worldline watch`: opens what to watch, a server for browsers, and steps until Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from worldline.rendering.web.server import needed_viser, open_server, point_camera
from worldline.settings import Count, Range, Seed, check_settings

#: What needs the library, for the one who lacks it.
_WHAT = "worldline watch"


@dataclasses.dataclass(frozen=True)
class WatchConfig:
    """Settings of the viewer."""

    worlds: Count = 1
    """The number of worlds, side by side."""
    port: Annotated[int, Range(0, 65535)] = 8080
    """The port of the page. If it is taken, the next free port is used. 0: any free port."""
    host: str = "127.0.0.1"
    """The address to listen at. By default only this machine can open the page. With another
    address, for example 0.0.0.0, the printed URL has a token that each request needs."""
    seed: Seed = 0
    """The random seed of the episodes."""

    def __post_init__(self) -> None:
        check_settings(self)


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

    needed_viser(_WHAT)  # first of all, for it is what a newcomer lacks
    jax.config.update("jax_platforms", "cpu")  # the accelerator is for those who train
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)
    source = open_source(name, trust_code=trust_code)
    runs = open_others(others)
    with open_server(config.host, config.port, what=_WHAT) as (server, url):
        from worldline.watch.watcher import Watcher

        out = Path() if source.folder is None else source.folder.path / "watch"
        watcher = Watcher(server, name, source, config.worlds, config.seed, out, runs)
        point_camera(server, watcher.model, watcher.stage)
        if config.port and server.get_port() != config.port:
            tell(f"port {config.port} is taken; using the next free port, {server.get_port()}")
        worlds = "1 world" if config.worlds == 1 else f"{config.worlds} worlds"
        tell(f"{source.title}: {worlds} at {url} (Ctrl-C to stop)")
        if watcher.follower is not None and watcher.session.policy is None:
            tell(f"  {watcher.follower.note}")
        with contextlib.suppress(KeyboardInterrupt):
            watcher.run(stop or threading.Event())
