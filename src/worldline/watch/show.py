"""Show: worlds in a notebook, as a page inside it that plays by itself."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from worldline.env.env import Env
from worldline.env.episodes import WorldsState
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.export.policy_file import load_policy
from worldline.learn.policy import Policy
from worldline.learn.rollout import Trajectory
from worldline.rendering.web.page import write_page
from worldline.watch.saved import load_state


@dataclasses.dataclass(frozen=True)
class Page:
    """What `show` made. The last expression of a notebook's cell is shown; `save` writes a file."""

    content: bytes
    """HTML that needs no other file, no server and no network."""
    height: int = 450
    """Pixels in a notebook."""

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the page to a file that plays in a browser.

        Raises:
            RunError: it cannot be written.
        """
        write_page(Path(file), self.content)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, as notebooks show it."""
        inside = html.escape(self.content.decode(), quote=True)
        style = f"width: 100%; height: {self.height}px; border: 1px solid #ddd"
        return f"<iframe style='{style}' srcdoc=\"{inside}\"></iframe>"

    def __repr__(self) -> str:
        return f"Page of {len(self.content) / 1e6:.1f} MB; page.save(FILE) writes it"


def show(
    what: Any,
    env: Env | None = None,
    *,
    policy: Policy | None = None,
    worlds: int = 4,
    seconds: float = 10.0,
    seed: int = 1,
    height: int = 450,
    trust_code: bool = False,
) -> Page:
    """Plays worlds in a notebook: to orbit, pause and scrub, without a server.

    Args:
        what: a run folder, or the result of `train`: its policy in new episodes. A task or an MJCF
            file by name, or an `Env`: worlds at rest. `(worlds, state)`, such as `load_state`
            gives, or a file that it reads: they go on from there. An episode that `record` made, or
            several of them: with their `env`.
        env: the environment of recorded episodes.
        policy: how the worlds act, in place of the run's policy or of rest.
        worlds: how many, side by side; a state and episodes have their own number.
        seconds: of simulated time; 0: one moment. Episodes have their own.
        seed: decides the starts.
        height: of the page in the notebook, in pixels.
        trust_code: as in `worldline watch`.

    Raises:
        MissingExtraError: the extra `viewer` is not installed.
        ConfigError: it is none of these; or recorded episodes come without their `env`.
        WorldlineError: what `what` names cannot be opened.
    """
    from worldline.watch.page import page_from  # imports what training needs
    from worldline.watch.source import open_source

    if isinstance(folder := getattr(what, "folder", None), Path):  # the result of a training
        what = folder
    if isinstance(what, str | os.PathLike):
        if Path(what).suffix == ".npz":
            what = load_state(what, trust_code=trust_code)
        else:
            source = open_source(os.fspath(what), trust_code=trust_code)
            if policy is None and source.folder is not None:
                policy = load_policy(source.folder.path)
            what = source.env
    if isinstance(what, Env):
        many = Worlds(what, worlds, adaptive=False)
        return Page(page_from(many, many.reset(jax.random.key(seed)), policy, seconds), height)
    match what:
        case (Worlds() as many, WorldsState() as state):
            return Page(page_from(many, state, policy, seconds), height)
    return Page(_recorded(what, env), height)


def _recorded(what: Any, env: Env | None) -> bytes:
    """The page of episodes that were recorded."""
    several = isinstance(what, Sequence) and not isinstance(what, Trajectory)
    episodes = list(what) if several else [what]
    if not episodes or not all(isinstance(each, Trajectory) for each in episodes):
        raise ConfigError(
            f"`show` cannot show a {type(what).__name__}; give a run folder, an Env, "
            "(worlds, state), or an episode from `record`"
        )
    if env is None:
        raise ConfigError("an episode does not contain its environment; give env too")
    from worldline.report.page import page_of_takes
    from worldline.report.video import Take

    takes = [
        Take(np.asarray(it.qpos), *jax.device_get((it.variation, it.inputs))) for it in episodes
    ]
    return page_of_takes(env.model, takes, env.control_timestep)
