"""The pictures of the guide to named robots: `python docs/images/named_robots.py [FOLDER]`.

Eight frames of each robot, with its last policy, which `worldline bench robots --keep FOLDER` has
left there. It acts in the full model of its task.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import worldline
from worldline.learn.rollout import record
from worldline.report import render_episode

HERE = Path(__file__).parent
SIZE = (300, 300)


@dataclasses.dataclass(frozen=True)
class Take:
    """What is shown of a robot."""

    distance: float
    """Of the camera, m."""
    first: float
    """Seconds of the episode before the first frame."""
    seconds: float
    """From the first frame to the last."""
    task_options: dict[str, Any] = dataclasses.field(default_factory=dict)


TAKES = {
    "go1-joystick-flat": Take(1.6, 2.0, 0.5),
    "g1-joystick-flat": Take(2.2, 2.0, 0.8, {"pushed": False}),
    "t1-joystick-flat": Take(2.2, 2.0, 0.8, {"pushed": False}),
    "spot-flat": Take(2.4, 2.0, 0.7),
    "panda-pick-cube": Take(1.7, 0.0, 3.0),
}


def draw(name: str, take: Take, folder: Path) -> None:
    """Writes the picture of a robot."""
    env = worldline.make(f"playground/{name}", **take.task_options)
    policy = worldline.load_policy(folder / f"{name}-0.npz")
    steps = [round(time / env.control_timestep) for time in (take.first, take.seconds)]
    episode = jax.device_get(record(env, policy, jax.random.key(5), sum(steps)))
    last = slice(steps[0], sum(steps))
    camera = {"azimuth": 130.0, "elevation": -10.0, **env.task.camera, "distance": take.distance}
    camera.pop("name", None)
    render_episode(
        env.model,
        np.asarray(episode.qpos)[last],
        png=HERE / f"named-{name}.png",
        timestep=env.control_timestep,
        camera=camera,
        size=SIZE,
        variation=episode.variation,
        inputs={field: rows[last] for field, rows in episode.inputs.items()},
    )


if __name__ == "__main__":
    kept = Path(sys.argv[1] if len(sys.argv) > 1 else ".bench/robots")
    there = {robot for robot in TAKES if (kept / f"{robot}-0.npz").exists()}
    for robot in there:
        draw(robot, TAKES[robot], kept)
    if missing := sorted(TAKES.keys() - there):
        sys.exit(f"no policy of {', '.join(missing)} in {kept}")
