"""Worlds: every step a transition, every episode fresh, every world its key."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import toys
from worldline.env.env import Env
from worldline.env.episodes import WorldsState
from worldline.env.task import Outcome, Start, Task
from worldline.env.worlds import DomainLike, Step, Worlds
from worldline.errors import ActionError, ConfigError
from worldline.mujoco_c import Batch


def actions(steps: int, worlds: int, env: Env) -> np.ndarray:
    random = np.random.default_rng(2)
    return random.uniform(-1, 1, (steps, worlds, env.action_low.size)).astype(np.float32)


#: Tasks that tests share, and with them compiled programs: to compile takes longer than to run.
PUCK, WALLED = toys.Puck(), toys.Puck(wall=0.8)


@functools.cache
def env_of(task: Task, physics: str = "native") -> Env:
    return Env(task, physics)


@functools.cache
def worlds_of(
    task: Task,
    num_worlds: int,
    episode_length: int | None = None,
    domain: DomainLike | None = None,
    physics: str = "native",
) -> Worlds:
    return Worlds(env_of(task, physics), num_worlds, episode_length, domain)


def roll(worlds: Worlds, state: WorldsState, actions: Any) -> tuple[WorldsState, Step]:
    """The worlds after some steps, and the steps stacked, `(T, B, ...)`, on the host."""
    steps = []
    for action in actions:
        state, step = worlds.step(state, action)
        steps.append(jax.device_get(step))
    return state, jax.tree.map(lambda *x: np.stack(x), *steps)


def assert_bits(ours: Any, theirs: Any) -> None:
    ours, theirs = (jax.device_get(_words(tree)) for tree in (ours, theirs))
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def _words(tree: Any) -> Any:
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)


@functools.cache
def alone(env: Env) -> tuple[Any, Any]:
    """The compiled functions of one world."""
    return jax.jit(env.reset), jax.jit(env.step)


def by_hand(env: Env, key: Any, episode_length: int, actions: np.ndarray) -> list[dict[str, Any]]:
    """One world and its episodes in plain Python: what every step of `Worlds` must give."""
    reset, step = alone(env)
    key, start_key, _ = jax.random.split(key, 3)
    state, total, length, given = reset(start_key), np.float32(0), 0, []
    for action in actions:
        state = step(state, action)
        total, length = total + np.float32(state.reward), length + 1
        terminated = bool(state.terminated)
        truncated = not terminated and (bool(state.diverged) or length == episode_length)
        one = {
            "reward": state.reward,
            "terminated": terminated,
            "truncated": truncated,
            "final_obs": state.obs,
            "episode_return": total,
            "episode_length": length,
            **state.metrics,
        }
        if terminated or truncated:
            key, start_key, _ = jax.random.split(key, 3)
            state, total, length = reset(start_key), np.float32(0), 0
        given.append({**one, "obs": state.obs})
    return given


@pytest.mark.parametrize("physics", ["native", "fake"])
def test_every_step_is_a_transition_of_a_world_on_its_own(physics):
    num_worlds, steps, episode_length = 9, 25, 5
    worlds = worlds_of(WALLED, num_worlds, episode_length, physics=physics)
    env, taken = worlds.env, actions(steps, num_worlds, worlds.env)
    state = worlds.reset(jax.random.key(4))
    _, got = roll(worlds, state, taken)
    ends = {"terminated": 0, "truncated": 0}
    for world in range(num_worlds):
        key = jax.random.fold_in(jax.random.key(4), world)
        expected = by_hand(env, key, episode_length, taken[:, world])
        for step, want in enumerate(expected):
            have = {name: getattr(got, name) for name in Step._fields if name != "metrics"}
            have |= got.metrics
            for name, value in want.items():
                np.testing.assert_array_equal(have[name][step, world], value, err_msg=name)
            ends["terminated"] += want["terminated"]
            ends["truncated"] += want["truncated"]
    assert min(ends.values()) > 5  # the test saw both ends
    ended = got.terminated | got.truncated
    assert (got.obs[ended] != got.final_obs[ended]).any(axis=-1).all()
    np.testing.assert_array_equal(got.obs[~ended], got.final_obs[~ended])


def test_in_a_scan_in_a_vmap_in_a_jit_the_steps_are_the_same():
    worlds = worlds_of(WALLED, 9, 5)
    taken = actions(12, 9, worlds.env)
    run = lambda key: jax.lax.scan(worlds.step, worlds.reset(key), taken)  # noqa: E731
    together = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(4), 2))
    for member in range(2):
        key = jax.random.split(jax.random.key(4), 2)[member]
        alone = roll(worlds, worlds.reset(key), taken)
        assert_bits(alone, jax.tree.map(lambda x: x[member], _words(together)))  # noqa: B023


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Counter(toys.Puck):
    """Rewards of 1, 2, 3, ...; terminates with the reward that the first action names."""

    def outcome(self, before: Any, action: Any, after: Any, memory: Any) -> Outcome:
        count = memory + 1
        reward = count.astype(jnp.float32)
        return Outcome(reward=reward, terminated=reward == action[0], memory=count)


COUNTER = Counter()


def test_returns_and_lengths_of_episodes():
    worlds = worlds_of(COUNTER, 1, 4, physics="fake")
    _, got = roll(worlds, worlds.reset(jax.random.key(0)), np.zeros((6, 1, 2), np.float32))
    # Rewards 1 + 2 + 3 + 4, then anew.
    np.testing.assert_array_equal(got.reward[:, 0], [1, 2, 3, 4, 1, 2])
    np.testing.assert_array_equal(got.metrics["episode_return"][:, 0], [1, 3, 6, 10, 1, 3])
    np.testing.assert_array_equal(got.metrics["episode_length"][:, 0], [1, 2, 3, 4, 1, 2])
    np.testing.assert_array_equal(got.truncated[:, 0], [0, 0, 0, 1, 0, 0])
    assert not got.terminated.any()


@pytest.mark.parametrize(
    ("last", "limit", "terminated", "truncated"),
    [
        (3, 4, [0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]),
        (5, 3, [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1]),
        (3, 3, [0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]),  # an end of the task's own goes first
        (99, 0, [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),  # 0 is no limit
        (99, 1, [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]),
    ],
)
def test_a_time_limit_truncates_and_the_task_terminates(last, limit, terminated, truncated):
    worlds = worlds_of(COUNTER, 1, limit, physics="fake")
    taken = np.full((6, 1, 2), last, np.float32)
    _, got = roll(worlds, worlds.reset(jax.random.key(0)), taken)
    np.testing.assert_array_equal(got.terminated[:, 0], terminated)
    np.testing.assert_array_equal(got.truncated[:, 0], truncated)


def test_staggered_worlds_end_in_turn_and_only_their_first_episodes_are_cut():
    worlds = worlds_of(COUNTER, 4, 8, physics="fake")
    state = worlds.stagger(worlds.reset(jax.random.key(0)))
    _, got = roll(worlds, state, np.zeros((24, 4, 2), np.float32))
    ends = [np.flatnonzero(world) + 1 for world in np.asarray(got.truncated).T]
    np.testing.assert_array_equal(ends, [[8, 16, 24], [6, 14, 22], [4, 12, 20], [2, 10, 18]])
    lengths = np.asarray(got.metrics["episode_length"])[np.asarray(got.truncated)]
    np.testing.assert_array_equal(lengths, [2, 4, 6, *[8] * 9])  # what was lived, no more


@pytest.mark.parametrize("num_worlds", [1, 3, 16])
def test_staggered_worlds_end_evenly_over_time(num_worlds):
    """As many in every stretch of the time limit, up to one; none at all without a limit."""
    worlds = worlds_of(COUNTER, num_worlds, 8, physics="fake")
    state = worlds.stagger(worlds.reset(jax.random.key(0)))
    _, got = roll(worlds, state, np.zeros((16, num_worlds, 2), np.float32))
    counts = np.asarray(got.truncated).sum(axis=1)
    assert counts.sum() == 2 * num_worlds and counts.max() - counts.min() <= 1
    endless = worlds_of(COUNTER, num_worlds, 0, physics="fake")
    state = endless.stagger(endless.reset(jax.random.key(0)))
    _, got = roll(endless, state, np.zeros((9, num_worlds, 2), np.float32))
    assert not got.truncated.any()


def test_the_episode_length_is_the_tasks_own_unless_given():
    env = Env(toys.Puck(), "fake")
    assert Worlds(env, 1).episode_length == 10
    assert Worlds(env, 1, 3).episode_length == 3
    assert Worlds(env, 1, 0).episode_length == 0


def test_every_start_is_fresh():
    num_worlds = 5
    worlds = worlds_of(PUCK, num_worlds, 2)
    state = worlds.reset(jax.random.key(1))
    _, got = roll(worlds, state, np.zeros((20, num_worlds, 2), np.float32))
    starts = np.concatenate([state.obs[None], np.asarray(got.obs)[1::2]]).reshape(-1, 4)
    assert len(np.unique(starts, axis=0)) == 11 * num_worlds


def test_reset_where_touches_the_masked_worlds_alone():
    worlds = worlds_of(PUCK, 5, 2)
    state, _ = roll(worlds, worlds.reset(jax.random.key(3)), actions(1, 5, worlds.env))
    mask = np.array([False, True, False, True, False])
    reset = worlds.reset_where(state, mask)
    rows = lambda tree, mask: jax.tree.map(lambda x: x[mask], tree)  # noqa: E731
    assert_bits(rows(reset, ~mask), rows(state, ~mask))
    np.testing.assert_array_equal(reset.steps, [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(np.asarray(reset.episode_return)[mask], 0)
    # The second episode of a world, whenever it begins, is that of its key.
    for world in np.flatnonzero(mask):
        second = jax.random.split(jax.random.fold_in(jax.random.key(3), world), 3)[0]
        start_key = jax.random.split(second, 3)[1]
        assert_bits(rows(reset.env.obs, world), alone(worlds.env)[0](start_key).obs)
    assert_bits(worlds.reset_where(state, np.zeros(5, bool)), state)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many worlds the engine begins in each call from now on: whole forward passes."""
    rows: list[int] = []
    forward = Batch.forward

    def counted(self: Batch, ids: Any, stage: Any) -> None:
        if stage == mujoco.mjtStage.mjSTAGE_ACC:
            rows.append(self.rows if ids is None else len(ids))
        forward(self, ids, stage)

    monkeypatch.setattr(Batch, "forward", counted)
    return rows


