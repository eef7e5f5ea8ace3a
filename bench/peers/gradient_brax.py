"""Takes gradients through TorchRL's wrapper of Brax's ant: `gradient_brax.py WORLDS STEPS`."""

from __future__ import annotations

import sys

import torch
from protocol import serve_steps
from torchrl.envs.libs.brax import BraxEnv


def main() -> None:
    """Serves gradients of the mean reward in a linear policy's weights."""
    worlds, steps = int(sys.argv[1]), int(sys.argv[2])
    env = BraxEnv("ant", batch_size=[worlds], requires_grad=True, cache_clear_frequency=False)
    env.set_seed(0)
    policy = torch.nn.Linear(
        env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1], bias=False
    )
    torch.nn.init.zeros_(policy.weight)

    def act(tensordict):  # by this name TorchRL knows what it takes
        obs = tensordict["observation"].clamp(-10.0, 10.0)
        tensordict["action"] = torch.tanh(policy(obs))
        return tensordict

    def gradient() -> None:
        policy.zero_grad()
        rollout = env.rollout(steps, act, auto_reset=True, break_when_any_done=False)
        rollout["next", "reward"].mean().backward()

    serve_steps(gradient)


if __name__ == "__main__":
    main()
