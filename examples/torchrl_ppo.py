"""PPO of TorchRL's parts on Worldline's worlds: `pip install 'worldline[torchrl]'`."""

import argparse

import torch
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import RewardSum, TransformedEnv
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from worldline.bridges.torchrl import WorldlineEnv

WORLDS, LENGTH, EPOCHS, MINIBATCH = 64, 32, 8, 512

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--task", default="gym/inverted-pendulum")
parser.add_argument("--steps", type=int, default=200_000)
arguments = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)  # small networks; the cores are the simulator's
env = TransformedEnv(WorldlineEnv(arguments.task, batch_size=[WORLDS], seed=0), RewardSum())
nobs, bounds = env.observation_spec["observation"].shape[-1], env.action_spec_unbatched.space

# A policy, and what a state is worth.
net = {"num_cells": [64, 64], "activation_class": torch.nn.Tanh, "in_features": nobs}
mean_and_spread = torch.nn.Sequential(
    MLP(out_features=2 * bounds.low.shape[-1], **net), NormalParamExtractor()
)
actor = ProbabilisticActor(
    TensorDictModule(mean_and_spread, ["observation"], ["loc", "scale"]),
    in_keys=["loc", "scale"],
    spec=env.action_spec_unbatched,
    distribution_class=TanhNormal,
    distribution_kwargs={"low": bounds.low, "high": bounds.high},
    return_log_prob=True,
)
critic = ValueOperator(MLP(out_features=1, **net), in_keys=["observation"])
advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.0, normalize_advantage=True)
optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)

# `next` holds the true successor, also where an episode ended: no value is taken of another start.
batches = -(-arguments.steps // (WORLDS * LENGTH))
collector = Collector(
    env,
    actor,
    frames_per_batch=WORLDS * LENGTH,
    total_frames=batches * WORLDS * LENGTH,
    auto_register_policy_transforms=False,  # it keeps no state that would need them
)
for number, data in enumerate(collector):
    with torch.no_grad():
        advantage(data)
    samples = data.exclude("world", ("next", "world")).reshape(-1)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(samples)).split(MINIBATCH):
            terms = loss(samples[rows])
            optimizer.zero_grad()
            sum(value for name, value in terms.items() if name.startswith("loss_")).backward()
            torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
            optimizer.step()
    ended = data["next", "done"]
    if ended.any():
        returns = data["next", "episode_reward"][ended]
        steps = (number + 1) * WORLDS * LENGTH
        print(f"{steps:7d} steps: return {returns.mean():.1f} of {ended.sum()} episodes")
collector.shutdown()
