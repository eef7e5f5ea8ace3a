"""Checkpoints: bit for bit, and what is damaged, foreign or of another run is told apart."""

import dataclasses
import functools
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.errors import RunError
from worldline.train import checkpoint
from worldline.train.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    Moment,
    restore,
    restore_part,
)

HERE = Path(__file__).parent
CONFIG = {"task": "robot/reach", "steps": 100, "ppo": {"clip": 0.2, "hidden": [64, 64]}}
PARTS = {"words": lambda state: state.words, "head": lambda state: state.weights}
VERSIONS = {"worldline": "1.2.3", "jax": "4.5"}


class State(eqx.Module):
    """Every kind of leaf that a training state may have."""

    weights: list[jax.Array]
    half: jax.Array
    count: jax.Array
    flag: jax.Array
    words: jax.Array
    key: jax.Array
    keys: jax.Array
    ranges: dict[str, jax.Array]
    nothing: tuple[jax.Array, ...] = ()


@functools.cache
def state_of(seed: int, width: int = 3) -> State:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(2, width)).astype(np.float32)
    weights[0, 0] = -np.inf  # of a bound that is none, say
    return State(
        weights=[jnp.asarray(weights), jnp.asarray(-0.0)],
        half=jnp.asarray(rng.normal(size=3), jnp.bfloat16),
        count=jnp.int32(seed),
        flag=jnp.array([True, False]),
        words=jnp.asarray(rng.integers(0, 2**32, 5, np.uint32)),
        key=jax.random.key(seed),
        keys=jax.random.split(jax.random.key(seed + 1), 4),
        ranges={"opt.gravity": jnp.float32(9.8), "body_mass/torso": jnp.ones(2)},
    )


def assert_same(one: State, other: State) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        words = [
            np.asarray(
                jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
            )
            for x in (a, b)
        ]
        assert words[0].tobytes() == words[1].tobytes()


def save(run: Path, *steps: int, scores: dict[int, float] | None = None) -> None:
    """Writes the checkpoints of some steps, each with the state of that seed."""
    with CheckpointWriter(run, CONFIG, VERSIONS, PARTS) as writer:
        for step in steps:
            score = (scores or {}).get(step)
            writer.save(state_of(step), Moment(step, step / 10, score))


def last(run: Path, **changes: Any) -> Checkpoint | None:
    given = {"like": state_of(0), "config": CONFIG, "versions": VERSIONS, **changes}
    return restore(run, **given)


def files(run: Path) -> list[int]:
    return sorted(int(file.stem.split("-")[1]) for file in (run / "checkpoints").iterdir())


def test_a_state_comes_back_bit_for_bit(tmp_path):
    save(tmp_path, 7)
    found = last(tmp_path)
    assert_same(found.state, state_of(7))
    assert found.moment == Moment(7, 0.7, None)
    assert found.notes == ()


def test_shapes_are_enough_to_restore_by(tmp_path):
    save(tmp_path, 7)
    like = jax.eval_shape(lambda state: state, state_of(0))
    assert_same(last(tmp_path, like=like).state, state_of(7))


def test_no_checkpoint_yet_is_none(tmp_path):
    assert last(tmp_path) is None


def test_the_last_two_and_the_best_are_kept(tmp_path):
    save(tmp_path, 1, 2, 3, 4, 5, scores={1: 0.0, 2: 9.0, 3: 1.0, 5: -1.0})
    assert files(tmp_path) == [2, 4, 5]
    assert last(tmp_path).moment.step == 5


def test_damaged_ones_of_later_steps_do_not_push_out_whole_ones(tmp_path):
    save(tmp_path, 1)
    for step in (7, 8, 9):
        (tmp_path / "checkpoints" / f"step-{step:012}.npz").write_text("not at all")
    save(tmp_path, 2, 3)
    assert files(tmp_path) == [2, 3, 7, 8, 9]
    assert last(tmp_path).moment.step == 3


def test_the_state_may_be_given_away_while_it_is_written(tmp_path, monkeypatch):
    may_write = threading.Event()
    write = CheckpointWriter._write
    monkeypatch.setattr(
        CheckpointWriter, "_write", lambda *args: may_write.wait(10) and write(*args)
    )
    state = state_of.__wrapped__(3)
    with CheckpointWriter(tmp_path, CONFIG, VERSIONS) as writer:
        writer.save(state, Moment(3, 0.0, None))  # returns while nothing can be written yet
        for leaf in (*state.weights, state.words):
            leaf.delete()
        may_write.set()
    assert_same(last(tmp_path).state, state_of(3))


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_one_cut_off_is_named_and_the_one_before_is_used(tmp_path, part):
    save(tmp_path, 1, 2)
    newest = tmp_path / "checkpoints" / "step-000000000002.npz"
    content = newest.read_bytes()
    newest.write_bytes(content[: int(part * len(content))])
    found = last(tmp_path)
    assert_same(found.state, state_of(1))
    assert found.moment.step == 1
    (note,) = found.notes
    assert str(newest) in note and "using the checkpoint before it" in note


