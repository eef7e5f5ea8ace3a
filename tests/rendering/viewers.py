"""Cameras that the tests of this folder share: to open a renderer takes seconds."""

import functools

import jax.numpy as jnp
import scenes

from worldline.env.cameras import Cameras
from worldline.model import Model
from worldline.physics.base import PhysicsState
from worldline.rendering import opengl
from worldline.rendering.camera import Camera

#: Two views of one model: different cameras and sizes, with and without depth, stacked or not.
VIEWS = {
    "front": Camera("front", 48, 64, depth=True, stack=2),
    "aboard": Camera("aboard", 24, 24),
}

#: OpenGL needs a library of the system, MuJoCo Warp comes by pip: one of them runs anywhere.
RENDERERS = ["warp", *(["opengl"] if opengl.backends() else [])]


@functools.cache
def cameras_of(renderer):
    return Cameras(Model(scenes.SHAPES), VIEWS, renderer)


def world(qpos, mocap_pos=None, variation=None):
    """The part of a physics state that a camera can see."""
    fields = {} if mocap_pos is None else {"mocap_pos": jnp.asarray(mocap_pos, jnp.float32)}
    nothing = jnp.zeros(())
    return PhysicsState(
        qpos=jnp.asarray(qpos, jnp.float32),
        qvel=nothing,
        act=nothing,
        time=nothing,
        fields=fields,
        changes={},
        variation={n: jnp.asarray(v, jnp.float32) for n, v in (variation or {}).items()},
        diverged=jnp.zeros((), bool),
        engine=(),
    )
