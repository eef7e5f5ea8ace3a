"""A compact PPO in PyTorch on EnvPool, with the choices CleanRL published: `train_envpool.py JOB`.

EnvPool resets an environment in the step after its last: that step ignores its action and is no
transition, so it takes no part in the loss. The observation it starts from is the true end of the
episode, which makes bootstrapping at a time limit exact; CleanRL's file does without.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import envpool
import numpy as np
import torch
from protocol import EPISODES, Job, LearningRate, Settings, Trial, envpool_name, envpool_options
from torch import Tensor, nn

NDArray: TypeAlias = np.ndarray[Any, Any]

#: Environments run on this many threads: the machine's two cores.
ENV_THREADS = 2
EVALUATION_SEED = 10_000


class Moments:
    """Running mean and variance over batches, merged as Chan and others do."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, batch: NDArray) -> None:
        """Adds a batch, `(B, ...)`."""
        added, total = len(batch), self.count + len(batch)
        delta = batch.mean(0) - self.mean
        spread = delta**2 * self.count * added / total
        self.var = (self.var * self.count + batch.var(0) * added + spread) / total
        self.mean = self.mean + delta * added / total
        self.count = total


class Policy(nn.Module):
    """A Gaussian policy with one standard deviation for all states, and a value function.

    The policy reads the first `reads` of the `nobs` numbers of an observation.
    """

    def __init__(self, nobs: int, nact: int, settings: Settings, reads: int) -> None:
        super().__init__()
        self.reads = reads
        self.actor = mlp((reads, *settings.actor_hidden, nact), settings, last_gain=0.01)
        self.value = mlp((nobs, *settings.critic_hidden, 1), settings, last_gain=1.0)
        self.log_std = nn.Parameter(torch.full((nact,), settings.log_std))
        self.squash = settings.squash
        nodes, weights = np.polynomial.hermite_e.hermegauss(8)
        self.nodes = torch.from_numpy(nodes.astype(np.float32))
        self.weights = torch.from_numpy((weights / weights.sum()).astype(np.float32))

    def mean(self, obs: Tensor) -> Tensor:
        """The most likely actions, `(..., nact)`."""
        return self.actor(obs[..., : self.reads])

    def log_prob(self, mean: Tensor, action: Tensor) -> Tensor:
        """The log density of an action before it is bounded, `(N,)`."""
        scaled = (action - mean) * torch.exp(-self.log_std)
        return -(0.5 * scaled**2 + self.log_std + 0.5 * np.log(2 * np.pi)).sum(-1)

    def entropy(self, mean: Tensor) -> Tensor:
        """The mean entropy of actions, `()`; where tanh bounds them, of the bounded actions."""
        entropy = (self.log_std + 0.5 * np.log(2 * np.pi * np.e)).sum()
        if self.squash == "clip":
            return entropy
        raw = mean[..., None] + torch.exp(self.log_std)[:, None] * self.nodes
        slope = 2 * (np.log(2) - raw - nn.functional.softplus(-2 * raw))
        return entropy + (slope @ self.weights).sum(-1).mean()

    def bounded(self, action: Tensor) -> Tensor:
        """An action in the policy's unit, between -1 and 1 where tanh bounds it."""
        return action if self.squash == "clip" else torch.tanh(action)


def mlp(sizes: tuple[int, ...], settings: Settings, last_gain: float) -> nn.Sequential:
    """A multilayer perceptron."""
    known = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "swish": nn.SiLU}
    activation = known[settings.activation]
    layers: list[nn.Module] = []
    for index, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        linear = nn.Linear(fan_in, fan_out)
        last = index == len(sizes) - 2
        if settings.orthogonal:
            nn.init.orthogonal_(linear.weight, last_gain if last else 2**0.5)
            nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, activation()]
    return nn.Sequential(*layers)