def test_a_damaged_one_is_told_or_harmless(tmp_path):
    save(tmp_path, 1, 2)
    newest = tmp_path / "checkpoints" / "step-000000000002.npz"
    content = newest.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(content), 100):
        newest.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        found = last(tmp_path)
        assert_same(found.state, state_of(found.moment.step))
        assert bool(found.notes) == (found.moment.step == 1)


def test_another_programs_file_is_told(tmp_path):
    save(tmp_path, 1)
    folder = tmp_path / "checkpoints"
    (folder / "step-000000000002.npz").write_text("not at all")
    np.savez(folder / "step-000000000003.npz", weights=np.ones(3))
    np.savez(folder / "step-000000000004.npz", about=np.array('{"format": 99}'))
    found = last(tmp_path)
    assert found.moment.step == 1
    assert ["not a checkpoint" in note for note in found.notes] == [False, True, False]
    assert "of format 99, but this version reads format 2; train it again" in found.notes[0]
    (folder / "step-000000000001.npz").unlink()
    with pytest.raises(
        RunError, match=r"has no complete checkpoint: .*step-000000000004.npz' is of f"
    ):
        last(tmp_path)


def test_another_configuration_is_named(tmp_path):
    save(tmp_path, 1)
    config = {**CONFIG, "ppo": {"clip": 0.1, "hidden": (64, 64)}}
    with pytest.raises(RunError, match=r"^ppo.clip is 0.1, but the checkpoint .* made with 0.2; "):
        last(tmp_path, config=config)
    assert last(tmp_path, config={"task": "robot/reach"}).moment.step == 1  # the rest may change


