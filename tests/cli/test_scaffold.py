"""`worldline init`: files that pass `check_env`, and clear lines where none can be written."""

import importlib.util
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.cli import main as cli
from worldline.cli.scaffold import write_task
from worldline.env.check import check_env
from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import ConfigError, ModelError, TaskError
from worldline.tasks.suite.base import _folder

GYM = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
SUITE = _folder()

#: Files of installed packages, whether they need motors, and their sizes of observation and action.
MODELS = {
    GYM / "ant.xml": (False, 13 + 14, 8),  # a free joint
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
        del sys.modules[name]


@pytest.mark.parametrize("mjcf", MODELS, ids=lambda path: path.stem)
def test_a_written_task_passes_the_check(mjcf, folder):
    motors, nobs, nact = MODELS[mjcf]
    file = write_task(mjcf, folder / f"own_{mjcf.stem}.py", motors=motors)
    env = Env(task_in(file))
    assert env.observation_space.shape == (nobs,)
    assert env.action_space.shape == (nact,)
    assert f"`({nobs},)`" in file.read_text()
    assert f"`({nact},)`" in file.read_text()
    check_env(env, steps=4)


def test_a_task_begins_at_the_first_keyframe_and_uses_the_ranges_there_are(folder):
    (folder / "models").mkdir()
    (folder / "models" / "two links.xml").write_text(KEYFRAME)
    file = write_task(Path("models/two links.xml"))
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
        ("<mujoco><worldbody>", False, "MuJoCo refuses the model"),
        ("<mujoco/>", False, "has no joints"),
        ("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>", False,
         "has no actuators, so that a policy could do nothing"),
        ("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>", True,
         "no hinge or slide with a name"),
        (KEYFRAME, True, "has actuators; leave --motors out"),
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
    file = write_task(folder / "robot.xml")
    mute = KEYFRAME[: KEYFRAME.index("<actuator>")] + KEYFRAME[KEYFRAME.index("<keyframe>") :]
    (folder / "robot.xml").write_text(mute)
    with pytest.raises(TaskError, match="has no actions: the model has no actuators"):
        check_env(Env(task_in(file)), steps=1)
