"""Learners in PyTorch on `gymnasium.make_vec`: a script like CleanRL's, and skrl's PPO."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import worldline.bridges.gymnasium  # noqa: F401 # its ids

torch = pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "cleanrl_ppo.py"

#: What libraries of others warn of is theirs.
pytestmark = pytest.mark.filterwarnings("default")


def returns_of_example(steps: int, monkeypatch: Any, capsys: Any) -> list[float]:
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, "--steps", str(steps)])
    runpy.run_path(str(EXAMPLE))
    return [float(found) for found in re.findall(r"return ([\d.]+)", capsys.readouterr().out)]


@pytest.mark.slow
def test_a_script_like_cleanrls_learns(monkeypatch: Any, capsys: Any) -> None:
    returns = returns_of_example(30_000, monkeypatch, capsys)
    assert returns[-1] > 5 * returns[0]


@pytest.mark.exhaustive
def test_a_script_like_cleanrls_solves_the_pendulum(monkeypatch: Any, capsys: Any) -> None:
    assert max(returns_of_example(150_000, monkeypatch, capsys)) > 900


def skrl_ppo(env: Any) -> Any:
    """Its agent for an environment that it has wrapped, with networks as its own examples'."""
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model

    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}

    def network(model: Any, outputs: int) -> Any:
        hidden = torch.nn.Linear(model.num_observations, 32), torch.nn.Tanh()
        return torch.nn.Sequential(*hidden, torch.nn.Linear(32, outputs))

    class Policy(GaussianMixin, Model):  # type: ignore[misc]
        def __init__(self) -> None:
            Model.__init__(self, **spaces, device="cpu")
            GaussianMixin.__init__(self)
            self.mean = network(self, self.num_actions)
            self.log_std = torch.nn.Parameter(torch.zeros(self.num_actions))

        def compute(self, inputs: Any, role: str) -> Any:
            return self.mean(inputs["observations"]), {"log_std": self.log_std}

    class Value(DeterministicMixin, Model):  # type: ignore[misc]
        def __init__(self) -> None:
            Model.__init__(self, **spaces, device="cpu")
            DeterministicMixin.__init__(self)
            self.value = network(self, 1)

        def compute(self, inputs: Any, role: str) -> Any:
            return self.value(inputs["observations"]), {}

    silent = {"write_interval": 0, "checkpoint_interval": 0}
    cfg = PPO_CFG(rollouts=64, mini_batches=8, time_limit_bootstrap=True, experiment=silent)
    memory = RandomMemory(memory_size=cfg.rollouts, num_envs=env.num_envs, device="cpu")
    models = {"policy": Policy(), "value": Value()}
    return PPO(models=models, memory=memory, **spaces, device="cpu", cfg=cfg)


@pytest.mark.slow
def test_skrl_trains_on_it(monkeypatch: Any, tmp_path: Path) -> None:
    pytest.importorskip("skrl")
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.trainers.torch import SequentialTrainer

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    name = "worldline/gym-inverted-pendulum-v0"
    vector = RecordEpisodeStatistics(
        gymnasium.make_vec(name, num_envs=16, autoreset_mode="SameStep"), buffer_length=10_000
    )
    env = wrap_env(vector)
    cfg = {"timesteps": 2048, "headless": True, "disable_progressbar": True}
    cfg["close_environment_at_exit"] = False
    SequentialTrainer(cfg=cfg, env=env, agents=skrl_ppo(env)).train()
    vector.close()
    returns = np.array(vector.return_queue)
    assert len(returns) > 100
    assert returns[-50:].mean() > 3 * returns[:50].mean()
