"""Proximal policy optimisation."""

from __future__ import annotations

from worldline.learn.hyperparameters import with_hyperparameters as with_hyperparameters
from worldline.learn.networks.actor_critic import ActorCritic as ActorCritic
from worldline.learn.ppo.config import PPOConfig as PPOConfig
from worldline.learn.ppo.loss import Batch as Batch
from worldline.learn.ppo.loss import Hyperparameters as Hyperparameters
from worldline.learn.ppo.loss import clipped_loss as clipped_loss
from worldline.learn.ppo.networks import MakeNetworks as MakeNetworks
from worldline.learn.ppo.networks import actor_critic as actor_critic
from worldline.learn.ppo.update import Loss as Loss
from worldline.learn.ppo.update import PPOState as PPOState
from worldline.learn.ppo.update import ppo as ppo
