"""What `test_shares.py` runs in processes of their own, which write and read checkpoints as one.

    python sharing.py PORT PROCESS PROCESSES DO:FOLDER...

DO is a function of this file. Each prints what it found, as JSON.
"""

import dataclasses
import json
import os
import shutil
import signal
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import worldline
from worldline.errors import RunError
from worldline.learn.collector import Experience
from worldline.learn.placement import on_mesh
from worldline.learn.replay import Record, Replay
from worldline.learn.sac import SACConfig
from worldline.parallel import cluster
from worldline.parallel.config import ClusterConfig
from worldline.parallel.mesh import world_mesh
from worldline.train import TrainConfig, checkpoint, resume, train
from worldline.train.checkpoint import CheckpointWriter, Moment, restore

#: Worlds, groups and steps of a rollout.
B, G, T = 8, 4, 3
CONFIG, VERSIONS = {"task": "robot/reach"}, {"jax": "4.5"}


class State(eqx.Module):
    """What devices share by worlds, by groups or by the worlds of steps; and what all have."""

    weights: list[Any]
    half: Any
    replay: Replay
    pending: Experience
    key: Any
    nothing: tuple[Any, ...] = ()


def numbers(step: int, capacity: int = 16 * G) -> State:
    """The state at a step, in NumPy; of keys the words."""
    rng = np.random.default_rng(step)

    def real(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    def words(*shape: int) -> Any:
        return rng.integers(0, 2**32, (*shape, 2), np.uint32)

    replay = Replay(
        observations={"state": real(capacity + B, 5), "none": real(capacity + B, 0)},
        record=Record(
            row=rng.integers(0, 99, capacity, np.int32),
            next_row=rng.integers(0, 99, capacity, np.int32),
            action=real(capacity, 2),
            reward=real(capacity),
            terminated=rng.random(capacity) < 0.5,
        ),
        rows=rng.integers(0, 99, G, np.int32),
        pushed=rng.integers(0, 99, G, np.int32),
        size=rng.integers(0, 99, G, np.int32),
    )
    pending = Experience(real(T, B, 5), words(B), real(B, 5), {"return": real()})
    half = rng.normal(size=3).astype(jnp.bfloat16)
    return State([real(2, 3), real()], half, replay, pending, words())


def shapes(capacity: int = 16 * G) -> State:
    """Shapes and types of the state."""

    def made() -> State:
        state = jax.tree.map(jnp.asarray, numbers(0, capacity))
        as_keys = jax.random.wrap_key_data
        return eqx.tree_at(
            lambda s: (s.pending.memory, s.key),
            state,
            (as_keys(state.pending.memory), as_keys(state.key)),
        )

    return jax.eval_shape(made)


def on_its_devices(mesh: Mesh | None, step: int, capacity: int = 16 * G) -> State:
    """The state at a step, of which each device has its part."""

    def spread(like: Any, words: Any) -> Any:
        is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
        array = jnp.array(words)
        if mesh is not None:
            array = jax.make_array_from_callback(words.shape, like.sharding, lambda i: words[i])
        return jax.random.wrap_key_data(array) if is_key else array

    return jax.tree.map(spread, on_mesh(mesh, shapes(capacity)), numbers(step, capacity))


def check(state: State, step: int) -> None:
    """Whether what this process has of a state is that of a step, bit for bit."""
    for leaf, expected in zip(jax.tree.leaves(state), jax.tree.leaves(numbers(step)), strict=True):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        words = jax.random.key_data(leaf) if is_key else leaf
        assert (words.shape, words.dtype) == (expected.shape, expected.dtype)
        for shard in words.addressable_shards:
            assert np.asarray(shard.data).tobytes() == expected[shard.index].tobytes()


def write(folder: Path, mesh: Mesh | None = None) -> Any:
    """Writes checkpoints: the first with the best score, then more than are kept."""
    with CheckpointWriter(folder, CONFIG, VERSIONS) as writer:
        for step in (1, 2, 3, 4):
            state = on_its_devices(mesh, step)
            writer.save(state, Moment(step, step / 10, -float(step)), at_once=step == 2)
            for leaf in jax.tree.leaves(state):
                leaf.delete()  # as an update that reuses the memory does
            while step == 3 and not writer.agree(False, 0.1)[1] and writer._share is not None:
                pass  # updates go on until all have written theirs
    return None


def read(folder: Path, mesh: Mesh | None = None) -> Any:
    """Which checkpoint is read, and what is said; its bits are checked."""
    try:
        found = restore(folder, on_mesh(mesh, shapes()), CONFIG, VERSIONS)
    except RunError as error:
        return {"error": str(error)}
    assert found is not None
    check(found.state, found.moment.step)
    return {"step": found.moment.step, "notes": found.notes}


def large(folder: Path, mesh: Mesh | None = None) -> Any:
    """Bytes of a large replay buffer: of all, of what this process has of it before and after, and
    the most that writing and reading had in memory beside that.
    """
    capacity, most = 2**21, []
    state, like = on_its_devices(mesh, 1, capacity), on_mesh(mesh, shapes(capacity))
    folder.mkdir(exist_ok=True)
    tracemalloc.start()
    with CheckpointWriter(folder, CONFIG, VERSIONS) as writer:
        writer.save(state, Moment(1, 0.0, None))
    cluster.of_first("it is there")
    most.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.reset_peak()
    found = restore(folder, like, CONFIG, VERSIONS)
    most.append(tracemalloc.get_traced_memory()[1])
    assert found is not None

    def here(state: State) -> int:
        leaves = jax.tree.leaves(state.replay)
        return sum(s.data.nbytes for leaf in leaves for s in leaf.addressable_shards)

    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(state.replay))
    return {"whole": whole, "here": [here(state), here(found.state)], "beside": most}


