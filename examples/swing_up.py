"""Trajectory optimisation: swing a pole up from below, by the gradient of where it ends.

The cart's pushes over two and a half seconds are what is looked for. Adam follows the gradient
through every step of MuJoCo's own engine; no policy, no reward, no search.
"""

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import optax

from worldline import Model
from worldline.physics.native import NativePhysics

matplotlib.use("Agg")

CART = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="box" size="0.15 0.1 0.05" mass="1"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0" damping="0.005"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.6" size="0.025" mass="0.2"
              contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="12" ctrlrange="-1 1"/></actuator>
</mujoco>"""

STEPS, SUBSTEPS, ROUNDS = 60, 4, 150

physics = NativePhysics(Model(CART))


def motion(pushes):
    """Positions and velocities after each control step, `(STEPS, 4)`."""

    def step(state, push):
        state = physics.step(state, {"ctrl": jnp.tanh(push)[None]}, SUBSTEPS)
        return state, jnp.concatenate([state.qpos, state.qvel])

    start = physics.start(jnp.zeros(2), jnp.zeros(2), {}, {})
    return jax.lax.scan(step, start, pushes)[1]


def cost(pushes):
    """How far from upright, at rest and at home the last steps are, and what it takes."""
    states = motion(pushes)
    x, angle, speed, turning = states[-10:].T
    upright = jnp.mean(1 + jnp.cos(angle))
    return upright + 0.02 * jnp.mean(turning**2 + speed**2 + 5 * x**2) + 1e-3 * jnp.mean(pushes**2)


optimizer = optax.adam(optax.cosine_decay_schedule(0.12, ROUNDS))


@jax.jit
def improve(pushes, state):
    value, gradient = jax.value_and_grad(cost)(pushes)
    updates, state = optimizer.update(gradient, state)
    return optax.apply_updates(pushes, updates), state, value, optax.tree.norm(gradient)


# It hangs straight down, where everything is even: some push must break the tie.
pushes = 0.5 * jnp.sin(jnp.linspace(0.0, 12.0, STEPS))
state, history = optimizer.init(pushes), []
for _ in range(ROUNDS):
    pushes, state, value, norm = improve(pushes, state)
    history.append((float(value), float(norm)))

states = np.asarray(motion(pushes))
print(f"the pole ends {np.rad2deg(np.abs(states[-1, 1]) - np.pi):+.1f} degrees from upright")
assert np.cos(states[-1, 1]) < -0.95

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
for number in range(0, STEPS, 3):
    x, angle = states[number, :2]
    shade = plt.colormaps["viridis"](number / STEPS)
    left.plot([x, x - 0.6 * np.sin(angle)], [0, -0.6 * np.cos(angle)], color=shade, lw=2)
    left.plot(x, 0, "s", color=shade)
left.set(aspect="equal", xlabel="x, m", title="the motion, from dark to bright")
time = 0.04 * np.arange(1, STEPS + 1)
middle.plot(time, np.tanh(pushes), label="push")
middle.plot(time, states[:, 1] / np.pi, label="angle / pi")
middle.set(xlabel="time, s")
middle.legend()
right.semilogy(history, label=["cost", "norm of its gradient"])
right.set(xlabel="round of Adam")
right.legend()
figure.savefig("swing_up.png", dpi=120)
