"""Robots that track motions: a model with servos, and which of its bodies are compared."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import mujoco
import numpy as np

from worldline.errors import ConfigError, ModelError, did_you_mean
from worldline.model import Model
from worldline.tasks.playground.assets import scene
from worldline.tasks.robot import four_legs
from worldline.tasks.tracking.motion import NDArray
from worldline.tasks.tracking.reference import joint_names

#: Motions that come with Worldline.
MOTIONS = Path(__file__).parent / "motions"


@dataclasses.dataclass(frozen=True)
class Robot:
    """A robot, in a scene with a floor."""

    spec: mujoco.MjSpec
    """The scene."""
    pose: str = ""
    """The keyframe whose joint angles an action of 0 holds; empty: the first one, or the model's
    default configuration."""
    anchor: str = ""
    """The body that defines the robot's position; empty: the body with the free joint."""
    bodies: tuple[str, ...] = ()
    """The bodies that are compared; empty: all bodies that have a joint."""
    ends: tuple[str, ...] = ()
    """End effectors, bodies or sites, whose heights are watched; empty: the bodies at the ends of
    all limbs."""
    motion: Path | None = None
    """The motion to follow where none is given."""


#: Armature of Unitree's motors, kg m^2, as published with BeyondMimic and in mjlab's G1.
_M5020, _M4010 = 0.003609725, 0.00425
_M7520_14, _M7520_22 = 0.010177520, 0.025101925

#: The motors of a G1: the ends of their joints' names, and the armature; two motors move each of
#: the last ones together.
_G1_MOTORS = {
    ("hip_pitch_joint", "hip_yaw_joint", "waist_yaw_joint"): _M7520_14,
    ("hip_roll_joint", "knee_joint"): _M7520_22,
    (
        "shoulder_pitch_joint",
        "shoulder_roll_joint",
        "shoulder_yaw_joint",
        "elbow_joint",
        "wrist_roll_joint",
    ): _M5020,
    ("wrist_pitch_joint", "wrist_yaw_joint"): _M4010,
    ("ankle_pitch_joint", "ankle_roll_joint", "waist_pitch_joint", "waist_roll_joint"): 2 * _M5020,
}

#: Natural frequency, rad/s, and damping ratio of a joint with its servo, as published with them.
_FREQUENCY, _RATIO = 10 * 2 * math.pi, 2.0

_SIDES = ("left", "right")


def g1(timestep: float) -> Robot:
    """A Unitree G1 on flat ground, with the servos that BeyondMimic gives it.

    Its feet alone touch the ground. Stiffness and damping follow from a natural frequency of 10 Hz
    and a damping ratio of 2 at the armature of each motor.

    Args:
        timestep: of the physics, s.

    Raises:
        MissingExtraError: the extra `robots` is not installed.
    """
    file = scene("locomotion/g1/xmls/scene_mjx_feetonly_flat_terrain.xml")
    spec = mujoco.MjSpec.from_file(str(file))
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for names, armature in _G1_MOTORS.items():
        stiffness, damping = armature * _FREQUENCY**2, 2 * _RATIO * armature * _FREQUENCY
        for joint in spec.joints:
            if joint.name.endswith(names):
                joint.armature, joint.damping = armature, np.zeros_like(joint.damping)
        for servo in spec.actuators:
            if servo.target.endswith(names):
                servo.gainprm[0], servo.biasprm[1], servo.biasprm[2] = (
                    stiffness,
                    -stiffness,
                    -damping,
                )
    legs = [f"{side}_{part}_link" for side in _SIDES for part in ("hip_roll", "knee", "ankle_roll")]
    arms = [f"{s}_{p}_link" for s in _SIDES for p in ("shoulder_roll", "elbow", "wrist_yaw")]
    ends = tuple(f"{s}_{part}_link" for part in ("ankle_roll", "wrist_yaw") for s in _SIDES)
    bodies = ("pelvis", *legs, "torso_link", *arms)
    motion = MOTIONS / "g1-squat-and-wave.csv"
    return Robot(spec, "knees_bent", "torso_link", bodies, ends, motion)


def own_quadruped(timestep: float) -> Robot:
    """The quadruped of `robot/quadruped-joystick`; its end effectors are its feet."""
    spec = mujoco.MjSpec.from_string(four_legs.MJCF)
    spec.option.timestep = timestep
    standing = [0, 0, four_legs.HEIGHT, 1, 0, 0, 0, *four_legs.STANCE * len(four_legs.LEGS)]
    spec.add_key(name="stance", qpos=standing)
    bodies = tuple(f"{leg} {part}" for leg in four_legs.LEGS for part in ("thigh", "shin"))
    feet = tuple(f"{leg} foot" for leg in four_legs.LEGS)
    motion = MOTIONS / "quadruped-trot.npz"
    return Robot(spec, "stance", "torso", ("torso", *bodies), feet, motion)


