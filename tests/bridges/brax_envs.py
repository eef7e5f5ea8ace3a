"""Environments as users of Brax write them: one of a few lines, one with Brax's own physics."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from brax.envs.base import Env, PipelineEnv, State
from brax.io import mjcf
from flax import struct

import toys
from worldline.bridges.brax import BraxWorlds


@struct.dataclass
class Body:
    mass: Any


@struct.dataclass
class System:
    """What a `sys` may hold: a tree, plain numbers, what is no real number, what nobody reads."""

    body: Body
    drag: Any = 0.1
    colour: Any = struct.field(default_factory=lambda: jnp.ones(3))
    count: int = struct.field(default=2, pytree_node=False)


@struct.dataclass
class Where:
    q: Any
    qd: Any


class Slide(Env):
    """Push two coupled carts along a rail; the episode ends where they leave it."""

    dt, action_size, backend, observation_size = 0.1, 1, "slide", {"state": (2,)}  # type: ignore[assignment]

    def __init__(self) -> None:
        self.sys = System(Body(jnp.array([0.5, 1.5])))
        #: One entry each time that `step` is traced, by this environment or a copy of it.
        self.traces: list[None] = []

    def reset(self, rng: Any) -> Any:
        q = jax.random.uniform(rng, (1,), minval=-1.0, maxval=1.0)
        zero = jnp.zeros(())
        where = Where(q, jnp.zeros(1))
        metrics = {"speed": zero, "cost": zero}
        return State(where, self._obs(where), zero, zero, metrics, {"rng": rng})

    def step(self, state: Any, action: Any) -> Any:
        self.traces.append(None)
        q, qd = state.pipeline_state.q, state.pipeline_state.qd
        qd = qd + self.dt * (8 * action - self.sys.drag * qd) / self.sys.body.mass.sum()
        q = q + self.dt * qd
        where = Where(q, qd)
        return state.replace(
            pipeline_state=where,
            obs=self._obs(where),
            reward=1 - q[0] ** 2,
            done=jnp.where(jnp.abs(q[0]) > 1.1, 1.0, 0.0),
            metrics={"speed": jnp.abs(qd[0]), "cost": -0.0},  # as in Brax's ant
        )

    def _obs(self, where: Any) -> Any:
        return {"state": jnp.concatenate([where.q, where.qd])}


class Swing(PipelineEnv):
    """The toys' pendulum, with Brax's physics; it ends where it is far up.

    On MJX it is in a fluid; Brax's own code for fluids calls JAX as it was.
    """

    def __init__(self, backend: str = "generalized", **fields: Any) -> None:
        in_fluid = toys.PENDULUM.replace('timestep="0.01"', 'timestep="0.01" viscosity="0.1"')
        system = mjcf.loads(in_fluid if backend == "mjx" else toys.PENDULUM)
        super().__init__(system.tree_replace(fields), backend=backend, n_frames=2)
        self.traces: list[None] = []

    def reset(self, rng: Any) -> Any:
        q = jax.random.uniform(rng, (1,), minval=-1.0, maxval=1.0)
        physics = self.pipeline_init(q, jnp.zeros(1))
        zero = jnp.zeros(())
        return State(physics, self._obs(physics), zero, zero, {"speed": zero}, {"rng": rng})

    def step(self, state: Any, action: Any) -> Any:
        self.traces.append(None)
        physics = self.pipeline_step(state.pipeline_state, action)
        done = jnp.where(jnp.abs(physics.q[0]) > 0.8, 1.0, 0.0)
        return state.replace(
            pipeline_state=physics,
            obs=self._obs(physics),
            reward=-jnp.abs(physics.q[0]),
            done=done,
            metrics={"speed": jnp.abs(physics.qd[0])},
        )

    def _obs(self, physics: Any) -> Any:
        return jnp.concatenate([physics.q, physics.qd])


@functools.cache
def slides(num_worlds: int, episode_length: int) -> BraxWorlds:
    return BraxWorlds(Slide(), num_worlds, episode_length)
