"""VectorEnv on its own: what Gymnasium's interface asks beyond the modes, and what we add to it."""

import copy
import functools
import pickle
from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers
from puck_twin import MODES, PuckWithDict, programs

import toys
import worldline
from worldline.bridges.gymnasium import VectorEnv, make_vector_env, seed_keys
from worldline.errors import ActionError, ConfigError, ModelError, VariationError
from worldline.physics.native import NativePhysics
from worldline.rendering.frames import FrameRenderer

B = 3
modes = pytest.mark.parametrize("mode", MODES, ids=[mode.name for mode in MODES])
PUSH = np.full((B, 2), 0.5, np.float32)


def pucks(mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> VectorEnv:
    return VectorEnv(programs(B)[0], mode, **options)


def roll(env: Any, steps: int) -> Iterator[Any]:
    """What steps give, under the same actions each time; in DISABLED, with resets in between."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        step = env.step(random.uniform(-1, 1, (B, 2)).astype(np.float32))
        over = step[2] | step[3]
        yield step
        if env.metadata["autoreset_mode"] is AutoresetMode.DISABLED and over.any():
            env.reset(options={"reset_mask": over})


class TestSeeds:
    def test_the_same_seed_gives_the_same_trajectories(self) -> None:
        first, second = pucks(), pucks()
        for env in (first, second):
            env.reset(seed=7)
        assert data_equivalence(*(list(roll(env, 20)) for env in (first, second)), exact=True)
        first.reset(seed=7)
        second.reset(seed=8)
        assert not data_equivalence(*(list(roll(env, 20)) for env in (first, second)))

    def test_a_reset_without_a_seed_goes_on_and_is_determined_too(self) -> None:
        first, second = pucks(), pucks()
        starts = []
        for env in (first, second):
            env.reset(seed=7)
            starts.append([env.reset()[0] for _ in range(3)])
        np.testing.assert_array_equal(*starts)
        assert len(np.unique(starts[0][0])) == 4 * B
        assert not np.intersect1d(starts[0][0], starts[0][1]).size

    def test_environments_without_a_seed_differ(self) -> None:
        assert not np.intersect1d(pucks().reset()[0], pucks().reset()[0]).size

    def test_rows_of_the_same_seed_are_the_same_world(self) -> None:
        obs, _ = pucks().reset(seed=[5, 5, 6])
        np.testing.assert_array_equal(obs[0], obs[1])
        assert (obs[0] != obs[2]).all()

    def test_seeds_are_keys_of_worlds(self) -> None:
        obs, _ = pucks().reset(seed=5)
        state = programs(B)[0].reset(seed_keys([5, 6, 7]))
        np.testing.assert_array_equal(obs, state.obs)
        words = jax.random.key_data(seed_keys([5, 6]))
        np.testing.assert_array_equal(words[1], jax.random.key_data(jax.random.key(6)))

    def test_they_are_told_as_sync_vector_env_tells_them(self) -> None:
        env = pucks()
        assert len(set(env.np_random_seed)) == B
        before = env.np_random_seed
        env.reset()
        assert env.np_random_seed == before
        env.reset(seed=42)
        assert env.np_random_seed == (42, 43, 44)
        env.reset()
        assert env.np_random_seed == (42, 43, 44)
        env.reset(seed=[None, 1, 2], options={"reset_mask": np.array([True, True, False])})
        assert env.np_random_seed == (42, 1, 44)

    @pytest.mark.parametrize("seed", [-1, [1, -2, 3], [1, 2.5, 3], ["a", 1, 2], 2**32, 2**63])
    def test_what_is_no_seed_is_refused(self, seed: Any) -> None:
        with pytest.raises(gymnasium.error.Error, match="give an integer, 0 to 4294967295"):
            pucks().reset(seed=seed)

    def test_large_and_numpy_seeds_are_seeds(self) -> None:
        obs = [pucks().reset(seed=seed)[0] for seed in (3, np.int64(3), 2**32 - 1)]
        np.testing.assert_array_equal(obs[0], obs[1])
        # World i has the seed `seed + i`, which begins again at 0.
        np.testing.assert_array_equal(obs[2][1:], pucks().reset(seed=0)[0][:-1])


class TestResets:
    @modes
    def test_a_mask_resets_its_worlds_alone(self, mode: AutoresetMode) -> None:
        env = pucks(mode)
        first, _ = env.reset(seed=[0, 1, 2])
        before = env.step(PUSH)[0]
        mask = np.array([True, True, False])
        after, info = env.reset(seed=[0, 1, 0], options={"reset_mask": mask})
        np.testing.assert_array_equal(after[:2], first[:2])
        np.testing.assert_array_equal(after[2], before[2])
        assert info == {}

    def test_the_options_of_the_caller_stay_as_they_are(self) -> None:
        env, mask = pucks(), np.array([True, False, True])
        env.reset(seed=0)
        options = {"reset_mask": mask}
        env.reset(options=options)
        assert options["reset_mask"] is mask
        assert list(options) == ["reset_mask"]
        assert mask.tolist() == [True, False, True]

    def test_a_reset_of_all_by_mask_may_be_the_first(self) -> None:
        whole = pucks().reset(seed=3)[0]
        masked = pucks().reset(seed=3, options={"reset_mask": np.ones(B, bool)})[0]
        np.testing.assert_array_equal(whole, masked)

    def test_a_reset_of_some_may_not(self) -> None:
        with pytest.raises(gymnasium.error.ResetNeeded, match="without a mask"):
            pucks().reset(seed=3, options={"reset_mask": np.array([True, False, True])})

    def test_a_mask_cancels_the_reset_that_next_step_has_pending(self) -> None:
        env = pucks(AutoresetMode.NEXT_STEP)
        env.reset(seed=0)
        over = np.zeros(B, bool)
        while not over.any():
            _, _, terminated, truncated, _ = env.step(PUSH)
            over = terminated | truncated
        obs, _ = env.reset(options={"reset_mask": over})
        after, *_, info = env.step(PUSH)
        assert (after[over] != obs[over]).any(axis=1).all()
        assert info["_episode_length"].all()
        assert (info["episode_length"][over] == 1).all()

    def test_an_unknown_option_is_told_and_ignored(self) -> None:
        with pytest.warns(UserWarning, match="did you mean 'variation'"):
            pucks().reset(options={"varation": {}})

    def test_a_step_needs_a_reset(self) -> None:
        with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
            pucks().step(PUSH)

    def test_a_closed_environment_says_so(self) -> None:
        env = pucks()
        env.reset(seed=0)
        env.close()
        env.close()
        for use in (lambda: env.step(PUSH), env.reset):
            with pytest.raises(gymnasium.error.ClosedEnvironmentError):
                use()


@pytest.fixture(scope="module")
def worlds() -> worldline.Worlds:
    """Swings, on the native engine: the fake one has no use for constants."""
    return worldline.Worlds(worldline.Env(toys.Swing()), B)


class TestVariation:
    @staticmethod
    def damping(*values: float) -> dict[str, np.ndarray]:
        return {"dof_damping": np.array(values, np.float32)[:, None]}

    @staticmethod
    def swing(env: VectorEnv, steps: int = 5) -> np.ndarray:
        return np.stack([env.step(np.ones((B, 1), np.float32))[0] for _ in range(steps)])

    def test_worlds_have_their_own_constants_and_keep_them(self, worlds: Any) -> None:
        env = VectorEnv(worlds)
        varied = self.damping(0.02, 0.5, 2.0)
        env.reset(seed=[1, 1, 1], options={"variation": varied})
        final = self.swing(env)[-1]
        assert len(np.unique(final[:, 0])) == B
        state = worlds.reset(seed_keys([1, 1, 1]), varied)
        for _ in range(5):
            state, step = worlds.step(state, np.ones((B, 1), np.float32))
        np.testing.assert_array_equal(final, step.obs)
        env.reset(seed=[1, 1, 1])
        np.testing.assert_array_equal(self.swing(env)[-1], final)

    def test_a_mask_varies_its_worlds_alone(self, worlds: Any) -> None:
        env = VectorEnv(worlds)
        env.reset(seed=[1, 1, 1], options={"variation": self.damping(0.02, 0.5, 2.0)})
        final = self.swing(env)[-1]
        mask = np.array([False, True, True])
        other = self.damping(9.0, 2.0, 0.5)
        env.reset(seed=[1, 1, 1], options={"reset_mask": mask, "variation": other})
        env.reset(seed=[1, 1, 1])
        np.testing.assert_array_equal(self.swing(env)[-1], final[[0, 2, 1]])

    def test_an_empty_one_brings_the_models_own_back(self, worlds: Any) -> None:
        env = VectorEnv(worlds)
        env.reset(seed=1)
        final = self.swing(env)[-1]
        env.reset(seed=1, options={"variation": self.damping(1.0, 1.0, 1.0)})
        assert (self.swing(env)[-1] != final).any()
        env.reset(seed=1, options={"variation": {}})
        np.testing.assert_array_equal(self.swing(env)[-1], final)

    def test_what_cannot_be_is_refused(self, worlds: Any) -> None:
        env = VectorEnv(worlds)
        env.reset(seed=0)
        some = {"reset_mask": np.array([True, False, False])}
        good = self.damping(1.0, 1.0, 1.0)
        cases: list[tuple[Any, str]] = [
            ({"variation": {"dof_dampin": np.ones((B, 1))}}, "did you mean 'dof_damping'"),
            ({"variation": {"dof_damping": np.ones(1)}}, r"has shape \(1,\); give \(3, 1\)"),
            ({"variation": [1.0]}, "give a dict of fields"),
            ({"variation": good, **some}, "cannot change the fields that vary"),
        ]
        for options, message in cases:
            with pytest.raises(VariationError, match=message):
                env.reset(options=options)
        drawn = worldline.Worlds(worlds.env, B, domain=lambda key, model, ranges: {})
        with pytest.raises(VariationError, match="from a domain; give a variation or a domain"):
            VectorEnv(drawn).reset(seed=0, options={"variation": good})


class TestContext:
    def test_worlds_have_their_own_and_keep_it(self) -> None:
        env = VectorEnv(worldline.Worlds(worldline.Env(toys.Swing(), context=["gravity"]), B))
        given = np.array([-9.81, -1.0, 0.0], np.float32)
        obs, _ = env.reset(seed=[1, 1, 1], options={"context": {"gravity": given}})
        np.testing.assert_array_equal(obs["context"][:, 0], given)
        final = env.step(np.zeros((B, 1), np.float32))[0]["state"]
        assert len(np.unique(final[:, 1])) == B
        assert final[2, 1] == 0  # nothing pulls
        env.reset(seed=[1, 1, 1])
        again = env.step(np.zeros((B, 1), np.float32))[0]["state"]
        np.testing.assert_array_equal(again, final)
        with pytest.raises(VariationError, match="'gravty'"):
            env.reset(options={"context": {"gravty": given}})


class TestArrays:
    @modes
    @pytest.mark.parametrize("kind", [toys.Puck, PuckWithDict])
    def test_they_are_the_callers_to_change(self, mode: AutoresetMode, kind: type) -> None:
        left, right = (VectorEnv(programs(B, kind)[0], mode) for _ in range(2))
        given = [env.reset(seed=0) for env in (left, right)]
        random = np.random.default_rng(0)
        for _ in range(20):
            for leaf in jax.tree.leaves(given[0]):
                if leaf.dtype == object:
                    continue
                leaf.fill(1)
            action = random.uniform(-1, 1, (B, 2)).astype(np.float32)
            given = [env.step(action) for env in (left, right)]
            assert data_equivalence(given[0], given[1], exact=True)
            over = given[1][2] | given[1][3]
            if mode is AutoresetMode.DISABLED and over.any():
                for env in (left, right):
                    env.reset(options={"reset_mask": over.copy()})

    @modes
    def test_none_is_handed_out_twice(self, mode: AutoresetMode) -> None:
        env = pucks(mode)
        leaves = jax.tree.leaves([env.reset(seed=0), *roll(env, 12)])
        leaves += [
            final for leaf in leaves if leaf.dtype == object for final in leaf if final is not None
        ]
        for i, leaf in enumerate(leaves):
            assert leaf.flags.writeable
            assert not any(np.shares_memory(leaf, other) for other in leaves[:i])

    @modes
    def test_dtypes_and_shapes(self, mode: AutoresetMode) -> None:
        env = pucks(mode)
        obs, _ = env.reset(seed=0)
        assert obs in env.observation_space
        obs, reward, terminated, truncated, info = env.step(PUSH)
        assert obs in env.observation_space
        assert (reward.dtype, reward.shape) == (np.float64, (B,))
        for flags in (terminated, truncated):
            assert (flags.dtype, flags.shape) == (np.bool_, (B,))
        assert info["diverged"].dtype == np.bool_
        assert info["episode_length"].dtype == np.int32
        for name in ("x", "count", "episode_return", "episode_length", "diverged"):
            assert info[name].shape == info[f"_{name}"].shape == (B,)

    @pytest.mark.parametrize("kind", [np.asarray, np.float64, jax.numpy.asarray, np.ndarray.tolist])
    def test_actions_may_be_any_kind_of_array(self, kind: Any) -> None:
        ours, theirs = pucks(), pucks()
        ours.reset(seed=0)
        theirs.reset(seed=0)
        np.testing.assert_array_equal(ours.step(kind(PUSH))[0], theirs.step(PUSH)[0])

    @pytest.mark.parametrize(
        ("actions", "message"),
        [
            (np.zeros((B, 3), np.float32), r"shape \(3, 3\); this environment takes \(3, 2\)"),
            (np.zeros((B, 2), int), "give floating point numbers"),
            (np.full((B, 2), np.nan, np.float32), "must be finite"),
        ],
    )
    def test_bad_actions_are_refused(self, actions: Any, message: str) -> None:
        env = pucks()
        env.reset(seed=0)
        with pytest.raises(ActionError, match=message):
            env.step(actions)

    def test_spaces_are_not_shared(self) -> None:
        left, right = pucks(), pucks()
        left.action_space.seed(0)
        right.action_space.seed(0)
        first = left.action_space.sample()
        left.single_action_space.seed(1)
        np.testing.assert_array_equal(first, right.action_space.sample())
        assert left.single_action_space is not right.single_action_space


class TestWrappers:
    """Gymnasium's vector wrappers, as its own tutorials use them."""

    @modes
    def test_episode_statistics_agree_with_our_own(self, mode: AutoresetMode) -> None:
        env = wrappers.RecordEpisodeStatistics(pucks(mode))
        env.reset(seed=0)
        episodes = 0
        for *_, info in roll(env, 40):
            if "episode" not in info:
                continue
            over = info["_episode"]
            ours = info["final_info"] if mode is AutoresetMode.SAME_STEP else info
            np.testing.assert_allclose(
                info["episode"]["r"][over], ours["episode_return"][over], atol=1e-5
            )
            np.testing.assert_array_equal(info["episode"]["l"][over], ours["episode_length"][over])
            episodes += over.sum()
        assert episodes > B

    @pytest.mark.parametrize(
        "wrapper",
        [
            wrappers.NormalizeReward,
            lambda env: wrappers.ClipReward(env, 0.0, 0.1),
            lambda env: wrappers.RescaleAction(env, np.float32(-2), np.float32(2)),
            wrappers.ClipAction,
            wrappers.FlattenObservation,
            lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward),
            wrappers.DictInfoToList,
        ],
    )
    @pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
    def test_they_run(self, wrapper: Any, mode: AutoresetMode) -> None:
        env = wrapper(pucks(mode))
        env.reset(seed=0)
        for obs, reward, *_ in roll(env, 12):
            assert obs.shape == (B, 4)
            assert np.isfinite(obs).all()
            assert np.isfinite(reward).all()
        env.close()

    def test_normalised_observations(self) -> None:
        env = wrappers.NormalizeObservation(pucks(AutoresetMode.NEXT_STEP))
        env.reset(seed=0)
        obs = np.concatenate([step[0] for step in roll(env, 100)][50:])
        np.testing.assert_allclose(obs.mean(axis=0), 0.0, atol=0.5)
        np.testing.assert_allclose(obs.std(axis=0), 1.0, atol=0.5)

    def test_a_list_of_infos_has_one_for_each_world(self) -> None:
        env = wrappers.DictInfoToList(pucks())
        env.reset(seed=0)
        infos = env.step(PUSH)[-1]
        assert [sorted(info) for info in infos] == [
            ["count", "diverged", "episode_length", "episode_return", "x"]
        ] * B


