"""`fast=True`: a cheaper model of a robot with legs, and the policy's way back to the full one."""

import mujoco
import numpy as np
import pytest

import worldline
from worldline.tasks.playground import legged
from worldline.tasks.registry import load_task
from worldline.train.options import with_task_options

#: One task of each robot with legs.
ROBOTS = [
    "go1-joystick-flat", "spot-flat", "spot-gait-tracking", "barkour-joystick", "g1-joystick-flat",
    "t1-joystick-flat", "berkeley-joystick-flat", "apollo-joystick-flat", "op3-joystick",
    "h1-joystick-gait-tracking",
]  # fmt: skip
#: What lies on the ground.
LYING = ["go1-getup", "go1-handstand", "spot-getup"]
#: Objects whose names and order must not change.
NAMED = ("body", "joint", "geom", "site", "actuator", "sensor")
#: Constants that stay.
SAME = (
    "body_mass", "body_inertia", "dof_damping", "dof_armature", "dof_frictionloss", "jnt_range",
    "actuator_gainprm", "actuator_forcerange", "geom_friction", "key_qpos",
)  # fmt: skip


def both(name):
    """The full model and the fast one."""
    return [load_task(f"playground/{name}", fast=fast).model.mj for fast in (False, True)]


def feet_of(task):
    """The ids of all geoms that are called a foot."""
    names = {*task.feet, *(geom for sole in getattr(task, "soles", ()) for geom in sole)}
    return {i for i in range(task.model.mj.ngeom) if task.model.mj.geom(i).name in names}


@pytest.mark.parametrize("name", [*ROBOTS, *LYING])
def test_the_fast_model_is_the_same_robot(name):
    full, fast = both(name)
    assert (full.nq, full.nv, full.nu, full.na) == (fast.nq, fast.nv, fast.nu, fast.na)
    for kind in NAMED:
        count = {"joint": "njnt", "actuator": "nu", "sensor": "nsensor"}.get(kind, f"n{kind}")
        names = [
            [getattr(model, kind)(i).name for i in range(getattr(model, count))]
            for model in (full, fast)
        ]
        assert names[0] == names[1]
    for field in SAME:
        np.testing.assert_array_equal(getattr(full, field), getattr(fast, field), field)
    assert 1.5 * full.opt.timestep < fast.opt.timestep <= 2.5 * full.opt.timestep
    control = load_task(f"playground/{name}").control_timestep
    assert control / fast.opt.timestep == pytest.approx(round(control / fast.opt.timestep))
    assert fast.opt.iterations == max(2, full.opt.iterations) <= 3
    assert fast.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL


@pytest.mark.parametrize("name", ROBOTS)
def test_a_fast_robot_that_explores_moves_as_a_robot_can(name):
    """No joint turns ever faster until the robot has fallen, whatever targets its servos get."""
    task = load_task(f"playground/{name}", fast=True)
    model, generator = task.model.mj, np.random.default_rng(0)
    data, fastest = mujoco.MjData(model), []
    for _ in range(10):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = task.home
        for _ in range(100):
            noise = 0.6 * task.action_scale * generator.normal(size=model.nu)
            data.ctrl[:] = np.clip(task.pose + noise, *model.actuator_ctrlrange.T)
            mujoco.mj_step(model, data, round(task.control_timestep / model.opt.timestep))
            if data.body(task.torso).xmat[8] < 0.0:
                break
            fastest.append(np.abs(data.qvel).max())
    assert len(fastest) > 200
    assert 1 < np.median(fastest) < max(fastest) < 100


@pytest.mark.parametrize("name", ROBOTS)
def test_a_fast_robot_touches_with_feet_alone(name):
    task = load_task(f"playground/{name}", fast=True)
    model, feet = task.model.mj, feet_of(task)
    data = mujoco.MjData(model)
    touched = set()
    for roll in (0.0, 1.5, 3.1):  # standing, on its side, on its back
        data.qpos[:] = task.home
        data.qpos[2] = 0.0 if roll else data.qpos[2]
        data.qpos[3:7] = np.cos(roll / 2), np.sin(roll / 2), 0.0, 0.0
        data.qvel[:] = 0.0
        for _ in range(20):
            mujoco.mj_step(model, data)
            touched |= {tuple(sorted(map(int, pair))) for pair in data.contact.geom}
    assert touched  # it stood on something
    ground = {i for i in range(model.ngeom) if model.geom_bodyid[i] == 0}
    for pair in touched:
        assert set(pair) & feet
        assert set(pair) <= feet | ground


def test_robots_that_lie_keep_their_contacts():
    for name in LYING:
        full, fast = both(name)
        np.testing.assert_array_equal(full.geom_contype, fast.geom_contype)
        np.testing.assert_array_equal(full.geom_conaffinity, fast.geom_conaffinity)


@pytest.mark.parametrize("name", ROBOTS)
def test_the_default_is_the_scene_as_published(name, monkeypatch):
    """All that `fast` changes is as in the file; nothing of it runs."""

    def never(*_):
        raise AssertionError("make_fast was called")

    monkeypatch.setattr(legged, "make_fast", never)
    task = load_task(f"playground/{name}")
    ours, file = task.model.mj, mujoco.MjModel.from_xml_path(str(task.path))
    for field in ("geom_contype", "geom_conaffinity", "pair_geom1", "pair_geom2", "body_mass"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(file, field))
    for field in ("solver", "cone", "iterations", "ls_iterations", "integrator", "disableflags"):
        assert getattr(ours.opt, field) == getattr(file.opt, field)
    assert ours.opt.timestep == task.physics_timestep
    with pytest.raises(AssertionError, match="make_fast was called"):
        load_task(f"playground/{name}", fast=True).mjcf()


def test_a_policy_of_the_fast_model_is_evaluated_in_the_full_one():
    trained = worldline.make("playground/go1-joystick-flat", fast=True, pushed=True)
    full = with_task_options(trained, ["fast=False"])
    assert not full.task.fast
    assert full.task.pushed
    assert full.model.timestep == 0.004
    assert full.observation_space == trained.observation_space
    assert with_task_options(trained, []) is trained