def numbers(obs: NDArray | dict[str, NDArray]) -> NDArray:
    """An observation's numbers, `(B, n)`; of a dict those of `state` first, then the critic's."""
    if isinstance(obs, dict):
        return np.concatenate([obs["state"], obs["privileged_state"]], axis=-1)
    return obs


@dataclasses.dataclass
class Batch:
    """What an update learns from, each `(N, ...)`, one row a transition."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor


class Trainer:
    """PPO on one vector of environments."""

    def __init__(self, job: Job, settings: Settings) -> None:
        self.settings = settings
        self.envs = envpool.make_gymnasium(
            envpool_name(job.task),
            num_envs=settings.num_envs,
            num_threads=ENV_THREADS,
            seed=job.seed,
            **envpool_options(job.task_options),
        )
        space = self.envs.action_space
        self.low, self.high = space.low, space.high
        self.middle, self.reach = 0.0, 1.0
        if settings.rescale:
            self.middle, self.reach = (self.low + self.high) / 2, (self.high - self.low) / 2
        first = self.envs.reset()[0]
        reads = first["state"].shape[1] if isinstance(first, dict) else first.shape[1]
        nobs = numbers(first).shape[1]
        self.policy = Policy(nobs, space.shape[0], settings, reads)
        self.adam = torch.optim.Adam(
            self.policy.parameters(), settings.learning_rate, eps=1e-5, foreach=True
        )
        self.rate = LearningRate(settings)
        self.obs_moments, self.return_moments = Moments((nobs,)), Moments()
        self.running_return = np.zeros(settings.num_envs)
        self.obs = self._see(first)
        self.was_done = np.zeros(settings.num_envs, bool)
        self.steps = 0

    def _normal(self, obs: NDArray | dict[str, NDArray]) -> Tensor:
        scaled = (numbers(obs) - self.obs_moments.mean) / np.sqrt(self.obs_moments.var + 1e-8)
        return torch.from_numpy(np.clip(scaled, -10, 10).astype(np.float32))

    def _see(self, obs: NDArray | dict[str, NDArray]) -> Tensor:
        """Counts observations in, and normalises them."""
        self.obs_moments.update(numbers(obs))
        return self._normal(obs)

    def _scale(self, reward: NDArray, done: NDArray) -> NDArray:
        """Rewards over the standard deviation of the discounted return."""
        self.running_return = self.running_return * self.settings.discount + reward
        self.return_moments.update(self.running_return)
        self.running_return[done] = 0.0
        return np.clip(reward / np.sqrt(self.return_moments.var + 1e-8), -10, 10)

    def _bounded(self, action: Tensor) -> NDArray:
        """The policy's choice as an action of the environment."""
        return np.clip(
            self.middle + self.reach * self.policy.bounded(action).numpy(), self.low, self.high
        )

    @torch.no_grad()
    def rollout(self) -> Batch:
        """`num_steps` steps of every environment, and the advantages of their actions."""
        settings, policy = self.settings, self.policy
        shape = (settings.num_steps, settings.num_envs)
        observations, actions = [self.obs], []
        rewards, terminals, dones = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        real = np.zeros(shape, bool)
        for t in range(settings.num_steps):
            mean = policy.mean(self.obs)
            action = mean + torch.exp(policy.log_std) * torch.randn_like(mean)
            obs, reward, terminated, truncated, _ = self.envs.step(self._bounded(action))
            done = terminated | truncated
            rewards[t] = self._scale(reward, done)
            terminals[t], dones[t], real[t] = terminated, done, ~self.was_done
            self.obs, self.was_done = self._see(obs), done
            observations.append(self.obs)
            actions.append(action)
        self.steps += int(real.sum())
        return self._batch(
            torch.stack(observations), torch.stack(actions), rewards, terminals, dones, real
        )

    def _batch(
        self,
        obs: Tensor,
        action: Tensor,
        rewards: NDArray,
        terminals: NDArray,
        dones: NDArray,
        real: NDArray,
    ) -> Batch:
        """Generalised advantage estimation; arrays `(T, B)`, `obs` one longer."""
        settings = self.settings
        values = self.policy.value(obs)[..., 0].numpy()
        delta = rewards + settings.discount * values[1:] * (1 - terminals) - values[:-1]
        decay = settings.discount * settings.gae_lambda * (1 - dones)
        advantage, running = np.zeros_like(delta), np.zeros(settings.num_envs)
        for t in reversed(range(len(delta))):
            running = advantage[t] = delta[t] + decay[t] * running
        keep = torch.from_numpy(real)
        obs, action = obs[:-1][keep], action[keep]
        return Batch(
            obs,
            action,
            self.policy.log_prob(self.policy.mean(obs), action),
            torch.from_numpy(values[:-1][real]),
            torch.from_numpy(advantage[real].astype(np.float32)),
            torch.from_numpy((advantage + values[:-1])[real].astype(np.float32)),
        )

    def learn(self, batch: Batch, left: float) -> None:
        """All epochs over one batch, with a fraction `left` of the budget to come."""
        for _ in range(self.settings.epochs):
            self.adam.param_groups[0]["lr"] = self.rate.at(self.steps, left)
            for rows in torch.randperm(len(batch.obs)).chunk(self.settings.minibatches):
                self.adam.zero_grad()
                loss, kl = self._loss(batch, rows)
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.settings.max_grad_norm)
                self.adam.step()
            self.rate.follow(kl.item())

    def _loss(self, batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What to minimise, and an estimate of the KL divergence from the policy that acted."""
        settings, clip = self.settings, self.settings.clip
        obs, target, old_value = batch.obs[rows], batch.target[rows], batch.value[rows]
        advantage = batch.advantage[rows]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        mean = self.policy.mean(obs)
        log_ratio = self.policy.log_prob(mean, batch.action[rows]) - batch.log_prob[rows]
        ratio = torch.exp(log_ratio)
        surrogate = torch.min(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip))
        value = self.policy.value(obs)[:, 0]
        error = (value - target) ** 2
        if settings.clip_value:
            near = old_value + (value - old_value).clamp(-clip, clip)
            error = torch.max(error, (near - target) ** 2)
        bonus = settings.entropy * self.policy.entropy(mean)
        kl = (ratio - 1 - log_ratio).detach().mean()
        return settings.value * 0.5 * error.mean() - surrogate.mean() - bonus, kl

    def evaluator(self, name: str) -> Callable[[], float]:
        """A function that gives the mean return over `EPISODES` deterministic episodes."""
        made: list[Any] = []

        @torch.no_grad()
        def evaluate() -> float:
            if not made:
                made.append(
                    envpool.make_gymnasium(
                        name, num_envs=EPISODES, num_threads=ENV_THREADS, seed=EVALUATION_SEED
                    )
                )
            envs = made[0]
            returns, running = np.zeros(EPISODES), np.ones(EPISODES, bool)
            obs = envs.reset()[0]
            while running.any():
                action = self._bounded(self.policy.mean(self._normal(obs)))
                obs, reward, terminated, truncated, _ = envs.step(action)
                returns += np.where(running, reward, 0.0)
                running &= ~(terminated | truncated)
            return float(returns.mean())

        return evaluate


def trainer_of(job: Job) -> Trainer:
    """The trainer of a job, on its threads and with its seed."""
    if job.settings is None:
        raise SystemExit("error: the job has no settings")
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    return Trainer(job, job.settings)


def main() -> None:
    """Trains until the trial is over."""
    job = Job.of_command_line()
    trainer = trainer_of(job)
    trial = Trial(job, trainer.evaluator(envpool_name(job.task)))
    go_on = True
    while go_on:
        batch = trainer.rollout()
        trainer.learn(batch, trial.left)
        go_on = trial.after_update(trainer.steps)


if __name__ == "__main__":
    main()
