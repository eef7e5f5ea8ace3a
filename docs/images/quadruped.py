"""The quadruped's picture of the guide to a robot of your own, of a run that you trained:
`python docs/images/quadruped.py RUN`.

Commands that change every four seconds, what the robot does, and how it looks meanwhile; above, how
far it is from the random commands of the task's own episodes.
"""

import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import worldline
from worldline.env.cameras import Cameras
from worldline.rendering.camera import Camera

#: Forward and left, m/s, and turning left, rad/s.
COMMANDS = [(0.6, 0, 0), (0, 0.3, 0), (0.4, 0, 0.7), (-0.4, 0, 0), (0, 0, 0)]
SECONDS = 4

policy = worldline.load_policy(sys.argv[1])
task = worldline.make("robot/quadruped-joystick", command_time=1000.0).task
env = worldline.Env(task, cameras=Cameras(task.model, {"side": Camera("side", 200, 300)}, "auto"))
steps = round(SECONDS / task.control_timestep)


@jax.jit
def step(state, command):
    """A step under a command, and the velocities after it."""
    state = eqx.tree_at(lambda s: s.memory.command, state, command)
    state = env.step(state, policy(state.obs["state"]))
    velocity, spin = task.velocity(state.physics), state.physics.qvel[5]
    return state, jnp.array([velocity[0], velocity[1], spin])


def tracking_error(num_worlds=64):
    """Mean errors of the velocity over the ground, m/s, and of turning, rad/s."""
    worlds = worldline.Worlds(worldline.make("robot/quadruped-joystick"), num_worlds)

    def act(state, _):
        state, taken = worlds.step(state, policy(state.obs))
        return state, (taken.metrics["linear_error"], taken.metrics["turning_error"])

    state = worlds.reset(jax.random.key(1))
    _, errors = jax.jit(lambda s: jax.lax.scan(act, s, length=1000))(state)
    return [float(error.mean()) for error in errors]


state, given, done, frames = env.reset(jax.random.key(0)), [], [], []
for command in COMMANDS:
    for number in range(steps):
        state, velocities = step(state, jnp.array(command, jnp.float32))
        given.append(command)
        done.append(velocities)
        if number == steps // 2:
            frames.append(np.asarray(state.obs["pixels/side"])[40:])

given, done = np.array(given), np.array(done)
mean = np.stack([np.convolve(column, np.ones(25) / 25, "same") for column in done.T], axis=1)
time = np.arange(len(given)) * task.control_timestep
figure, (above, *panels) = plt.subplots(
    4, 1, figsize=(10, 6.6), height_ratios=[1.1, 1, 1, 1], layout="constrained"
)
above.imshow(np.concatenate(frames, axis=1))
above.axis("off")
errors = "{:.3f} m/s, {:.3f} rad/s".format(*tracking_error())
above.set_title(f"Mean error in 64 episodes under random commands: {errors}", fontsize="medium")
names = ("forward, m/s", "left, m/s", "turning, rad/s")
for column, (panel, name) in enumerate(zip(panels, names, strict=True)):
    panel.plot(time, done[:, column], color="C0", alpha=0.25)
    panel.plot(time, mean[:, column], color="C0", label="the robot, and its mean over 0.5 s")
    panel.plot(time, given[:, column], color="C1", label="command")
    panel.set_ylabel(name)
    panel.grid(alpha=0.3)
    panel.set_xlim(0, time[-1])
panels[0].legend(loc="lower left", fontsize="small")
panels[-1].set_xlabel("s")
figure.savefig(Path(__file__).with_name("quadruped.png"), dpi=110)
