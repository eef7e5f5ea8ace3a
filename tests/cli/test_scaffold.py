"""`worldline init`: files that pass `check_env`, and clear lines where none can be written."""

import ast
import dataclasses
import importlib.util
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.cli import main as cli
from worldline.cli.legged import find_legs
from worldline.cli.scaffold import write_task
from worldline.env.check import check_env
from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import ConfigError, ModelError, TaskError
from worldline.model import Model
from worldline.tasks.suite.base import _folder

GYM = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
SUITE = _folder()

#: Files of installed packages, whether they need motors, and their sizes of observation and action.
MODELS = {
    GYM / "ant.xml": (False, 9 + 8 + 8 + 8 + 3, 8),  # four legs, motors, unnamed feet
    GYM / "reacher.xml": (False, 4 + 4, 2),
    SUITE / "fish.xml": (False, 12 + 13, 5),  # a free joint and tendons
    SUITE / "swimmer.xml": (True, 3 + 3, 3),
    SUITE.parent / "third_party" / "kinova" / "jaco_hand.xml": (True, 3 + 3, 3),  # meshes
}

KEYFRAME = """
<mujoco>
  <option timestep="0.003"/>
  <worldbody>
    <body><joint name="a"/><geom size="0.1"/>
      <body pos="0 0 1"><joint name="b" type="ball"/><geom size="0.1"/></body>
    </body>
  </worldbody>
  <actuator><position joint="a"/><motor joint="a" ctrlrange="0 3"/></actuator>
  <keyframe><key name="home" qpos="0.7 1 0 0 0"/></keyframe>
</mujoco>"""


def task_in(file: Path) -> Task:
    """The task that a written file defines."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    (task,) = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Task)]
    return task()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    jax.config.update("jax_disable_most_optimizations", True)
    yield tmp_path
    jax.config.update("jax_disable_most_optimizations", False)
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):  # what the test wrote, and no library
            del sys.modules[name]


@pytest.mark.parametrize("mjcf", MODELS, ids=lambda path: path.stem)
def test_a_written_task_passes_the_check(mjcf, folder):
    motors, nobs, nact = MODELS[mjcf]
    file = write_task(mjcf, folder / f"own_{mjcf.stem}.py", motors=motors).file
    env = Env(task_in(file))
    assert env.observation_space.shape == (nobs,)
    assert env.action_space.shape == (nact,)
    assert f"`({nobs},)`" in file.read_text()
    assert f"`({nact},)`" in file.read_text()
    check_env(env, steps=4)


def test_a_task_begins_at_the_first_keyframe_and_uses_the_ranges_there_are(folder):
    (folder / "models").mkdir()
    (folder / "models" / "two links.xml").write_text(KEYFRAME)
    file = write_task(Path("models/two links.xml")).file
    assert file == Path("two_links.py")
    assert 'MJCF = Path(__file__).parent / "models/two links.xml"' in file.read_text()
    task = task_in(file)
    assert task.control_timestep == pytest.approx(0.021)
    start = task.start(jax.random.key(0))
    assert start.qpos[0] == pytest.approx(0.7, abs=0.1)
    np.testing.assert_array_equal(start.qpos[1:], [1, 0, 0, 0])
    lowest, highest = (task.control(jnp.full(2, a), None, ()) for a in (-1.0, 1.0))
    np.testing.assert_allclose(lowest, [-1, 0])  # the first has no range
    np.testing.assert_allclose(highest, [1, 3])


LEG = """
<body name="{name} hip" pos="{x} {y} 0">
  <joint name="{name} hip" axis="1 0 0" range="-.8 .8" {limit}/>
  <geom type="capsule" fromto="0 0 0 0 {out} 0" size=".03" mass=".6"/>
  <body name="{name} thigh" pos="0 {out} 0">
    <joint name="{name} thigh" axis="0 1 0" range="-.7 4.5" {limit}/>
    <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02" mass="1"/>
    <body name="{name} calf" pos="0 0 -.2">
      <joint name="{name} calf" axis="0 1 0" range="-2.8 -.9" {limit}/>
      <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".01" mass=".2"/>
      <geom type="sphere" pos="0 0 -.2" size=".022" mass=".05"/>
    </body>
  </body>
