"""PPO of Stable-Baselines3 or of SBX on Gymnasium's tasks: `train_sb3.py JOB`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from protocol import EPISODES, GYMNASIUM, Job, LearningRate, Settings, Trial
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

#: Seeds of the evaluation's episodes start here, far from training's.
EVALUATION_SEED = 10_000
#: More than any budget of time allows.
STEPS = 10**9


class Schedule(BaseCallback):
    """Evaluates between two updates, and ends training when the trial is over."""

    def __init__(self, trial: Trial, rate: LearningRate) -> None:
        super().__init__()
        self._trial, self._rate, self._go_on = trial, rate, True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            self._rate.follow(self.logger.name_to_value["train/approx_kl"])
            self._go_on = self._trial.after_update(self.num_timesteps)

    def _on_step(self) -> bool:
        return self._go_on


def vector(name: str, num_envs: int, seed: int, rescale: bool) -> DummyVecEnv:
    """Environments in this process: for these tasks the fastest of the library's vectors."""

    def make() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make(name, disable_env_checker=True)
        return gymnasium.wrappers.RescaleAction(env, -1.0, 1.0) if rescale else env

    envs = DummyVecEnv([make] * num_envs)
    envs.seed(seed)
    return envs


def evaluator(name: str, rescale: bool, model: Any, training: VecNormalize) -> Callable[[], float]:
    """A function that gives the policy's mean return over `EPISODES` deterministic episodes."""
    made: list[DummyVecEnv] = []

    def evaluate() -> float:
        if not made:
            made.append(vector(name, EPISODES, EVALUATION_SEED, rescale))
        envs = made[0]
        returns, running = np.zeros(EPISODES), np.ones(EPISODES, bool)
        obs = envs.reset()
        while running.any():
            action, _ = model.predict(training.normalize_obs(obs), deterministic=True)
            obs, rewards, dones, _ = envs.step(action)
            returns += np.where(running, rewards, 0.0)
            running &= ~dones
        return float(returns.mean())

    return evaluate


def ppo(
    job: Job, settings: Settings, envs: VecNormalize, learning_rate: Callable[[float], float]
) -> Any:
    """The library's own algorithm with the job's settings."""
    own: dict[str, Any] = {}
    if job.library == "sbx":
        # It leads its learning rate itself, after every gradient step.
        own = {"target_kl": settings.target_kl or None}
        import flax.linen as nn
        from sbx import PPO

        activation: Any = {"tanh": nn.tanh, "relu": nn.relu, "elu": nn.elu}[settings.activation]
    else:
        from stable_baselines3 import PPO

        known = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "elu": torch.nn.ELU}
        activation = known[settings.activation]
    hidden = {"pi": list(settings.actor_hidden), "vf": list(settings.critic_hidden)}
    return PPO(
        "MlpPolicy",
        envs,
        learning_rate=learning_rate,
        n_steps=settings.num_steps,
        batch_size=settings.batch_size,
        n_epochs=settings.epochs,
        gamma=settings.discount,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.clip,
        clip_range_vf=settings.clip if settings.clip_value else None,
        ent_coef=settings.entropy,
        vf_coef=settings.value,
        max_grad_norm=settings.max_grad_norm,
        policy_kwargs={
            "net_arch": hidden,
            "activation_fn": activation,
            "log_std_init": settings.log_std,
            "ortho_init": settings.orthogonal,
        },
        seed=job.seed,
        device="cpu",
        **own,
    )


def main() -> None:
    """Trains until the trial is over."""
    warnings.filterwarnings("ignore")
    job = Job.of_command_line()
    settings = job.settings
    if settings is None:
        raise SystemExit("error: the job has no settings")
    torch.set_num_threads(job.threads)
    name = GYMNASIUM[job.task]
    training = vector(name, settings.num_envs, job.seed, settings.rescale)
    envs = VecNormalize(training, gamma=settings.discount)

    rate = LearningRate(settings)

    def learning_rate(remaining: float) -> float:
        return rate.at(round((1.0 - remaining) * STEPS), trial.left)

    trial = Trial(job, lambda: evaluate())
    model = ppo(job, settings, envs, learning_rate)
    evaluate = evaluator(name, settings.rescale, model, envs)
    model.learn(STEPS, callback=Schedule(trial, rate), log_interval=STEPS)


if __name__ == "__main__":
    main()
