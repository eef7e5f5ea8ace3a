"""What policies of named robots are worth in the full model, whoever made them.

A policy comes as a file, from Worldline's own worker or from a peer's.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import worldline
from worldline.env.parts import STATE
from worldline.export.policy_file import load_policy
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.tasks.playground.panda_pick_cube import PandaPickCube
from worldline.types import Array

#: Episodes of a measurement.
EPISODES = 64
#: The time over which velocities are averaged before they are compared with commands, s: some
#: strides. Within a stride a body sways, and commands do not mean that.
WINDOW = 1.0
#: How far a cube is lifted at least, m.
LIFTED = 0.1


class Tally(eqx.Module):
    """Sums over the control steps of all worlds, each while its first episode lasts."""

    steps: Array
    linear: Array
    angular: Array
    instant_linear: Array
    instant_angular: Array
    drift: Array
    """Of the errors of velocity since the window began, `(B, 3)`: ahead, left, turning left."""
    total: Array
    """Of the rewards."""
    ended: Array
    """Episodes that the task ended."""
    height: Array
    """Of the thing, in each world, where it was last: `(B,)`, m; 0 where there is none."""


def evaluate(env: worldline.Env, policy: Policy, domain: Any = None) -> dict[str, float]:
    """Measures a policy over `EPISODES` whole episodes with its most likely actions.

    Returns:
        `return`, the mean; `ended`, the share of episodes that the task ended. Of a task with a
        joystick also `linear` and `angular`, mean errors of the commanded velocity: the length of
        the horizontal one, m/s, and the size of the turning one, rad/s, each of the mean over a
        `WINDOW`; `instant_linear` and `instant_angular`, those of single control steps. Of a task
        with a cube `lifted`, the share of episodes at whose end it is 0.1 m above its start.
    """
    tally, start_height = jax.device_get(_program(env, domain)(policy, jax.random.key(123)))
    found = {
        "return": float(tally.total) / EPISODES,
        "ended": float(tally.ended) / EPISODES,
    }
    if _joystick(env):
        for name in ("linear", "angular", "instant_linear", "instant_angular"):
            found[name] = float(getattr(tally, name) / tally.steps)
    if _thing(env) is not None:
        found["lifted"] = float(np.mean(tally.height - start_height > LIFTED))
    return found


@functools.lru_cache(maxsize=4)
def _program(env: worldline.Env, domain: Any) -> Any:
    """A compiled function from a policy and a key to its tally, and the heights at the start."""
    worlds = worldline.Worlds(env, EPISODES, domain=domain)
    window = round(WINDOW / env.control_timestep)

    def run(policy: Policy, key: Array) -> tuple[Tally, Array]:
        def step(carry: Any) -> Any:
            state, memory, running, tally = carry
            action, memory = policy.step(state.obs, memory)
            following, step = worlds.step(state, action, running)
            errors = jnp.where(running[:, None], _errors(env, state.obs, step.final_obs), 0.0)
            drift = tally.drift + errors
            go_on = running & ~(step.terminated | step.truncated)
            over = (following.steps % window == 0) | ~go_on
            linear, angular = _sizes(jnp.where(over[:, None], drift, 0.0))
            instant_linear, instant_angular = _sizes(errors)
            tally = Tally(
                steps=tally.steps + running.sum(),
                linear=tally.linear + linear,
                angular=tally.angular + angular,
                instant_linear=tally.instant_linear + instant_linear,
                instant_angular=tally.instant_angular + instant_angular,
                drift=jnp.where(over[:, None], 0.0, drift),
                total=tally.total + jnp.where(running, step.reward, 0.0).sum(),
                ended=tally.ended + (running & step.terminated).sum(),
                height=jnp.where(go_on, _height(env, following), tally.height),
            )
            return following, memory, go_on, tally

        state = worlds.reset(key)
        height = _height(env, state)
        number, zero = jnp.int32(0), jnp.float32(0)
        drift = jnp.zeros((EPISODES, 3))
        tally = Tally(number, zero, zero, zero, zero, drift, zero, number, height)
        carry = state, policy.start(EPISODES), jnp.ones(EPISODES, bool), tally
        return jax.lax.while_loop(lambda carry: carry[2].any(), step, carry)[3], height

    return jax.jit(run)


def _joystick(env: worldline.Env) -> bool:
    """Whether a task has commands of velocities, and tells the true ones."""
    privileged = env.task.observation_parts.get("privileged_state", ())
    names = {part.name for part in privileged}
    return {"command", "exact_base_linear_velocity", "exact_base_angular_velocity"} <= names


def _errors(env: worldline.Env, before: Any, after: Any) -> Array:
    """How far velocities after a step are from the command before it, `(B, 3)`: ahead and left,
    m/s, and turning left, rad/s.
    """
    if not _joystick(env):
        return jnp.zeros((EPISODES, 3))
    linear = _part(env, after, "exact_base_linear_velocity")[:, :2]
    turning = _part(env, after, "exact_base_angular_velocity")[:, 2:]
    return jnp.concatenate([linear, turning], axis=-1) - _part(env, before, "command")


def _sizes(errors: Array) -> tuple[Array, Array]:
    """The sums of the sizes of errors `(B, 3)`: of horizontal velocities, and of turning."""
    return jnp.linalg.norm(errors[:, :2], axis=-1).sum(), jnp.abs(errors[:, 2]).sum()


def _part(env: worldline.Env, obs: Any, name: str) -> Array:
    """A part of `privileged_state` by its name, in its own unit, `(B, size)`."""
    begin = 0
    for part in env.task.observation_parts["privileged_state"]:
        if part.name == name:
            return obs["privileged_state"][:, begin : begin + part.size] / part.scale
        begin += part.size
    raise KeyError(name)


def _thing(env: worldline.Env) -> str | None:
    """The cube that an arm lifts; None where there is none."""
    return env.task.thing if isinstance(env.task, PandaPickCube) else None


def _height(env: worldline.Env, state: Any) -> Array:
    """The height of the thing in each world, `(B,)`, m."""
    if (thing := _thing(env)) is None:
        return jnp.zeros(EPISODES)
    joint = env.model.mj.body(thing).jntadr[0]
    return state.env.physics.qpos[:, env.model.mj.jnt_qposadr[joint] + 2]


def read_policy(file: Path, env: worldline.Env) -> Policy:
    """A policy from the file of our worker, or from that of a peer's, which has plain arrays."""
    with np.load(file) as arrays:
        if "about" in arrays:
            return load_policy(file)
        count = sum(name.startswith("weight") for name in arrays)
        weights, biases = (
            [jnp.asarray(arrays[f"{kind}{i}"], jnp.float32) for i in range(count)]
            for kind in ("weight", "bias")
        )
        mean, variance, log_std = (
            jnp.asarray(arrays[name], jnp.float32) for name in ("mean", "variance", "log_std")
        )
        activation: Any = str(arrays["activation"])
        squash: Any = str(arrays["squash"])
    return Policy(
        actor=Actor(MLP(weights, biases, activation), log_std),
        statistics=RunningStatistics(jnp.float32(1), mean, variance),
        low=jnp.asarray(env.action_low),
        high=jnp.asarray(env.action_high),
        squash=squash,
        obs_keys=(STATE,),
    )
