"""rsl_rl's interface: the same transitions, and its runner trains on them."""

from typing import Any

import numpy as np
import pytest
from puck_twin import PuckWithDict

import toys
import worldline
from worldline.bridges.resets import seed_keys
from worldline.env.env import Env
from worldline.errors import ActionError, ConfigError

pytest.importorskip("rsl_rl")
torch = pytest.importorskip("torch")

from worldline.bridges.rsl_rl import VecEnv  # noqa: E402

# NumPy's functions take tensors, with a warning that is not about us.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")

B, N = 4, 30
ACTIONS = np.random.default_rng(0).uniform(-2, 2, (N, B, 2)).astype(np.float32)


def worlds(kind: type[toys.Puck] = toys.Puck, **config: Any) -> worldline.Worlds:
    return worldline.Worlds(Env(kind(**{"wall": 0.3} | config)), B)


@pytest.mark.parametrize("kind", [toys.Puck, PuckWithDict])
def test_steps_are_those_of_the_worlds(kind: type[toys.Puck]) -> None:
    vector, own = VecEnv(worlds(kind), seed=3), worlds(kind)
    state = own.reset(seed_keys(range(3, 3 + B)))
    ends = np.zeros(2, int)
    for n in range(N):
        np.testing.assert_array_equal(vector.episode_length_buf, state.steps)
        _check_groups(vector.get_observations(), state.obs)
        obs, rewards, dones, extras = vector.step(torch.from_numpy(ACTIONS[n]))
        state, step = own.step(state, np.clip(ACTIONS[n], -1, 1))
        _check_groups(obs, step.obs)
        np.testing.assert_array_equal(rewards, step.reward)
        np.testing.assert_array_equal(dones, step.terminated | step.truncated)
        np.testing.assert_array_equal(extras["time_outs"], step.truncated)
        np.testing.assert_array_equal(extras["log"]["/metrics/x"], step.metrics["x"])
        ends += step.terminated.sum(), step.truncated.sum()
    assert (ends > 3).all()


def _check_groups(given: Any, obs: Any) -> None:
    named = obs if isinstance(obs, dict) else {"policy": obs}
    assert set(given.keys()) == set(named)
    assert given.batch_size == torch.Size([B])
    for name, value in named.items():
        np.testing.assert_array_equal(given[name].numpy(), value)


def test_a_length_that_is_set_counts() -> None:
    vector = VecEnv(worlds(wall=np.inf))
    vector.episode_length_buf = torch.tensor([9, 8, 5, 0])
    ended = []
    for _ in range(5):
        *_, extras = vector.step(torch.full((B, 2), -1.0))
        ended.append(extras["time_outs"].tolist())
    assert [row.index(True) if any(row) else None for row in ended] == [0, 1, None, None, 2]
    assert vector.episode_length_buf.tolist() == [4, 3, 0, 5]


def test_asking_for_observations_changes_nothing_and_they_are_the_callers() -> None:
    vector = VecEnv(worlds())
    vector.get_observations()["policy"].zero_()
    before = vector.get_observations()["policy"]
    assert before.abs().min() > 0
    vector.step(torch.zeros(B, 2))
    obs, _ = vector.reset()
    assert vector.episode_length_buf.tolist() == [0] * B
    assert not (obs["policy"] == before).any()


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="give episode_length"):
        VecEnv(worlds(episode_length=0))
    with pytest.raises(ActionError, match="this environment takes"):
        VecEnv(worlds(), clip_actions=False).step(torch.zeros(B, 3))


def config(steps: int, **algorithm: Any) -> dict[str, Any]:
    """A configuration of its runner."""
    network = {"class_name": "MLPModel", "hidden_dims": [32, 32], "activation": "elu"}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    return {
        "num_steps_per_env": steps,
        "save_interval": 1000,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**network, "distribution_cfg": gaussian},
        "critic": dict(network),
        "algorithm": {"class_name": "PPO", "learning_rate": 1e-3, **algorithm},
    }


@pytest.mark.filterwarnings("default")
def test_its_runner_trains_on_it(tmp_path: Any) -> None:
    """The puck comes to where the reward is."""
    from rsl_rl.runners import OnPolicyRunner

    torch.manual_seed(0)
    torch.set_num_threads(1)
    vector = VecEnv(worldline.Worlds(Env(toys.Puck()), 16))
    runner = OnPolicyRunner(vector, config(20, schedule="fixed"), log_dir=str(tmp_path))

    def reward() -> float:
        act, obs, total = runner.get_inference_policy(), vector.reset()[0], 0.0
        for _ in range(10):
            with torch.inference_mode():
                obs, rewards, *_ = vector.step(act(obs))
            total += float(rewards.mean())
        return total

    before = reward()
    runner.learn(15, init_at_random_ep_len=True)
    assert reward() > before + 0.5
