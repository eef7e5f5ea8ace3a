"""History, noise of parts and delay together: by hand, across resets; exact in the middle."""

import jax
import numpy as np
import pytest
from test_parts import NamedPuck

import worldline
from worldline.env.disturb import ActionDelay, ObservationNoise
from worldline.env.options import read_disturbances, read_history
from worldline.errors import ConfigError, TaskError
from worldline.learn.ppo import PPOConfig
from worldline.report import RunFolder
from worldline.tasks.registry import load_task
from worldline.train import TrainConfig, resume, train
from worldline.train.stored import environment_of

ROUGH = (ObservationNoise(std={"position": 0.5}), ActionDelay(steps=1))
B, EPISODE = 3, 5

#: Of a control step, s, and its two physics steps.
H = 0.01


def rough_worlds():
    env = worldline.Env(NamedPuck(), "fake", disturbances=ROUGH, history={"position": 3})
    return worldline.Worlds(env, B, episode_length=EPISODE)


def actions(steps):
    return np.random.default_rng(0).uniform(-1, 1, (steps, B, 2)).astype(np.float32)


def test_a_sequence_across_resets_is_that_by_hand():
    worlds = rough_worlds()
    state = worlds.reset(jax.random.key(0))
    assert state.env.obs.shape == (B, 8)
    begin, late, seen, noise = state.env.physics, np.zeros((B, 2)), [], []
    place, speed = np.float64(begin.qpos), np.float64(begin.qvel)
    newest = np.asarray(state.env.obs)[:, 4:6]
    frames = [newest] * 3  # at a start the first measurement stands for all before it
    for number, action in enumerate(actions(2 * EPISODE + 2)):
        state, step = worlds.step(state, action)
        for _ in range(2):  # unit masses, pushed by the action of a step ago
            speed = speed + H * late
            place = place + H * speed
        late = np.float64(action)
        final = np.asarray(step.final_obs)
        np.testing.assert_allclose(final[:, 6:], speed, atol=1e-5)  # exact, and once
        frames = [*frames[1:], final[:, 4:6]]
        np.testing.assert_array_equal(final[:, :6], np.concatenate(frames, axis=1))
        noise.append(final[:, 4:6] - 10 * place)
        over = (number + 1) % EPISODE == 0
        assert np.asarray(step.truncated).all() == over
        if not over:
            np.testing.assert_array_equal(step.obs, final)
            continue
        begin, late = state.env.physics, np.zeros((B, 2))
        place, speed = np.float64(begin.qpos), np.float64(begin.qvel)
        first = np.asarray(step.obs)
        frames = [first[:, 4:6]] * 3
        np.testing.assert_array_equal(first[:, :6], np.concatenate(frames, axis=1))
        noise.append(first[:, 4:6] - 10 * place)
        seen.append(first)
    assert len(seen) == 2
    # 0.5 m of noise, of which the observation has tenfold; anew in each step.
    noises = np.concatenate(noise).ravel()
    assert 0.7 * 5 < noises.std() < 1.3 * 5
    assert len(np.unique(noises)) == noises.size


def test_worlds_stored_in_the_middle_go_on_bit_for_bit():
    worlds, chosen = rough_worlds(), actions(9)
    state = worlds.reset(jax.random.key(1))
    for action in chosen[:3]:
        state, _ = worlds.step(state, action)
    leaves, structure = jax.tree.flatten(state)
    keys = [jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    stored = [
        np.asarray(jax.random.key_data(leaf) if key else leaf).copy()
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    back = [
        jax.random.wrap_key_data(leaf) if key else leaf
        for leaf, key in zip(stored, keys, strict=True)
    ]
    other, again = jax.tree.unflatten(structure, back), rough_worlds()
    for action in chosen[3:]:
        state, step = worlds.step(state, action)
        other, same = again.step(other, action)
        jax.tree.map(np.testing.assert_array_equal, step, same)


def test_a_run_that_stops_in_the_middle_goes_on_bit_for_bit(tmp_path):
    noise = ObservationNoise(std={"elbow_position": 0.1})
    env = worldline.Env(
        load_task("robot/reach"), disturbances=(noise, ActionDelay(steps=2)), history=4
    )
    small = PPOConfig(
        num_worlds=4, unroll_length=8, minibatches=1, epochs=1, actor_hidden=(8,),
        critic_hidden=(8,),
    )  # fmt: skip

    def run(name, steps):
        return TrainConfig(
            steps=steps, out=tmp_path / name, evaluations=1, eval_episodes=2, video=False,
            quiet=True,
        )  # fmt: skip

    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        whole = train("robot/reach", env, run("whole", 128), small).folder
        part = train("robot/reach", env, run("part", 64), small).folder  # episodes have 50 steps
        resume(part, steps=128, quiet=True)
    files = [max(folder.glob("checkpoints/step-*.npz")) for folder in (whole, part)]
    with np.load(files[0]) as ours, np.load(files[1]) as theirs:
        names = [name for name in ours.files if name != "about"]
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in names)
    stored = environment_of(RunFolder.open(part))
    assert stored.config == env.config
    assert stored.observation_space.shape == (4 * 5,)


def test_histories_and_noise_are_read_from_texts():
    task = load_task("robot/quadruped-joystick")
    assert read_history(task, "joint_position=5,command=1") == {"joint_position": 5}
    assert set(read_history(task, "3").values()) == {3}
    (noise,) = read_disturbances(task, noise="joint_position=0.02")
    assert noise == ObservationNoise(std={"joint_position": 0.02})
    assert read_history(task, "") == {}
    with pytest.raises(ConfigError, match="history is 0; give 1 to 1000"):
        read_history(task, "0")
    with pytest.raises(ConfigError, match="history contains 'many'; give control steps"):
        read_history(task, "many")
    with pytest.raises(TaskError, match="no part 'joint_positon' of its state; did you mean"):
        read_history(task, "joint_positon=2")
    with pytest.raises(TaskError, match="Ant does not name the parts of its state"):
        read_history(load_task("gym/ant"), "2")
    with pytest.raises(TaskError, match="no part 'place' of its state; there are position"):
        worldline.Env(NamedPuck(), "fake", disturbances=(ObservationNoise(std={"place": 1.0}),))
