"""The arm's picture of the guide to cameras: `python docs/images/pick_cube.py`.

Two worlds of `arm/pick-cube`, as the model says (above) and drawn from its domain `pick`; of each
the camera `front`, then `front` and `wrist` at 64 x 64 pixels, then the latter with random shifts.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import worldline
from worldline.env.cameras import Cameras
from worldline.learn.augmentation import Augmentation, augment, draw
from worldline.rendering.camera import Camera

SIDE, SMALL = 256, 64

task = worldline.make("arm/pick-cube").task
views = {
    "a": Camera("front", SIDE, SIDE),
    "b": Camera("front", SMALL, SMALL),
    "c": Camera("wrist", SMALL, SMALL),
}
env = worldline.Env(task, cameras=Cameras(task.model, views, "opengl"))
domain = task.domains["pick"]
step = jax.jit(env.step)


def column(image: np.ndarray) -> np.ndarray:
    """An image, enlarged to the height of the largest."""
    times = SIDE // len(image)
    return image.repeat(times, axis=0).repeat(times, axis=1)


rows = []
for drawn in ({}, domain(jax.random.key(5), task.model, domain.ranges)):
    state = env.reset(jax.random.key(3), drawn)
    for _ in range(12):  # towards the cube, and down
        way = state.physics.qpos[9:12] + jnp.array([0.0, 0.0, 0.05]) - task.gripper(state.physics)
        state = step(state, jnp.clip(jnp.append(8 * way, 1.0), -1, 1))
    images = [np.asarray(state.obs[f"pixels/{view}"]) for view in views]
    shift = Augmentation(shift=4)
    draws = draw(shift, jax.random.key(0), 2)
    images += list(np.asarray(augment(shift, draws, jnp.asarray(np.stack(images[1:])))))
    rows.append(np.concatenate([column(image) for image in images], axis=1))
Image.fromarray(np.concatenate(rows)).save(Path(__file__).with_name("pick-cube.png"))