def test_a_reset_costs_as_much_as_episodes_ended(started):
    num_worlds = 40
    worlds = worlds_of(WALLED, num_worlds, 9)
    state = jax.block_until_ready(worlds.reset(jax.random.key(0)))
    for ended in (0, 1, 3, 4, 5, 33, 40):
        started.clear()
        mask = np.random.default_rng(ended).permutation(num_worlds) < ended
        state = jax.block_until_ready(worlds.reset_where(state, mask))
        assert sum(started) == ended


def test_a_step_starts_as_many_worlds_as_it_ends(started):
    num_worlds, steps = 40, 30
    worlds = worlds_of(WALLED, num_worlds, 9)
    state = jax.block_until_ready(worlds.reset(jax.random.key(0)))
    started.clear()
    last, got = roll(worlds, state, actions(steps, num_worlds, worlds.env))
    jax.block_until_ready(last)
    ended = (got.terminated | got.truncated).sum()
    assert sum(started) == ended
    assert 0 < ended < num_worlds * steps / 3


def masses(key: Any, *_: Any) -> dict[str, Any]:
    """A domain: the puck's mass between 1 and 3 kg."""
    return {"body_mass": jnp.array([0.0, 1.0]) * jax.random.uniform(key, minval=1.0, maxval=3.0)}


