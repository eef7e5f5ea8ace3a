"""System identification: find a robot's masses, friction and damping from a recording of it.

A sledge on a rough floor carries a pole, and is pushed about. From a recording of its motion alone,
least squares find how heavy both are, how slippery the floor is and how stiff the joint: the motion
is differentiated through every step of MuJoCo's own engine.
"""

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares

from worldline import Model
from worldline.physics.native import NativePhysics

matplotlib.use("Agg")

SLEDGE = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom name="floor" type="plane" size="20 1 1" friction="0.4"/>
    <body name="sledge" pos="0 0 0.049">
      <joint name="sledge" type="slide" axis="1 0 0"/> <joint type="slide" axis="0 0 1"/>
      <geom name="sledge" type="box" size="0.2 0.1 0.05" mass="2" friction="0.4"/>
      <body name="pole" pos="0 0 0.05">
        <joint name="pole" axis="0 1 0" damping="0.1"/>
        <geom name="pole" type="capsule" fromto="0 0 0 0 0 0.5" size="0.02" mass="0.5"
              contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="sledge" gear="30"/> <motor joint="pole" gear="2"/></actuator>
</mujoco>"""

NAMES = ("mass of the sledge", "mass of the pole", "friction of the floor", "damping of the pole")
TRUTH = jnp.array([2.6, 0.35, 0.55, 0.16])
GUESS = jnp.array([2.0, 0.5, 0.4, 0.1])
STEPS, SUBSTEPS = 60, 4

model = Model(SLEDGE)
physics = NativePhysics(model)
time = 0.02 * np.arange(1, STEPS + 1, dtype=np.float32)
push = np.stack([np.sin(9 * time), np.sin(15 * time)], axis=1)


def variation(values):
    """The model's constants with those we look for, `(4,)`; inertia follows mass."""
    sledge, pole, friction, damping = values
    mass = jnp.array([0.0, sledge, pole])
    stored = jnp.asarray(model.constant("body_mass"), jnp.float32)
    inertia = jnp.asarray(model.constant("body_inertia"), jnp.float32)
    scale = jnp.where(stored > 0, mass / jnp.maximum(stored, 1e-6), 0.0)
    rough = jnp.asarray(model.constant("geom_friction"), jnp.float32).at[:2, 0].set(friction)
    return {
        "body_mass": mass,
        "body_inertia": scale[:, None] * inertia,
        "geom_friction": rough,
        "dof_damping": jnp.array([0.0, 0.0, damping]),
    }


def motion(values):
    """Where the joints are after each control step, `(STEPS, 3)`."""
    constants = variation(values)

    def step(state, ctrl):
        state = physics.step(state, {"ctrl": ctrl}, SUBSTEPS)
        return state, state.qpos

    start = physics.start(jnp.array([0.0, 0.0, 0.4]), jnp.zeros(3), constants, {})
    return jax.lax.scan(step, start, push)[1]


recording = jax.jit(motion)(TRUTH)


def misfit(logarithms):
    """How far the motion is from the recording; of logarithms, for all four are positive."""
    return (motion(jnp.exp(logarithms)) - recording).ravel()


# Few unknowns: forwards, a world is moved once for each of them; backwards, once for each number of
# its state and its constants.
misfit_of, jacobian_of = jax.jit(misfit), jax.jit(jax.jacfwd(misfit))
history = []


def jacobian(logarithms):
    history.append(np.exp(logarithms))
    return np.asarray(jacobian_of(jnp.float32(logarithms)), np.float64)


found = np.exp(
    least_squares(
        lambda logarithms: np.asarray(misfit_of(jnp.float32(logarithms)), np.float64),
        np.log(np.float64(GUESS)),
        jacobian,
    ).x
)
for name, ours, truth in zip(NAMES, found, TRUTH, strict=True):
    print(f"{name:22} {ours:.4f}  (truth {truth:.4f}, {100 * (ours / truth - 1):+.2f}%)")
assert np.allclose(found, TRUTH, rtol=0.01)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for joint, name in ((0, "sledge, m"), (2, "pole, rad")):
    (line,) = left.plot(time, recording[:, joint], lw=4, alpha=0.35, label=f"{name}: recorded")
    left.plot(time, motion(GUESS)[:, joint], ":", color=line.get_color(), label="first guess")
    left.plot(
        time, motion(jnp.asarray(found))[:, joint], color=line.get_color(), label="identified"
    )
left.set(xlabel="time, s")
left.legend(fontsize=7)
for index, name in enumerate(NAMES):
    right.plot([row[index] / TRUTH[index] for row in history], label=name)
right.axhline(1.0, color="black", lw=0.5)
right.set(xlabel="round of least squares", ylabel="estimate / truth")
right.legend(fontsize=7)
figure.savefig("identify.png", dpi=120)
