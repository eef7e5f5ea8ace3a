"""The tasks that come with Worldline: a table that is read without importing JAX."""

from __future__ import annotations

from typing import NamedTuple

from worldline.settings import Number


class Entry(NamedTuple):
    """A task in the table."""

    place: str
    """Where its class is: `module:Class`, below `worldline.tasks`."""
    episode_length: Number = 1000
    """Control steps after which an episode is truncated."""


TASKS = {
    "arm/pick-cube": Entry("robot.pick_cube:PickCube", 100),
    "gym/ant": Entry("gym.ant:Ant"),
    "gym/half-cheetah": Entry("gym.runners:HalfCheetah"),
    "gym/hopper": Entry("gym.walkers:Hopper"),
    "gym/humanoid": Entry("gym.humanoids:Humanoid"),
    "gym/humanoid-standup": Entry("gym.humanoids:HumanoidStandup"),
    "gym/inverted-double-pendulum": Entry("gym.pendulums:InvertedDoublePendulum"),
    "gym/inverted-pendulum": Entry("gym.pendulums:InvertedPendulum"),
    "gym/pusher": Entry("gym.arms:Pusher", 100),
    "gym/reacher": Entry("gym.arms:Reacher", 50),
    "gym/swimmer": Entry("gym.runners:Swimmer"),
    "gym/walker2d": Entry("gym.walkers:Walker2d"),
    "robot/quadruped-joystick": Entry("robot.quadruped:QuadrupedJoystick"),
    "robot/reach": Entry("reach:Reach", 50),
    "suite/acrobot-swingup": Entry("suite.pendulums:AcrobotSwingup"),
    "suite/acrobot-swingup_sparse": Entry("suite.pendulums:AcrobotSwingupSparse"),
    "suite/ball_in_cup-catch": Entry("suite.hands:BallInCupCatch"),
    "suite/cartpole-balance": Entry("suite.pendulums:CartpoleBalance"),
    "suite/cartpole-balance_sparse": Entry("suite.pendulums:CartpoleBalanceSparse"),
    "suite/cartpole-swingup": Entry("suite.pendulums:CartpoleSwingup"),
    "suite/cartpole-swingup_sparse": Entry("suite.pendulums:CartpoleSwingupSparse"),
    "suite/cartpole-three_poles": Entry("suite.pendulums:CartpoleThreePoles"),
    "suite/cartpole-two_poles": Entry("suite.pendulums:CartpoleTwoPoles"),
    "suite/cheetah-run": Entry("suite.planar:CheetahRun"),
    "suite/finger-spin": Entry("suite.hands:FingerSpin"),
    "suite/finger-turn_easy": Entry("suite.hands:FingerTurnEasy"),
    "suite/finger-turn_hard": Entry("suite.hands:FingerTurnHard"),
    "suite/fish-swim": Entry("suite.swimmers:FishSwim"),
    "suite/fish-upright": Entry("suite.swimmers:FishUpright"),
    "suite/hopper-hop": Entry("suite.planar:HopperHop"),
    "suite/hopper-stand": Entry("suite.planar:HopperStand"),
    "suite/humanoid-run": Entry("suite.humanoid:HumanoidRun"),
    "suite/humanoid-run_pure_state": Entry("suite.humanoid:HumanoidRunPureState"),
    "suite/humanoid-stand": Entry("suite.humanoid:HumanoidStand"),
    "suite/humanoid-walk": Entry("suite.humanoid:HumanoidWalk"),
    "suite/manipulator-bring_ball": Entry("suite.manipulator:ManipulatorBringBall"),
    "suite/manipulator-bring_peg": Entry("suite.manipulator:ManipulatorBringPeg"),
    "suite/manipulator-insert_ball": Entry("suite.manipulator:ManipulatorInsertBall"),
    "suite/manipulator-insert_peg": Entry("suite.manipulator:ManipulatorInsertPeg"),
    "suite/pendulum-swingup": Entry("suite.pendulums:PendulumSwingup"),
    "suite/point_mass-easy": Entry("suite.arms:PointMassEasy"),
    "suite/point_mass-hard": Entry("suite.arms:PointMassHard"),
    "suite/quadruped-escape": Entry("suite.quadruped:QuadrupedEscape"),
    "suite/quadruped-fetch": Entry("suite.quadruped:QuadrupedFetch"),
    "suite/quadruped-run": Entry("suite.quadruped:QuadrupedRun"),
    "suite/quadruped-walk": Entry("suite.quadruped:QuadrupedWalk"),
    "suite/reacher-easy": Entry("suite.arms:ReacherEasy"),
    "suite/reacher-hard": Entry("suite.arms:ReacherHard"),
    "suite/swimmer-swimmer15": Entry("suite.swimmers:Swimmer15"),
    "suite/swimmer-swimmer6": Entry("suite.swimmers:Swimmer6"),
    "suite/walker-run": Entry("suite.planar:WalkerRun"),
    "suite/walker-stand": Entry("suite.planar:WalkerStand"),
    "suite/walker-walk": Entry("suite.planar:WalkerWalk"),
}