def test_another_shape_is_named(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(
        RunError,
        match=r"array 0 of its 10 is float32\[2, 3\], but array 0 of the 10 of this training is "
        r"float32\[2, 4\] \('weights.0'\); give the settings",
    ):
        last(tmp_path, like=state_of(0, width=4))
    fewer = eqx.tree_at(lambda s: s.ranges, state_of(0), {"opt.gravity": jnp.float32(1.0)})
    with pytest.raises(
        RunError,
        match=r"array 8 of its .* is float32\[2\] of body_mass/torso, but array 8 of the 9 .* is "
        r"float32\[\] of opt.gravity \('ranges.opt.gravity'\)",
    ):
        last(tmp_path, like=fewer)
    more = dataclasses.replace(state_of(0), nothing=(jnp.ones(2),))
    with pytest.raises(
        RunError,
        match=r"array 10 of its .* is nothing, but array 10 of the 11 of .* is .*nothing.0",
    ):
        last(tmp_path, like=more)


def test_another_entry_of_a_dict_is_not_taken_for_the_one_saved(tmp_path):
    save(tmp_path, 1)
    ranges = {"opt.gravity": jnp.float32(1.0), "geom_friction/torso": jnp.ones(2)}
    other = dataclasses.replace(state_of(0), ranges=ranges)
    with pytest.raises(RunError, match=r"body_mass/torso, but .* of geom_friction/torso"):
        last(tmp_path, like=other)


class RenamedState(eqx.Module):
    """`State` with other names for its attributes."""

    matrices: list[jax.Array]
    bfloat: jax.Array
    number: jax.Array
    flags: jax.Array
    integers: jax.Array
    random: jax.Array
    randoms: jax.Array
    limits: dict[str, jax.Array]
    empty: tuple[jax.Array, ...] = ()


def test_names_of_classes_and_attributes_are_not_in_the_file(tmp_path):
    save(tmp_path, 7)
    with np.load(tmp_path / "checkpoints" / "step-000000000007.npz") as content:
        assert content.files == ["about", *map(str, range(10))]
        assert "weights" not in str(content["about"])
    fields = [getattr(state_of(0), field.name) for field in dataclasses.fields(State)]
    found = last(tmp_path, like=RenamedState(*fields)).state
    assert_same(State(*(getattr(found, f.name) for f in dataclasses.fields(found))), state_of(7))


def test_other_versions_are_noted(tmp_path):
    save(tmp_path, 1)
    found = last(tmp_path, versions={**VERSIONS, "jax": "5.0"})
    (note,) = found.notes
    assert note.startswith("made with jax 4.5 and going on with 5.0: the numbers may differ")


def test_a_part_of_one_is_for_another_state(tmp_path):
    save(tmp_path, 5)
    words = restore_part(tmp_path, "words", state_of(0).words)
    np.testing.assert_array_equal(words, state_of(5).words)
    with pytest.raises(RunError, match=r"the head in .* array 0 of its .* is float32\[2, 3\], but"):
        restore_part(tmp_path, "head", state_of(0, width=9).weights)
    with pytest.raises(RunError, match=r"has no part 'tail': .* --init-parts of words, head"):
        restore_part(tmp_path, "tail", state_of(0).words)
    with pytest.raises(RunError, match="has no checkpoint yet; give a run that has written one"):
        restore_part(tmp_path / "none", "words", state_of(0).words)


def test_a_full_disk_costs_the_new_one_alone(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    save(tmp_path, 1)
    monkeypatch.setattr("os.fsync", full)
    message = r"cannot write a checkpoint .*: No space left on device; free some space, then `wo"
    with pytest.raises(RunError, match=message):
        save(tmp_path, 2)
    with CheckpointWriter(tmp_path, CONFIG, VERSIONS) as writer:  # the next one says so, too
        writer.save(state_of(2), Moment(2, 0.0, None))
        with pytest.raises(RunError, match=message):
            writer.save(state_of(3), Moment(3, 0.0, None))
    assert files(tmp_path) == [1]
    assert_same(last(tmp_path).state, state_of(1))


def test_what_a_killed_writer_left_is_no_checkpoint_and_is_cleaned_up(tmp_path):
    save(tmp_path, 1)
    partial = tmp_path / "checkpoints" / "step-000000000002.npz.partial"
    partial.write_bytes(b"half")
    assert last(tmp_path).moment.step == 1
    save(tmp_path, 3)
    assert files(tmp_path) == [1, 3]


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when told: `clock[0]` in seconds."""
    now = [1000.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    return now


def test_one_is_due_after_minutes_and_after_a_long_update(tmp_path, clock):
    with CheckpointWriter(tmp_path, CONFIG, VERSIONS) as writer:
        assert not writer.are_due(update_seconds=0.1)
        assert writer.are_due(update_seconds=6.0)
        clock[0] += 301
        assert writer.are_due(update_seconds=0.1)


def test_checkpoints_take_a_twentieth_of_the_time_at_most(tmp_path, clock, monkeypatch):
    """With updates of 6 s, and 3 s to write each checkpoint."""
    save_array = np.savez

    def slow(*arguments, **arrays):
        clock[0] += 3.0
        save_array(*arguments, **arrays)

    monkeypatch.setattr(checkpoint.np, "savez", slow)
    began, saved = clock[0], 0
    with CheckpointWriter(tmp_path, CONFIG, VERSIONS) as writer:
        for step in range(200):
            clock[0] += 6.0
            if writer.are_due(update_seconds=6.0):
                writer.save(state_of(0), Moment(step, 0.0, None))
                writer.wait()
                saved += 1
    assert 15 < saved <= 1 + 0.05 * (clock[0] - began) / 3.0


def test_a_kill_costs_minutes_at_most_however_long_writing_takes(tmp_path, clock, monkeypatch):
    with CheckpointWriter(tmp_path, CONFIG, VERSIONS) as writer:
        monkeypatch.setattr(writer, "_cost_s", 60.0)
        clock[0] += 299
        assert not writer.are_due(update_seconds=6.0)
        clock[0] += 2
        assert writer.are_due(update_seconds=6.0)


def test_one_process_agrees_with_itself(tmp_path, clock):
    with CheckpointWriter(tmp_path, CONFIG, VERSIONS) as writer:
        assert writer.agree(True, update_seconds=0.1) == (True, False)
        assert writer.agree(False, update_seconds=6.0) == (False, True)


@pytest.mark.slow
def test_a_kill_leaves_whole_checkpoints(tmp_path):
    program = (
        "import itertools, sys, pathlib, test_checkpoint as t\n"
        "for step in itertools.count(1):\n"
        "    t.save(pathlib.Path(sys.argv[1]), step)\n"
    )
    for delay in (0.0, 0.03, 0.1):
        run = tmp_path / str(delay)
        run.mkdir()
        process = subprocess.Popen([sys.executable, "-c", program, run], cwd=HERE)
        while not list(run.glob("checkpoints/step-*.npz")):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(delay)
        process.kill()
        process.wait()
        found = last(run)
        assert found.notes == ()
        assert_same(found.state, state_of(found.moment.step))
