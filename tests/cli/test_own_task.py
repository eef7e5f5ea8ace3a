"""A task in a file of one's own is as good as a registered one, from training to export."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest

import worldline
from worldline.cli import main as cli
from worldline.errors import RendererUnavailableError, RunError, TaskError
from worldline.learn.ppo import PPOConfig
from worldline.report import RunFolder
from worldline.tasks import names, reference, registry
from worldline.train import TrainConfig, resume, train
from worldline.train import video as video_module
from worldline.train.stored import environment_of

TINY = [
    *("--physics", "fake", "--num-worlds", "2", "--unroll-length", "8", "--minibatches", "1"),
    *("--epochs", "1", "--actor-hidden", "4", "--evaluations", "2", "--eval-episodes", "2"),
    *("--quiet", "--no-video"),
]
#: The reach task with a distance of its own, from a neighbour of the file.
MINE = """\
    import dataclasses
    import worldline
    from neighbour_of_mine import LENGTH
    from worldline.tasks.reach import Reach

    @dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
    class Mine(Reach):
        episode_length: int = LENGTH
        bonus: float = 0.0
        def outcome(self, *args):
            outcome = super().outcome(*args)
            return dataclasses.replace(outcome, reward=outcome.reward + self.bonus)

    def rough():
        return worldline.Env(Mine(bonus=1.0), "fake", action_repeat=2)

    not_a_task = 3
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    def no_video(*_, **__):
        raise RendererUnavailableError("not in a test")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(video_module, "render_episode", no_video)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    with jax.numpy_dtype_promotion("standard"):
        yield
    for name in set(sys.modules) - before:
        if "mine" in name:
            del sys.modules[name]


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "code" / "mine.py"
    file.parent.mkdir()
    file.write_text(textwrap.dedent(MINE))
    file.with_name("neighbour_of_mine.py").write_text("LENGTH = 8\n")
    return file


def arrays(folder: Path) -> list[bytes]:
    """The whole training state of the last checkpoint."""
    with np.load(max(folder.glob("checkpoints/step-*.npz"))) as content:
        return [content[name].tobytes() for name in content.files if name != "about"]


def test_it_is_trained_killed_resumed_evaluated_rendered_and_exported_as_a_registered_one(
    mine, capsys
):
    assert cli.main(["train", "code/mine.py:Mine", *TINY, "--steps", "64", "--out", "whole"]) == 0
    assert cli.main(["train", "code/mine.py", *TINY, "--steps", "32", "--out", "part"]) == 0
    assert cli.main(["resume", "part", "--steps", "64", "--quiet"]) == 0
    kind = registry.task_class("code/mine.py:Mine")
    worldline.register("test/mine", kind)
    try:
        command = ["train", "test/mine", *TINY, "--steps", "64", "--out", "registered"]
        assert cli.main(command) == 0
    finally:
        del registry._TASKS["test/mine"]
    assert arrays(Path("whole")) == arrays(Path("part")) == arrays(Path("registered"))
    capsys.readouterr()
    for command in ("eval", "render", "export"):
        pytest.importorskip("jax2onnx") if command == "export" else None
        assert cli.main([command, "whole"]) == 0, command
    assert Path("whole/task.py").read_text() == mine.read_text()
    content = json.loads(Path("whole/config.json").read_text())
    assert content["command"][0] and content["config"]["task"] == "code/mine.py:Mine"
    assert content["config"]["code"]["file"] == str(mine)


def test_a_function_that_makes_an_environment_is_taken_too(mine):
    command = ["train", "code/mine.py:rough", *TINY[2:], "--steps", "32", "--out", "run"]
    assert cli.main(command) == 0
    env = environment_of(RunFolder.open("run"))
    assert (env.action_repeat, env.task.bonus) == (2, 1.0)
    assert worldline.make("code/mine.py:rough").action_repeat == 2
    with pytest.raises(TaskError, match="is a function that makes its environment; leave out"):
        worldline.make("code/mine.py:rough", bonus=2.0)


