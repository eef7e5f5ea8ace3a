"""The replay buffer beside a plain list of everything that ever happened."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.errors import ConfigError
from worldline.learn.replay import Replay, Transitions

T, B, CAPACITY, NACT = 3, 2, 17, 2


def observation(number: np.ndarray) -> dict[str, jax.Array]:
    """An observation that says which one it is, as numbers and as an image."""
    state = np.stack([number, -number], axis=-1).astype(np.float32)
    image = np.broadcast_to(number[..., None, None], (*number.shape, 2, 2)) % 256
    return {"state": jnp.asarray(state), "pixels/eye": jnp.asarray(image.astype(np.uint8))}


EMPTY = Replay.empty(CAPACITY, observation(np.zeros(B)), NACT)
EMPTY_OF_TWO = Replay.empty(2 * CAPACITY + 1, observation(np.zeros(2 * B)), NACT, groups=2)
PUSH, AT = jax.jit(Replay.push), jax.jit(Replay.at)


class Worlds:
    """Worlds whose observations are numbered in the order in which they are seen, and a list."""

    def __init__(self) -> None:
        self.seen = 0
        self.present = self.new()
        self.all: list[tuple[float, ...]] = []
        """Number of the observation, action, reward, terminated, number of the successor."""
        self.places: list[int] = []
        """For each, how many observations were kept before its own."""
        self.kept = 0

    def new(self) -> np.ndarray:
        self.seen += B
        return np.arange(self.seen - B, self.seen)

    def steps(self, ended: np.ndarray, terminated: np.ndarray) -> Transitions:
        """T steps, some of which end an episode."""
        rows = []
        for ends, stops in zip(ended, terminated, strict=True):
            obs, successor = self.present, self.new()
            self.present = np.where(ends, self.new(), successor)
            action = np.stack([obs + 0.5, obs + 0.25], axis=-1)
            rows.append((obs, action, obs / 8, stops, successor))
            for b in range(B):
                self.all.append((obs[b], *action[b], obs[b] / 8, stops[b], successor[b]))
                self.places.append(self.kept + b)
            self.kept += B + int(ends.sum())
        obs, action, reward, stops, successor = map(np.stack, zip(*rows, strict=True))
        return Transitions(
            obs=observation(obs),
            action=jnp.asarray(action, jnp.float32),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=jnp.asarray(stops),
            next_obs=observation(successor),
        )

    def held(self) -> list[tuple[float, ...]]:
        """The transitions whose observation is among the last CAPACITY kept."""
        pairs = zip(self.all, self.places, strict=True)
        return [step for step, place in pairs if place >= self.kept - CAPACITY]


def listed(transitions: Transitions) -> list[tuple[float, ...]]:
    """Transitions as `Worlds` lists them; checks that all parts of an observation are of one."""
    plain: Any = jax.tree.map(np.asarray, transitions)
    for obs in (plain.obs, plain.next_obs):
        assert obs["pixels/eye"].dtype == np.uint8
        np.testing.assert_array_equal(obs["state"][:, 0], -obs["state"][:, 1])
        np.testing.assert_array_equal(obs["state"][:, 0] % 256, obs["pixels/eye"][:, 1, 1])
    columns = [
        plain.obs["state"][:, 0],
        *plain.action.T,
        plain.reward,
        plain.terminated,
        plain.next_obs["state"][:, 0],
    ]
    return [tuple(row) for row in zip(*columns, strict=True)]


ENDS = st.lists(
    st.lists(st.sampled_from(["goes on", "goes on", "truncated", "terminated"]), min_size=T * B,
             max_size=T * B),
    min_size=1,
    max_size=9,
)  # fmt: skip


@given(ENDS)
def test_it_holds_the_end_of_the_list(pushes: list[list[str]]) -> None:
    worlds, replay = Worlds(), EMPTY
    for push in pushes:
        kinds = np.array(push).reshape(T, B)
        ended, terminated = kinds != "goes on", kinds == "terminated"
        replay = PUSH(replay, worlds.steps(ended, terminated), jnp.asarray(ended))
        assert latest(replay, 0) == worlds.held()


@settings(max_examples=20)
@given(st.tuples(ENDS, ENDS))
def test_each_group_of_worlds_holds_the_end_of_its_own_list(
    pushes: tuple[list[list[str]], list[list[str]]],
) -> None:
    """Two groups whose episodes end at different steps, in one buffer."""
    both, replay = (Worlds(), Worlds()), EMPTY_OF_TWO
    for kinds in zip(*pushes, strict=False):
        of_groups = [np.array(push).reshape(T, B) for push in kinds]
        ends = [(kind != "goes on", kind == "terminated") for kind in of_groups]
        taken = [worlds.steps(*end) for worlds, end in zip(both, ends, strict=True)]
        steps = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *taken)
        replay = PUSH(replay, steps, jnp.concatenate([ended for ended, _ in ends], axis=1))
        for group, worlds in enumerate(both):
            assert latest(replay, group) == worlds.held()
    slots = replay.draw(jax.random.split(jax.random.key(0), 2), (3, 5))
    assert (slots // CAPACITY).tolist() == [[0] * 5 + [1] * 5] * 3
    drawn = listed(AT(replay, slots.reshape(3, 2, 5).swapaxes(0, 1).reshape(2, -1)[1]))
    assert set(drawn) <= set(both[1].held())


def latest(replay: Replay, group: int) -> list[tuple[float, ...]]:
    """The transitions of a group that can be drawn, the oldest first."""
    ages = int(replay.pushed[group]) - 1 - np.arange(CAPACITY)
    slots = group * CAPACITY + ages % CAPACITY
    return listed(AT(replay, jnp.asarray(slots)))[: int(replay.size[group])][::-1]


def test_without_ends_it_holds_as_many_as_it_says() -> None:
    worlds, replay = Worlds(), EMPTY
    never = np.zeros((T, B), bool)
    for pushed in (6, 12, 17, 17, 17):
        replay = PUSH(replay, worlds.steps(never, never), jnp.asarray(never))
        assert replay.size.tolist() == [pushed]


def test_draws_are_uniform_over_what_is_held() -> None:
    worlds, replay = Worlds(), EMPTY
    for time in range(4):
        ended = np.zeros((T, B), bool)
        ended[0, 0] = time > 1
        replay = PUSH(replay, worlds.steps(ended, ended), jnp.asarray(ended))
    size, draws = int(replay.size[0]), 30_000
    assert size < CAPACITY
    slots = replay.draw(jax.random.key(0)[None], (3, draws // 3))
    assert slots.shape == (3, draws // 3)
    numbers = [step[0] for step in listed(AT(replay, slots.ravel()))]
    held = [step[0] for step in worlds.held()]
    assert set(numbers) == set(held)
    counts = np.array([numbers.count(number) for number in held])
    expected = draws / size
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < size - 1 + 5 * np.sqrt(2 * (size - 1))  # its mean and five deviations


def test_steps_that_would_not_fit_are_refused() -> None:
    small = Replay.empty(2 * T * B - 1, observation(np.zeros(B)), NACT)
    ended = np.ones((T, B), bool)
    with pytest.raises(ConfigError, match="11 is too small for 3 steps of 2 worlds"):
        small.push(Worlds().steps(ended, ended), jnp.asarray(ended))
