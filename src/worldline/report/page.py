"""Recorded episodes as a page that plays by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from worldline.model import Model
from worldline.rendering.scene import CONSTANTS
from worldline.rendering.web.page import Frame, page_of, stride_of
from worldline.report.video import Take


def page_of_takes(model: Model, takes: Sequence[Take], timestep: float) -> bytes:
    """The page of episodes side by side; one that has ended waits for the others.

    Args:
        model: the model of all.
        takes: the episodes.
        timestep: seconds between two control steps.

    Raises:
        MissingExtraError: viser is not installed.
    """
    stride = stride_of(timestep)
    frames = _frames(takes, timestep, stride)
    return page_of(model.mj, frames, stride * timestep, len(takes))


def _frames(takes: Sequence[Take], timestep: float, stride: int) -> Iterator[Frame]:
    constants = {
        name: np.stack([np.asarray(take.variation[name]) for take in takes])
        for name in takes[0].variation
        if name in CONSTANTS
    }
    last = max(len(take.qpos) for take in takes)
    for step in range(0, last, stride):
        now = [min(step, len(take.qpos) - 1) for take in takes]
        qpos = np.stack([np.asarray(take.qpos)[t] for take, t in zip(takes, now, strict=True)])
        moving = {
            name: np.stack([take.inputs[name][t] for take, t in zip(takes, now, strict=True)])
            for name in takes[0].inputs
        }
        yield Frame(qpos, {**constants, **moving}, f"{step * timestep:.1f} s")
