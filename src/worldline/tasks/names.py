"""The tasks that come with Worldline: a table that is read without importing JAX."""

from __future__ import annotations

import fnmatch
import functools
import importlib.metadata
from typing import NamedTuple

from worldline.errors import ConfigError
from worldline.settings import Number


class Entry(NamedTuple):
    """A task in the table."""

    place: str
    """Where its class is: `module:Class`, below `worldline.tasks`."""
    about: str
    """What is to be done, in a few words."""
    episode_length: Number = 1000
    """Control steps after which an episode is truncated."""


TASKS = {
    "arm/pick-cube": Entry(
        "robot.pick_cube:PickCube", "Grasp a cube on a table with an arm, and hold it up.", 100
    ),
    "gym/ant": Entry("gym.ant:Ant", "Run along x on four legs."),
    "gym/half-cheetah": Entry("gym.runners:HalfCheetah", "Run along x on two legs, in a plane."),
    "gym/hopper": Entry("gym.walkers:Hopper", "Hop along x on one leg."),
    "gym/humanoid": Entry("gym.humanoids:Humanoid", "Run along x on two legs."),
    "gym/humanoid-standup": Entry("gym.humanoids:HumanoidStandup", "Get up from the floor."),
    "gym/inverted-double-pendulum": Entry(
        "gym.pendulums:InvertedDoublePendulum",
        "Keep two poles, one on the other, upright.",
    ),
    "gym/inverted-pendulum": Entry(
        "gym.pendulums:InvertedPendulum", "Keep a pole upright on a cart."
    ),
    "gym/pusher": Entry("gym.arms:Pusher", "Push a cylinder to a target with an arm.", 100),
    "gym/reacher": Entry(
        "gym.arms:Reacher", "Bring the tip of an arm of two links to a target.", 50
    ),
    "gym/swimmer": Entry("gym.runners:Swimmer", "Swim along x as a chain of three links."),
    "gym/walker2d": Entry("gym.walkers:Walker2d", "Walk along x on two legs, in a plane."),
    "playground/aloha-hand-over": Entry(
        "playground.aloha_hand_over:AlohaHandOver", "Hand a box from arm to arm of ALOHA.", 250
    ),
    "playground/aloha-single-peg-insertion": Entry(
        "playground.aloha_peg_insertion:AlohaPegInsertion",
        "Put a peg into a socket with both arms of ALOHA.",
    ),
    "playground/apollo-joystick-flat": Entry(
        "playground.apollo_joystick:ApolloJoystickFlat", "Follow commands with Apptronik's Apollo."
    ),
    "playground/barkour-joystick": Entry(
        "playground.barkour:BarkourJoystick", "Follow commands with Google's Barkour robot."
    ),
    "playground/berkeley-joystick-flat": Entry(
        "playground.berkeley_joystick:BerkeleyJoystickFlat",
        "Follow commands with a Berkeley Humanoid.",
    ),
    "playground/berkeley-joystick-rough": Entry(
        "playground.berkeley_joystick:BerkeleyJoystickRough",
        "Follow commands with a Berkeley Humanoid on rough ground.",
    ),
    "playground/g1-joystick-flat": Entry(
        "playground.g1_joystick:G1JoystickFlat", "Follow commands with a Unitree G1."
    ),
    "playground/g1-joystick-rough": Entry(
        "playground.g1_joystick:G1JoystickRough", "Follow commands with a G1 on rough ground."
    ),
    "playground/go1-footstand": Entry(
        "playground.go1_handstand:Go1Footstand", "Stand on the hind feet of a Unitree Go1.", 500
    ),
    "playground/go1-getup": Entry(
        "playground.go1_getup:Go1Getup", "Stand up with a Unitree Go1 that fell.", 300
    ),
    "playground/go1-handstand": Entry(
        "playground.go1_handstand:Go1Handstand", "Stand on the front feet of a Unitree Go1.", 500
    ),
    "playground/go1-joystick-flat": Entry(
        "playground.go1_joystick:Go1JoystickFlat", "Follow commands with a Unitree Go1."
    ),
    "playground/go1-joystick-rough": Entry(
        "playground.go1_joystick:Go1JoystickRough", "Follow commands with a Go1 on rough ground."
    ),
    "playground/h1-inplace-gait-tracking": Entry(
        "playground.h1_inplace:H1InplaceGaitTracking", "Walk or jump on the spot with a Unitree H1."
    ),
    "playground/h1-joystick-gait-tracking": Entry(
        "playground.h1_joystick:H1JoystickGaitTracking",
        "Follow commands with an H1 in its gait.",
    ),
    "playground/leap-cube-reorient": Entry(
        "playground.leap_reorient:LeapCubeReorient", "Turn a cube in a LEAP hand to goals."
    ),
    "playground/leap-cube-rotate-z": Entry(
        "playground.leap_rotate_z:LeapCubeRotateZ", "Spin a cube in a LEAP hand.", 500
    ),
    "playground/op3-joystick": Entry(
        "playground.op3_joystick:Op3Joystick", "Follow commands with Robotis' small humanoid OP3."
    ),
    "playground/panda-open-cabinet": Entry(
        "playground.panda_open_cabinet:PandaOpenCabinet", "Pull a drawer open with a Panda.", 150
    ),
    "playground/panda-pick-cube": Entry(
        "playground.panda_pick_cube:PandaPickCube", "Bring a cube to a target with a Panda.", 150
    ),
    "playground/panda-pick-cube-cartesian": Entry(
        "playground.panda_pick_cube_cartesian:PandaPickCubeCartesian",
        "Lift a cube with a Panda whose gripper moves in a plane.",
        200,
    ),
    "playground/panda-pick-cube-orientation": Entry(
        "playground.panda_pick_cube:PandaPickCubeOrientation",
        "Bring a cube to a target and an orientation with a Panda.",
        150,
    ),
    "playground/panda-robotiq-push-cube": Entry(
        "playground.robotiq_push_cube:RobotiqPushCube",
        "Push a box to targets with a Panda and a Robotiq gripper.",
        3000,
    ),
    "playground/spot-flat": Entry(
        "playground.spot_flat:SpotFlat", "Follow commands with Boston Dynamics' Spot."
    ),
    "playground/spot-gait-tracking": Entry(
        "playground.spot_gait_tracking:SpotGaitTracking", "Move the feet of a Spot in a given gait."
    ),
    "playground/spot-getup": Entry(
        "playground.spot_getup:SpotGetup", "Stand up with a Spot that fell.", 300
    ),
    "playground/t1-joystick-flat": Entry(
        "playground.t1_joystick:T1JoystickFlat", "Follow commands with a Booster T1."
    ),
    "playground/t1-joystick-rough": Entry(
        "playground.t1_joystick:T1JoystickRough", "Follow commands with a T1 on rough ground."
    ),
    "robot/quadruped-joystick": Entry(
        "robot.quadruped:QuadrupedJoystick", "Walk on four legs at commanded velocities."
    ),
    "robot/reach": Entry(
        "reach:Reach", "Bring the tip of an arm to a target: the task to copy.", 50
    ),
    "robot/track-motion": Entry(
        "tracking.task:TrackMotion", "Follow a reference motion from a file with a robot.", 500
    ),
    "suite/acrobot-swingup": Entry(
        "suite.pendulums:AcrobotSwingup", "Swing two links up with a motor at the elbow."
    ),
    "suite/acrobot-swingup_sparse": Entry(
        "suite.pendulums:AcrobotSwingupSparse", "Swing two links up; reward at the target alone."
    ),
    "suite/ball_in_cup-catch": Entry(
        "suite.hands:BallInCupCatch", "Swing a ball on a string into a cup."
    ),
    "suite/cartpole-balance": Entry(
        "suite.pendulums:CartpoleBalance", "Keep a pole upright on a cart."
    ),
    "suite/cartpole-balance_sparse": Entry(
        "suite.pendulums:CartpoleBalanceSparse", "Keep a pole upright; reward 0 or 1."
    ),
    "suite/cartpole-swingup": Entry(
        "suite.pendulums:CartpoleSwingup", "Swing a pole up on a cart and keep it upright."
    ),
    "suite/cartpole-swingup_sparse": Entry(
        "suite.pendulums:CartpoleSwingupSparse", "Swing a pole up; reward 0 or 1."
    ),
    "suite/cartpole-three_poles": Entry(
        "suite.pendulums:CartpoleThreePoles", "Swing up three poles, one on top of the other."
    ),
    "suite/cartpole-two_poles": Entry(
        "suite.pendulums:CartpoleTwoPoles", "Swing up two poles, one on top of the other."
    ),
    "suite/cheetah-run": Entry("suite.planar:CheetahRun", "Run along x on two legs, in a plane."),
    "suite/finger-spin": Entry("suite.hands:FingerSpin", "Spin a body with a finger."),
    "suite/finger-turn_easy": Entry("suite.hands:FingerTurnEasy", "Turn a body to a large target."),
    "suite/finger-turn_hard": Entry("suite.hands:FingerTurnHard", "Turn a body to a small target."),
    "suite/fish-swim": Entry("suite.swimmers:FishSwim", "Swim to a target, upright."),
    "suite/fish-upright": Entry("suite.swimmers:FishUpright", "Turn upright, and stay so."),
    "suite/hopper-hop": Entry("suite.planar:HopperHop", "Hop on one leg at 2 m/s."),
    "suite/hopper-stand": Entry("suite.planar:HopperStand", "Stand on one leg with little effort."),
    "suite/humanoid-run": Entry("suite.humanoid:HumanoidRun", "Run on two legs."),
    "suite/humanoid-run_pure_state": Entry(
        "suite.humanoid:HumanoidRunPureState", "Run on two legs; observe qpos and qvel."
    ),
    "suite/humanoid-stand": Entry("suite.humanoid:HumanoidStand", "Stand still on two legs."),
    "suite/humanoid-walk": Entry("suite.humanoid:HumanoidWalk", "Walk on two legs."),
    "suite/manipulator-bring_ball": Entry(
        "suite.manipulator:ManipulatorBringBall", "Bring a ball to a target."
    ),
    "suite/manipulator-bring_peg": Entry(
        "suite.manipulator:ManipulatorBringPeg", "Bring a peg to a target."
    ),
    "suite/manipulator-insert_ball": Entry(
        "suite.manipulator:ManipulatorInsertBall", "Bring a ball into a cup."
    ),
    "suite/manipulator-insert_peg": Entry(
        "suite.manipulator:ManipulatorInsertPeg", "Bring a peg into a slot."
    ),
    "suite/pendulum-swingup": Entry(
        "suite.pendulums:PendulumSwingup", "Swing a pole up with a motor too weak to lift it."
    ),
    "suite/point_mass-easy": Entry(
        "suite.arms:PointMassEasy", "Push a point to the middle of a square."
    ),
    "suite/point_mass-hard": Entry(
        "suite.arms:PointMassHard", "Push a point, by motors in directions that each episode draws."
    ),
    "suite/quadruped-escape": Entry(
        "suite.quadruped:QuadrupedEscape", "Climb out of a bowl of bumps."
    ),
    "suite/quadruped-fetch": Entry(
        "suite.quadruped:QuadrupedFetch", "Bring a ball to the middle of an arena."
    ),
    "suite/quadruped-run": Entry("suite.quadruped:QuadrupedRun", "Run on four legs."),
    "suite/quadruped-walk": Entry("suite.quadruped:QuadrupedWalk", "Walk on four legs."),
    "suite/reacher-easy": Entry("suite.arms:ReacherEasy", "Reach a large target."),
    "suite/reacher-hard": Entry("suite.arms:ReacherHard", "Reach a small target."),
    "suite/swimmer-swimmer15": Entry(
        "suite.swimmers:Swimmer15", "Swim to a target as a chain of fifteen links."
    ),
    "suite/swimmer-swimmer6": Entry(
        "suite.swimmers:Swimmer6", "Swim to a target as a chain of six links."
    ),
    "suite/walker-run": Entry("suite.planar:WalkerRun", "Run on two legs, in a plane."),
    "suite/walker-stand": Entry(
        "suite.planar:WalkerStand", "Get up and stand on two legs, in a plane."
    ),
    "suite/walker-walk": Entry("suite.planar:WalkerWalk", "Walk on two legs, in a plane."),
}


@functools.cache
def tasks_of_packages() -> dict[str, str]:
    """The tasks that installed packages offer, each with where its class is, `module:Class`.

    A package offers them by entry points in its `pyproject.toml`; Worldline's own names are taken:

        [project.entry-points."worldline.tasks"]
        "acme/arm" = "acme.tasks:Arm"
    """
    offered = importlib.metadata.entry_points(group="worldline.tasks")
    return {entry.name: entry.value for entry in offered if entry.name not in TASKS}


def tasks_like(pattern: str) -> dict[str, str]:
    """The tasks with a text in their name or description, and what each is; `*` is anything.

    Raises:
        ConfigError: there is none.
    """
    about = {name: entry.about for name, entry in TASKS.items()}
    about |= {name: f"at {place}" for name, place in tasks_of_packages().items()}
    chosen = {n: t for n, t in about.items() if fnmatch.fnmatch(f"{n} {t}", f"*{pattern}*")}
    if not chosen:
        raise ConfigError(f"no task has {pattern!r} in its name or description")
    return chosen
