"""Proximal policy optimisation."""

from __future__ import annotations

from worldline.learn.ppo.config import PPOConfig as PPOConfig
from worldline.learn.ppo.update import Batch as Batch
from worldline.learn.ppo.update import Loss as Loss
from worldline.learn.ppo.update import MakeNetworks as MakeNetworks
from worldline.learn.ppo.update import Networks as Networks
from worldline.learn.ppo.update import PPOState as PPOState
from worldline.learn.ppo.update import clipped_loss as clipped_loss
from worldline.learn.ppo.update import gru_networks as gru_networks
from worldline.learn.ppo.update import mlp_networks as mlp_networks
from worldline.learn.ppo.update import pixel_gru_networks as pixel_gru_networks
from worldline.learn.ppo.update import pixel_networks as pixel_networks
from worldline.learn.ppo.update import ppo as ppo
from worldline.learn.ppo.update import with_numbers as with_numbers