</body>"""
LEGS = ("FL", 0.2, 0.05), ("FR", 0.2, -0.05), ("RL", -0.2, 0.05), ("RR", -0.2, -0.05)


def quadruped(limit: str = "", extra: str = "") -> str:
    """A robot alone: no floor, no actuators, and a default pose outside the calves' ranges."""
    legs = "".join(
        LEG.format(name=n, x=x, y=y, out=0.07 if y > 0 else -0.07, limit=limit) for n, x, y in LEGS
    )
    return f"""
    <mujoco><compiler angle="radian"/><worldbody>
      <body name="trunk" pos="0 0 .4"><freejoint name="root"/>
        <geom type="box" size=".2 .08 .05" mass="6"/>{legs}
      </body></worldbody>{extra}</mujoco>"""


HOME = ", ".join(["0 .9 -1.8"] * 4).replace(",", "")
KEY = f'<keyframe><key name="home" qpos="0 0 .3 1 0 0 0 {HOME}"/></keyframe>'


def constants_in(file: Path) -> dict[str, object]:
    """The constants at the top of a file, by name."""
    found = {}
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id != "MJCF":
            found[statement.targets[0].id] = ast.literal_eval(statement.value)
    return found


def test_a_robot_without_anything_gets_a_floor_servos_and_a_stance(folder):
    (folder / "robot.xml").write_text(quadruped())
    written = write_task(folder / "robot.xml")
    legs, speeds, floor, actuators, armature = written.notes
    assert speeds.startswith("commanded speeds are 0 to 0.")
    assert "no armature" in armature
    assert legs.startswith(
        "it walks on 4 legs; the stance is bent legs with the feet below the hips"
    )
    assert floor == "the model has no floor; the task adds one"
    assert "has no actuators; the task adds position servos" in actuators
    made = constants_in(written.file)
    for leg in range(4):
        hip, thigh, calf = made["STANCE"][7 + 3 * leg : 10 + 3 * leg]
        assert abs(hip) < 0.1 and 0.4 < thigh < 1.2 and -2.4 < calf < -1.2
        assert calf == pytest.approx(-2 * thigh, abs=0.3)  # the foot is below the hip
    # Two feet carry 93 N, the knees 0.15 m beside them; gravity alone would ask for 0.1 N m.
    for stiffness, damping, force in made["SERVOS"].values():
        assert 10 < force < 60 and 20 < stiffness < 250 and 0.1 < damping < 5
    assert {name: phase for name, (_, phase) in made["FEET"].items()} == {
        "FL calf": 0.0, "FR calf": 0.5, "RL calf": 0.5, "RR calf": 0.0,
    }  # fmt: skip


def test_the_models_own_limits_and_keyframe_come_first(folder):
    text = quadruped('actuatorfrcrange="-17 17"', KEY)
    (folder / "robot.xml").write_text(text)
    written = write_task(folder / "robot.xml")
    made = constants_in(written.file)
    assert "is the keyframe home" in written.notes[0] and "the model's limits" in written.notes[3]
    assert {force for *_, force in made["SERVOS"].values()} == {17.0}
    assert list(made["STANCE"][7:]) == [0, 0.9, -1.8] * 4
    by_hand = 0.2 * np.cos(0.9) + 0.2 * np.cos(0.9) + 0.022  # thigh, calf, foot
    assert made["HEIGHT"] == pytest.approx(by_hand, abs=1e-3)
    file = write_task(folder / "robot.xml", folder / "motors.py", motors=True).file
    assert set(constants_in(file)["MOTORS"].values()) == {17.0}


def test_a_walker_stands_from_the_first_step_and_passes_the_check(folder):
    """With actions of 0 for two seconds: the feet on the floor, the trunk near its height."""
    (folder / "robot.xml").write_text(quadruped())
    task = task_in(write_task(folder / "robot.xml").file)
    env, height = Env(task), sys.modules["robot"].HEIGHT
    step, state = jax.jit(env.step), env.reset(jax.random.key(0))
    for _ in range(100):
        state = step(state, jnp.zeros(12))
        assert not state.terminated
    assert float(state.physics.qpos[2]) == pytest.approx(height, rel=0.15)
    np.testing.assert_allclose(task.foot_heights(state.physics), 0.0, atol=0.01)
    assert float(state.memory["speed"]) <= task.fastest
    one = dataclasses.replace(task, slowest=0.5, fastest=0.5)
    assert float(one.start(jax.random.key(1)).memory["speed"]) == 0.5
    low = state.physics.qpos.at[2].set(0.4 * height)
    fallen = dataclasses.replace(state.physics, qpos=low)
    assert task.outcome(fallen, jnp.zeros(12), fallen, state.memory).terminated
    assert check_env(env, steps=4).warnings == ()


