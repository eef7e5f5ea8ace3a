"""Some processes act and others learn: an update with a lag of one, shared out to them.

What each process holds of a training state is its own half. After each update a learner has the
rollouts of its actors, and they have its policy; the messages are those of `parallel.roles`. The
numbers are those of one process with `lag` 1, up to the order in which numbers are summed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from worldline.learn.placement import layout, place
from worldline.learn.policy import Policy
from worldline.learn.run import Halves, Learner
from worldline.parallel.devices import default_device, put
from worldline.parallel.mesh import BY_WORLD, EVERYWHERE, STEPS_BY_WORLD
from worldline.parallel.message import Message
from worldline.parallel.roles import Roles, swap
from worldline.types import Array, Metrics, PyTree

#: The axis of the worlds in an array that is shared so.
_WORLD_AXIS = {BY_WORLD: 0, STEPS_BY_WORLD: 1}


class Shapes(NamedTuple):
    """Shapes and types of what travels."""

    acting: PyTree
    """The worlds, for a checkpoint."""
    taken: PyTree
    """A rollout."""
    policy: PyTree
    """What acting reads of a learner's state, and the metrics of an update."""


class ActorsAndLearners:
    """A learner of which this process does its part.

    Args:
        make: makes the learner, which has `halves`, on worlds of a mesh; None: on one device.
        roles: what each process does.
    """

    def __init__(self, make: Callable[[Mesh | None], Learner[Any]], roles: Roles) -> None:
        #: The whole learner on one device: its states are those of all processes together.
        self.alone = make(None)
        self._acts = roles.acts
        self._mesh = roles.mesh
        mine = self.alone if self._mesh is None else make(self._mesh)
        assert mine.halves is not None
        self._halves = mine.halves
        self._pairs = roles.partners
        self._shapes = _shapes(self.alone)
        shares = (_share(part, roles.actors) for part in self._shapes[:2])
        self._acting, self._taken = (Message(share) for share in shares)
        self._policy = Message(self._shapes.policy)
        self._join = jax.jit(self._joined, static_argnums=0)

    def learner(self) -> Learner[Any]:
        """The learner of this process, for states that `place` has given."""
        update = self._update_actor if self._acts else self._update_learner
        return self.alone._replace(update=update, policy=self.policy)

    def policy(self, state: Any) -> Policy:
        """The policy, whole, in each process."""
        policy = self._halves.policy(state.learning)
        return policy if self._mesh is None else _here(policy)

    def place(self, state: Any) -> Any:
        """This process's half of a whole state, which each process has; all must call it.

        Before the first update, the actors make the rollout that it learns from.
        """
        first = state.pending is None
        if self._acts:
            acting = place(self._mesh, state.acting)
            learning, _ = self._receive_policy(jnp.zeros(1, jnp.uint32))
            if first:
                acting, taken = self._act(acting, learning)
                self._receive_policy(taken)
            return dataclasses.replace(state, acting=acting, learning=learning, pending=None)
        learning, pending = place(self._mesh, (state.learning, state.pending))
        if self._mesh is None:  # fixed there, as after each update: else that compiles again
            learning = put(learning, default_device())
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self._shapes.policy[1])
        self._exchange(self._policy_words(learning, nothing), 1)
        if first:
            pending = self._receive_rollouts(learning, nothing)
        return dataclasses.replace(state, acting=None, learning=learning, pending=pending)

    def to_save(self, state: Any) -> Any:
        """The whole state, shared by the processes that learn, for a checkpoint; all must call it.

        A process that acts hands its worlds to a learner, and keeps nothing: None.
        """
        if self._acts:
            words = self._acting.pack(_here(place(self._mesh, state.acting)))
            # To its end: in another order than the learner's, messages wait for each other.
            jax.block_until_ready(self._exchange(words, 1))
            return None
        shares = self._exchange(jnp.zeros(1, jnp.uint32), self._acting.words)
        acting = self._spread(self._join(self._acting, shares), layout(self._shapes.acting))
        return dataclasses.replace(state, acting=acting)

    def _update_actor(self, state: Any) -> tuple[Any, Metrics]:
        acting, taken = self._act(state.acting, state.learning)
        learning, metrics = self._receive_policy(taken)
        acting = place(self._mesh, self._halves.move(acting, metrics))
        return dataclasses.replace(state, acting=acting, learning=learning), metrics

    def _update_learner(self, state: Any) -> tuple[Any, Metrics]:
        learning, metrics = self._halves.learn(state.learning, state.pending)
        learning, metrics = place(self._mesh, (learning, metrics))
        pending = self._receive_rollouts(learning, metrics)
        return dataclasses.replace(state, learning=learning, pending=pending), metrics

    def _act(self, acting: Any, learning: Any) -> tuple[Any, Array]:
        """The worlds after a rollout, and this process's share of it as a message."""
        acting, taken = self._halves.act(acting, learning)
        return place(self._mesh, acting), self._taken.pack(_here(place(self._mesh, taken)))

    def _receive_policy(self, words: Array) -> tuple[Any, Metrics]:
        """What acting reads of the learners' state, and metrics, for a message to the learner."""
        (received,) = self._exchange(words, self._policy.words)
        policy = self._policy.unpack(received)
        return self._spread(policy, jax.tree.map(lambda _: EVERYWHERE, policy))

    def _receive_rollouts(self, learning: Any, metrics: Metrics) -> Any:
        """The rollouts of this learner's actors, for its policy and metrics."""
        shares = self._exchange(self._policy_words(learning, metrics), self._taken.words)
        return self._spread(self._join(self._taken, shares), layout(self._shapes.taken))

    def _policy_words(self, learning: Any, metrics: Metrics) -> Array:
        parts = learning.that_acts(), metrics
        return self._policy.pack(parts if self._mesh is None else _here(parts))

    def _exchange(self, mine: Array, words: int) -> list[Array]:
        return [swap(pair, mine, words) for pair in self._pairs]

    @staticmethod
    def _joined(message: Message, shares: list[Array]) -> PyTree:
        """The parts of several actors as one."""
        parts = [message.unpack(share) for share in shares]

        def join(spec: P, *leaves: Array) -> Array:
            if spec not in _WORLD_AXIS:
                return leaves[0]
            return jnp.concatenate(leaves, axis=_WORLD_AXIS[spec])

        return jax.tree.map(join, layout(parts[0]), *parts)

    def _spread(self, tree: PyTree, specs: PyTree) -> PyTree:
        """Arrays over the devices of this process's mesh, of the part that each process has."""
        mesh = self._mesh
        if mesh is None:
            return tree
        device = mesh.local_devices[0]

        def spread(spec: P, part: Array) -> Array:
            shape = list(part.shape)
            if spec in _WORLD_AXIS:
                shape[_WORLD_AXIS[spec]] *= mesh.size
            return jax.make_array_from_single_device_arrays(
                tuple(shape), NamedSharding(mesh, spec), [jax.device_put(part, device)]
            )

        return jax.tree.map(spread, specs, tree)


def _shapes(learner: Learner[Any]) -> Shapes:
    halves = learner.halves
    assert isinstance(halves, Halves)
    start = jax.eval_shape(learner.init, jax.random.key(0))
    acting, taken = jax.eval_shape(halves.act, start.acting, start.learning)
    _, metrics = jax.eval_shape(halves.learn, start.learning, taken)
    return Shapes(acting, taken, (start.learning.that_acts(), metrics))


def _share(shapes: PyTree, actors: int) -> PyTree:
    """The shapes of one actor's share."""

    def share(spec: P, whole: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        shape = list(whole.shape)
        if spec in _WORLD_AXIS:
            shape[_WORLD_AXIS[spec]] //= actors
        return jax.ShapeDtypeStruct(tuple(shape), whole.dtype)

    return jax.tree.map(share, layout(shapes), shapes)


def _here(tree: PyTree) -> PyTree:
    """This process's share of arrays, on its device."""
    return jax.tree.map(lambda x: x.addressable_data(0), tree)
