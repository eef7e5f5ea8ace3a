"""Make a reference motion: a trot of the quadruped, from footsteps and inverse kinematics.

    python trot_motion.py trot.npz

The robot stands, speeds up, trots and stops. Its feet stay where they step; each joint follows from
where the feet are below the torso.
"""

import sys

import numpy as np

from worldline.tasks.robot.four_legs import HEIGHT, LEGS, STANCE

FPS = 50
SECONDS = 12.0
SPEED = 0.5
"""While it trots, m/s."""
PERIOD = 0.5
"""Of a leg's steps, s; diagonal legs step together, and each is half of the time in the air."""
STEP_HEIGHT = 0.05
"""How high a foot swings, m."""
THIGH = SHIN = 0.2
"""Lengths, m."""
HIP = {"F": 0.2, "R": -0.2}
"""Places of the hips along the torso, m."""
SIDE = {"L": 0.07, "R": -0.07}
"""How far thighs are to the left of their hips, m."""
SWAY = 0.01
"""How far the torso sways to the side on which it steps next, m."""


def smooth(x):
    """From 0 to 1 as x does, with velocities and accelerations of 0 at both ends."""
    x = np.clip(x, 0.0, 1.0)
    return x**3 * (10 - 15 * x + 6 * x**2)


times = np.arange(round(SECONDS * FPS) + 1) / FPS
fine = np.linspace(0, SECONDS, 12001)
pace = smooth((fine - 0.5) / 1.0) * smooth((SECONDS - 0.5 - fine) / 1.0)
way = np.concatenate([[0.0], np.cumsum(SPEED * (pace[1:] + pace[:-1]) / 2 * np.diff(fine))])


def torso(time):
    """How far the torso is along x, m."""
    return np.interp(time, fine, way)


def sway(time):
    """How far the torso is to the left, m."""
    return SWAY * np.interp(time, fine, pace) * np.sin(2 * np.pi * time / PERIOD)


def foot(leg, time):
    """The foot's place along x and its height above the ground, m: on the ground in the first half
    of a period, in the air in the second."""
    late = 0.0 if leg in ("FL", "RR") else 0.5
    periods = time / PERIOD - late
    step, share = np.floor(periods), periods % 1

    def hold(step):
        """Where the foot stands: below the hip in the middle of its time on the ground."""
        return torso((step + late + 0.25) * PERIOD) + HIP[leg[0]]

    swing = 2 * share - 1
    if swing < 0:
        return hold(step), 0.0
    height = STEP_HEIGHT * np.interp(time, fine, pace) * np.sin(np.pi * swing) ** 2
    return hold(step) + (hold(step + 1) - hold(step)) * smooth(swing), height


def leg_angles(forward, left, down, out):
    """Hip, thigh and knee for a foot so far before, left of and below its hip, whose thigh is so
    far to the left, rad.
    """
    down_leg = np.sqrt(left**2 + down**2 - out**2)
    hip = np.arctan2(left, down) - np.arctan2(out, down_leg)
    reach = np.hypot(forward, down_leg)
    knee = -np.arccos((reach**2 - THIGH**2 - SHIN**2) / (2 * THIGH * SHIN))
    below = np.arctan2(SHIN * np.sin(knee), THIGH + SHIN * np.cos(knee))
    return hip, -np.arctan2(forward, down_leg) - below, knee


standing = 2 * THIGH * np.cos(STANCE[1])
joints = []
for time in times:
    row = []
    for leg in LEGS:
        x, height = foot(leg, time)
        forward, out = x - torso(time) - HIP[leg[0]], SIDE[leg[1]]
        row += leg_angles(forward, out - sway(time), standing - height, out)
    joints.append(row)

np.savez_compressed(
    sys.argv[1] if len(sys.argv) > 1 else "trot.npz",
    fps=FPS,
    joint_names=[f"{leg} {joint}" for leg in LEGS for joint in ("hip", "thigh", "knee")],
    joint_pos=np.float32(joints),
    root_pos=np.float32([[torso(time), sway(time), HEIGHT] for time in times]),
    root_quat=np.float32([[1.0, 0.0, 0.0, 0.0]] * len(times)),  # real part first
)