def die(folder: Path, mesh: Mesh | None = None, at: str = "_write", process: int = 0) -> Any:
    """One process is killed in the second checkpoint, before it writes its part."""
    with CheckpointWriter(folder, CONFIG, VERSIONS) as writer:
        writer.save(on_its_devices(mesh, 1), Moment(1, 0.1, None), at_once=True)
        if jax.process_index() == process:
            place = CheckpointWriter if at == "_write" else checkpoint
            setattr(place, at, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        writer.save(on_its_devices(mesh, 2), Moment(2, 0.2, None), at_once=True)
        signal.pause()  # until it is ended


def die_before_its_share(folder: Path, mesh: Mesh | None = None) -> Any:
    """The second process is killed before it writes its share."""
    die(folder, mesh, "write_share", 1)


def full(folder: Path, mesh: Mesh | None = None) -> Any:
    """The second process cannot write its share of the second checkpoint; both say so."""

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    try:
        with CheckpointWriter(folder, CONFIG, VERSIONS) as writer:
            writer.save(on_its_devices(mesh, 1), Moment(1, 0.1, None), at_once=True)
            if jax.process_index() == 1:
                os.fsync = no_space
            writer.save(on_its_devices(mesh, 2), Moment(2, 0.2, None))
    except RunError as error:
        return {"error": str(error)}


#: A run in which the replay buffer forgets.
SAC = SACConfig(
    num_worlds=B, unroll_length=8, critic_steps=4, batch_size=16, replay_capacity=128,
    learning_starts=64, actor_hidden=(4,), critic_hidden=(4,),
)  # fmt: skip
RUN = TrainConfig(steps=4 * 8 * B, evaluations=2, eval_episodes=2, quiet=True, video=False)


def train_sac(folder: Path, mesh: Mesh | None = None) -> Any:
    """A run of SAC, and one that goes on with it from its first checkpoint."""
    whole, again = folder / "whole", folder / "again"
    env = worldline.make("robot/reach")
    train("robot/reach", env, dataclasses.replace(RUN, out=whole), SAC, mesh=mesh)
    if cluster.is_first():
        shutil.copytree(whole, again)
        (again / "checkpoints" / f"step-{RUN.steps:012}.npz").unlink()
    cluster.of_first("it is there")
    return resume(again, quiet=True, mesh=mesh).steps


def main() -> None:
    port, process, processes = map(int, sys.argv[1:4])
    if processes > 1:
        address = f"127.0.0.1:{port}"
        cluster.join(ClusterConfig(coordinator=address, processes=processes, process=process))
    mesh = world_mesh()
    for task in sys.argv[4:]:
        name, _, folder = task.partition(":")
        sys.stdout.write(f"found {json.dumps(globals()[name](Path(folder), mesh))}\n")


if __name__ == "__main__":
    main()
