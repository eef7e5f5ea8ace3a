"""Tasks by name, and what is said about names that are none."""

import dataclasses
import subprocess
import sys

import pytest

from worldline.env.task import Task
from worldline.errors import TaskError
from worldline.tasks import registry
from worldline.tasks.gym.walkers import Hopper
from worldline.tasks.reach import Reach
from worldline.tasks.registry import list_tasks, load_task, make, register, task_class


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Needy(Reach):
    """A task with an option that has no default."""

    stiffness: float
    """N m / rad"""


def test_every_task_of_the_list_loads():
    assert list_tasks() == sorted(list_tasks())
    assert len(list_tasks()) == 82
    for name in list_tasks():
        assert isinstance(load_task(name), Task)


def test_options_become_fields():
    task = load_task("gym/hopper", healthy_reward=3.0, episode_length=7)
    assert (task.healthy_reward, task.episode_length) == (3.0, 7)
    assert make("gym/hopper", frame_skip=2).substeps == 2


def test_make_puts_the_task_on_the_engine_asked_for():
    assert make("gym/hopper").physics.name == "native"
    assert make("gym/hopper", physics="fake").physics.name == "fake"


def test_a_class_is_registered():
    register("my/reach", Reach)
    assert "my/reach" in list_tasks()
    assert task_class("my/reach") is Reach


def test_a_class_is_registered_by_where_it_is():
    register("my/hopper", "worldline.tasks.gym.walkers:Hopper")
    assert task_class("my/hopper") is Hopper


def test_no_task_is_imported_before_it_is_asked_for():
    code = (
        "import sys, worldline.tasks.registry as r\n"
        "before = [m for m in sys.modules if m.startswith('worldline.tasks.')]\n"
        "r.load_task('gym/ant')\n"
        "names = [f'worldline.tasks.{n}' for n in ('names', 'reference', 'registry')]\n"
        "assert sorted(before) == names, before\n"
        "assert 'worldline.tasks.gym.ant' in sys.modules\n"
        "assert 'worldline.tasks.gym.walkers' not in sys.modules\n"
        "assert 'gymnasium' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: make("gym/half-chetah"), "'gym/half-chetah'; did you mean 'gym/half-cheetah'"),
        (lambda: make("zzz"), "there is no task 'zzz'; `worldline list` names those there are"),
        (
            lambda: make("gym/ant", ctrl_cost_wieght=1.0),
            "gym/ant has no option 'ctrl_cost_wieght'; did you mean 'ctrl_cost_weight'",
        ),
        (lambda: make("gym/ant", model=1), "gym/ant has no option 'model'"),
        (lambda: register("gym/ant", Reach), "the task 'gym/ant' exists already"),
        (lambda: register("my/task", "worldline.tasks.reach"), "give 'module:Class'"),
        (lambda: register("my/task", dict), "give a subclass of worldline.Task"),
        (lambda: register("my/task", Reach()), "give a subclass of worldline.Task"),
    ],
)
def test_errors_name_the_mend(call, says):
    with pytest.raises(TaskError) as caught:
        call()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("worldline.tasks.nowhere:Reach", "No module named 'worldline.tasks.nowhere'"),
        ("worldline.tasks.reach:Reech", "has no attribute 'Reech'"),
        ("worldline.tasks.reach:MJCF", "give a subclass of worldline.Task"),
    ],
)
def test_a_class_that_is_not_where_it_should_be(where, says):
    register("my/task", where)
    with pytest.raises(TaskError, match=says):
        task_class("my/task")


def test_an_unknown_name_among_many_says_where_the_names_are():
    register("my/reach", Reach)
    with pytest.raises(TaskError, match="there is no task 'zzz'; `worldline list` names those"):
        task_class("zzz")


def test_an_option_without_a_default_must_be_given():
    register("my/needy", Needy)
    with pytest.raises(TaskError, match="my/needy needs the option 'stiffness'"):
        load_task("my/needy")
    assert load_task("my/needy", stiffness=2.0).stiffness == 2.0
