"""A robot arm of our own: the Franka Emika Panda's published kinematics, drawn with primitives.

Joint frames, limits and largest torques are those of the maker's "Robot and interface
specifications"; the masses of links are those that Gaz et al. (2019), "Dynamic identification of
the Franka Emika Panda robot with retrieval of feasible parameters using penalty-based
optimization", identified. Shapes are capsules and boxes, so that a picture costs little; only the
hand and the fingers touch anything.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Joint(NamedTuple):
    """A joint of the arm, and the link behind it."""

    a: float
    """Along the last frame's x to this one, m. Denavit and Hartenberg's numbers, in Craig's order:
    a step along x, a turn about x, a step along z; then the joint turns about z."""
    alpha: float
    """About that x, degrees."""
    d: float
    """Along this frame's z, m."""
    low: float
    """Lowest angle, rad."""
    high: float
    """Highest angle, rad."""
    torque: float
    """Largest, N m."""
    stiffness: float
    """Of the servo, N m / rad."""
    mass: float
    """Of the link, kg."""
    shape: str
    """The link's capsules: from and to, m, then the radius; several with `;` between them."""


#: From the base to the wrist.
JOINTS = (
    Joint(0, 0, 0.333, -2.8973, 2.8973, 87, 2500, 4.97, "0 0 -0.2 0 0 -0.03 0.065"),
    Joint(0, -90, 0, -1.7628, 1.7628, 87, 2500, 0.65,
          "0 0 -0.06 0 0 0.06 0.065; 0 -0.03 0 0 -0.18 0 0.062"),
    Joint(0, 90, 0.316, -2.8973, 2.8973, 87, 1500, 3.23,
          "0 0 -0.13 0 0 -0.04 0.06; 0.01 0 0 0.08 0 0 0.055"),
    Joint(0.0825, 90, 0, -3.0718, -0.0698, 87, 1500, 3.59,
          "0 0 -0.06 0 0 0.06 0.058; -0.02 0.03 0 -0.08 0.09 0 0.055"),
    Joint(-0.0825, -90, 0.384, -2.8973, 2.8973, 12, 300, 1.23,
          "0 0 -0.28 0 0 -0.2 0.055; 0 0.05 -0.18 0 0.07 -0.03 0.04"),
    Joint(0, 90, 0, -0.0175, 3.7525, 12, 300, 1.67,
          "0 0 -0.05 0 0 0.05 0.05; 0.02 0 0 0.088 0 0 0.05"),
    Joint(0.088, 90, 0, -2.8973, 2.8973, 12, 300, 0.74, "0 0 0.02 0 0 0.06 0.045"),
)  # fmt: skip

#: From the last joint to the hand, and from there to the point between the fingertips, m.
FLANGE, GRIP = 0.107, 0.1034

#: How far each finger opens, m.
OPEN = 0.04

#: Joint angles that hold the hand over the table, pointing down: the point between the fingertips
#: is at (0.5, 0, 0.2), rad.
HOME = (0.0, 0.0459, 0.0, -2.3763, 0.0, 2.4222, math.pi / 4)


def _link(number: int, inside: str) -> str:
    """Body and joint `number`, from 1, with what is further out."""
    joint = JOINTS[number - 1]
    alpha = math.radians(joint.alpha)
    place = f"{joint.a} {-joint.d * math.sin(alpha):.6f} {joint.d * math.cos(alpha):.6f}"
    capsules = [part.rsplit(maxsplit=1) for part in joint.shape.split(";")]
    geoms = "".join(
        f'<geom class="link" fromto="{ends}" size="{radius}" mass="{joint.mass / len(capsules)}"/>'
        for ends, radius in capsules
    )
    return f"""
    <body name="link{number}" pos="{place}" euler="{alpha} 0 0" gravcomp="1">
      <joint name="joint{number}" range="{joint.low} {joint.high}"/>
      {geoms}{inside}
    </body>"""