def without_turn(state: WorldsState) -> WorldsState:
    """All but whose turn it is, which alone depends on how many worlds there are."""
    return dataclasses.replace(state, episode_index=jnp.zeros_like(state.episode_index))


@pytest.mark.parametrize(("task", "domain"), [(WALLED, masses), (toys.Swing(), None)])
def test_a_world_is_its_key_however_many_there_are(task, domain):
    steps, most = 23, 300
    taken = actions(steps, most, env_of(task))
    fold_in = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    keys = lambda: fold_in(jax.random.key(8), jnp.arange(most))  # noqa: E731

    def run(rows: slice) -> tuple[Any, Any, Step]:
        worlds = worlds_of(task, rows.stop - rows.start, 9, domain)
        start = worlds.reset(keys()[rows])
        last, got = roll(worlds, start, taken[:, rows])
        return _words(without_turn(start)), _words(without_turn(last)), got

    everyone = run(slice(0, most))
    for rows in (slice(0, 64), slice(0, 1), slice(7, 8), slice(299, 300)):
        start, last, got = run(rows)
        pick = lambda tree: jax.tree.map(lambda x: x[rows], tree)  # noqa: B023, E731
        assert_bits(start, pick(everyone[0]))
        assert_bits(last, pick(everyone[1]))
        assert_bits(got, jax.tree.map(lambda x: x[:, rows], everyone[2]))  # noqa: B023
    # From one key world i gets that of its number.
    start = worlds_of(task, most, 9, domain).reset(jax.random.key(8))
    assert_bits(without_turn(start), everyone[0])


