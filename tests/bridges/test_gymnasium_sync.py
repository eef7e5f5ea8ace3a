"""Side by side with Gymnasium's own SyncVectorEnv over an environment written by hand."""

import functools
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from puck_twin import MODES, PuckWithDict, pair

import toys
from worldline.bridges.gymnasium import EpisodeOverError, VectorEnv

B = 3
modes = pytest.mark.parametrize("mode", MODES, ids=[mode.name for mode in MODES])
kinds = pytest.mark.parametrize("kind", [toys.Puck, PuckWithDict])


@functools.cache
def both(mode: AutoresetMode, kind: type[toys.Puck] = toys.Puck) -> tuple[VectorEnv, SyncVectorEnv]:
    return pair(B, mode, kind)


def assert_same(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert jax.tree.structure(mine) == jax.tree.structure(other), (mine, other)
        assert data_equivalence(mine, other, exact=True), (mine, other)


#: What a user may do: step with actions; reset everything; or reset those of a mask. Each world may
#: be given a seed. In DISABLED, the worlds whose episode is over are reset before a step.
seeds = (
    st.none() | st.integers(0, 3) | st.lists(st.none() | st.integers(0, 3), min_size=B, max_size=B)
)
masks = st.lists(st.booleans(), min_size=B, max_size=B).filter(any).map(np.array)
actions = st.lists(st.sampled_from([-1.0, -0.3, 0.0, 0.7, 1.0]), min_size=2 * B, max_size=2 * B)
steps = st.tuples(st.just("step"), actions.map(lambda x: np.array(x, np.float32).reshape(B, 2)))
resets = st.tuples(st.just("reset"), st.tuples(seeds, st.none() | masks))
scripts = st.lists(steps | steps | steps | resets, min_size=15, max_size=25)


@modes
@given(script=scripts, seed=st.integers(0, 3))
def test_any_use_gives_what_sync_vector_env_gives(
    mode: AutoresetMode, script: list[Any], seed: int
) -> None:
    envs = both(mode)
    assert_same(*(env.reset(seed=seed) for env in envs))
    over = np.zeros(B, bool)
    for what, given_ in script:
        if what == "reset":
            seeds_, mask = given_
            options = [None if mask is None else {"reset_mask": mask} for _ in envs]
            assert_same(
                *(env.reset(seed=seeds_, options=o) for env, o in zip(envs, options, strict=True))
            )
            over &= False if mask is None else ~mask
            continue
        if mode is AutoresetMode.DISABLED and over.any():
            assert_same(*(env.reset(options={"reset_mask": over}) for env in envs))
        results = [env.step(given_) for env in envs]
        assert_same(*results)
        over = results[1][2] | results[1][3]


@modes
@kinds
def test_every_kind_of_end(mode: AutoresetMode, kind: type[toys.Puck]) -> None:
    """A run so long that every kind is sure to occur; counted, so that it is seen to."""
    envs = both(mode, kind)
    assert_same(*(env.reset(seed=5) for env in envs))
    rng = np.random.default_rng(0)
    terminations = truncations = together = 0
    for _ in range(70):
        action = rng.uniform(-1, 1, (B, 2)).astype(np.float32)
        results = [env.step(action) for env in envs]
        assert_same(*results)
        terminated, truncated = results[1][2:4]
        terminations, truncations = terminations + terminated.sum(), truncations + truncated.sum()
        together += (terminated | truncated).all()
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            over = terminated | truncated
            assert_same(*(env.reset(options={"reset_mask": over}) for env in envs))
    assert terminations > 5
    assert truncations > 5
    assert together > 0


@modes
@kinds
def test_attributes_and_spaces(mode: AutoresetMode, kind: type[toys.Puck]) -> None:
    ours, theirs = both(mode, kind)
    assert ours.num_envs == theirs.num_envs
    assert ours.autoreset_mode is theirs.autoreset_mode is mode
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    for name in ("observation_space", "single_observation_space", "action_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.single_action_space == theirs.single_action_space
    obs, _ = ours.reset(seed=0)
    assert obs in ours.observation_space


@pytest.mark.parametrize("mode", MODES)
def test_modes_have_names(mode: AutoresetMode) -> None:
    assert VectorEnv(both(mode)[0].worlds, mode.value).autoreset_mode is mode


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        (np.array([True]), ValueError),
        (np.array([True, True, False, False]), ValueError),
        (np.array([[True, True, True]]), ValueError),
        (np.zeros(B, bool), ValueError),
        (np.array([1, 1, 0]), TypeError),
        (np.array([1.0, 1.0, 0.0]), TypeError),
        ([True, True, False], TypeError),
        (None, TypeError),
    ],
)
def test_a_bad_reset_mask_is_refused_in_the_same_words(mask: Any, error: type[Exception]) -> None:
    messages = []
    for env in both(AutoresetMode.DISABLED):
        env.reset(seed=0)
        with pytest.raises(error) as caught:
            env.reset(options={"reset_mask": mask})
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("seed", [[1, 2], [1, 2, 3, 4], []])
def test_a_wrong_number_of_seeds_is_refused_in_the_same_words(seed: list[int]) -> None:
    messages = []
    for env in both(AutoresetMode.NEXT_STEP):
        with pytest.raises(ValueError) as caught:
            env.reset(seed=seed)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_an_episode_that_is_over_is_not_stepped_when_resets_are_disabled() -> None:
    push = np.array([[1, 0], [0, 0], [1, 0]], np.float32)
    for env in both(AutoresetMode.DISABLED):
        env.reset(seed=1)
        over = np.zeros(B, bool)
        while not over.any():
            *_, terminated, truncated, _ = env.step(push)
            over = terminated | truncated
        with pytest.raises(AssertionError):
            env.step(push)
        if not over.all():
            env.reset(options={"reset_mask": ~over})
            with pytest.raises(AssertionError):
                env.step(push)
        env.reset(options={"reset_mask": over})
        env.step(push)


def test_the_refusal_says_what_to_do() -> None:
    env = both(AutoresetMode.DISABLED)[0]
    env.reset(seed=1)
    for _ in range(5):
        env.step(np.zeros((B, 2), np.float32))
    env.step(np.zeros((B, 2), np.float32))
    with pytest.raises(EpisodeOverError, match=r"reset\(options=\{'reset_mask'"):
        env.step(np.zeros((B, 2), np.float32))


@pytest.mark.parametrize("count", [B - 1, B + 1])
def test_a_wrong_number_of_actions_is_a_value_error(count: int) -> None:
    for env in both(AutoresetMode.NEXT_STEP):
        env.reset(seed=0)
        with pytest.raises(ValueError):
            env.step(np.zeros((count, 2), np.float32))


def test_a_single_number_for_actions_is_a_type_error() -> None:
    for env in both(AutoresetMode.NEXT_STEP):
        env.reset(seed=0)
        with pytest.raises(TypeError):
            env.step(0)