def test_a_floor_touches_whatever_can_touch(folder):
    text = quadruped().replace('type="sphere"', 'type="sphere" contype="4" conaffinity="2"')
    text = text.replace('type="capsule"', 'type="capsule" contype="0" conaffinity="0"')
    (folder / "robot.xml").write_text(text)
    task = task_in(write_task(folder / "robot.xml").file)
    model, data = task.model.mj, mujoco.MjData(task.model.mj)
    data.qpos[:] = task.start(jax.random.key(0)).qpos
    data.qpos[2] = sys.modules["robot"].HEIGHT - 0.01
    mujoco.mj_forward(model, data)
    assert data.ncon >= 4


def test_servos_of_the_model_are_kept(folder):
    joints = [f"{name} {part}" for name, *_ in LEGS for part in ("hip", "thigh", "calf")]
    servos = "".join(f'<position joint="{joint}" kp="60" inheritrange="1"/>' for joint in joints)
    (folder / "robot.xml").write_text(quadruped(extra=f"<actuator>{servos}</actuator>{KEY}"))
    written = write_task(folder / "robot.xml")
    assert "SERVOS" not in constants_in(written.file)
    task = task_in(written.file)
    held = task.control(jnp.zeros(12), None, ())
    np.testing.assert_allclose(held, [0, 0.9, -1.8] * 4, rtol=1e-6)
    np.testing.assert_allclose(task.control(jnp.ones(12), None, ())[1], 1.4, rtol=1e-6)


def test_one_that_rolls_on_wheels_or_lies_flat_is_no_walker(folder):
    wheels = quadruped().replace('range="-2.8 -.9"', "")
    (folder / "wheels.xml").write_text(wheels)
    assert find_legs(Model(folder / "wheels.xml")) is None
    assert find_legs(Model(GYM / "half_cheetah.xml")) is None  # it moves in a plane
    assert find_legs(Model(SUITE / "fish.xml")) is None


SERVOS = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body pos="0 0 1"><joint name="a" axis="0 1 0" range="-2.9 0.1" damping="1"/>
      <geom type="capsule" size=".04" fromto="0 0 0 .4 0 0" contype="0" conaffinity="0"/>
      <body pos=".4 0 0"><joint name="b" axis="0 1 0" range="-.1 3.7" damping="1"/>
        <geom type="capsule" size=".03" fromto="0 0 0 .3 0 0" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position joint="a" kp="200" inheritrange="1"/><position joint="b" kp="200" inheritrange="1"/>
  </actuator>
  <keyframe><key name="home" qpos="-.3 .4" ctrl="-.3 .4"/></keyframe>
