"""Training on several devices: where the parts of a training state are stored."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from worldline.env.episodes import WorldsState
from worldline.learn.collector import CollectorState, Experience
from worldline.learn.policy import Policy
from worldline.learn.replay import Replay
from worldline.learn.run import Learner
from worldline.parallel.mesh import BY_WORLD, EVERYWHERE, STEPS_BY_WORLD
from worldline.types import Array, Key, Metrics, PyTree

S = TypeVar("S")


def on_devices(learner: Learner[S], mesh: Mesh | None) -> Learner[S]:
    """The learner with its state laid out on the devices of a mesh, the same way after each update.

    A different layout after an update would recompile the next update. Each process has the whole
    policy.

    Args:
        learner: made with `Worlds` of that mesh.
        mesh: the devices; None: the learner as it is.
    """
    if mesh is None:
        return learner

    def init(key: Key) -> S:
        return place(mesh, learner.init(key))

    def placed(update: Callable[[S], tuple[S, Metrics]]) -> Callable[[S], tuple[S, Metrics]]:
        def update_and_place(state: S) -> tuple[S, Metrics]:
            state, metrics = update(state)
            return place(mesh, state), metrics

        return update_and_place

    def policy(state: S) -> Policy:
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), learner.policy(state))

    in_place = learner.update_in_place
    return learner._replace(
        init=init,
        update=placed(learner.update),
        policy=policy,
        update_in_place=in_place and placed(in_place),
    )


def place(mesh: Mesh | None, state: S) -> S:
    """A training state on the devices of a mesh: worlds and replay buffers are divided, the rest is
    copied.

    Args:
        mesh: the devices; None: the state as it is.
        state: on any devices. What does not lie as it should is whole, and the same numbers in
            every process.
    """
    if mesh is None:
        return state
    leaves, structure = jax.tree.flatten(state)
    places = [NamedSharding(mesh, spec) for spec in jax.tree.leaves(layout(state))]

    def lies(leaf: Any, place: NamedSharding) -> bool:
        return isinstance(leaf, jax.Array) and leaf.sharding.is_equivalent_to(place, leaf.ndim)

    astray = [i for i, leaf in enumerate(leaves) if not lies(leaf, places[i])]
    if astray:
        move = _mover(tuple(places[i] for i in astray))
        for i, leaf in zip(astray, move(tuple(leaves[i] for i in astray)), strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(structure, leaves)


def layout(state: PyTree) -> PyTree:
    """How devices share each array of a training state: `BY_WORLD`, `STEPS_BY_WORLD` or
    `EVERYWHERE`, in a tree of its structure.
    """

    def of(node: Any) -> Any:
        if isinstance(node, CollectorState):
            if not isinstance(node.worlds, WorldsState):
                return jax.tree.map(lambda _: EVERYWHERE, node)
            return jax.tree.broadcast(CollectorState.shared_by(BY_WORLD, EVERYWHERE), node)
        if isinstance(node, Experience):
            shared = Experience.shared_by(STEPS_BY_WORLD, BY_WORLD, EVERYWHERE)
            return jax.tree.broadcast(shared, node)
        if isinstance(node, Replay):
            return jax.tree.map(lambda _: BY_WORLD, node)
        return EVERYWHERE

    known = CollectorState, Experience, Replay
    return jax.tree.map(of, state, is_leaf=lambda node: isinstance(node, known))


def on_mesh(mesh: Mesh | None, shapes: PyTree) -> PyTree:
    """Shapes and types of a training state, with the places where `place` wants to have its arrays.

    Args:
        mesh: the devices; None: the shapes as they are.
        shapes: of a whole state, as from `jax.eval_shape(learner.init, key)`.
    """
    if mesh is None:
        return shapes

    def placed(spec: P, leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree.map(placed, layout(shapes), shapes)


@functools.lru_cache
def _mover(places: tuple[NamedSharding, ...]) -> Callable[[tuple[Array, ...]], tuple[Array, ...]]:
    """A program that moves arrays to these places; between processes there is no other way."""
    return jax.jit(lambda leaves: leaves, out_shardings=places)