def test_a_domain_draws_anew_for_every_episode():
    num_worlds = 6
    worlds = worlds_of(PUCK, num_worlds, 2, masses)
    state, drawn = worlds.reset(jax.random.key(5)), []
    for _ in range(5):
        drawn.append(np.asarray(state.variation["body_mass"])[:, 1])
        for _ in range(2):
            before = np.asarray(state.variation["body_mass"])
            state, _ = worlds.step(state, np.zeros((num_worlds, 2), np.float32))
    drawn = np.array(drawn)
    assert len(np.unique(drawn)) == drawn.size
    assert ((drawn >= 1) & (drawn <= 3)).all()
    assert (before != state.variation["body_mass"])[:, 1].all()
    # It is the key's own: world 2, third episode.
    key = jax.random.fold_in(jax.random.key(5), 2)
    for _ in range(2):
        key = jax.random.split(key, 4)[0]
    assert drawn[2, 2] == masses(jax.random.split(key, 4)[2])["body_mass"][1]


def test_without_a_domain_a_world_keeps_its_variation():
    worlds = worlds_of(PUCK, 3, 2)
    variation = {"body_mass": jnp.array([[0.0, 1.0], [0.0, 2.0], [0.0, 4.0]])}
    state = worlds.reset(jax.random.key(0), variation)
    state, _ = roll(worlds, state, np.zeros((4, 3, 2), np.float32))
    velocity = np.asarray(state.env.physics.qvel)[:, 0]
    state, got = worlds.step(state, np.tile(np.float32([1, 0]), (3, 1)))
    # 1 N for 0.02 s on 1, 2 and 4 kg.
    gained = np.asarray(got.final_obs)[:, 2] - velocity
    np.testing.assert_allclose(gained, [0.02, 0.01, 0.005], rtol=1e-4)
    np.testing.assert_array_equal(state.variation["body_mass"], variation["body_mass"])


#: First actions that break something.
BREAKS = {"physics": 3.0, "obs": 4.0, "reward": 5.0, "action": np.nan}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Fragile(toys.Puck):
    """Something breaks where the first action says so."""

    def mjcf(self) -> str:
        return toys.PUCK.replace('ctrlrange="-1 1"', "")

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return -np.ones(2, np.float32), np.ones(2, np.float32)

    def control(self, action: Any, physics: Any, memory: Any) -> Any:
        return jnp.where(action[0] == BREAKS["physics"], 1e30 * action, action)

    def observe(self, physics: Any, memory: Any) -> Any:
        return jnp.where(memory < 0, jnp.nan, super().observe(physics, memory))

    def outcome(self, before: Any, action: Any, after: Any, memory: Any) -> Outcome:
        good = super().outcome(before, action, after, memory)
        return dataclasses.replace(
            good,
            reward=jnp.where(action[0] == BREAKS["reward"], jnp.inf, good.reward),
            memory=jnp.where(action[0] == BREAKS["obs"], -1, good.memory),
            metrics={"half": jnp.where(action[0] > 1, jnp.nan, 0.5)},
        )


FRAGILE = Fragile()

BAD = ["qpos", "qvel", "too large", "obs"]


@functools.cache
def scanned(worlds: Worlds) -> Any:
    return jax.jit(lambda state, actions: jax.lax.scan(worlds.step, state, actions))


