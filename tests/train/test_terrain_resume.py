"""A run on terrain whose levels move goes on bit for bit, from its folder alone."""

import contextlib
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline.learn.curriculum import automatic
from worldline.learn.ppo import PPOConfig, ppo
from worldline.report import RunFolder
from worldline.tasks.terrain import Terrain
from worldline.train.run import TrainConfig, resume, train
from worldline.variation import Context, Uniform

NAME = "robot/quadruped-joystick"
TERRAIN = Terrain(kinds=("rough", "stairs_up"), levels=3, tile=4.0, scan_length=0.4, scan_width=0.2)
EASY, ALL = ({"terrain_level": Uniform(0.0, high)} for high in (1.0, 3.0))
PPO = PPOConfig(num_worlds=4, unroll_length=8, minibatches=2, epochs=1, actor_hidden=(4,))


def made_env() -> worldline.Env:
    task = worldline.make(NAME, terrain=TERRAIN, episode_length=6).task
    return worldline.Env(task, context=Context(EASY, visible=()))


def bits(tree):
    words = jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x,
        tree,
    )
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(words)]


def test_worlds_go_on_bit_for_bit_on_their_tiles():
    """A state that went through bytes, in worlds made anew; episodes and levels change."""
    ends = []
    for broken in (False, True):
        worlds = worldline.Worlds(made_env(), 4, context=EASY)
        state = worlds.reset(jax.random.key(0), ranges=ALL)
        for step in range(9):
            if broken and step == 4:
                leaves, tree = jax.tree.flatten(state)
                impl = jax.random.key_impl(state.key)
                copied = [
                    jax.random.wrap_key_data(np.array(jax.random.key_data(x)), impl=impl)
                    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
                    else jnp.asarray(np.array(x))
                    for x in leaves
                ]
                state = jax.tree.unflatten(tree, copied)
                worlds = worldline.Worlds(made_env(), 4, context=EASY)
            action = 0.3 * np.sin(np.arange(48, dtype=np.float32) + step).reshape(4, 12)
            state, _ = worlds.step(state, action)
        ends.append(state)
    assert bits(ends[0]) == bits(ends[1])
    assert len(set(np.round(np.asarray(ends[0].env.physics.qpos[:, 0])).tolist())) > 1


@pytest.mark.exhaustive
def test_a_run_goes_on_bit_for_bit_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "plot", lambda folder: folder.curves_file.touch())
    # Wider after each update with an episode, whatever its return.
    wider = automatic(EASY, ALL, widen_at=-1e9, narrow_at=-1e9, updates=4)

    make_learner = functools.partial(ppo, curriculum=wider)
    context = ("terrain_level=0:1",)
    config = functools.partial(
        TrainConfig, steps=160, evaluations=1, eval_episodes=1, quiet=True, video=False
    )
    with jax.numpy_dtype_promotion("standard"):
        folders = []
        for name, steps in (("whole", itertools.repeat(False)), ("broken", [False, True, True])):
            asked = itertools.chain(steps, itertools.repeat(True))
            stop = contextlib.nullcontext(lambda asked=asked: next(asked))
            run = config(out=tmp_path / name, context=context)
            result = train(NAME, made_env(), run, PPO, None, stop, make_learner)
            folders.append(result.folder)
        assert result.interrupted
        resume(folders[1], quiet=True, make_learner=make_learner)
    saved = [max((folder / "checkpoints").glob("step-*.npz")) for folder in folders]
    arrays = [dict(np.load(file)) for file in saved]
    assert saved[0].name == saved[1].name
    for array in arrays:
        array.pop("about", None)
    assert {n: a.tobytes() for n, a in arrays[0].items()} == {
        n: a.tobytes() for n, a in arrays[1].items()
    }
