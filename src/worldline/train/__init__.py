"""A training run from start to end."""

from __future__ import annotations

from worldline.train.config import TrainConfig as TrainConfig
from worldline.train.run import Result as Result
from worldline.train.run import resume as resume
from worldline.train.run import train as train