@pytest.mark.parametrize("breaks", BREAKS)
def test_a_bad_world_stays_alone(breaks):
    num_worlds, steps, bad_world, bad_step = 6, 8, 2, 3
    worlds = worlds_of(FRAGILE, num_worlds, 10)
    taken = actions(steps, num_worlds, worlds.env)
    good_last, good = roll(worlds, worlds.reset(jax.random.key(6)), taken)
    broken = jnp.asarray(taken).at[bad_step, bad_world, 0].set(BREAKS[breaks])
    # In a program of the caller's, where nobody sees that an action is not a number.
    last, got = jax.device_get(_words(scanned(worlds)(worlds.reset(jax.random.key(6)), broken)))

    others = np.arange(num_worlds) != bad_world
    assert_bits(*(jax.tree.map(lambda x: x[:, others], tree) for tree in (got, good)))
    assert_bits(*(jax.tree.map(lambda x: x[others], tree) for tree in (last, _words(good_last))))
    # The broken world: no reward, cut off where it last was well, counted, and begun anew.
    world = jax.tree.map(lambda x: x[:, bad_world], got)
    hit = np.arange(steps) == bad_step
    np.testing.assert_array_equal(world.metrics["diverged"], hit)
    np.testing.assert_array_equal(world.truncated, hit)
    assert not world.terminated.any()
    assert world.reward[bad_step] == 0
    assert world.metrics["half"][bad_step] == 0
    np.testing.assert_array_equal(world.final_obs[bad_step], world.final_obs[bad_step - 1])
    assert (
        world.metrics["episode_return"][bad_step] == world.metrics["episode_return"][bad_step - 1]
    )
    assert world.metrics["episode_length"].tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    second = jax.random.split(jax.random.fold_in(jax.random.key(6), bad_world), 3)[0]
    start = alone(worlds.env)[0](jax.random.split(second, 3)[1])
    np.testing.assert_array_equal(world.obs[bad_step], start.obs)
    for leaf in jax.tree.leaves((last, got)):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize(
    ("physics", "bad"),
    [
        *itertools.product(["native", "fake"], BAD),
        ("mjx", "qpos"),
        *(pytest.param("mjx", bad, marks=pytest.mark.exhaustive) for bad in BAD[1:]),
    ],
)
def test_a_bad_start_is_an_episode_of_one_step_that_is_counted(bad, physics, nans_allowed):
    """It costs no other world a bit, and no number that is not finite leaves the environment."""
    num_worlds, steps = 16, 6
    taken = np.zeros((steps, num_worlds, 2), np.float32)
    worlds, whole = (
        worlds_of(toys.BadStart(bad=it), num_worlds, 3, None, physics) for it in (bad, "")
    )
    state, good_state = (it.reset(jax.random.key(2)) for it in (worlds, whole))
    hit = np.asarray(good_state.env.physics.qpos)[:, 0] > 0.3
    assert 0 < hit.sum() < num_worlds
    np.testing.assert_array_equal(state.env.diverged, hit)
    np.testing.assert_array_equal(state.obs[hit], 0)
    (_, got), (_, good) = roll(worlds, state, taken), roll(whole, good_state, taken)
    np.testing.assert_array_equal(got.metrics["diverged"][0], hit)
    np.testing.assert_array_equal(got.truncated[0], hit)
    np.testing.assert_array_equal(got.metrics["episode_length"][0], 1)
    np.testing.assert_array_equal(got.reward[0, hit], 0)
    assert not got.terminated.any()
    for leaf in jax.tree.leaves(got):
        assert np.isfinite(leaf).all()
    first = jax.tree.map(lambda x: x[:3, ~hit], got)
    assert_bits(first.reward, good.reward[:3, ~hit])
    assert_bits(first.final_obs, good.final_obs[:3, ~hit])


def test_nothing_recompiles():
    traces = []

    class Counted(toys.Puck):
        def observe(self, physics, memory):
            traces.append(1)
            return super().observe(physics, memory)

    worlds = Worlds(env_of(Counted(wall=0.8)), 5, episode_length=4)
    ones, counts = np.ones((5, 2), np.float32), []
    for seed in range(3):
        variation = {"body_mass": np.array([0, 1 + seed], np.float32) * ones}
        state = worlds.reset(jax.random.key(seed), variation)
        for step in range(6):
            state, _ = worlds.step(state, step * 0.1 * ones)
        state, _ = worlds.step(state, jnp.asarray(0.3 * ones))
        for ended in (np.zeros(5, bool), np.arange(5) < 2, np.ones(5, bool)):
            state = worlds.reset_where(state, ended)
        counts.append(len(traces))
    assert counts == [counts[0]] * 3


