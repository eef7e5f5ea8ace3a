"""The picture of the guide to terrain: `MUJOCO_GL=egl python docs/images/terrain.py`.

The atlas of all kinds of ground but the even one, with a robot on each tile.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import mujoco
import numpy as np

import worldline
from worldline.tasks.terrain import Terrain
from worldline.tasks.terrain.config import NAMES
from worldline.variation import Context, RoundRobin

TERRAIN = Terrain(kinds=NAMES[1:], levels=4, tile=5.0, platform=1.4, cell=0.04)
HEIGHT, WIDTH = 520, 1400
FEATURES = ("terrain_level", "terrain_kind")


def main() -> None:
    """Places a robot on each tile, and writes the picture with names."""
    task = worldline.make("robot/quadruped-joystick", terrain=TERRAIN).task
    env = worldline.Env(task, context=Context(FEATURES, visible=()))
    kinds, levels = len(TERRAIN.kinds), TERRAIN.levels
    places = np.array([(level, kind) for kind in range(kinds) for level in range(levels)])
    context = RoundRobin(dict(zip(FEATURES, places.T.tolist(), strict=True)))
    worlds = worldline.Worlds(env, len(places), context=context)
    qpos = np.asarray(worlds.reset(jax.random.key(0)).env.physics.qpos, np.float64)
    figure = plt.figure(figsize=(WIDTH / 100, (HEIGHT - 120) / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(picture(env.model.mj, qpos), extent=(0, WIDTH, HEIGHT, 0))
    axes.axis("off")
    axes.set_ylim(HEIGHT - 40, 80)
    for kind, name in enumerate(TERRAIN.kinds):
        x = (kind - (kinds - 1) / 2) * TERRAIN.tile
        place = on_picture([levels / 2 * TERRAIN.tile + 0.5, x, 0.0])
        axes.text(*place, name, ha="center", va="top", size=11)
    for level in range(levels):
        y = (level - (levels - 1) / 2) * TERRAIN.tile
        place = on_picture([y, -kinds / 2 * TERRAIN.tile - 0.6, 0.0])
        axes.text(*place, f"level {level}", ha="right", va="center", size=11)
    figure.savefig(Path(__file__).with_suffix(".png"))


CAMERA = mujoco.MjvCamera()
CAMERA.lookat[:], CAMERA.distance = [1.6, -0.2, 0.0], 30.0
CAMERA.azimuth, CAMERA.elevation = 180.0, -52.0


def picture(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """The image, `(H, W, 3)`, with a robot in each configuration, `(B, nq)`."""
    model.vis.global_.offheight, model.vis.global_.offwidth = 2 * HEIGHT, 2 * WIDTH
    model.vis.map.shadowclip, model.vis.quality.shadowsize = 1.0, 8192
    model.geom_rgba[model.geom_bodyid == 0] = [0.78, 0.76, 0.71, 1]
    model.light_dir[0] = [-0.5, 0.35, -0.6]
    data, option, scene = mujoco.MjData(model), mujoco.MjvOption(), None
    with mujoco.Renderer(model, 2 * HEIGHT, 2 * WIDTH, max_geom=10_000) as renderer:
        for configuration in qpos:
            data.qpos[:] = configuration
            mujoco.mj_forward(model, data)
            if scene is None:
                renderer.update_scene(data, CAMERA, option)
                scene = renderer.scene
            else:
                robot = mujoco.mjtCatBit.mjCAT_DYNAMIC
                mujoco.mjv_addGeoms(model, data, option, mujoco.MjvPerturb(), robot, scene)
        return renderer.render()


def on_picture(point: list[float]) -> tuple[float, float]:
    """Where a point is on the picture, in its points from the left and from the top."""
    azimuth, elevation = np.radians([CAMERA.azimuth, CAMERA.elevation])
    ahead = np.array([np.cos(azimuth), np.sin(azimuth), np.tan(elevation)]) * np.cos(elevation)
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
    way = np.array(point) - (CAMERA.lookat - CAMERA.distance * ahead)
    scale = HEIGHT / 2 / np.tan(np.radians(45.0) / 2) / (way @ ahead)
    return WIDTH / 2 + scale * (way @ right), HEIGHT / 2 - scale * (way @ np.cross(right, ahead))


if __name__ == "__main__":
    main()
