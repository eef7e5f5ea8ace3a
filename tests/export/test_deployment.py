"""The folder for a robot: its program acts and moves as the environment does, without either."""

import ast
import copy
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import worldline
from worldline.env.disturb import ActionDelay, ObservationNoise
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.learn.ppo import PPOConfig
from worldline.learn.ppo.networks import actor_critic
from worldline.learn.rollout import record
from worldline.rendering.opengl import backends
from worldline.tasks.reach import Reach

pytest.importorskip("jax2onnx")
pytest.importorskip("onnxruntime")

import onnxruntime as ort

from worldline.export import run_policy
from worldline.export.deployment import export_folder, reference_episode

#: Runs the program where JAX and Worldline cannot be imported, and keeps where the robot went.
DRIVER = """
import sys
sys.modules.update(jax=None, jaxlib=None, worldline=None)
sys.path.insert(0, sys.argv[1])
import numpy as np
import run_policy

places = []

class Watched(run_policy.RobotIO):
    def write(self, targets):
        super().write(targets)
        places.append(self.data.qpos.copy())

run_policy.RobotIO = Watched
sys.argv = ["run_policy.py", *sys.argv[2:]]
run_policy.main()
np.save("places.npy", places)
"""


def policy_of(env, keys=("state",), **config):
    """A policy before any training, but that it acts with its whole strength."""
    space = env.observation_space
    spaces = dict(space.spaces) if hasattr(space, "spaces") else {"state": space}
    numbers = [key for key in keys if "/" not in key]
    images = {key: spaces[key].shape for key in keys if "/" in key}
    size, nact = sum(spaces[key].shape[0] for key in numbers), len(env.action_low)
    sizes = PPOConfig(actor_hidden=(16,), critic_hidden=(8,), actor_obs=keys, **config)
    networks = actor_critic(sizes, images)(jax.random.key(0), size, size, nact)
    policy = Policy(
        networks.actor,
        RunningStatistics(jnp.float32(9), jnp.zeros(size), jnp.ones(size)),
        jnp.asarray(env.action_low),
        jnp.asarray(env.action_high),
        "tanh",
        keys,
        networks.encoder,
    )
    arrays, static = eqx.partition(policy.actor, eqx.is_array)
    return eqx.tree_at(
        lambda p: p.actor, policy, eqx.combine(jax.tree.map(_larger, arrays), static)
    )


def _larger(weights):
    """Weights of the last layer, which begin near 0, larger: the robot is to move."""
    return 15 * weights if 0 < jnp.abs(weights).max() < 0.05 else weights


def run_in_plain_mujoco(folder, *options):
    """Runs the program of a folder; gives what it prints, its log and where the robot went."""
    kept = {"PATH": os.environ["PATH"], "MUJOCO_GL": (backends() or ["disable"])[0]}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(folder), *options],
        capture_output=True, text=True, cwd=folder, env=kept, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return done.stdout, dict(np.load(folder / "log.npz")), np.load(folder / "places.npy")


def check_the_same(folder, env, policy, seconds, *, actions=1e-5, places=1e-5, **options):
    worst = export_folder(folder, env, policy, seconds=seconds, **options)
    assert worst < 1e-5
    said, log, went = run_in_plain_mujoco(folder, "--check")
    reference = dict(np.load(folder / "reference.npz"))
    assert "action: " in said
    went = went[env.action_repeat - 1 :: env.action_repeat]
    # It acts in earnest, for the whole time.
    assert np.abs(reference["action"]).mean() > 0.02
    assert len(log["action"]) == len(reference["action"]) == len(went)
    np.testing.assert_allclose(log["action"], reference["action"], atol=actions)
    np.testing.assert_allclose(went, reference["qpos"], atol=places)
    assert np.ptp(went, axis=0).max() > 0.05
    return reference


@pytest.fixture(scope="module")
def quadruped(tmp_path_factory):
    """The folder of a quadruped, of a policy that was trained with noise, delay and history."""
    rough = (ObservationNoise(std={"joint_position": 0.02}), ActionDelay(steps=1))
    task = worldline.make("robot/quadruped-joystick").task
    env = worldline.Env(task, disturbances=rough, history={"joint_position": 3})
    folder = tmp_path_factory.mktemp("quadruped")
    policy = policy_of(env)
    reference = check_the_same(folder, env, policy, 1.0)
    return folder, env, policy, reference


def test_a_quadruped_moves_as_in_the_environment(quadruped):
    folder, env, policy, reference = quadruped
    assert len(reference["action"]) > 20
    # The reference is an episode of the environment, as `eval` plays it, but undisturbed.
    plain = worldline.Env(env.task.task, history={"joint_position": 3})
    episode = record(plain, policy, jax.random.key(3), 10)
    contract = json.loads((folder / "contract.json").read_text())
    start = jax.random.split(jax.random.key(3))[0]  # of which `record` begins its episode
    again = reference_episode(env, policy, contract, 0.2, start)
    np.testing.assert_allclose(again["qpos"][:-1], episode.qpos[1:], atol=1e-5)


