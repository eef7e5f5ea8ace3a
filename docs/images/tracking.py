"""The pictures of the guide to motion tracking: `python docs/images/tracking.py [RUN ...]`.

Without a run: the motions that come with Worldline. With those that you trained: the errors in
training, what each policy does from the start of the motion on, below the reference, and its mean
errors.
"""

import json
import sys
import tempfile
from pathlib import Path

import equinox as eqx
import imageio.v3 as imageio
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import worldline
from worldline.report import RunFolder
from worldline.report.video import render_episode
from worldline.train.stored import environment_of

HERE = Path(__file__).parent
#: What is drawn of the errors in training, with its unit and its axis.
CURVES = {
    "error/joint_position": "joints, rad",
    "error/anchor_orientation": "orientation of the root, rad",
    "error/anchor_position": "place of the root, m",
}


def strip(task, qpos, size=(240, 360)):
    """Eight frames of an episode, in two rows."""
    with tempfile.TemporaryDirectory() as folder:
        png = Path(folder) / "strip.png"
        render_episode(
            task.model,
            qpos,
            png=png,
            timestep=task.control_timestep,
            camera=task.camera,
            size=size,
        )
        return imageio.imread(png)[:, :, :3]


def motions():
    """The motions that come with Worldline."""
    robots = ("quadruped", "g1")
    tasks = [worldline.make("robot/track-motion", robot=robot).task for robot in robots]
    pictures = [strip(task, task.reference.qpos) for task in tasks]
    imageio.imwrite(HERE / "tracking-motions.png", np.concatenate(pictures))


def followed(policy, env):
    """Configurations and errors of an episode from the start of the motion to its end."""
    task, key = env.task, jax.random.key(0)
    now = task.reference.at(jnp.int32(0))
    state = env.reset_to(key, qpos=now.qpos, qvel=now.qvel)
    state = eqx.tree_at(lambda s: s.memory.frame, state, jnp.int32(1))

    def step(state, _):
        state = env.step(state, policy(state.obs))
        return state, (state.physics.qpos, state.metrics)

    steps = task.reference.frames - 1
    return jax.jit(lambda s: jax.lax.scan(step, s, length=steps)[1])(state)


def learned(folder):
    """How a run learned, and what it does."""
    task = environment_of(RunFolder.open(folder)).task.without_noise()
    env, robot = worldline.Env(task), task.robot
    qpos, metrics = followed(worldline.load_policy(folder), env)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figure, axes = plt.subplots(1, 3, figsize=(11, 2.6), layout="constrained")
    for axis, (name, title) in zip(axes, CURVES.items(), strict=True):
        rows = [(row["step"], row[f"train/{name}"]) for row in lines if f"train/{name}" in row]
        axis.plot(*np.array(rows).T, color="tab:blue")
        mean = float(metrics[name].mean())
        axis.axhline(mean, color="tab:orange", label=f"policy, from the start: {mean:.3f}")
        axis.legend(frameon=False)
        axis.set(title=title, xlabel="environment steps", ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / f"tracking-curves-{robot}.png", dpi=110)
    shown = [strip(task, rows) for rows in (task.reference.qpos[1:], np.asarray(qpos))]
    imageio.imwrite(HERE / f"tracking-learned-{robot}.png", np.concatenate(shown))
    for name, values in metrics.items():
        if name.startswith("error/"):
            print(f"{robot} {name} {float(values.mean()):.3f}, at most {float(values.max()):.3f}")


if __name__ == "__main__":
    for run in sys.argv[1:]:
        learned(Path(run))
    if not sys.argv[1:]:
        motions()
