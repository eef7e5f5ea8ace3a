"""The picture of the guide to cameras: `python docs/images/renderers.py`.

The same states by MuJoCo's OpenGL renderer (above) and by MuJoCo Warp (below).
"""

import sys
from pathlib import Path

import jax
import numpy as np
from PIL import Image

import worldline
from worldline.env.cameras import Cameras
from worldline.rendering.camera import Camera

SHOWN = {
    "suite/cartpole-balance": "fixed",
    "suite/cheetah-run": "side",
    "suite/reacher-easy": "fixed",
    "gym/ant": "track",
}
SIDE, ZOOM = 84, 2

columns = []
for name, camera in SHOWN.items():
    env = worldline.make(name)
    physics = env.reset(jax.random.key(1)).physics
    views = {"view": Camera(camera, SIDE, SIDE)}
    tiles = []
    for renderer in ("opengl", "warp"):
        images = Cameras(env.model, views, renderer).first(physics)
        tiles.append(np.asarray(images["pixels/view"]))
    difference = np.abs(tiles[0].astype(int) - tiles[1]).mean()
    sys.stdout.write(f"{name}: mean absolute difference {difference:.2f} of 255\n")
    columns.append(np.concatenate(tiles))
picture = np.concatenate(columns, axis=1).repeat(ZOOM, axis=0).repeat(ZOOM, axis=1)
Image.fromarray(picture).save(Path(__file__).with_suffix(".png"))