def test_a_go1_moves_as_in_the_environment(tmp_path):
    env = worldline.make("playground/go1-joystick-flat")
    check_the_same(tmp_path, env, policy_of(env), 1.0)
    contract = json.loads((tmp_path / "contract.json").read_text())
    assert contract["model"]["file"] == "model.mjb"
    assert contract["action"]["joints"][0] == "FR_hip_joint"
    assert contract["action"]["stiffness"] == [35.0] * 12
    np.testing.assert_allclose(contract["action"]["damping"], 0.5)
    home = mujoco.MjModel.from_binary_path(str(tmp_path / "model.mjb")).key("home").qpos[7:]
    np.testing.assert_allclose(contract["action"]["default_joint_pos"], home, atol=1e-6)


def test_the_contract_says_what_a_controller_must_know(quadruped):
    folder, env, *_ = quadruped
    contract = json.loads((folder / "contract.json").read_text())
    assert (contract["schema"], contract["version"]) == ("worldline-deployment", 1)
    assert contract["control_period"] == 0.02
    model = mujoco.MjModel.from_xml_path(str(folder / "model.xml"))
    joints = [model.joint(int(i)).name for i in model.actuator_trnid[:, 0]]
    action = contract["action"]
    assert action["joints"] == joints
    assert action["numbers"]["scale"] == [env.task.task.action_scale] * 12
    np.testing.assert_allclose(action["numbers"]["offset"], [0, 0.7, -1.4] * 4, atol=1e-6)
    np.testing.assert_allclose(action["numbers"]["low"], model.actuator_ctrlrange[:, 0], rtol=1e-6)
    assert action["torque_limit"] == [30.0] * 12
    parts = {part["name"]: part for part in contract["observation"]}
    position = parts["joint_position"]
    assert (position["start"], position["stop"], position["history"]) == (9, 45, 3)
    assert parts["joint_velocity"]["scale"] == [0.1] * 12
    assert parts["command"]["high"] == pytest.approx([0.8, 0.4, 0.8])
    assert parts["gait_clock"]["stop"] == env.observation_space.shape[0] == 74
    session = ort.InferenceSession(folder / "policy.onnx")
    texts = session.get_modelmeta().custom_metadata_map
    assert json.loads(texts["contract"]) == contract
    # The keys of mjlab's and Isaac Lab's exporters: items with commas between them.
    assert texts["joint_names"].split(",") == joints
    assert [float(x) for x in texts["joint_stiffness"].split(",")] == [40.0] * 12
    assert [float(x) for x in texts["joint_damping"].split(",")] == pytest.approx([0.7] * 12)
    assert [float(x) for x in texts["default_joint_pos"].split(",")] == pytest.approx(
        [0, 0.7, -1.4] * 4
    )
    assert [float(x) for x in texts["action_scale"].split(",")] == pytest.approx([0.6] * 12)
    assert texts["observation_names"].split(",") == list(parts)
    assert texts["observation_history_lengths"] == "1,1,1,3,1,1,1,1"
    assert texts["command_names"] == "command"


def shuffled(contract):
    joints = contract["action"]["joints"]
    joints[0], joints[1] = joints[1], joints[0]


def quicker(contract):
    contract["control_period"] = 0.01


def shorter(contract):
    del contract["observation"][2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shuffled, "contract.json has joint 'FL thigh', but policy.onnx has joint 'FL hip'"),
        (quicker, "contract.json has control period 0.01 s, but policy.onnx has control period 0"),
        (shorter, "contract.json has part 'joint_position', but policy.onnx has part 'projecte"),
    ],
)
def test_a_contract_that_is_not_the_policys_is_refused_by_name(quadruped, change, message):
    folder, *_, reference = quadruped
    contract = json.loads((folder / "contract.json").read_text())
    other = copy.deepcopy(contract)
    change(contract)
    robot = run_policy.RobotIO(contract, folder, reference["start"])
    with pytest.raises(SystemExit, match=f"error: {re.escape(message)}"):
        run_policy.check(contract, other, robot)


class Shuffled(run_policy.RobotIO):
    def describe(self):
        joints, period = super().describe()
        return [*joints[1:], joints[0]], period


class Slower(run_policy.RobotIO):
    def describe(self):
        return super().describe()[0], 0.04


class Blind(run_policy.RobotIO):
    def read(self):
        return {name: it for name, it in super().read().items() if name != "joint_velocity"}