def test_a_masked_step_moves_the_masked_worlds_alone():
    num_worlds = 9
    worlds = worlds_of(WALLED, num_worlds, 5)
    state = worlds.reset(jax.random.key(0))
    mask = np.arange(num_worlds) % 3 != 1
    rows = lambda tree, mask: jax.tree.map(lambda x: np.asarray(x)[mask], _words(tree))  # noqa: E731
    for taken in actions(8, num_worlds, worlds.env):
        whole_state, whole = worlds.step(state, taken)
        some_state, some = worlds.step(state, taken, mask)
        assert_bits(rows((some_state, some), mask), rows((whole_state, whole), mask))
        assert_bits(rows(some_state, ~mask), rows(state, ~mask))
        still = jax.device_get(rows(some, ~mask))
        np.testing.assert_array_equal(still.obs, np.asarray(state.obs)[~mask])
        np.testing.assert_array_equal(still.final_obs, still.obs)
        for leaf in jax.tree.leaves(still._replace(obs=(), final_obs=())):
            assert not leaf.any()
        state = whole_state


def test_observations_may_be_dicts():
    class Dict(toys.Puck):
        def observe(self, physics, memory):
            return {"state": physics.qvel, "privileged_state": physics.qpos}

    worlds = Worlds(Env(Dict(), "fake"), 3, episode_length=2)
    state = worlds.reset(jax.random.key(0))
    assert state.obs["state"].shape == (3, 2)
    state, _ = worlds.step(state, np.zeros((3, 2), np.float32))
    state, got = worlds.step(state, np.zeros((3, 2), np.float32))
    assert (got.obs["state"] != got.final_obs["state"]).all()
    np.testing.assert_array_equal(got.obs["state"], state.obs["state"])


def test_a_memory_may_hold_keys(key_reuse_allowed):
    class Dice(toys.Puck):
        def start(self, key):
            draw, keep = jax.random.split(key)
            good = super().start(draw)
            return Start(qpos=good.qpos, qvel=good.qvel, memory=keep)

        def outcome(self, before, action, after, memory):
            throw = jax.random.uniform(jax.random.fold_in(memory, 1))
            return Outcome(reward=throw, terminated=throw > 2, memory=memory)

    worlds = Worlds(Env(Dice(), "fake"), 3, episode_length=2)
    state = worlds.reset(jax.random.key(0))
    first = []
    for _ in range(4):
        state, got = worlds.step(state, np.zeros((3, 2), np.float32))
        first.append(np.asarray(got.reward))
    np.testing.assert_array_equal(first[0], first[1])
    assert (first[1] != first[2]).all()


def test_errors_say_what_and_the_mend():
    env = Env(toys.Puck(), "fake")
    with pytest.raises(ConfigError, match="num_worlds is 0; give 1 or more"):
        Worlds(env, 0)
    with pytest.raises(ConfigError, match="episode_length is -2; give steps, or 0 for no limit"):
        Worlds(env, 1, -2)
    worlds = Worlds(env, 3)
    with pytest.raises(ConfigError, match=r"the keys have shape \(2,\); give one key, or 3 keys"):
        worlds.reset(jax.random.split(jax.random.key(0), 2))
    state = worlds.reset(jax.random.key(0))
    with pytest.raises(ActionError, match=r"shape \(2,\); this environment takes \(3, 2\)"):
        worlds.step(state, np.zeros(2, np.float32))
    with pytest.raises(ActionError, match="dtype int64; give floating point"):
        worlds.step(state, np.zeros((3, 2), np.int64))
    with pytest.raises(ActionError, match=r"at index \(1, 0\) is nan; it must be finite"):
        worlds.step(state, np.array([[0, 0], [np.nan, 0], [0, 0]], np.float32))
    for call in (worlds.reset_where, lambda s, m: worlds.step(s, np.zeros((3, 2)), m)):
        with pytest.raises(ConfigError, match=r"the mask has shape \(2,\); it must be \(3,\)"):
            call(state, np.ones(2, bool))
