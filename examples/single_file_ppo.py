"""PPO in one file of PyTorch, on `gymnasium.make_vec`: `pip install worldline torch`.

SAME_STEP shows the start of the next episode at once, and the true end of the last in the info, so
that all steps are transitions and time limits are no terminations.
"""

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

import worldline.bridges.gymnasium  # noqa: F401 # registers its tasks with Gymnasium

WORLDS, LENGTH, EPOCHS, MINIBATCH = 64, 32, 8, 512
DISCOUNT, GAE_LAMBDA, CLIP = 0.99, 0.95, 0.2

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--env-id", default="worldline/gym-inverted-pendulum-v0")
parser.add_argument("--steps", type=int, default=200_000)
arguments = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)  # small networks; the cores are the simulator's
mode = gymnasium.vector.AutoresetMode.SAME_STEP
env = gymnasium.make_vec(arguments.env_id, num_envs=WORLDS, autoreset_mode=mode)
nobs, nact = env.single_observation_space.shape[0], env.single_action_space.shape[0]


def network(outputs):
    layers = (nn.Linear(nobs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
    return nn.Sequential(*layers)


actor, critic, log_std = network(nact), network(1), nn.Parameter(torch.zeros(nact))
parameters = [*actor.parameters(), *critic.parameters(), log_std]
optimizer = torch.optim.Adam(parameters, lr=1e-3)


def policy(obs):
    return Normal(actor(obs), log_std.exp())


def tensor(array):
    return torch.as_tensor(np.asarray(array, np.float32))


@torch.no_grad()
def collect(obs):
    """A rollout `(LENGTH, WORLDS, ...)`, what to act on next, and the returns of whole episodes."""
    steps, returns = [], []
    for _ in range(LENGTH):
        action = policy(obs).sample()
        low, high = env.action_space.low, env.action_space.high
        after, reward, terminated, truncated, info = env.step(np.clip(action.numpy(), low, high))
        successor, ended = after.copy(), terminated | truncated
        if ended.any():
            successor[ended] = np.stack(info["final_obs"][ended])
            returns += info["final_info"]["episode_return"][ended].tolist()
        worth = (tensor(x) for x in (reward, terminated, ended, successor))
        steps.append((obs, action, *worth))
        obs = tensor(after)
    return [torch.stack(column) for column in zip(*steps, strict=True)], obs, returns


@torch.no_grad()
def advantages(obs, reward, terminated, ended, successor):
    """Generalised advantage estimation, and the targets of the values."""
    value, after = critic(obs)[..., 0], critic(successor)[..., 0]
    delta = reward + DISCOUNT * (1 - terminated) * after - value
    advantage, rows = torch.zeros(WORLDS), []
    for t in reversed(range(LENGTH)):
        advantage = delta[t] + DISCOUNT * GAE_LAMBDA * (1 - ended[t]) * advantage
        rows.append(advantage)
    advantage = torch.stack(rows[::-1])
    return advantage, advantage + value


obs = tensor(env.reset(seed=0)[0])
for number in range(-(-arguments.steps // (WORLDS * LENGTH))):
    (seen, action, *worth), obs, returns = collect(obs)
    advantage, target = advantages(seen, *worth)
    with torch.no_grad():
        old = policy(seen).log_prob(action).sum(-1)
    data = [x.flatten(0, 1) for x in (seen, action, old, advantage, target)]
    for _ in range(EPOCHS):
        for rows in torch.randperm(WORLDS * LENGTH).split(MINIBATCH):
            o, a, old_log_prob, adv, ret = (x[rows] for x in data)
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            ratio = (policy(o).log_prob(a).sum(-1) - old_log_prob).exp()
            gain = torch.minimum(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            loss = 0.5 * (critic(o)[..., 0] - ret).pow(2).mean() - gain
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
    if returns:
        steps = (number + 1) * WORLDS * LENGTH
        print(f"{steps:7d} steps: return {np.mean(returns):.1f} of {len(returns)} episodes")
env.close()
