"""In the mirror, a task of a robot with legs is the same task: its motion, what it sees, its worth.

Worlds begin in two states that are each other's mirror image, and take actions that are. What
MuJoCo makes of them shows whether the names of left and right were understood, and whether each
number observed changes as it is declared to.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from symmetrised import symmetrised

import worldline
from worldline.env.env import Env
from worldline.env.parts import ObservationPart
from worldline.env.symmetry import (
    joint_mirror,
    left_right,
    mirrored_name,
    mirrored_state,
    symmetry_of,
)
from worldline.errors import TaskError
from worldline.model import Model
from worldline.tasks.registry import list_tasks, load_task, make, task_class
from worldline.tasks.robot.quadruped import QuadrupedJoystick
from worldline.tasks.terrain import Terrain
from worldline.tasks.terrain.walking import WalkingTask

STEPS, WORLDS = 8, 4
#: Contacts make differences of rounding grow.
TOLERANCE = 1e-4
LEGGED = [
    name
    for name in list_tasks()
    if name.startswith(("playground/", "robot/")) and issubclass(task_class(name), WalkingTask)
]
QUADRUPED = "robot/quadruped-joystick"
LEGGED.append(f"{QUADRUPED} go1")  # the same task with another robot
QUICK = ("playground/go1-joystick-flat", "playground/t1-joystick-flat", QUADRUPED, LEGGED[-1])
each_task = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.exhaustive]) for n in LEGGED],
)

#: Terms of rewards that tell left from right, as Playground has them.
ONE_SIDED = {
    # Whether it is to stand still: under commands to the right, too.
    "playground/barkour-joystick": {"reward/stand_still"},
    # Hips cost half as much on the way to the left.
    "playground/g1-joystick-flat": {"reward/joint_deviation_hip"},
    "playground/g1-joystick-rough": {"reward/joint_deviation_hip"},
}


class HalfAPeriodLater(QuadrupedJoystick):
    """A quadruped whose other diagonal legs swing first."""

    def clock(self, physics):
        return super().clock(physics) + jnp.pi


def loaded(name):
    """A task by its name, or by its name and that of its robot."""
    name, *robot = name.split()
    return load_task(name, **({"robot": robot[0]} if robot else {}))


def calm(task):
    """The task without what its random numbers make: noise and pushes."""
    task = task.without_noise()
    return dataclasses.replace(task, pushed=False) if hasattr(task, "pushed") else task


def held(memory):
    """The memory of a task whose command stays and whose kicks do not come."""
    known = {"steps": 10_000, "wait": 1_000_000}
    return changed(
        memory, lambda name, value: jnp.full_like(value, known[name]) if name in known else value
    )


def mirrored_memory(task, memory):
    """The memory at a start in the mirror: only commands and phases are not the same there."""
    feet = list(getattr(task, "feet", ()))
    swap = np.array([feet.index(mirrored_name(foot, feet)) for foot in feet], int)

    def image(name, value):
        if name in ("velocity", "command"):
            return value * jnp.array([1.0, -1.0, -1.0])
        if name in ("phase", "next_phase"):
            return value[swap]
        return joint_mirror(task.model)(value) if name == "targets" else value

    return changed(memory, image)


def changed(tree, change, name=""):
    """A tree of dataclasses with its arrays changed by their names."""
    if not dataclasses.is_dataclass(tree):
        return change(name, tree)
    fields = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    return dataclasses.replace(tree, **{n: changed(x, change, n) for n, x in fields.items()})


def rolled(env, keys, actions, lift, in_mirror):
    """The starts, `(WORLDS, ...)`, and the steps that follow, `(STEPS, WORLDS, ...)`."""

    def begin(key):
        start = env.task.start(key)
        memory, qpos = held(start.memory), jnp.float32(start.qpos).at[2].add(lift)
        noise = 0.3 * jax.random.normal(jax.random.fold_in(key, 1), start.qvel.shape)
        qvel = jnp.float32(start.qvel) + noise
        if in_mirror:
            qpos, qvel = mirrored_state(env.model, qpos, qvel)
            memory = mirrored_memory(env.task, memory)
        begun = dataclasses.replace(
            start, qpos=qpos, qvel=qvel, memory=memory, settle_time=0.0, inputs={}
        )
        return env.begin(begun)

    def step(state, action):
        after = jax.vmap(env.step)(state, action)
        return after, after

    start = jax.vmap(begin)(keys)
    return start, jax.lax.scan(step, start, actions)[1]


@each_task
def test_the_mirror_image_of_an_episode_is_an_episode(name):
    task, lift = calm(loaded(name)), 0.0
    if name.endswith("-rough"):
        lift = 0.5  # off the ground, which is not its own mirror image
    task.__dict__["model"], _ = symmetrised(task.model)
    other = task
    if isinstance(task, QuadrupedJoystick):
        other = HalfAPeriodLater(robot=task.robot)
    other.__dict__["model"] = task.model
    symmetry = task.symmetry
    keys = jax.random.split(jax.random.key(3), WORLDS)
    shape = (STEPS, WORLDS, len(symmetry.action))
    actions = jnp.clip(0.5 * jax.random.normal(jax.random.key(5), shape), -1.0, 1.0)
    run = [
        jax.jit(functools.partial(rolled, Env(each), lift=lift, in_mirror=in_mirror))
        for each, in_mirror in ((task, False), (other, True))
    ]
    with jax.debug_key_reuse(False):  # both begin with the same numbers
        here, there = run[0](keys, actions), run[1](keys, symmetry.action(actions))
    for ours, images in zip(here, there, strict=True):
        seen, found = (
            x.obs if isinstance(x.obs, dict) else {"state": x.obs} for x in (ours, images)
        )
        for key, mirror in symmetry.observation.items():
            assert_near(mirror(seen[key]), found[key])
    ours, images = here[1], there[1]
    np.testing.assert_array_equal(ours.terminated, images.terminated)
    one_sided = ONE_SIDED.get(name, set())
    for metric in ours.metrics.keys() - one_sided:
        assert_near(ours.metrics[metric][..., None], images.metrics[metric][..., None])
    if not one_sided:
        assert_near(ours.reward[..., None], images.reward[..., None])


def assert_near(ours, images):
    """Equal but for rounding, by the size of each number over all worlds and steps."""
    over = tuple(range(ours.ndim - 1))
    size = np.maximum(1.0, np.abs(ours).max(over))
    np.testing.assert_allclose(ours / size, images / size, atol=TOLERANCE)


@pytest.mark.parametrize("name", LEGGED)
def test_a_task_declares_what_becomes_of_each_number(name):
    task = loaded(name)
    symmetry = task.symmetry
    assert symmetry.action.is_involution
    assert len(symmetry.action) == len(task.action_bounds[0])
    for key, parts in task.observation_parts.items():
        mirror = symmetry.observation[key]
        assert mirror.is_involution
        assert len(mirror) == sum(part.size for part in parts)
    home = np.asarray(getattr(task, "home", task.model.qpos0), np.float32)
    still = np.zeros(task.model.nv, np.float32)
    np.testing.assert_allclose(mirrored_state(task.model, home, still)[0], home, atol=1e-6)


def test_names_of_left_and_right_by_hand():
    pairs = {
        "FL_calf": "FR_calf",
        "RL_hip": "RR_hip",
        "LL_KFE": "LR_KFE",
        "left_hip_roll": "right_hip_roll",
        "Left_Ankle_Roll": "Right_Ankle_Roll",
        "l_sho_roll": "r_sho_roll",
        "knee_hind_left": "knee_hind_right",
        "waist_roll": "waist_roll",
    }
    names = [*pairs, *pairs.values()]
    for name, other in pairs.items():
        assert mirrored_name(name, names) == other
        assert mirrored_name(other, names) == name
    with pytest.raises(TaskError, match="'lor' has several mirror images: lol, ror"):
        mirrored_name("lor", ["lol", "ror"])


def test_a_joint_turns_the_other_way_in_the_mirror_by_hand():
    """Roll and yaw do; pitch does not; but an axis that points the other way changes that."""
    legs = "".join(
        f'''<body pos="0 {y} 0"><joint name="{side} roll" axis="{x} 0 0"/>
        <joint name="{side} pitch" axis="0 1 0"/><joint name="{side} yaw" axis="0 0 1"/>
        <joint name="{side} lift" type="slide" axis="0 {y} 1"/>
        <geom size="0.1"/></body>'''
        for side, x, y in (("left", 1, 1), ("right", -1, -1))
    )
    model = Model(f"<mujoco><worldbody><body><freejoint/><geom size='.1'/>{legs}</body>"
                  "</worldbody></mujoco>")  # fmt: skip
    mirror = joint_mirror(model)
    assert mirror.index == (4, 5, 6, 7, 0, 1, 2, 3)
    assert mirror.sign == (1, 1, -1, 1) * 2
    bent = Model(f"<mujoco><worldbody><body><freejoint/><geom size='.1'/>"
                 f"{legs.replace('-1 0 0', '-1 1 0')}</body></worldbody></mujoco>")  # fmt: skip
    with pytest.raises(TaskError, match="'left roll' and 'right roll' are not each other's mirror"):
        joint_mirror(bent)


def test_what_is_added_to_an_observation_is_mirrored_too():
    env = Env(load_task("robot/quadruped-joystick"), history=2, last_action=True)
    mirror, action = symmetry_of(env, ("state", "last_action"))
    places = np.arange(len(mirror), dtype=np.float32)
    image = mirror(places)
    # Linear velocity, twice; then joint angles, of which the older ones stay the older ones.
    np.testing.assert_array_equal(image[:6], [0, -1, 2, 3, -4, 5])
    older = [*range(21, 24), *range(18, 21), *range(27, 30), *range(24, 27)]
    np.testing.assert_array_equal(np.abs(image[18:30]), older)
    np.testing.assert_array_equal(np.abs(image[-12:]) - places[-12], action.index)
    assert mirror.is_involution


def test_masses_of_left_and_right_change_places():
    names = ["friction", "mass_FL thigh", "mass_torso", "mass_FR thigh"]
    env = Env(load_task("robot/quadruped-joystick"), context=names)
    mirror, _ = symmetry_of(env, ("context",))
    assert mirror.index == (0, 3, 2, 1)
    assert set(mirror.sign) == {1.0}


def test_a_height_scan_is_read_from_the_other_side():
    terrain = Terrain(kinds=("rough",), levels=1, scan_length=0.4, scan_width=0.2, scan_spacing=0.2)
    env = make("robot/quadruped-joystick", terrain=terrain)
    mirror, _ = symmetry_of(env, ("state",))
    assert mirror.index[-6:] == (51, 50, 53, 52, 55, 54)
    assert mirror.is_involution


def test_a_part_that_does_not_say_what_becomes_of_it_is_refused():
    class Told(QuadrupedJoystick):
        @property
        def observation_parts(self):
            return {"state": (ObservationPart("mystery", 50),)}

    with pytest.raises(TaskError, match="'mystery' does not say what becomes of it in the mirror"):
        left_right(Told())
    assert worldline.make("gym/half-cheetah").task.symmetry is None
