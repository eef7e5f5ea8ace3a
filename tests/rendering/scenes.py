"""Models to look at, and MuJoCo's own pictures of them, drawn in a process of their own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

#: A sky, a chequered floor, shapes on a moving body, a lamp, cameras of every kind.
SHAPES = """
<mujoco>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".4 .6 .8" rgb2=".1 .1 .1"
             width="64" height="64"/>
    <texture name="grid" type="2d" builtin="checker" rgb1=".1 .2 .3" rgb2=".2 .3 .4"
             width="64" height="64"/>
    <material name="grid" texture="grid" texrepeat="4 4"/>
    <material name="red" rgba=".8 .3 .2 1"/>
  </asset>
  <worldbody>
    <light name="lamp" pos="0 0 3" directional="true" dir="0 .3 -1"/>
    <camera name="front" pos="0 -2 1" xyaxes="1 0 0 0 .3 1"/>
    <camera name="follow" pos="1 -2 1" mode="trackcom" xyaxes="1 .5 0 -.15 .3 1"/>
    <geom name="floor" type="plane" size="3 3 .1" material="grid"/>
    <body name="thing" pos="0 0 .5">
      <freejoint/>
      <camera name="aboard" pos="0 -.3 .4" xyaxes="1 0 0 0 .5 1"/>
      <geom name="box" type="box" size=".2 .2 .2" material="red"/>
      <geom name="ball" type="sphere" pos=".5 0 0" size=".2" rgba=".2 .8 .2 1"/>
    </body>
    <body name="hand" mocap="true" pos="-.6 0 .3">
      <geom name="rod" type="capsule" size=".06 .2" rgba=".2 .2 .9 1"/>
    </body>
  </worldbody>
</mujoco>"""

_REFERENCE = """
import json, sys
import mujoco, numpy as np

job = np.load(sys.argv[1])
model = mujoco.MjModel.from_xml_string(str(job["xml"]))
model.vis.quality.offsamples = model.vis.quality.shadowsize = 0
for name in job.files:
    if name.startswith("model."):
        getattr(model, name[6:])[...] = job[name]
data = mujoco.MjData(model)
mujoco.mj_setConst(model, data)
height, width = map(int, job["size"])
colours, depths = [], []
with mujoco.Renderer(model, height, width) as renderer:
    for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
        renderer.scene.flags[flag] = False
    for row in range(len(job["qpos"])):
        mujoco.mj_resetData(model, data)
        data.qpos = job["qpos"][row]
        if "mocap_pos" in job.files:
            data.mocap_pos = job["mocap_pos"][row]
        mujoco.mj_forward(model, data)
        for camera in job["cameras"]:
            renderer.update_scene(data, str(camera))
            colours.append(renderer.render())
            renderer.enable_depth_rendering()
            depths.append(renderer.render())
            renderer.disable_depth_rendering()
shape = (len(job["qpos"]), len(job["cameras"]))
np.savez(
    sys.argv[2],
    colours=np.reshape(colours, (*shape, height, width, 3)),
    depths=np.reshape(depths, (*shape, height, width)),
)
"""


def mujoco_pictures(xml, cameras, qpos, size, variation=None, **moved):
    """What `mujoco.Renderer` draws, through EGL: colours `(n, cameras, h, w, 3)`, and metres."""
    with tempfile.TemporaryDirectory() as folder:
        job, pictures = Path(folder) / "job.npz", Path(folder) / "pictures.npz"
        constants = {f"model.{name}": value for name, value in (variation or {}).items()}
        np.savez(job, xml=xml, cameras=cameras, qpos=qpos, size=size, **constants, **moved)
        subprocess.run(
            [sys.executable, "-c", _REFERENCE, job, pictures],
            check=True,
            env={**os.environ, "MUJOCO_GL": "egl"},
        )
        with np.load(pictures) as drawn:
            return drawn["colours"], drawn["depths"]