_ROBOTS = {"g1": g1, "quadruped": own_quadruped}


def robot_of(name: str, timestep: float) -> Robot:
    """A robot by its name, `g1` or `quadruped`, or from an MJCF file.

    Args:
        name: the name, or a path that ends in `.xml`.
        timestep: of the physics, s.

    Raises:
        ConfigError: there is no such robot.
        ModelError: there is no such file, or MuJoCo refuses it.
        MissingExtraError: the extra `robots` is not installed.
    """
    if name in _ROBOTS:
        return _ROBOTS[name](timestep)
    if not name.endswith(".xml"):
        raise ConfigError(
            f"there is no robot {name!r}{did_you_mean(name, _ROBOTS)}; or give an MJCF file, .xml"
        )
    if not Path(name).is_file():
        raise ModelError(f"no MJCF file at {name!r}; give a path, or g1 or quadruped")
    try:
        spec = mujoco.MjSpec.from_file(name)
    except ValueError as error:
        line = " ".join(str(error).split())
        raise ModelError(f"MuJoCo cannot load the model {name!r}: {line}") from error
    spec.option.timestep = timestep
    return Robot(spec)


def with_defaults(robot: Robot, model: Model) -> Robot:
    """The robot with all that is empty filled in from its compiled model."""
    mj, names = model.mj, model.names("body")
    joint_names(model)  # there is a free joint
    root = int(mj.jnt_bodyid[0])
    moving = np.unique(mj.jnt_bodyid)
    parents = set(mj.body_parentid[moving].tolist())
    ends = [names[body] for body in moving if body not in parents]
    return dataclasses.replace(
        robot,
        anchor=robot.anchor or names[root],
        bodies=robot.bodies or tuple(names[body] for body in moving),
        ends=robot.ends or tuple(ends),
    )


@dataclasses.dataclass(frozen=True)
class Servos:
    """The servos of a robot, one for each joint."""

    pose: NDArray
    """Configuration of the robot where an action of 0 holds it, `(nq,)`."""
    joints: NDArray
    """The joint of each servo, counted behind the free joint, `(nu,)`."""
    offset: NDArray
    """Its angle in the pose, `(nu,)`, rad."""
    scale: NDArray
    """What an action of 1 adds, `(nu,)`, rad."""


def servos_of(robot: Robot, model: Model, share: float, scale: float) -> Servos:
    """Finds the servos.

    Args:
        robot: the robot.
        model: its model.
        share: the action scale of a servo, as a share of its largest torque over its stiffness.
        scale: that of a servo without a largest torque, rad.

    Raises:
        ModelError: an actuator is no position servo of a joint.
    """
    mj, names = model.mj, model.names("actuator")
    joints, scales = [], []
    for index in range(mj.nu):
        gain, bias = mj.actuator_gainprm[index, 0], mj.actuator_biasprm[index, 1]
        of_joint = int(mj.actuator_trntype[index]) == int(mujoco.mjtTrn.mjTRN_JOINT)
        if not of_joint or gain <= 0 or abs(gain + bias) > 1e-6 * gain:
            raise ModelError(
                f"actuator {names[index]!r} is no position servo of a joint; give <position> "
                "actuators, as `worldline init` does"
            )
        joint = int(mj.actuator_trnid[index, 0])
        most = _largest_torque(mj, index, joint)
        joints.append(joint - 1)
        scales.append(share * most / gain if math.isfinite(most) else scale)
    first = mj.key_qpos[0] if mj.nkey else mj.qpos0
    pose = np.asarray(mj.key(robot.pose).qpos if robot.pose else first, np.float32)
    order = np.array(joints, int)
    return Servos(pose, order, pose[7:][order], np.array(scales, np.float32))


def _largest_torque(mj: mujoco.MjModel, actuator: int, joint: int) -> float:
    """What a servo can give, N m; infinite without a limit."""
    limits = []
    if mj.actuator_forcelimited[actuator]:
        limits.append(float(mj.actuator_forcerange[actuator, 1]))
    if mj.jnt_actfrclimited[joint]:
        limits.append(float(mj.jnt_actfrcrange[joint, 1]))
    return min(limits, default=math.inf)
