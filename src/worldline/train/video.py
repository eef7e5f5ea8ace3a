"""The video of a run's policy."""

from __future__ import annotations

import math

import jax
import numpy as np

from worldline.env.env import Env
from worldline.errors import RendererUnavailableError
from worldline.learn.augmentation import Augmentation
from worldline.learn.policy import Policy
from worldline.learn.rollout import record
from worldline.report import RunFolder, render_episode
from worldline.report.inputs import as_picture, seen_frames, write_inputs
from worldline.train.stored import algorithm_of
from worldline.types import Key


def make_video(
    folder: RunFolder,
    env: Env,
    policy: Policy,
    key: Key,
    seconds: float = 10.0,
    deterministic: bool = True,
) -> str:
    """Renders an episode of a policy into a run folder.

    Returns:
        A line that says how it was drawn, or what to install so that it can be.
    """
    timestep = env.control_timestep
    limit = math.ceil(env.task.episode_length / env.action_repeat) or round(seconds / timestep)
    steps = max(1, min(limit, round(seconds / timestep)))
    episode = record(env, policy, key, steps, deterministic=deterministic)
    seen = seen_frames(env, episode)
    if seen:
        algorithm = algorithm_of(folder)
        augmentation = getattr(algorithm, "augmentation", Augmentation())  # SHAC has none
        write_inputs(folder.inputs_file, seen, augmentation)
    try:
        clip = render_episode(
            env.model,
            np.asarray(episode.qpos),
            folder.video_file,
            folder.strip_file,
            timestep=timestep,
            camera=env.task.camera,
            variation=jax.device_get(episode.variation),
            inputs=jax.device_get(episode.inputs),
            views={name: as_picture(frames) for name, frames in seen.items()},
        )
    except RendererUnavailableError as error:
        return f"no video: {error}"
    return clip.note
