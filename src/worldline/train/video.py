"""The video of a run's policy."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from pathlib import Path

import jax
import numpy as np

from worldline.env.env import Env
from worldline.errors import MissingExtraError, RendererUnavailableError
from worldline.learn.augmentation import Augmentation
from worldline.learn.policy import Policy
from worldline.learn.rollout import record, record_many
from worldline.rendering.frames import camera_index
from worldline.rendering.web.page import write_page
from worldline.report import RunFolder, render_episode
from worldline.report.inputs import as_picture, seen_frames, write_inputs
from worldline.report.page import page_of_takes
from worldline.report.progress import DrawingProgress
from worldline.report.video import Take
from worldline.train.stored import algorithm_of
from worldline.types import Key


@dataclasses.dataclass(frozen=True)
class VideoOptions:
    """The options of a video."""

    size: tuple[int, int] | None = None
    """Height and width of a frame, in pixels; None: the largest size that is drawn in 20 s."""
    camera: str = ""
    """A camera of the model; by default the task's."""
    fps: float | None = None
    """The maximum number of frames per second; None: 30, or fewer if drawing takes over 20 s."""
    worlds: int = 1
    """The number of episodes side by side."""
    out: Path | None = None
    """The video to write; by default, with a strip of pictures, in the run folder."""
    quiet: bool = False
    """Show no progress."""


def make_video(
    folder: RunFolder,
    env: Env,
    policy: Policy,
    key: Key,
    seconds: float = 10.0,
    deterministic: bool = True,
    options: VideoOptions | None = None,
) -> str:
    """Renders an episode of a policy, or several side by side, into a run folder.

    If the extra `viewer` is installed, it also writes a page that plays the episode in a browser.

    Returns:
        A line that says how it was drawn, or what to install.

    Raises:
        ModelError: the model has no such camera.
        ConfigError: a size that a video cannot have.
        RunError: a file that cannot be written.
    """
    if not env.model.drawable:
        return "no video: the environment's states place no bodies of a MuJoCo model"
    options = options or VideoOptions()
    camera = {"name": options.camera} if options.camera else env.task.camera
    camera_index(env.model, camera)  # an error before the episode is played
    timestep = env.control_timestep
    limit = math.ceil(env.task.episode_length / env.action_repeat) or round(seconds / timestep)
    steps = max(1, min(limit, round(seconds / timestep)))
    with DrawingProgress(quiet=options.quiet) as show:
        if options.worlds > 1:
            played = record_many(
                env, policy, key, steps, options.worlds, deterministic=deterministic
            )
        else:
            played = [record(env, policy, key, steps, deterministic=deterministic)]
        seen = seen_frames(env, played[0]) if options.worlds == 1 else {}
        if seen and options.out is None:
            algorithm = algorithm_of(folder)
            augmentation = getattr(algorithm, "augmentation", Augmentation())  # SHAC has none
            write_inputs(folder.inputs_file, seen, augmentation)
        takes = [
            Take(np.asarray(it.qpos), jax.device_get(it.variation), jax.device_get(it.inputs))
            for it in played
        ]
        file = options.out or folder.video_file
        with contextlib.suppress(MissingExtraError):  # a page is not worth an error
            write_page(file.with_suffix(".html"), page_of_takes(env.model, takes, timestep))
        first, *others = takes
        try:
            clip = render_episode(
                env.model,
                first.qpos,
                file,
                None if options.out else folder.strip_file,
                timestep=timestep,
                camera=camera,
                fps=options.fps,
                size=options.size,
                variation=first.variation,
                inputs=first.inputs,
                views={name: as_picture(frames) for name, frames in seen.items()},
                beside=others,
                progress=show,
            )
        except RendererUnavailableError as error:
            return f"no video: {error}"
    return clip.note
