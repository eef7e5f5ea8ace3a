"""How the processes and devices of a run share its training state, and the updates of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
from jax.sharding import Mesh

from worldline.env.env import Env
from worldline.errors import ConfigError
from worldline.learn.actors import ActorsAndLearners
from worldline.learn.algorithms import name_of_algorithm
from worldline.learn.placement import on_devices, on_mesh, place
from worldline.learn.ppo import PPOConfig
from worldline.learn.run import Learner
from worldline.parallel.devices import cpu_device
from worldline.parallel.mesh import check_shares
from worldline.parallel.roles import Roles
from worldline.train.learner_device import Chosen, LearnerDevice, choose, sharing
from worldline.types import Key, PyTree

T = TypeVar("T")


class Layout(NamedTuple):
    """A learner on the devices of a run."""

    whole_learner: Learner[Any]
    """Makes the first state, whole, in each process."""
    learner: Learner[Any]
    """Moves on the states that `place` gives."""
    place: Callable[[Any], Any]
    """A state as the devices share it. All processes call it."""
    places: Callable[[PyTree], PyTree]
    """Shapes and types of a whole state, with the places where `place` wants to have its arrays."""
    to_save: Callable[[Any], Any]
    """Of a state of theirs, what this process hands to checkpoints. All processes call it."""


def layout_of(
    make: Callable[[Mesh | None], Learner[Any]],
    where: Mesh | Roles | None,
    members: Callable[[Learner[Any]], Learner[Any]],
) -> Layout:
    """Lays out a learner.

    Args:
        make: makes it on worlds of a mesh; None: on one device.
        where: the devices that share the worlds, or the processes that act and learn; None: one.
        members: makes of the learner of one seed that of all seeds.
    """
    if isinstance(where, Roles):
        apart = ActorsAndLearners(make, where)
        return Layout(apart.alone, apart.learner(), apart.place, _as_it_is, apart.to_save)
    learner = make(where)
    return Layout(
        learner,
        on_devices(members(learner), where),
        functools.partial(place, where),
        functools.partial(on_mesh, where),
        _as_it_is,
    )


def _as_it_is(state: T) -> T:
    return state


def with_lag(algorithm: T, where: Mesh | Roles | None) -> T:
    """The configuration with the lag that actors beside learners need.

    Raises:
        ConfigError: the algorithm cannot lag behind.
    """
    if not isinstance(where, Roles):
        return algorithm
    if not isinstance(algorithm, PPOConfig):
        name = name_of_algorithm(algorithm)
        raise ConfigError(
            f"actors is {where.actors}, and {name} acts and learns in one process; give "
            "--algorithm ppo, or --processes"
        )
    return dataclasses.replace(algorithm, lag=1)


def shared_over(
    where: Mesh | Roles | None, env: Env, algorithm: Any, seeds: int
) -> Mesh | Roles | None:
    """What shares the worlds, of the devices or processes that there are.

    Raises:
        ConfigError: they cannot share these worlds; or there are several seeds.
    """
    if where is not None and seeds > 1:
        number = where.size if isinstance(where, Mesh) else where.actors + where.learners
        raise ConfigError(
            f"seeds is {seeds}, but there are {number} devices, and several seeds run on one "
            "device; give seeds 1, or devices 1"
        )
    if not isinstance(where, Roles):
        return sharing(where, env)
    if env.device.platform != "cpu":
        raise ConfigError(
            f"actors is {where.actors}, and actors act on CPUs, but the engine "
            f"{env.physics.name!r} simulates on {env.device.device_kind}; give --processes"
        )
    if not algorithm.lag:
        raise ConfigError(
            f"actors is {where.actors}, but this run began without a lag between acting and "
            "learning; leave out --actors and --learners"
        )
    check_shares(algorithm.num_worlds, where.actor_mesh)
    algorithm.check_devices(where.learners, algorithm.recurrent_size > 0)
    return where


def choose_device(
    wanted: LearnerDevice, env: Env, algorithm: Any, where: Mesh | Roles | None
) -> Chosen:
    """Chooses where this process learns; one that acts learns nowhere."""
    if not isinstance(where, Roles):
        return choose(wanted, env, algorithm)
    note = (
        f"{where.actors} of {where.actors + where.learners} processes act, the others learn from "
        "the rollout of the update before"
    )
    if where.acts:
        return Chosen(cpu_device(), note)
    chosen = choose(wanted, env, algorithm)
    return chosen._replace(note="; ".join(filter(None, (note, chosen.note))))


def shape_in_training(learner: Learner[Any], algorithm: Any, key: Key) -> PyTree:
    """Shapes and types of the state that checkpoints hold: with a lag, of that after an update."""

    def state(key: Key) -> Any:
        first = learner.init(key)
        return learner.update(first)[0] if getattr(algorithm, "lag", 0) else first

    return jax.eval_shape(state, key)