class TestCopies:
    @modes
    @pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
    def test_a_copy_goes_on_as_the_original_does(self, mode: AutoresetMode, duplicate: Any) -> None:
        env = make_vector_env(B, worldline.Env(toys.Swing()), autoreset_mode=mode)
        env.reset(seed=0)
        push = np.ones((B, 1), np.float32)
        for _ in range(19):
            env.step(push)
        twin = duplicate(env)
        assert twin.autoreset_mode is mode
        assert twin.worlds.episode_length == 20
        for _ in range(3):
            given = [e.step(push) for e in (env, twin)]
            assert data_equivalence(given[0], given[1], exact=True)
            over = given[0][2] | given[0][3]
            if mode is AutoresetMode.DISABLED and over.any():
                given = [e.reset(options={"reset_mask": over}) for e in (env, twin)]
                assert data_equivalence(given[0], given[1], exact=True)

    def test_it_runs_on_an_engine_with_the_same_settings(self) -> None:
        engine = functools.partial(NativePhysics, num_threads=3)
        env = make_vector_env(B, worldline.Env(toys.Swing(), physics=engine))
        twin = pickle.loads(pickle.dumps(env))
        assert twin.worlds.env.physics.num_threads == 3

    def test_before_a_reset_too(self) -> None:
        env = make_vector_env(B, worldline.Env(toys.Swing()))
        seeds = env.np_random_seed
        twin = copy.deepcopy(env)
        assert twin.np_random_seed == seeds
        np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])