def _finger(side: str, y: int) -> str:
    """A finger that moves along y when it opens."""
    return f"""
      <body name="{side} finger" pos="0 0 0.0584" gravcomp="1">
        <joint name="{side} finger" class="finger" axis="0 {y} 0"/>
        <geom class="visual" type="box" pos="0 {y * 0.013} 0.0145" size="0.009 0.008 0.0145"
              mass="0.01" rgba="0.25 0.27 0.3 1"/>
        <geom name="{side} pad" class="pad" pos="0 {y * 0.006} 0.0415"/>
        <site name="{side} pad" type="box" pos="0 {y * 0.006} 0.0415" size="0.012 0.007 0.014"
              rgba="0 0 0 0"/>
      </body>"""


def _hand() -> str:
    return f"""
    <body name="hand" pos="0 0 {FLANGE}" euler="0 0 {-math.pi / 4}" gravcomp="1">
      <geom name="palm" class="touching" type="box" pos="0 0 0.03" size="0.025 0.1 0.03"
            mass="0.73" rgba="0.92 0.93 0.95 1"/>
      <site name="grip" pos="0 0 {GRIP}" size="0.004" rgba="0 0 0 0"/>
      <camera name="wrist" pos="0.08 0 0.05" xyaxes="0 1 0 0.06 0 0.05" fovy="80"/>
      {_finger("left", 1)}{_finger("right", -1)}
    </body>"""


def arm_mjcf(options: str, world: str) -> str:
    """The MJCF of the arm on a table whose top is at height 0, with other things beside it.

    Servos hold the joints where the controls say; the last control is how far each finger opens.

    Args:
        options: the attributes of `option`.
        world: what else is in `worldbody`.
    """
    body = _hand()
    for number in range(len(JOINTS), 0, -1):
        body = _link(number, body)
    servos = "".join(
        f'<position name="joint{i}" joint="joint{i}" kp="{j.stiffness}" kv="{j.stiffness / 20}" '
        f'forcerange="{-j.torque} {j.torque}" ctrlrange="{j.low} {j.high}"/>'
        for i, j in enumerate(JOINTS, start=1)
    )
    return f"""
<mujoco model="arm">
  <compiler angle="radian"/>
  <option {options}/>
  <statistic center="0.4 0 0.3" extent="1"/>
  <visual>
    <headlight ambient="0.35 0.35 0.35" diffuse="0.25 0.25 0.25" specular="0 0 0"/>
    <map znear="0.01" zfar="10"/>
  </visual>
  <default>
    <geom contype="0" conaffinity="0"/>
    <joint damping="1" armature="0.1"/>
    <default class="visual"><geom group="1"/></default>
    <default class="link">
      <geom group="1" type="capsule" rgba="0.92 0.93 0.95 1"/>
    </default>
    <!-- Bit 1 is the table's, bit 2 that of things on it. -->
    <default class="touching">
      <geom conaffinity="3" friction="1 0.01 0.0005"/>
      <default class="pad">
        <geom type="box" size="0.011 0.006 0.013" mass="0.005" friction="2 0.02 0.0005"
              condim="4" rgba="0.25 0.27 0.3 1"/>
      </default>
    </default>
    <default class="finger">
      <joint type="slide" range="0 {OPEN}" damping="10" armature="0.1"/>
    </default>
  </default>
  <worldbody>
    <body name="base" gravcomp="1">
      <geom class="link" fromto="-0.06 0 0.06 0 0 0.06" size="0.08" mass="2"/>
      <geom class="link" fromto="0 0 0.06 0 0 0.12" size="0.07" mass="1"/>
      {body}
    </body>{world}
  </worldbody>
  <tendon>
    <fixed name="fingers">
      <joint joint="left finger" coef="0.5"/> <joint joint="right finger" coef="0.5"/>
    </fixed>
  </tendon>
  <equality>
    <joint joint1="left finger" joint2="right finger" solref="0.01 1"/>
  </equality>
  <actuator>
    {servos}
    <position name="fingers" tendon="fingers" kp="1500" kv="50" forcerange="-70 70"
              ctrlrange="0 {OPEN}"/>
  </actuator>
  <sensor>
    <touch name="left pad" site="left pad"/> <touch name="right pad" site="right pad"/>
  </sensor>
</mujoco>
"""
