"""Parts of observations: each is what its declaration says, in its place."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import toys
import worldline
from worldline.cli import main as cli
from worldline.env.check import check_env
from worldline.env.parts import ActionPart, ObservationPart, check_parts, objects_of, placed
from worldline.env.task import blank_state, check_task, reads_of
from worldline.errors import ModelError, TaskError
from worldline.tasks.registry import load_task

#: The tasks that name their parts; the first of each kind are in CI always.
FIRST = ("robot/reach", "robot/quadruped-joystick", "playground/go1-joystick-flat")
NAMED = [
    name for name in worldline.list_tasks() if name.startswith(("arm/", "playground/", "robot/"))
]


def simulated(task, seed=0):
    """A task's model after some steps of plain MuJoCo, as MuJoCo has it and as the task sees it."""
    model = task.model.mj
    data = mujoco.MjData(model)
    random, start = np.random.default_rng(seed), task.start(jax.random.key(seed))
    data.qpos, data.qvel = np.asarray(start.qpos), np.asarray(start.qvel)
    if "mocap_pos" in start.inputs:
        data.mocap_pos[:] = start.inputs["mocap_pos"]
    low, high = task.model.ctrlrange.T
    for _ in range(20):
        data.ctrl[:] = random.uniform(low, high)
        mujoco.mj_step(model, data)
    if task.refresh:
        mujoco.mj_step1(model, data)
    reads = reads_of(task)
    seen = dataclasses.replace(
        blank_state(task.model, reads, {}),
        qpos=jnp.float32(data.qpos),
        qvel=jnp.float32(data.qvel),
        time=jnp.float32(data.time),
        fields={name: jnp.asarray(getattr(data, name), jnp.float32) for name in reads.fields},
    )
    return data, seen, start.memory


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in FIRST else pytest.mark.exhaustive) for name in NAMED],
)
def test_each_part_is_the_plain_formula_of_what_mujoco_measures(name):
    pytest.importorskip("onnxruntime")
    from worldline.export.run_policy import QUANTITIES

    task = load_task(name).without_noise()
    check_parts(task, check_task(task).obs)
    assert task.observation_parts
    assert task.action_parts
    with jax.numpy_dtype_promotion("standard"):
        data, physics, memory = simulated(task)
        obs = task.observe(physics, memory)
    obs = obs if isinstance(obs, dict) else {"state": obs}
    compared = 0
    for key, parts in task.observation_parts.items():
        assert placed(parts)[-1].stop == len(obs[key])
        for place in placed(parts):
            part = place.part
            if part.source not in QUANTITIES:
                continue
            things = [getattr(data, kind)(it) for kind, it in objects_of(task.model, part)]
            index = list(part.index or range(part.size))
            quantity = QUANTITIES[part.source](*things)[index]
            found = np.asarray(obs[key])[place.place]
            expected = np.array(part.scale) * (quantity - np.array(part.offset))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=part.name)
            compared += part.size
    assert compared >= 5


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NamedPuck(toys.Puck):
    """A puck of which the position counts tenfold."""

    wrong: str = ""

    def observe(self, physics, memory):
        return jnp.concatenate([10 * physics.qpos, physics.qvel])

    @property
    def observation_parts(self):
        size = 3 if self.wrong == "size" else 2
        name = "position" if self.wrong == "twice" else "velocity"
        joints = ("x", "z") if self.wrong == "joint" else ("x", "y")
        return {
            "steak" if self.wrong == "key" else "state": (
                ObservationPart("position", 2, "joint_position", joints, scale=10.0, unit="m"),
                ObservationPart(
                    name, size, "joint_velocity", joints, unit="m/s",
                    offset=(0.0, 0.0, 0.0) if self.wrong == "offset" else 0.0,
                ),
            )
        }  # fmt: skip

    @property
    def action_parts(self):
        actuators = ("left",) if self.wrong == "actuators" else ()
        kind = "torque" if self.wrong == "actuators" else "task"
        return (ActionPart("push", 2, kind, actuators, unit="N"),)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "size",
            r"of 'state' has 5 numbers \(position 2, velocity 3\), but the vector has shape \(4,\)",
        ),
        ("twice", r"of 'state' has 'position' twice; give each part another name"),
        ("key", r"has 'steak', but its observation has no such part; did you mean 'state'"),
        ("offset", r"offset of 'velocity' has 3 numbers; give 2"),
        ("actuators", r"'push' has 2 numbers and 1 actuators; name one actuator for each number"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused_by_name(wrong, message):
    task = NamedPuck(wrong=wrong)
    with pytest.raises(TaskError, match=message):
        check_parts(task, check_task(task).obs)


def test_an_object_that_the_model_lacks_is_refused_by_name():
    with pytest.raises(ModelError, match="the model has no joint 'z'"):
        check_env(worldline.Env(NamedPuck(wrong="joint"), "fake"))


def test_the_list_shows_the_parts(capsys):
    assert cli.main(["list", "--fields", "robot/quadruped-joystick"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"  base_angular_velocity +3  rad/s +angular_velocity of torso", shown)
    assert re.search(r"  joint_position_target +12  rad +position", shown)
