"""Terrain: ground of many kinds and levels in one scene, as numbers that JAX can read."""

from worldline.tasks.terrain.config import Terrain as Terrain
from worldline.tasks.terrain.heights import HeightField as HeightField