def test_a_task_of_a_package_is_found_by_module_and_by_entry_point(mine, monkeypatch):
    monkeypatch.chdir(mine.parent)
    kind = registry.task_class("mine:Mine")
    assert kind is worldline.make("mine:Mine", "fake").task.__class__
    offered = {"acme/arm": "mine:Mine", "gym/ant": "mine:Mine"}

    class Entry:
        def __init__(self, name, value):
            self.name, self.value = name, value

    entries = [Entry(*item) for item in offered.items()]
    monkeypatch.setattr(names.importlib.metadata, "entry_points", lambda group: entries)
    names.tasks_of_packages.cache_clear()
    try:
        assert "acme/arm" in worldline.list_tasks()
        assert registry.task_class("acme/arm") is kind
        assert registry.task_class("gym/ant").__module__ == "worldline.tasks.gym.ant"
        assert registry.name_of(kind) == "acme/arm"
    finally:
        registry._TASKS.pop("acme/arm", None)
        names.tasks_of_packages.cache_clear()


def test_code_of_a_run_folder_runs_only_where_it_is_trusted(mine, tmp_path, capsys):
    assert cli.main(["train", "code/mine.py:Mine", *TINY, "--steps", "32", "--out", "run"]) == 0
    shutil.move("run", "sent")  # it is found from anywhere, while the file is in place
    code = RunFolder.open("sent").config["code"]
    assert cli.main(["eval", "sent"]) == 0
    for change in (lambda: mine.write_text(mine.read_text() + "\nwings = 2\n"), mine.unlink):
        change()
        capsys.readouterr()
        for command in ("eval", "render", "resume"):
            assert cli.main([command, "sent"]) == 2
            said = capsys.readouterr().err
            assert str(mine) in said and "--trust-code" in said and "sent/task.py" in said
    assert cli.main(["eval", "sent", "--trust-code"]) == 0
    assert cli.main(["resume", "sent", "--steps", "48", "--quiet", "--trust-code"]) == 0

    # A folder cannot say that the file in place is one of its own, or another module's.
    file = Path("sent/config.json")
    content = json.loads(file.read_text())
    own = {**code, "file": str(tmp_path / "sent" / "task.py")}
    other = {**code, "file": np.__file__, "sha256": reference._sum(Path(np.__file__))}
    for bad in (own, {**other, "module": "sent.task"}, {**code, "name": "not_a_task"}):
        content["config"]["code"] = bad
        file.write_text(json.dumps(content))
        with pytest.raises((RunError, TaskError)):
            environment_of(RunFolder.open("sent"))


def test_a_script_leaves_a_run_that_the_command_line_takes(mine):
    mine.write_text(
        mine.read_text()
        + textwrap.dedent("""
        if __name__ == "__main__":
            from worldline.learn.ppo import PPOConfig
            from worldline.train import TrainConfig, train
            small = PPOConfig(num_worlds=2, unroll_length=8, minibatches=1, epochs=1)
            once = TrainConfig(steps=16, evaluations=1, eval_episodes=2, video=False, out="run")
            train("mine", worldline.Env(Mine(), "fake"), once, small)
        """)
    )
    subprocess.run([sys.executable, mine], check=True, capture_output=True)
    assert cli.main(["eval", "run"]) == 0
    assert type(environment_of(RunFolder.open("run")).task).__name__ == "Mine"


def test_a_class_in_no_file_is_resumed_with_its_environment(tmp_path):
    class Local(registry.task_class("robot/reach")):
        pass

    env = worldline.Env(Local(episode_length=8), "fake")
    small = PPOConfig(num_worlds=2, unroll_length=8, minibatches=1, epochs=1)
    once = TrainConfig(steps=16, evaluations=1, eval_episodes=2, video=False, quiet=True, out="run")
    train("local", env, once, small)
    with pytest.raises(RunError, match="its task, Local, is not in a file; put it into"):
        resume("run", steps=32, quiet=True)
    assert resume("run", steps=32, quiet=True, env=env).steps == 32


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.py:Task", "there is no file 'nowhere.py' with a task"),
        ("code/mine.py:Mien", "has no 'Mien'; did you mean 'Mine'?"),
        ("code/mine.py:not_a_task", "is 3; give a subclass of worldline.Task, or a function"),
        ("no_such_module:Task", "cannot be imported: ModuleNotFoundError"),
        ("code/broken.py", "ZeroDivisionError: division by zero, at line 2 of"),
        ("code/empty.py", "'code/empty.py' has 0 tasks; choose one: code/empty.py:Name"),
    ],
)
def test_what_is_wrong_with_a_reference_is_said(name, said, mine, capsys):
    mine.with_name("broken.py").write_text("\n1 / 0\n")
    mine.with_name("empty.py").write_text("")
    assert cli.main(["train", name]) == 2
    assert said in capsys.readouterr().err
