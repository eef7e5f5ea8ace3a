"""Every field of every configuration: hostile values are refused in words, or taken."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import worldline
from worldline.cli.commands import Eval, Render, Resume
from worldline.env.config import EnvConfig
from worldline.errors import ConfigError, WorldlineError
from worldline.learn.augmentation import Augmentation
from worldline.learn.ppo import PPOConfig
from worldline.learn.sac import SACConfig
from worldline.learn.shac import SHACConfig
from worldline.parallel.config import ClusterConfig
from worldline.physics.finite_differences import FiniteDifferences
from worldline.rendering.camera import Camera
from worldline.report import RunFolder
from worldline.settings import Count, Finite, NotNegative, Positive, Share, Units, check_settings
from worldline.tasks.registry import list_tasks, load_task, task_class
from worldline.train.config import TrainConfig
from worldline.train.memory import check_memory
from worldline.train.stored import (
    algorithm_of,
    environment_of,
    resolved_config,
    run_config,
)

CONFIGS = {
    "PPOConfig": PPOConfig,
    "SACConfig": SACConfig,
    "SHACConfig": SHACConfig,
    "TrainConfig": TrainConfig,
    "EnvConfig": EnvConfig,
    "ClusterConfig": ClusterConfig,
    "Augmentation": Augmentation,
    "FiniteDifferences": FiniteDifferences,
    "Camera": lambda **values: Camera(**{"name": "front", **values}),
}
FIELDS = [
    (name, field.name)
    for name, kind in CONFIGS.items()
    for field in dataclasses.fields(Camera if name == "Camera" else kind)
]
HOSTILE = [
    -1, 0, 2**31, 2**63, -(2**63), 10**12, 1e308, -1e308, math.nan, math.inf, -math.inf, True,
    None, "", "x", "../..", "\0", [], [-5], [0.5], ["x"], {}, {"a": 1}, [[1]], (), (10**12,), b"x",
    np.float64("nan"), np.int64(-3),
]  # fmt: skip


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_hostile_values_are_refused_in_words(name: str, field: str) -> None:
    for value in HOSTILE:
        try:
            made = CONFIGS[name](**{field: value})
        except ConfigError as error:
            assert "\n" not in str(error)
            continue
        assert getattr(made, field) is value
        assert not isinstance(value, float) or not math.isnan(value)


@dataclasses.dataclass(frozen=True)
class Inner:
    depth: int = 0


@dataclasses.dataclass(frozen=True)
class Sample:
    count: Count = 1
    share: Share = 0.5
    positive: Positive = 1.0
    weight: NotNegative = 0.0
    shift: Finite = 0.0
    limit: float = math.inf
    plain: int = 0
    hidden: tuple[Units, ...] = (8,)
    kind: Literal["a", "b"] | None = None
    name: str = ""
    flag: bool = False
    anything: Any = None
    ends: tuple[float, float] = (0.0, 1.0)
    named: Mapping[str, int | tuple[float, float]] = dataclasses.field(default_factory=dict)
    nested: Inner | None = None


WRONG = {
    "count": [(0, "give 1 or more"), (2**31, "give 2147483647 at most"), (1.0, "give a whole num")],
    "share": [(1.1, "give 0 to 1"), (math.nan, "give 0 to 1"), ("x", "give a number")],
    "positive": [(0.0, "give more than 0"), (math.inf, "give a finite number")],
    "weight": [
        (-0.1, "give 0 or more"),
        (math.nan, "give a finite number"),
        (10**12, "give 1e+12"),
    ],
    "shift": [(-math.inf, "give a finite number")],
    "limit": [(math.nan, "give a number"), (True, "give a number")],
    "plain": [(2**31, "give 2147483647 at most"), (True, "give a whole number")],
    "hidden": [((8, 0), "in which 0 cannot be; give 1 to 1048576"), (8, "give several, as a tup")],
    "kind": [("c", "give 'a' or 'b' or None"), (0, "give 'a' or 'b' or None")],
    "name": [(1, "give a text")],
    "flag": [(1, "give True or False")],
    "ends": [((0.0,), "give 2 values"), (1.0, "give several"), ((0.0, "x"), "give a number")],
    "named": [
        ((), "give a mapping from names"),
        ({1: 2}, "give a text"),
        ({"a": (1.0,)}, "give a whole number or 2 values"),
    ],
    "nested": [({"depth": 1}, "give a Inner or None")],
}


@pytest.mark.parametrize("field", WRONG)
def test_what_is_asked_for_is_said(field: str) -> None:
    for value, words in WRONG[field]:
        with pytest.raises(ConfigError) as error:
            check_settings(Sample(**{field: value}))
        assert str(error.value).startswith(f"{field} is {value!r}")
        assert words in str(error.value)


def test_what_is_right_passes() -> None:
    check_settings(Sample())
    right = Sample(2**31 - 1, 1, 1e-300, 0, -1e9, -math.inf, -(2**31), (), "b", "x", True, object())
    check_settings(right)
    check_settings(Sample(count=np.int32(3), share=np.float32(0.5), hidden=[3, 4]))


@pytest.mark.parametrize("task", list_tasks())
def test_integers_of_tasks_have_ranges(task: str) -> None:
    for field in dataclasses.fields(task_class(task)):
        if field.init and isinstance(getattr(load_task(task), field.name), int):
            with pytest.raises(WorldlineError):
                worldline.Env(load_task(task, **{field.name: 2**32 + 4}), "fake")


@pytest.mark.parametrize("settings_of", [Eval, Render, Resume])
def test_options_of_commands_have_ranges(settings_of: Any) -> None:
    kinds = ("Count", "Seed", "Positive", "Range(")
    fields = [x for x in dataclasses.fields(settings_of) if any(k in str(x.type) for k in kinds)]
    assert fields
    for field in fields:
        with pytest.raises(ConfigError):
            check_settings(settings_of(run=Path("run"), **{field.name: -1}))


def test_memory_that_is_not_there_is_said_first() -> None:
    env = worldline.make("robot/reach")
    check_memory(env, PPOConfig(), None)
    with pytest.raises(ConfigError, match=r"num_worlds is 20000000: 1,280,000,000 samples"):
        check_memory(env, PPOConfig(num_worlds=20_000_000), None)
    with pytest.raises(ConfigError, match=r"replay_capacity is 2000000000: .* GiB; give a smaller"):
        check_memory(env, SACConfig(replay_capacity=2_000_000_000), None)


# The configuration in a run folder.

TASK = "gym/hopper"
#: Parts of `config.json` of which there may be more than these.
PATHS = [
    ("task",), ("code",), ("code", "task"), ("env", "disturbances"), ("env", "history"),
    ("env", "renderer"), ("options", "healthy_reward"),
    ("options",), ("options", "healthy_z_range"), ("options", "default_camera_config"),
    ("options", "frame_skip"), ("options", "episode_length"), ("env",),
    ("env", "physics"), ("env", "action_repeat"), ("env", "cameras"), ("env", "context"),
    ("not_rebuilt",), ("steps",), ("seed",), ("seeds",), ("episode_length",), ("domain",),
    ("context",), ("init_from",), ("evaluations",), ("algorithm",), ("ppo",), ("ppo", "num_worlds"),
    ("ppo", "actor_hidden"), ("ppo", "learning_rate"), ("ppo", "activation"), ("ppo", "actor_obs"),
]  # fmt: skip


def stored(folder: Path) -> dict[str, Any]:
    config = TrainConfig(seed=3, episode_length=200)
    content = resolved_config(TASK, worldline.make(TASK), config, PPOConfig())
    RunFolder.create(folder, content).close()
    return json.loads((folder / "config.json").read_text())


def read(folder: Path) -> tuple[Any, ...]:
    opened = RunFolder.open(folder)
    run, algorithm = run_config(opened, None, quiet=False), algorithm_of(opened)
    env = environment_of(opened)
    return opened.config["task"], run, algorithm, env.config, dataclasses.asdict(env.task)


@pytest.mark.parametrize("path", PATHS)
def test_a_setting_that_is_missing_or_wrong_is_never_another(
    path: tuple[str, ...], tmp_path
) -> None:
    whole = stored(tmp_path / "run")
    right = read(tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    for value in ["absent", *HOSTILE]:
        damaged = json.loads(json.dumps(whole))
        place = damaged["config"]
        for part in path[:-1]:
            place = place[part]
        before = place.pop(path[-1])
        if value != "absent":
            try:
                json.dumps(value)
            except TypeError:
                continue
            place[path[-1]] = value
        file.write_text(json.dumps(damaged))
        try:
            result = read(tmp_path / "run")
        except WorldlineError as error:
            assert "\n" not in str(error)
            continue
        assert value != "absent", path
        same = value == before or (value == () and before == [])
        assert same or result != right, (path, value)


def test_a_setting_that_nobody_knows_is_refused(tmp_path) -> None:
    whole = stored(tmp_path / "run")
    whole["config"]["ppo"]["wings"] = 2
    (tmp_path / "run" / "config.json").write_text(json.dumps(whole))
    with pytest.raises(WorldlineError, match="'wings' of ppo is unknown"):
        read(tmp_path / "run")
    del whole["config"]["ppo"]["wings"]
    whole["config"]["code"]["wings"] = 2
    (tmp_path / "run" / "config.json").write_text(json.dumps(whole))
    with pytest.raises(WorldlineError, match="'wings' of the task's code is unknown"):
        read(tmp_path / "run")
    del whole["config"]["code"]["wings"]
    whole["config"]["wings"] = 2
    (tmp_path / "run" / "config.json").write_text(json.dumps(whole))
    with pytest.raises(WorldlineError, match=r"'wings' in the config.json of .* is unknown"):
        read(tmp_path / "run")
    for value in (3.5, [], None):
        whole["config"] = value
        (tmp_path / "run" / "config.json").write_text(json.dumps(whole))
        with pytest.raises(WorldlineError, match=r"its config.json is damaged"):
            read(tmp_path / "run")


LINES = [
    "{}",
    "[]",
    "3",
    '{"step": "x", "seconds": 1}',
    '{"step": 1}',
    '{"step": 1, "seconds": {}}',
    "nul",
]


@pytest.mark.parametrize("line", LINES)
def test_damaged_metrics_are_said(line: str, tmp_path) -> None:
    stored(tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    folder.metrics_file.write_text('{"step": 1, "seconds": 2.0, "loss": null}\n' + line + "\n")
    with pytest.raises(WorldlineError, match=r"line 2 of .* is damaged; delete that line"):
        folder.rewind(0)
    folder.metrics_file.unlink()
    folder.metrics_file.mkdir()
    with pytest.raises(WorldlineError, match="cannot be read: Is a directory"):
        folder.read_metrics()


SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NESTED = st.recursive(
    SIMPLE,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3),
    max_leaves=5,
)


@given(NESTED, st.sampled_from(FIELDS))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_value_ends_in_another_error(value: Any, where: tuple[str, str]) -> None:
    name, field = where
    with contextlib.suppress(ConfigError):
        CONFIGS[name](**{field: value})
