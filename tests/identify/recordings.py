"""Recordings of models that plain MuJoCo simulates with other constants, and noise on them."""

import csv

import mujoco
import numpy as np

ARM = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint name="shoulder" axis="0 1 0" damping="0.2" frictionloss="0.05"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.03" mass="1"/>
      <body name="fore" pos="0 0 -0.4">
        <joint name="elbow" axis="0 1 0" damping="0.1" frictionloss="0.03"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.025" mass="0.5" contype="0"
              conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="shoulder" joint="shoulder" gear="5"/>
    <motor name="bend" joint="elbow" gear="2"/>
  </actuator>
</mujoco>"""

PENDULUM = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <body name="rod">
      <joint name="hinge" axis="0 1 0" damping="0.1" frictionloss="0.05"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="hinge" gear="3"/></actuator>
</mujoco>"""


def changed(mjcf, **fields):
    """The compiled model with other constants; the rows of `body_mass` bring their inertia."""
    model = mujoco.MjModel.from_xml_string(mjcf)
    for field, values in fields.items():
        here = getattr(model, field)
        if field == "body_mass":
            model.body_inertia[1:] *= (np.array(values) / here[1:])[:, None]
            here[1:] = values
        else:
            here[...] = values
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def pushes(rows, controls, period, seed):
    """Controls that shake all joints, `(rows, controls)`."""
    random = np.random.default_rng(seed)
    time = period * np.arange(rows)
    shape = (4, controls)
    size, phase = random.uniform(0.1, 0.35, shape), random.uniform(0, 2 * np.pi, shape)
    speeds = np.array([2.0, 5.0, 9.0, 14.0])[:, None, None]
    return np.sum(size[:, None] * np.sin(speeds * time[:, None] + phase[:, None]), axis=0)


def simulated(model, control, substeps):
    """Positions and velocities before each control is applied, by `mj_step`."""
    data = mujoco.MjData(model)
    positions, velocities = [], []
    for row in control:
        positions.append(data.qpos.copy())
        velocities.append(data.qvel.copy())
        data.ctrl[:] = row
        mujoco.mj_step(model, data, substeps)
    return np.array(positions), np.array(velocities)


def write(path, columns):
    """Writes a CSV file from a dict of columns."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path