</mujoco>"""


def test_an_action_of_0_holds_the_first_keyframe(folder):
    """As MuJoCo does after `mj_resetDataKeyframe`; 1 and -1 are the ends of the range."""
    (folder / "arm.xml").write_text(SERVOS)
    task = task_in(write_task(folder / "arm.xml").file)
    env, data = Env(task), mujoco.MjData(task.model.mj)
    mujoco.mj_resetDataKeyframe(task.model.mj, data, 0)
    mujoco.mj_step(task.model.mj, data, 500)
    state = env.reset(jax.random.key(0))
    for _ in range(50):
        state = env.step(state, jnp.zeros(2))
    np.testing.assert_allclose(state.physics.qpos, data.qpos, atol=0.01)
    for action, control in {-1.0: [-2.9, -0.1], 0.0: [-0.3, 0.4], 1.0: [0.1, 3.7]}.items():
        np.testing.assert_allclose(task.control(jnp.full(2, action), None, ()), control, rtol=1e-5)


HOSTILE = ['"""; raise SystemExit; """', "'''", "\\", "a\\", "{x} $x %s", "naïve 中文 😀"]
names = st.lists(st.sampled_from(HOSTILE) | st.text("\"'\\{}$# abé", min_size=1), max_size=4)


@pytest.mark.parametrize("motors", [False, True])
@given(names=names)
def test_no_name_in_a_model_becomes_code(motors, names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    spec = mujoco.MjSpec()
    for number, name in enumerate(dict.fromkeys(["joint", *names])):
        body = spec.worldbody.add_body(name=f"body {number}")
        body.add_joint(name=name)
        body.add_geom(size=[0.1, 0, 0])
        if not motors:
            spec.add_actuator(name=name, target=name).trntype = mujoco.mjtTrn.mjTRN_JOINT
    spec.compile()
    (folder / "robot.xml").write_text(spec.to_xml())
    kept = Model(folder / "robot.xml").names("joint")
    out = folder / 'it\'s a "robot".py'
    code = ast.parse(write_task(folder / "robot.xml", out, motors=motors).file.read_text())
    statements = {type(statement) for statement in code.body}
    assert statements <= {ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.ClassDef, ast.If}
    (task,) = (it for it in code.body if isinstance(it, ast.ClassDef))
    assert ", ".join(kept[:6]) in ast.get_docstring(task, clean=False)
    if motors:
        tables = (it for it in code.body if isinstance(it, ast.Assign))
        (table,) = (it.value for it in tables if it.targets[0].id == "MOTORS")
        assert list(ast.literal_eval(table)) == kept


@given(names=st.lists(names.filter(len).map(lambda it: it[0]), min_size=6, max_size=6, unique=True))
def test_no_name_in_a_robot_with_legs_becomes_code(names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    spec = mujoco.MjSpec.from_string(quadruped(extra=KEY))
    for joint, name in zip(spec.joints[1:], names, strict=False):
        joint.name = f"j{name}"
    for body, name in zip(spec.bodies[1:], names, strict=False):
        body.name = f"b{name}"
    spec.keys[0].name = names[0]
    spec.compile()
    (folder / "robot.xml").write_text(spec.to_xml())
    file = write_task(folder / "robot.xml", folder / "out.py").file
    statements = {type(statement) for statement in ast.parse(file.read_text()).body}
    assert statements <= {ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.ClassDef, ast.If}
    made = constants_in(file)
    assert list(made["SERVOS"])[:6] == [f"j{name}" for name in names]
    assert len(made["STANCE"]) == 19


def test_the_command_writes_a_file_once(folder, capsys):
    (folder / "my robot.xml").write_text(KEYFRAME)
    assert cli.main(["init", "my robot.xml"]) == 0
    assert "python my_robot.py" in capsys.readouterr().out
    assert cli.main(["init", "my robot.xml"]) == 2
    assert "'my_robot.py' exists; move it" in capsys.readouterr().err
    assert cli.main(["init", "my robot.xml", "--out", "other.py"]) == 0
    compile(Path("other.py").read_text(), "other.py", "exec")


@pytest.mark.parametrize(
    ("mjcf", "motors", "says"),
    [
        ("<mujoco><worldbody>", False, "MuJoCo cannot load the model"),
        ("<mujoco/>", False, "has no joints"),
        ("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>", False,
         "has no actuators, so a policy has no effect"),
        ("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>", True,
         "no hinge or slide with a name"),
        (KEYFRAME, True, "already has actuators; leave --motors out"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_used_gets_a_line(mjcf, motors, says, folder):
    (folder / "robot.xml").write_text(mjcf)
    with pytest.raises((ModelError, ConfigError)) as caught:
        write_task(folder / "robot.xml", motors=motors)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("robot.py").exists()


def test_errors_of_the_output_name_the_mend(folder):
    (folder / "robot.xml").write_text(KEYFRAME)
    with pytest.raises(ConfigError, match=r"give a file that ends in \.py"):
        write_task(folder / "robot.xml", folder / "robot.txt")
    with pytest.raises(ModelError, match="no MJCF file at"):
        write_task(folder / "robott.xml")


def test_the_check_says_that_there_are_no_actuators(folder):
    (folder / "robot.xml").write_text(KEYFRAME)
    file = write_task(folder / "robot.xml").file
    mute = KEYFRAME[: KEYFRAME.index("<actuator>")] + KEYFRAME[KEYFRAME.index("<keyframe>") :]
    (folder / "robot.xml").write_text(mute)
    with pytest.raises(TaskError, match="has no actions: the model has no actuators"):
        check_env(Env(task_in(file)), steps=1)