@pytest.mark.parametrize(
    ("robot", "message"),
    [
        (Shuffled, "contract.json has joint 'FL hip', but the robot has joint 'FL thigh'"),
        (Slower, "contract.json has control period 0.02 s, but the robot has control period 0.04"),
        (Blind, "contract.json has part 'joint_velocity', but the robot has part 'last_action'"),
    ],
)
def test_another_robot_is_refused_by_name(quadruped, robot, message):
    folder, *_, reference = quadruped
    contract = json.loads((folder / "contract.json").read_text())
    run_policy.check(contract, contract, run_policy.RobotIO(contract, folder, reference["start"]))
    with pytest.raises(SystemExit, match=f"error: {re.escape(message)}"):
        run_policy.check(contract, contract, robot(contract, folder, reference["start"]))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OwnMotor(Reach):
    """Its motors reach a torque with a delay, which no actuator of the model has."""

    control_at_physics_rate = True

    @property
    def fields(self):
        return (*super().fields, "userdata")

    def mjcf(self):
        return super().mjcf().replace("<worldbody>", '<size nuserdata="2"/><worldbody>')

    def start(self, key):
        return dataclasses.replace(super().start(key), inputs={"userdata": jnp.zeros(2)})

    def control(self, action, physics, memory):
        torque = physics.fields["userdata"] + 0.2 * (action - physics.fields["userdata"])
        return {"ctrl": torque, "userdata": torque}


class WithMotors(run_policy.RobotIO):
    motors = "task"


def test_motors_that_the_model_lacks_are_refused_by_name(tmp_path):
    env = worldline.Env(OwnMotor())
    export_folder(tmp_path, env, policy_of(env), seconds=0.2)
    contract = json.loads((tmp_path / "contract.json").read_text())
    assert contract["motors"] == "task"
    message = "contract.json has motors of the task, but the robot has motors of the model"
    with pytest.raises(AssertionError, match=message):
        run_in_plain_mujoco(tmp_path)
    start = np.load(tmp_path / "reference.npz")["start"]
    # On a robot that has them, it starts.
    robot = WithMotors(contract, tmp_path, start)
    known = {part["name"]: np.zeros(part["size"]) for part in contract["observation"]}
    robot.describe = lambda: (contract["action"]["joints"], contract["control_period"])
    robot.read = lambda: known
    run_policy.check(contract, contract, robot)


def test_another_model_is_refused(quadruped, tmp_path):
    folder, *_ = quadruped
    for file in filter(Path.is_file, folder.iterdir()):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    heavier = (folder / "model.xml").read_text().replace('mass="6"', 'mass="7"')
    (tmp_path / "model.xml").write_text(heavier)
    with pytest.raises(
        AssertionError, match=r"error: model\.xml is not the model of contract\.json"
    ):
        run_in_plain_mujoco(tmp_path)


def test_the_program_is_short_and_needs_three_libraries():
    text = Path(run_policy.__file__).read_text()
    assert len(text.splitlines()) <= 150
    roots = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            roots |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(node.module.split(".")[0])
    assert roots - set(sys.stdlib_module_names) == {"numpy", "onnxruntime", "mujoco"}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("robot/quadruped-joystick", {}),
        ("robot/quadruped-joystick", {"robot": "go1"}),
        ("playground/go1-joystick-flat", {}),
    ],
)
def test_ten_seconds_are_the_same(name, options, tmp_path):
    env = worldline.make(name, **options)
    check_the_same(tmp_path, env, policy_of(env), 10.0)


@pytest.mark.exhaustive
def test_a_policy_with_a_memory_is_the_same(tmp_path):
    env = worldline.make("robot/quadruped-joystick")
    reference = check_the_same(tmp_path, env, policy_of(env, recurrent_size=16), 10.0)
    assert len(reference["action"]) > 20


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["playground/go1-getup", "playground/go1-handstand"])
def test_targets_from_where_the_joints_are_are_the_same(name, tmp_path):
    env = worldline.make(name)
    check_the_same(tmp_path, env, policy_of(env), 2.0)


@pytest.mark.exhaustive
def test_what_the_environment_adds_is_the_same(tmp_path):
    """A repeated action, the last one, a history of all parts and a visible context."""
    task = worldline.make("robot/quadruped-joystick").task
    env = worldline.Env(task, "native", ["gravity"], None, 2, True, history=2)
    policy = policy_of(env, ("state", "last_action", "context"))
    check_the_same(tmp_path, env, policy, 1.0)


class SeenReach(Reach):
    """The arm, of which a camera sees the target too."""

    @property
    def fields(self):
        return (*super().fields, "mocap_pos", "mocap_quat")


@pytest.mark.exhaustive
def test_an_arm_that_sees_is_the_same(tmp_path):
    """From two frames of a camera; a renderer may round a colour to the other side."""
    cameras = {"above": worldline.Camera("above", 48, 48, stack=2)}
    env = worldline.Env(SeenReach(), cameras=cameras)
    policy = policy_of(env, ("pixels/above",))
    check_the_same(tmp_path, env, policy, 2.0, actions=1e-3, places=1e-3)
