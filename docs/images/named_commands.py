"""How a G1 follows commands, for the guide to named robots: `python docs/images/named_commands.py
[FOLDER]`, with its last policy, which `worldline bench robots --keep FOLDER` has left there.

Sixteen robots in the full model, without pushes, under commands that change every six seconds.
"""

import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import worldline

ROBOTS = 16
SECONDS = 6
#: The time over which velocities are averaged, as in the benchmark, s.
WINDOW = 1.0
#: Forward and left, m/s, and turning left, rad/s.
COMMANDS = [(1, 0, 0), (0.5, 0, 0), (0, 0, 0), (-0.7, 0, 0), (0, 0.4, 0), (0, 0, 1), (0.7, 0, -0.7)]
NAMES = ("forward, m/s", "left, m/s", "turning, rad/s")


def walk(policy):
    """Velocities `(T, B, 3)` of the robots, commands `(T, 3)`, the step's time, s, and falls."""
    env = worldline.make("playground/g1-joystick-flat", pushed=False, episode_length=0)
    worlds = worldline.Worlds(env, ROBOTS)
    held = np.repeat(np.array(COMMANDS, np.float32), round(SECONDS / env.control_timestep), axis=0)

    def step(state, command):
        commands = jnp.broadcast_to(command, (ROBOTS, 3))
        state = eqx.tree_at(lambda s: s.env.memory.command.velocity, state, commands)
        state, result = worlds.step(state, policy(state.obs))
        felt = result.final_obs["state"].shape[1]
        exact = result.final_obs["privileged_state"][:, felt:]
        # Turning velocity, and behind two more sensors the velocity ahead and to the left.
        return state, (exact[:, jnp.array([9, 10, 2])], result.terminated)

    start = worlds.reset(jax.random.key(0))
    _, (velocity, fallen) = jax.jit(lambda state: jax.lax.scan(step, state, held))(start)
    return np.asarray(velocity), held, env.control_timestep, int(fallen.sum())


def averaged(values, length):
    """Means over the last `length` rows."""
    sums = np.cumsum(np.concatenate([np.zeros((length, *values.shape[1:])), values]), axis=0)
    rows = np.minimum(np.arange(1, len(values) + 1), length)
    return (sums[length:] - sums[:-length]) / rows[:, None, None]


folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".bench/robots")
velocity, held, timestep, falls = walk(worldline.load_policy(folder / "g1-joystick-flat-0.npz"))
velocity = averaged(velocity, round(WINDOW / timestep))
time = timestep * np.arange(len(held))
figure, panels = plt.subplots(3, 1, figsize=(10, 5.2), sharex=True, layout="constrained")
for column, (panel, name) in enumerate(zip(panels, NAMES, strict=True)):
    panel.plot(time, velocity[..., column], color="C0", alpha=0.25, linewidth=1)
    panel.plot(time, velocity[..., column].mean(axis=1), color="C0", label="the robots' mean")
    panel.plot(time, held[:, column], color="C1", label="command")
    panel.set(ylabel=name, xlim=(0, time[-1]))
    panel.grid(alpha=0.3)
panels[0].legend(loc="lower left", fontsize="small")
seconds = round(ROBOTS * time[-1])
panels[0].set_title(
    f"{ROBOTS} robots, velocities over one second; {falls} falls in {seconds} s of walking",
    fontsize="medium",
)
panels[-1].set_xlabel("s")
figure.savefig(Path(__file__).parent / "named-g1-commands.png", dpi=80)
