"""Short-horizon actor-critic."""

from __future__ import annotations

from worldline.learn.shac.config import SHACConfig as SHACConfig
from worldline.learn.shac.update import SHACState as SHACState
from worldline.learn.shac.update import shac as shac
