"""One truth: in every mode the same seed and actions give the same transitions, all of them."""

import collections
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from puck_twin import MODES, programs

import worldline
from worldline.bridges.gymnasium import VectorEnv, make_vector_env, seed_keys
from worldline.physics.fake import FakePhysics

B, N, SEED, LIMIT = 4, 60, 3, 30
modes = pytest.mark.parametrize("mode", MODES, ids=[mode.name for mode in MODES])


@pytest.fixture(scope="module")
def worlds() -> worldline.Worlds:
    """Hoppers that fall, and that run out of time."""
    return worldline.Worlds(worldline.make("gym/hopper"), B, episode_length=LIMIT)


@pytest.fixture(scope="module")
def actions(worlds: worldline.Worlds) -> np.ndarray:
    """What world i does in its n-th transition, `(B, N, nact)`."""
    space = worlds.env.action_space
    return np.random.default_rng(0).uniform(-1, 1, (B, N, *space.shape)).astype(np.float32)


def through_worlds(worlds: worldline.Worlds, actions: np.ndarray) -> list[list[Any]]:
    """The transitions of each world, from `Worlds` itself."""
    state = worlds.reset(seed_keys(range(SEED, SEED + B)))
    transitions: list[list[Any]] = [[] for _ in range(B)]
    for n in range(N):
        obs = np.asarray(state.obs)
        state, step = worlds.step(state, actions[:, n])
        step = jax.device_get(step)
        for i in range(B):
            flags = bool(step.terminated[i]), bool(step.truncated[i])
            after = step.final_obs[i].tobytes()
            transitions[i].append((obs[i].tobytes(), float(step.reward[i]), *flags, after))
    return transitions


def through_gymnasium(env: Any, actions: np.ndarray) -> tuple[list[list[Any]], int, int]:
    """The same as a user collects them; also the steps it took, and the resets shown as steps."""
    mode = env.metadata["autoreset_mode"]
    obs, _ = env.reset(seed=SEED)
    transitions: list[list[Any]] = [[] for _ in range(B)]
    over, steps, shown = np.zeros(B, bool), 0, 0
    while min(map(len, transitions)) < N:
        if mode is AutoresetMode.DISABLED and over.any():
            obs, _ = env.reset(options={"reset_mask": over})
            over[:] = False
        action = np.stack([actions[i, min(len(transitions[i]), N - 1)] for i in range(B)])
        after, reward, terminated, truncated, info = env.step(action)
        steps += 1
        for i in range(B):
            if mode is AutoresetMode.NEXT_STEP and over[i]:
                shown += 1
                continue
            ends = terminated[i] or truncated[i]
            final = mode is AutoresetMode.SAME_STEP and ends
            successor = info["final_obs"][i] if final else after[i]
            flags = bool(terminated[i]), bool(truncated[i])
            transitions[i].append((obs[i].tobytes(), reward[i], *flags, successor.tobytes()))
        over, obs = terminated | truncated, after
    return transitions, steps, shown


@modes
def test_every_mode_gives_the_transitions_of_worlds(
    mode: AutoresetMode, worlds: worldline.Worlds, actions: np.ndarray
) -> None:
    wanted = through_worlds(worlds, actions)
    ends = collections.Counter(t[2:4] for world in wanted for t in world)
    assert ends[True, False] > 2
    assert ends[False, True] > 2
    given, _, _ = through_gymnasium(VectorEnv(worlds, mode), actions)
    assert [world[:N] for world in given] == wanted


def test_worlds_side_by_side_are_single_environments(actions: np.ndarray) -> None:
    """`make_vec` in its two ways: a batch of worlds, and environments of one world each."""
    import gymnasium

    sync = gymnasium.make_vec(
        "worldline/gym-hopper-v0", B, "sync", max_episode_steps=LIMIT, disable_env_checker=True
    )
    assert isinstance(sync, gymnasium.vector.SyncVectorEnv)
    batch = make_vector_env(B, "gym/hopper", max_episode_steps=LIMIT)
    assert through_gymnasium(sync, actions) == through_gymnasium(batch, actions)


class Counting(FakePhysics):
    """Counts the worlds that it steps."""

    counts: collections.Counter[str] = collections.Counter()

    def step(self, state: Any, inputs: Any, substeps: int, mask: Any = True) -> Any:
        each = mask & (state.time >= 0)
        jax.debug.callback(lambda moves: self.counts.update(worlds=int(moves)), each)
        return super().step(state, inputs, substeps, mask)


@modes
def test_n_steps_are_n_transitions_and_a_world_that_waits_costs_no_physics(
    mode: AutoresetMode,
) -> None:
    task = programs(B)[0].env.task
    env = VectorEnv(worldline.Worlds(worldline.Env(task, Counting), B), mode)
    Counting.counts.clear()
    actions = np.random.default_rng(0).uniform(-1, 1, (B, N, 2)).astype(np.float32)
    transitions, steps, shown = through_gymnasium(env, actions)
    jax.effects_barrier()
    collected = sum(map(len, transitions))
    assert collected == B * steps - shown
    assert Counting.counts["worlds"] == collected
    if mode is AutoresetMode.NEXT_STEP:
        assert shown > B
    else:
        assert shown == 0


def test_a_world_that_waits_does_not_move(worlds: worldline.Worlds, actions: np.ndarray) -> None:
    """NEXT_STEP shows where the new episode begins, whatever action comes with it, even none."""
    envs = [VectorEnv(worlds, AutoresetMode.NEXT_STEP) for _ in range(2)]
    over = np.zeros(B, bool)
    for env in envs:
        env.reset(seed=SEED)
    waited = 0
    for n in range(N):
        other = actions[:, n].copy()
        other[over] = np.nan
        results = [
            env.step(action) for env, action in zip(envs, (actions[:, n], other), strict=True)
        ]
        for mine, same in zip(results[0][:4], results[1][:4], strict=True):
            np.testing.assert_array_equal(mine, same)
        assert (results[0][1][over] == 0).all()
        waited += over.sum()
        over = results[0][2] | results[0][3]
    assert waited > B
