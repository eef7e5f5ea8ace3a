"""The pictures of the gallery: `MUJOCO_GL=egl python docs/images/gallery.py [TASK ...]`.

One of each task's robot at the start of an episode, as near as it fits into the picture. The names
in `TASKS` are those of the files in `docs/images/gallery`, with a dash in place of the slash.
"""

import sys
from pathlib import Path

import imageio.v3 as imageio
import jax
import mujoco
import numpy as np

from worldline.tasks.names import TASKS as KNOWN
from worldline.tasks.registry import load_task

FOLDER = Path(__file__).with_suffix("")
TASKS = [name for name in KNOWN if name.startswith(("arm/", "gym/", "playground/", "robot/quad"))]
HEIGHT, WIDTH = 300, 400
#: From where to look at a robot, relative to where it looks, degrees: from ahead, on its left.
AZIMUTH, ELEVATION = 215.0, -18.0
#: From where to look at robots that cannot be seen well from there.
VIEWS = {
    "gym/half-cheetah": (90.0, -8.0),
    "gym/hopper": (90.0, -8.0),
    "gym/walker2d": (90.0, -8.0),
    "gym/inverted-pendulum": (90.0, -8.0),
    "gym/inverted-double-pendulum": (90.0, -8.0),
    "gym/reacher": (90.0, -60.0),
    "gym/swimmer": (90.0, -60.0),
    "playground/leap-cube-reorient": (35.0, -30.0),
}
#: The share of the picture that the robot may fill.
FILLED = 0.86


def main() -> None:
    """Writes the pictures of the tasks that are named, or of all."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or TASKS:
        file = FOLDER / f"{name.replace('/', '-')}.jpg"
        imageio.imwrite(file, picture(name), quality=85)


def picture(name: str) -> np.ndarray:
    """The first moment of an episode, `(H, W, 3)`."""
    task = load_task(name)
    model, start = task.model.mj, task.start(jax.random.key(3))
    for field, value in start.variation.items():
        getattr(model, field)[:] = np.asarray(value)
    data = mujoco.MjData(model)
    data.qpos[:] = np.asarray(start.qpos)
    for field, value in start.inputs.items():
        getattr(data, field)[:] = np.asarray(value)
    mujoco.mj_forward(model, data)
    model.vis.global_.offheight, model.vis.global_.offwidth = 2 * HEIGHT, 2 * WIDTH
    model.vis.quality.shadowsize = 4096
    if name.endswith("-rough"):  # the ground is dark brown
        model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.6, 0.9
    azimuth, elevation = VIEWS.get(name, (AZIMUTH + heading(model, data), ELEVATION))
    with mujoco.Renderer(model, 2 * HEIGHT, 2 * WIDTH) as renderer:
        renderer.update_scene(data, camera(model, data, azimuth, elevation))
        image = renderer.render().astype(np.float32)
    return image.reshape(HEIGHT, 2, WIDTH, 2, 3).mean((1, 3)).astype(np.uint8)


def heading(model: mujoco.MjModel, data: mujoco.MjData) -> float:
    """Where a robot with legs looks, degrees from x to the left; 0 of one that is fixed."""
    if model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        return 0.0
    ahead = data.xmat[model.jnt_bodyid[0]].reshape(3, 3)[:, 0]
    return float(np.degrees(np.arctan2(ahead[1], ahead[0])))


def camera(
    model: mujoco.MjModel, data: mujoco.MjData, azimuth: float, elevation: float
) -> mujoco.MjvCamera:
    """A camera that looks at the robot from a side, so near that it just fits."""
    corners = robot(model, data)
    turn, lift = np.radians([azimuth, elevation])
    ahead = np.array([np.cos(turn) * np.cos(lift), np.sin(turn) * np.cos(lift), np.sin(lift)])
    right = np.array([np.sin(turn), -np.cos(turn), 0.0])
    axes = np.stack([right, np.cross(right, ahead), ahead])
    seen = corners @ axes.T  # right, up, ahead
    middle = (seen.min(0) + seen.max(0)) / 2
    up = FILLED * np.tan(np.radians(model.vis.global_.fovy) / 2)
    limits = np.array([up * WIDTH / HEIGHT, up])
    away = np.abs(seen[:, :2] - middle[:2]) / limits - (seen[:, 2:] - middle[2])
    found = mujoco.MjvCamera()
    found.lookat[:], found.distance = middle @ axes, away.max()
    found.azimuth, found.elevation = azimuth, elevation
    return found


def robot(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """The corners of the boxes around the geoms that one can see and that move, `(n, 3)`, m."""
    body = model.geom_bodyid
    moves = (body > 0) & (model.body_mocapid[body] < 0)
    shown = (model.geom_group < 3) & (model.geom_rgba[:, 3] > 0)
    signs = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3), -1).reshape(-1, 3)
    corners = [
        data.geom_xpos[i]
        + (model.geom_aabb[i, :3] + signs * model.geom_aabb[i, 3:])
        @ data.geom_xmat[i].reshape(3, 3).T
        for i in np.flatnonzero(moves & shown)
    ]
    return np.concatenate(corners)


if __name__ == "__main__":
    main()
