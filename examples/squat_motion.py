"""Make a reference motion: a Unitree G1 squats and waves, from a few keyframes.

    python squat_motion.py squat-and-wave.csv

Between keyframes the joints move smoothly. The feet stay flat where they are: the root follows from
them by forward kinematics. The file has the layout of Unitree's retargeted motions: no header.
"""

import sys

import mujoco
import numpy as np

from worldline.tasks.registry import load_task

FPS = 30
SOLE = "left_foot"
"""The site that stays in its place."""

model = load_task("playground/g1-joystick-flat").model.mj
names = [model.joint(i).name for i in range(1, model.njnt)]
stand = dict(zip(names, model.key("knees_bent").qpos[7:], strict=True))


def both(joint, left, right=None):
    """A joint of both sides."""
    return {f"left_{joint}_joint": left, f"right_{joint}_joint": left if right is None else right}


def squatting(depth, lean):
    """Legs bent, and the torso leaned forward, rad."""
    return {
        **both("knee", 2 * depth),
        **both("ankle_pitch", -depth),
        **both("hip_pitch", -depth - lean),
    }


ARMS_FORWARD = {**both("shoulder_pitch", -1.0), **both("elbow", 0.9)}
ARM_UP = {
    "right_shoulder_pitch_joint": 0.0,
    "right_shoulder_roll_joint": -1.4,
    "right_shoulder_yaw_joint": -1.4,
    "right_elbow_joint": 0.2,
}
OUT, IN = {"right_elbow_joint": 0.6}, {"right_elbow_joint": -0.2}

# Seconds, and the joints that are then elsewhere than in the stand.
KEYFRAMES = [
    (0.0, {}),
    (0.5, {}),
    (1.7, {**squatting(0.8, 0.1), **ARMS_FORWARD}),
    (2.2, {**squatting(0.8, 0.1), **ARMS_FORWARD}),
    (3.4, {}),
    (4.2, ARM_UP),
    (4.6, ARM_UP | OUT),
    (5.0, ARM_UP | IN),
    (5.4, ARM_UP | OUT),
    (5.8, ARM_UP | IN),
    (6.8, {}),
    (7.4, {}),
]


def at(time):
    """The joints, between the keyframes before and after with velocities of 0 at both, rad."""
    starts = np.array([start for start, _ in KEYFRAMES])
    index = min(int(np.searchsorted(starts, time, side="right")), len(starts) - 1)
    (begin, before), (end, after) = KEYFRAMES[index - 1 : index + 1]
    share = np.clip((time - begin) / (end - begin), 0.0, 1.0)
    share = share**3 * (10 - 15 * share + 6 * share**2)
    poses = [np.array([(stand | pose)[name] for name in names]) for pose in (before, after)]
    return (1 - share) * poses[0] + share * poses[1]


data = mujoco.MjData(model)
site = model.site(SOLE).id


def sole(joints, place, turn):
    """Where the foot is, of a robot with its root at a place, m, and turned by a quaternion."""
    data.qpos[:] = [*place, *turn, *joints]
    mujoco.mj_kinematics(model, data)
    return data.site_xpos[site].copy()


def upright(joints):
    """The root's orientation with which the left sole is level, as a quaternion."""
    bend = sum(joints[names.index(f"left_{j}_joint")] for j in ("hip_pitch", "knee", "ankle_pitch"))
    return np.cos(bend / 2), 0.0, -np.sin(bend / 2), 0.0


home = model.key("knees_bent").qpos[:3]
ground = sole(at(0.0), home, upright(at(0.0)))
rows = []
for time in np.arange(round(KEYFRAMES[-1][0] * FPS) + 1) / FPS:
    joints = at(time)
    turn = upright(joints)
    root = home + ground - sole(joints, home, turn)
    rows.append([*root, *turn[1:], turn[0], *joints])  # the quaternion's real part last
np.savetxt(
    sys.argv[1] if len(sys.argv) > 1 else "squat-and-wave.csv", rows, fmt="%.4g", delimiter=","
)
