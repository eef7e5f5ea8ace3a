"""Soft actor-critic."""

from __future__ import annotations

from worldline.learn.sac.config import SACConfig as SACConfig
from worldline.learn.sac.update import SACState as SACState
from worldline.learn.sac.update import sac as sac
