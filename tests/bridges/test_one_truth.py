"""One truth: the same seed and actions give the same transitions through every bridge."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from test_gymnasium_truth import LIMIT, SEED, B, N, through_worlds

import worldline
from worldline.bridges.gymnasium import VectorEnv


@pytest.fixture(scope="module")
def worlds() -> worldline.Worlds:
    """Hoppers that fall, and that run out of time."""
    return worldline.Worlds(worldline.make("gym/hopper"), B, episode_length=LIMIT)


@pytest.fixture(scope="module")
def actions() -> np.ndarray:
    """What world i does in its n-th transition, `(B, N, nact)`."""
    return np.random.default_rng(0).uniform(-1, 1, (B, N, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def wanted(worlds: worldline.Worlds, actions: np.ndarray) -> list[list[Any]]:
    """The transitions of each world, from `Worlds` itself."""
    transitions = through_worlds(worlds, actions)
    assert [len(world) for world in transitions] == [N] * B
    assert sum(terminated for world in transitions for _, _, terminated, *_ in world) > 1
    assert sum(truncated for world in transitions for _, _, _, truncated, _ in world) > 1
    return transitions


@pytest.mark.parametrize("bridge", ["our own", "DISABLED", "SAME_STEP"])
def test_torchrl(
    bridge: str, worlds: worldline.Worlds, actions: np.ndarray, wanted: list[list[Any]]
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchrl")
    from torchrl.envs import GymWrapper

    from worldline.bridges.torchrl import WorldlineWrapper

    if bridge == "our own":
        env = WorldlineWrapper(worlds)
    else:
        vector = VectorEnv(worlds, AutoresetMode[bridge])
        env = GymWrapper(vector, device="cpu")
        assert env.batch_size == torch.Size([B])
    if bridge == "our own":
        env.set_seed(SEED)
        tensordict = env.reset()
    else:
        tensordict = env.reset(seed=SEED)
    transitions: list[list[Any]] = [[] for _ in range(B)]
    for n in range(N):
        tensordict.set("action", torch.from_numpy(actions[:, n].copy()))
        now, tensordict = env.step_and_maybe_reset(tensordict)
        for i in range(B):
            obs, after = now["observation"][i], now["next", "observation"][i]
            reward = float(now["next", "reward"][i, 0])
            flags = (bool(now["next", flag][i, 0]) for flag in ("terminated", "truncated"))
            transitions[i].append((obs.numpy().tobytes(), reward, *flags, after.numpy().tobytes()))
    assert transitions == wanted


def test_stable_baselines3(
    worlds: worldline.Worlds, actions: np.ndarray, wanted: list[list[Any]]
) -> None:
    pytest.importorskip("stable_baselines3")
    from worldline.bridges.sb3 import VecEnv

    env = VecEnv(worlds)
    env.seed(SEED)
    obs = env.reset()
    transitions: list[list[Any]] = [[] for _ in range(B)]
    for n in range(N):
        after, reward, done, infos = env.step(actions[:, n])
        for i in range(B):
            cut = infos[i]["TimeLimit.truncated"]
            successor = infos[i]["terminal_observation"] if done[i] else after[i]
            flags = bool(done[i] and not cut), bool(done[i] and cut)
            row = (obs[i].tobytes(), float(reward[i]), *flags, successor.tobytes())
            transitions[i].append(row)
        obs = after
    assert transitions == wanted