class TestRender:
    @pytest.fixture(autouse=True)
    def rays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same pictures on every machine."""
        monkeypatch.setenv("MUJOCO_GL", "disable")

    @modes
    def test_it_shows_each_world_as_the_mode_has_it(self, mode: AutoresetMode) -> None:
        """Where an episode ends, the end is seen: except in SAME_STEP, which is past it."""
        env = pucks(mode, render_mode="rgb_array", render_size=(24, 32))
        renderer = FrameRenderer(env.worlds.env.model, {}, (24, 32))
        obs, _ = env.reset(seed=0)
        over = np.zeros(B, bool)
        ends = 0
        for _ in range(8):
            frames = env.render()
            assert frames is not None
            for frame, row in zip(frames, obs, strict=True):
                assert (frame.shape, frame.dtype) == ((24, 32, 3), np.uint8)
                np.testing.assert_array_equal(frame, renderer.draw(row[None, :2], {}, {})[0])
            ends += over.sum()
            if mode is AutoresetMode.DISABLED and over.any():
                obs, _ = env.reset(options={"reset_mask": over})
            obs, _, terminated, truncated, _ = env.step(PUSH)
            over = terminated | truncated
        assert ends >= B
        env.close()

    def test_a_variation_is_seen(self) -> None:
        env = pucks(render_mode="rgb_array", render_size=(24, 32))
        model = env.worlds.env.model
        sizes = np.stack([factor * model.constant("geom_size") for factor in (1.0, 1.0, 3.0)])
        env.reset(seed=[0, 0, 0], options={"variation": {"geom_size": sizes}})
        frames = env.render()
        assert frames is not None
        np.testing.assert_array_equal(frames[0], frames[1])
        assert (frames[0] != frames[2]).any()

    def test_metadata_say_how_fast_and_how(self) -> None:
        env = pucks(render_mode="rgb_array")
        assert env.render_mode == "rgb_array"
        assert env.metadata["render_fps"] == 4
        assert "rgb_array" in env.metadata["render_modes"]

    def test_without_a_mode_it_says_so(self) -> None:
        env = pucks()
        env.reset(seed=0)
        with pytest.warns(UserWarning, match="rgb_array"):
            assert env.render() is None


class TestConstruction:
    def test_modes_that_do_not_exist(self) -> None:
        with pytest.raises(ConfigError, match="did you mean 'SameStep'"):
            pucks("samestep")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="give 'rgb_array', or None"):
            pucks(render_mode="human")

    @pytest.mark.parametrize(
        ("limits", "length"),
        [
            ({}, 1000),
            ({"max_episode_steps": 7}, 7),
            ({"episode_length": 7}, 7),
            ({"max_episode_steps": 7, "episode_length": 0}, 7),
            ({"max_episode_steps": 9, "episode_length": 7}, 7),
            ({"max_episode_steps": -1, "episode_length": 0}, 0),
            ({"max_episode_steps": -1}, 0),
        ],
    )
    def test_the_shorter_limit_counts(self, limits: dict[str, int], length: int) -> None:
        env = make_vector_env(2, "gym/inverted-pendulum", "fake", **limits)
        assert env.worlds.episode_length == length

    def test_a_made_environment_takes_no_configuration(self) -> None:
        with pytest.raises(ConfigError, match="give the options \\['wall'\\] to its task"):
            make_vector_env(2, programs(B)[0].env, wall=1.0)

    def test_an_engine_that_does_not_exist(self) -> None:
        with pytest.raises((ConfigError, ModelError), match="no physics engine"):
            make_vector_env(2, "gym/ant", "bullet")
