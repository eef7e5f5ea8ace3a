"""Robots with four legs for `robot/quadruped-joystick`: their models, and how they stand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import mujoco

from worldline.model import ModelSource
from worldline.tasks.playground.assets import scene

#: Front left, front right, rear left, rear right.
LEGS = ("FL", "FR", "RL", "RR")
#: Sites on the underside of a torso, along its left and its right edge.
UNDERSIDE = tuple(
    f"{side} {place}" for side in ("left", "right") for place in ("front", "middle", "rear")
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FourLegs:
    """A robot with four legs, on even ground."""

    source: Callable[[], ModelSource]
    """Its model, with servos in the order of the joints, the sites `UNDERSIDE` and a camera
    `side`."""
    torso: str
    """The body with the free joint."""
    joints: tuple[str, ...]
    """Names of the joints, hip, thigh and knee of each leg, `(12,)`."""
    servos: tuple[str, ...]
    """Names of their servos, `(12,)`."""
    feet: tuple[str, ...]
    """Sites in the middle of the feet, in the order of `LEGS`."""
    foot: float
    """Radius of a foot, m."""
    stance: tuple[float, float, float]
    """Hip, thigh and knee of a leg that stands, rad."""
    height: float
    """Height of the torso's origin then, m."""


def _edges(length: float, width: float, depth: float) -> dict[str, tuple[float, float, float]]:
    """Places of the sites `UNDERSIDE` in the frame of a torso, m.

    Args:
        length: of the torso, m.
        width: of the torso, m.
        depth: how far the underside is below the torso's origin, m.
    """
    xs, ys = (length / 2, 0.0, -length / 2), (width / 2, -width / 2)
    places = [(x, y, -depth) for y in ys for x in xs]
    return dict(zip(UNDERSIDE, places, strict=True))


#: Hip, thigh and knee of a leg of our quadruped that stands, rad.
STANCE = (0.0, 0.7, -1.4)
#: Height of its torso then, m.
HEIGHT = 0.33
_FOOT = 0.025


def _leg(name: str) -> str:
    x, y = (0.2 if name[0] == "F" else -0.2), (0.08 if name[1] == "L" else -0.08)
    out = 0.07 if name[1] == "L" else -0.07
    return f"""
      <body name="{name} hip" pos="{x} {y} 0">
        <joint name="{name} hip" axis="1 0 0" range="-45 45"/>
        <geom class="part" type="cylinder" size="0.045 0.03" euler="90 0 0" mass="0.5"/>
        <body name="{name} thigh" pos="0 {out} 0">
          <joint name="{name} thigh" axis="0 1 0" range="-60 120"/>
          <geom class="part" fromto="0 0 0 0 0 -0.2" size="0.022" mass="0.7"/>
          <body name="{name} shin" pos="0 0 -0.2">
            <joint name="{name} knee" axis="0 1 0" range="-150 -30"/>
            <geom class="part" fromto="0 0 0 0 0 -0.2" size="0.014" mass="0.15"/>
            <geom name="{name} foot" class="touching" type="sphere" pos="0 0 -0.2"
                  size="{_FOOT}" mass="0.05" rgba="0.15 0.15 0.15 1"/>
            <site name="{name} foot" pos="0 0 -0.2" size="0.01"/>
          </body>
        </body>
      </body>"""


_JOINTS = [f"{leg} {joint}" for leg in LEGS for joint in ("hip", "thigh", "knee")]
_POINTS = "".join(
    f'<site name="{name}" pos="{x} {y} {z}" size="0.005" group="4"/>'
    for name, (x, y, z) in _edges(0.4, 0.16, 0.05).items()
)
_SERVOS = "".join(f'<position name="{joint}" joint="{joint}"/>' for joint in _JOINTS)

# Springs with damping hold the joints where the controls say, as the motors of such robots do. Only
# the feet and the torso can touch the ground: fewer contacts, a faster simulation.
MJCF = f"""
<mujoco model="quadruped">
  <option timestep="0.005" integrator="implicitfast" iterations="10" ls_iterations="10"/>
  <default>
    <geom contype="0" conaffinity="0"/>
    <default class="part"><geom type="capsule" rgba="0.35 0.4 0.5 1"/></default>
    <default class="touching"><geom conaffinity="1" friction="0.9" rgba="0.9 0.5 0.2 1"/></default>
    <joint damping="0.3" armature="0.01" frictionloss="0.1"/>
    <position kp="40" kv="0.7" forcerange="-30 30" inheritrange="1"/>
  </default>
  <worldbody>
    <light name="sun" pos="0 0 4" dir="0.2 0.2 -1" directional="true"/>
    <geom name="ground" type="plane" size="50 50 1" contype="1" friction="0.9"
          rgba="0.75 0.78 0.8 1"/>
    <body name="torso" pos="0 0 {HEIGHT}">
      <freejoint name="root"/>
      <camera name="side" mode="trackcom" pos="0.4 -1.6 0.5" xyaxes="1 0.2 0 -0.05 0.25 1"/>
      <geom name="torso" class="touching" type="box" size="0.2 0.08 0.05" mass="6"/>
      <geom class="part" type="box" pos="0.22 0 0.02" size="0.03 0.05 0.03" mass="0.3"/>
      <site name="imu"/>{_POINTS}{"".join(map(_leg, LEGS))}
    </body>
  </worldbody>
  <actuator>{_SERVOS}</actuator>
</mujoco>
"""


def _go1() -> mujoco.MjSpec:
    """A Unitree Go1 with the time step, the contacts and the friction of our quadruped."""
    spec = mujoco.MjSpec.from_file(
        str(scene("locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml"))
    )
    option = spec.option
    option.timestep, option.integrator = 0.005, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.iterations = option.ls_iterations = 10
    option.disableflags = 0
    spec.geom("floor").friction = [0.9, 0.005, 0.0001]
    for leg in LEGS:
        spec.geom(leg).condim = 3
    length, width, depth = 0.38, 0.16, 0.057
    torso = spec.body("trunk")
    torso.add_geom(
        name="torso",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[length / 2, width / 2, depth],
        mass=0,
        contype=0,
        conaffinity=1,
        condim=3,
        group=3,
    )
    for name, place in _edges(length, width, depth).items():
        torso.add_site(name=name, pos=place, size=[0.005, 0, 0], group=4)
    return spec


#: In the order of the Go1's joints.
_GO1_PARTS = [
    f"{leg}_{part}" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")
]

#: The robots by name.
ROBOTS = {
    "quadruped": FourLegs(
        source=lambda: MJCF,
        torso="torso",
        joints=tuple(_JOINTS),
        servos=tuple(_JOINTS),
        feet=tuple(f"{leg} foot" for leg in LEGS),
        foot=_FOOT,
        stance=STANCE,
        height=HEIGHT,
    ),
    "go1": FourLegs(
        source=_go1,
        torso="trunk",
        joints=tuple(f"{part}_joint" for part in _GO1_PARTS),
        servos=tuple(_GO1_PARTS),
        feet=LEGS,
        foot=0.023,
        stance=(0.0, 0.82, -1.63),  # as in its keyframe home_higher
        height=0.31,
    ),
}
