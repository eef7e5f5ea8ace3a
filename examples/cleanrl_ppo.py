"""PPO in PyTorch in one file, in the manner of CleanRL, on `gymnasium.make_vec`.

Such a loop acts on `obs` and asks nobody whether an episode is new, so that it needs the reset mode
`SameStep`. What a time limit cut off is worth it takes from `info["final_obs"]`.
"""

import argparse
import itertools

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn
from torch.distributions import Normal

WORLDS, LENGTH, EPOCHS, MINIBATCH = 16, 128, 8, 256
RATE, DISCOUNT, LAMBDA, CLIP, VALUE, NORM = 1e-3, 0.99, 0.95, 0.2, 0.5, 0.5

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--task", default="gym/inverted-pendulum")
parser.add_argument("--steps", type=int, default=150_000)
arguments = parser.parse_args()


def network(outputs, last):
    """Two hidden layers, orthogonal weights."""
    sizes, layers = [*envs.single_observation_space.shape, 64, 64, outputs], []
    for number, (before, after) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Linear(before, after), nn.Tanh()]
        nn.init.orthogonal_(layers[-2].weight, last if number == 2 else 2**0.5)
        nn.init.zeros_(layers[-2].bias)
    return nn.Sequential(*layers[:-1])


torch.manual_seed(0)
torch.set_num_threads(1)  # small networks; the cores are the simulator's
name = f"worldline:worldline/{arguments.task.replace('/', '-')}-v0"
envs = gymnasium.make_vec(name, num_envs=WORLDS, autoreset_mode="SameStep")
envs = RecordEpisodeStatistics(envs)
low, high = envs.single_action_space.low, envs.single_action_space.high
actor, critic = network(len(low), 0.01), network(1, 1.0)
log_std = nn.Parameter(torch.zeros(len(low)))
parameters = [*actor.parameters(), *critic.parameters(), log_std]
optimizer = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)
obs, _ = envs.reset(seed=0)

for update in range(-(-arguments.steps // (WORLDS * LENGTH))):
    rows, returns = [], []
    for _ in range(LENGTH):
        seen = torch.from_numpy(obs)
        with torch.no_grad():
            policy = Normal(actor(seen), log_std.exp())
            action, value = policy.sample(), critic(seen)[:, 0]
            log_prob = policy.log_prob(action).sum(1)
        obs, reward, terminated, truncated, info = envs.step(np.clip(action.numpy(), low, high))
        cut = np.flatnonzero(truncated)  # by the time limit: the episode would have gone on
        if len(cut):
            last = torch.from_numpy(np.stack([info["final_obs"][world] for world in cut]))
            with torch.no_grad():
                reward[cut] += DISCOUNT * critic(last)[:, 0].numpy()
        over = terminated | truncated
        returns += info["episode"]["r"][over].tolist() if over.any() else []
        goes_on = torch.from_numpy(1 - over.astype(np.float32))
        rows.append((seen, action, log_prob, value, torch.from_numpy(reward), goes_on))

    seen, action, log_prob, value, reward, goes_on = map(torch.stack, zip(*rows, strict=True))
    with torch.no_grad():
        following = torch.cat([value[1:], critic(torch.from_numpy(obs))[None, :, 0]])
    advantage, later = torch.zeros_like(value), torch.zeros(WORLDS)
    for t in reversed(range(LENGTH)):
        error = reward[t] + DISCOUNT * following[t] * goes_on[t] - value[t]
        advantage[t] = later = error + DISCOUNT * LAMBDA * goes_on[t] * later
    batch = [seen, action, log_prob, advantage, advantage + value]
    batch = [each.flatten(0, 1) for each in batch]

    for _ in range(EPOCHS):
        for chosen in torch.randperm(WORLDS * LENGTH).split(MINIBATCH):
            seen, action, before, gain, target = (each[chosen] for each in batch)
            policy = Normal(actor(seen), log_std.exp())
            ratio = (policy.log_prob(action).sum(1) - before).exp()
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
            policy_loss = -torch.minimum(ratio * gain, clipped * gain).mean()
            value_loss = (critic(seen)[:, 0] - target).square().mean()
            optimizer.zero_grad()
            (policy_loss + VALUE * value_loss).backward()
            nn.utils.clip_grad_norm_(parameters, NORM)
            optimizer.step()
    if returns:
        steps = (update + 1) * WORLDS * LENGTH
        print(f"{steps:7d} steps: return {np.mean(returns):.1f} of {len(returns)} episodes")
envs.close()
