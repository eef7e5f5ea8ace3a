"""The pictures of `examples/terrain.py`: `python docs/images/terrain_learned.py EXPLORING RUN GO1`.

How the levels grew in its two trainings; the robot that walks up stairs of 10 cm, and a Go1 there.
"""

import dataclasses
import sys
from pathlib import Path

import imageio.v3 as imageio
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mujoco
import numpy as np

import worldline
from worldline.report import RunFolder
from worldline.train.stored import environment_of
from worldline.variation import Context

HERE = Path(__file__).parent
#: What is drawn of the training, with its title.
CURVES = {"train/terrain_level": "level at the start of an episode", "train/return": "return"}
#: Points of a curve, each the mean over as many updates.
POINTS = 40
#: Straight ahead, m/s, for so many control steps, in so many worlds.
SPEED, STEPS, WORLDS = 0.6, 500, 16
SIZE = 420, 560


def curves(exploring: Path, run: Path) -> None:
    """How the levels and the returns grew in each seed that explored, and in the run after it."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.6), layout="constrained")
    colours = ("tab:blue", "tab:cyan", "tab:purple", "tab:green")
    parts = list(zip(sorted(exploring.glob("seed-*")), colours, strict=False))
    begin = 0
    for folder, colour in [*parts, (run, "tab:orange")]:
        if folder == run:
            begin = RunFolder.open(exploring).read_metrics()[-1]["step"]
        rows = RunFolder.open(folder).read_metrics()
        for axis, (name, title) in zip(axes, CURVES.items(), strict=True):
            points = np.array([(begin + row["step"], row[name]) for row in rows if name in row])
            size = len(points) // POINTS
            points = points[: size * POINTS].reshape(POINTS, size, 2).mean(axis=1)
            label = "the better one goes on" if folder == run else folder.name.replace("-", " ")
            axis.plot(*points.T, color=colour, label=label)
            axis.set(title=title, xlabel="environment steps of a seed")
    for axis in axes:
        axis.set_ylim(0)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.savefig(HERE / "terrain-curves.png", dpi=110)


def walked(run: Path, kind: str, level: int) -> tuple[mujoco.MjModel, np.ndarray]:
    """The model, and the configurations `(T, nq)` of the robot that came furthest."""
    task = environment_of(RunFolder.open(run)).task.plain
    # It may turn back to its heading as fast as in training.
    slowest, fastest = ((SPEED, 0.0, most[2]) for most in (task.lowest_command, task.fastest))
    steady = {"slowest": slowest, "fastest": fastest}
    task = dataclasses.replace(task, **steady, stand_probability=0.0, command_time=1000.0)
    env = worldline.Env(task, context=Context(["terrain_level", "terrain_kind"], visible=()))
    worlds, policy = worldline.Worlds(env, WORLDS, STEPS + 1), worldline.load_policy(run)
    tile = {"terrain_level": level + 0.5, "terrain_kind": task.terrain.kinds.index(kind) + 0.5}
    context = {name: jnp.full(WORLDS, value) for name, value in tile.items()}
    state = worlds.reset(jax.random.key(0), context=context)

    def step(state, _):
        state, result = worlds.step(state, policy(state.obs))
        return state, (state.env.physics.qpos, result.terminated)

    qpos, fell = jax.jit(lambda s: jax.lax.scan(step, s, length=STEPS)[1])(state)
    qpos, upright = np.asarray(qpos), ~np.asarray(fell).any(axis=0)
    way = np.abs(qpos[..., :2] - qpos[0, :, :2]).max(axis=-1)
    end = task.terrain.tile / 2 - task.terrain.margin
    steps = (way < end).sum(axis=0)  # until it has crossed its tile
    best = int(np.argmin(np.where(upright, steps, STEPS + 1)))
    return env.model.mj, qpos[: steps[best], best]


def strip(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Eight frames from behind on the right, in two rows."""
    model.geom_rgba[model.geom_bodyid == 0] = [0.78, 0.76, 0.71, 1]
    w, x, y, z = qpos[len(qpos) // 2, 3:7]
    camera, frames = mujoco.MjvCamera(), []
    camera.azimuth = np.degrees(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))) + 40
    camera.distance, camera.elevation = 2.2, -25.0
    data = mujoco.MjData(model)
    with mujoco.Renderer(model, *SIZE) as renderer:
        for row in np.linspace(0, len(qpos) - 1, 8).astype(int):
            data.qpos[:] = qpos[row]
            mujoco.mj_forward(model, data)
            camera.lookat[:] = data.qpos[:3]
            renderer.update_scene(data, camera)
            frames.append(renderer.render())
    rows = [np.concatenate(frames[:4], axis=1), np.concatenate(frames[4:], axis=1)]
    return np.concatenate(rows)


if __name__ == "__main__":
    exploring, run, go1 = map(Path, sys.argv[1:])
    curves(exploring, run)
    for folder, name in ((run, "terrain-stairs"), (go1, "terrain-go1")):
        imageio.imwrite(HERE / f"{name}.png", strip(*walked(folder, "stairs_up", 4)))
