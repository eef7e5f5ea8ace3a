"""The TorchRL environment: what TorchRL's own suites ask of such environments, and what we add."""

import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from puck_twin import LIMIT, PuckWithDict, puck

import toys
import worldline
from worldline.bridges.resets import seed_keys
from worldline.errors import ActionError, ConfigError, TaskError
from worldline.rendering.frames import FrameRenderer

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

from tensordict import TensorDict  # noqa: E402
from torchrl.envs import RewardSum, StepCounter, TransformedEnv, step_mdp  # noqa: E402
from torchrl.envs.utils import check_env_specs  # noqa: E402

from worldline.bridges.torchrl import (  # noqa: E402
    WorldlineEnv,
    WorldlineWrapper,
)

# NumPy's functions take tensors, with a warning that is not about us.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")

B = 6
#: Not the batch of the worlds' own, on purpose.
SHAPE = [2, 3]


@functools.cache
def worlds(kind: type[toys.Puck] = toys.Puck) -> worldline.Worlds:
    return worldline.Worlds(puck(kind), B)


@functools.cache
def made(name: str) -> WorldlineWrapper:
    """Environments, compiled once for all tests; a reset after `set_seed` makes them like new."""
    build: dict[str, Callable[[], WorldlineWrapper]] = {
        "grid": lambda: WorldlineWrapper(worlds(), batch_size=SHAPE),
        "row": lambda: WorldlineWrapper(worlds(PuckWithDict)),
        "one": lambda: WorldlineWrapper(worldline.Worlds(puck(), 1), batch_size=[]),
        "skip": lambda: WorldlineWrapper(worlds(), frame_skip=3),
        "grad": lambda: WorldlineWrapper(worlds(), requires_grad=True),
    }
    return build[name]()


@pytest.fixture
def grid() -> WorldlineWrapper:
    env = made("grid")
    env.set_seed(0)
    return env


def rollout(env: WorldlineWrapper, seed: int, steps: int = 20, **options: Any) -> TensorDict:
    """A rollout under random actions that depend on the seed alone."""
    env.set_seed(seed)
    torch.manual_seed(seed)
    return env.rollout(steps, **{"break_when_any_done": False, **options})


class TestSpecs:
    @pytest.mark.parametrize("name", ["grid", "row", "one", "skip", "grad"])
    def test_torchrls_check(self, name: str) -> None:
        check_env_specs(made(name), seed=0, break_when_any_done="both")

    def test_they_are_those_of_the_task(self, grid: WorldlineWrapper) -> None:
        assert grid.batch_size == torch.Size(SHAPE)
        np.testing.assert_array_equal(grid.action_spec.space.low, -np.ones((*SHAPE, 2)))
        np.testing.assert_array_equal(grid.action_spec.space.high, np.ones((*SHAPE, 2)))
        assert set(grid.full_done_spec.keys()) == {"done", "terminated", "truncated"}
        assert grid.observation_spec["observation"].shape == torch.Size([*SHAPE, 4])

    def test_actions_have_their_own_bounds(self) -> None:
        spec = WorldlineEnv("gym/humanoid", physics="fake").action_spec
        assert (spec.space.high == torch.tensor(0.4)).all()
        assert spec.shape == torch.Size([17])

    def test_a_dict_keeps_its_keys(self) -> None:
        reset = made("row").reset()
        assert {"state", "privileged_state", "world"} < set(reset.keys())
        assert "observation" not in reset

    def test_what_travels_is_one_tensor(self, grid: WorldlineWrapper) -> None:
        reset = grid.reset()
        assert set(reset.keys()) == {"observation", "world", "done", "terminated", "truncated"}
        assert reset["world"].dtype is torch.int32

    def test_every_task_has_its_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from worldline.tasks import registry

        monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
        worldline.register("tests/swing", toys.Swing)
        assert WorldlineEnv.available_envs == worldline.list_tasks()
        assert "tests/swing" in WorldlineEnv.available_envs


class TestSeeds:
    def test_the_same_seed_gives_the_same_rollout(self, grid: WorldlineWrapper) -> None:
        first, again, other = (rollout(grid, seed) for seed in (7, 7, 8))
        assert (first == again).all()
        assert not (first == other).all()

    def test_they_are_keys_of_worlds(self, grid: WorldlineWrapper) -> None:
        grid.set_seed(5)
        state = worlds().reset(seed_keys(range(5, 5 + B)))
        obs = grid.reset()["observation"]
        np.testing.assert_array_equal(obs.reshape(B, 4), state.obs)

    def test_resets_without_one_go_on(self, grid: WorldlineWrapper) -> None:
        starts = [grid.reset()["observation"] for _ in range(3)]
        assert len(np.unique(np.stack(starts)[..., 0])) == 3 * B

    def test_torchs_generator_is_the_seed_where_there_is_none(self) -> None:
        env, starts = made("one"), []
        for torch_seed in (1, 1, 2):
            env.set_seed(None)
            torch.manual_seed(torch_seed)
            starts.append(env.reset()["observation"])
        assert (starts[0] == starts[1]).all()
        assert (starts[0] != starts[2]).any()


def pieces(data: TensorDict) -> Iterator[tuple[TensorDict, TensorDict]]:
    """Each step of a rollout, and the one after it."""
    time = data.batch_dims - 1
    yield from zip(data.unbind(time)[:-1], data.unbind(time)[1:], strict=True)


class TestEpisodes:
    def test_a_rollout_is_continuous_and_ends_where_it_says(self, grid: WorldlineWrapper) -> None:
        ends = 0
        for now, after in pieces(rollout(grid, 1)):
            done = now["next", "done"][..., 0]
            successor, obs = now["next", "observation"], after["observation"]
            assert (successor[~done] == obs[~done]).all()
            assert (successor[done] != obs[done]).any(-1).all()
            assert not after["done"].any()
            ends += int(done.sum())
        assert ends > B

    def test_ends_have_their_reasons(self, grid: WorldlineWrapper) -> None:
        data = rollout(grid, 1)["next"]
        assert data["terminated"].any()
        assert data["truncated"].any()
        assert not (data["terminated"] & data["truncated"]).any()
        assert (data["done"] == data["terminated"] | data["truncated"]).all()

    def test_it_stops_where_any_episode_ends(self, grid: WorldlineWrapper) -> None:
        data = rollout(grid, 1, break_when_any_done=True)
        done = data["next", "done"]
        assert done[..., -1, :].any()
        assert not done[..., :-1, :].any()

    def test_it_stops_where_all_have_ended(self, grid: WorldlineWrapper) -> None:
        options = {"break_when_any_done": False, "break_when_all_done": True}
        data = rollout(grid, 1, **options)
        whole = rollout(grid, 1)[..., : data.shape[-1]]
        done = data["next", "done"]
        assert done[..., -1, :].all()
        first = whole["next", "done"].long().cumsum(-2).cumsum(-2) <= 1  # until its first end
        for key in ("observation", "reward", "done"):
            mine, same = data["next", key], whole["next", key]
            assert (mine[first.expand_as(mine)] == same[first.expand_as(same)]).all()

    def test_single_environment_rollouts(self) -> None:
        data = rollout(made("one"), 3)
        assert data.shape == torch.Size([20])
        assert data["next", "done"].sum() >= 20 // LIMIT


class TestResets:
    def test_a_mask_resets_its_worlds_alone(self, grid: WorldlineWrapper) -> None:
        before = step_mdp(grid.rand_step(grid.reset()))
        mask = torch.tensor([[True, False, True], [False, False, True]])[..., None]
        after = grid.reset(before.clone().set("_reset", mask), set_state=False)
        rows = mask[..., 0]
        for key in ("observation", "world"):
            assert (after[key][~rows] == before[key][~rows]).all()
            assert (after[key][rows] != before[key][rows]).any(-1).all()

    def test_masked_worlds_get_fresh_starts_and_the_others_keep_their_keys(
        self, grid: WorldlineWrapper
    ) -> None:
        mask = torch.zeros(*SHAPE, 1, dtype=torch.bool)
        mask[0, 1] = True
        state = worlds().reset(seed_keys(range(B)))
        tensordict = grid.reset()
        for _ in range(3):
            tensordict = grid.reset(tensordict.set("_reset", mask), set_state=False)
            state = worlds().reset_where(state, mask.reshape(-1).numpy())
            np.testing.assert_array_equal(tensordict["observation"].reshape(B, 4), state.obs)
        np.testing.assert_array_equal(
            grid.reset()["observation"].reshape(B, 4),
            worlds().reset_where(state, np.ones(B, bool)).obs,
        )

    def test_an_episode_that_ended_costs_no_second_start(self, grid: WorldlineWrapper) -> None:
        """The start that the step has drawn is the one that a reset shows: no key is lost."""
        state, data = worlds().reset(seed_keys(range(1, 1 + B))), rollout(grid, 1)
        for now, after in pieces(data):
            state, _ = worlds().step(state, now["action"].reshape(B, 2).numpy())
            np.testing.assert_array_equal(after["observation"].reshape(B, 4), state.obs)

    @pytest.mark.parametrize(
        "mask", [torch.ones(4, 1, dtype=torch.bool), torch.ones(*SHAPE, 1, dtype=torch.int32)]
    )
    def test_a_bad_mask_is_refused(self, grid: WorldlineWrapper, mask: Any) -> None:
        with pytest.raises(ConfigError, match=r"it must be \[2, 3, 1\] and torch.bool"):
            grid._reset(TensorDict({"_reset": mask}))


class TestState:
    def test_a_step_is_a_function_of_its_tensordict(self, grid: WorldlineWrapper) -> None:
        start = grid.rand_action(grid.reset())
        first = grid.step(start.clone())
        for _ in range(3):
            grid.rand_step(step_mdp(first))
        assert (grid.step(start.clone())["next"] == first["next"]).all()

    def test_worlds_can_be_set(self, grid: WorldlineWrapper) -> None:
        kept = step_mdp(grid.rand_step(grid.reset()))
        grid.reset()
        back = grid.reset(kept.clone(), set_state=True)
        assert (back["observation"] == kept["observation"]).all()
        action = grid.action_spec.rand()
        steps = [grid.step(td.clone().set("action", action)) for td in (kept, back)]
        assert (steps[0]["next"] == steps[1]["next"]).all()

    def test_only_those_of_a_mask_are_set(self, grid: WorldlineWrapper) -> None:
        kept, now = grid.reset(), grid.reset()
        mask = torch.tensor([[True, False, False], [False, True, False]])[..., None]
        given = now.clone().set("_reset", mask).set("world", kept["world"])
        back = grid.reset(given, set_state=True)["observation"]
        wanted = torch.where(mask, kept["observation"], now["observation"])
        assert (back == wanted).all()

    def test_no_tensor_is_anybody_elses(self, grid: WorldlineWrapper) -> None:
        """To write into everything that was given changes nothing of what comes."""
        clean = rollout(grid, 2)
        grid.set_seed(2)
        tensordict = grid.reset()
        for t, action in enumerate(clean["action"].unbind(-2)):
            given = grid.step(tensordict.clone().set("action", action))
            wanted = given.clone()
            follow = grid.maybe_reset(step_mdp(given))
            kept = follow.clone()
            for leaf in (*tensordict.values(True, True), *given.values(True, True)):
                leaf.fill_(1)
            for leaf in follow.values(True, True):
                leaf.fill_(1)
            tensordict = kept
            for key in ("observation", "reward", "done"):
                assert (wanted["next", key] == clean["next", key][..., t, :]).all()

    def test_what_a_program_gives_is_not_copied(
        self, grid: WorldlineWrapper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        advance, given = grid._programs.advance, {}

        def noted(*arguments: Any) -> Any:
            result = advance(*arguments)
            given.update(result[0])
            return result

        monkeypatch.setattr(grid._programs, "advance", noted)
        after = grid.rand_step(grid.reset())["next"]
        for name in ("observation", "reward", "done", "terminated", "truncated"):
            assert after[name].data_ptr() == given[name].unsafe_buffer_pointer()
        assert after["world"].data_ptr() != given["world"].unsafe_buffer_pointer()  # kept as well

    def test_one_program_a_step_and_none_where_an_episode_ended(
        self, grid: WorldlineWrapper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[str] = []
        for name in ("start", "begin", "put", "unpack", "advance"):
            program = getattr(grid._programs, name)

            def noted(*arguments: Any, name: str = name, program: Any = program) -> Any:
                ran.append(name)
                return program(*arguments)

            monkeypatch.setattr(grid._programs, name, noted)
        data = grid.rollout(20, break_when_any_done=False)
        assert data["next", "done"].sum() > B
        assert ran == ["start"] + ["advance"] * 20

    def test_nothing_recompiles(self, grid: WorldlineWrapper) -> None:
        rollout(grid, 0)
        before = grid._programs.advance.__wrapped__._cache_size()
        rollout(grid, 5)
        assert grid._programs.advance.__wrapped__._cache_size() == before

    @pytest.mark.exhaustive
    def test_memory_is_flat(self, grid: WorldlineWrapper) -> None:
        def step_on(tensordict: TensorDict, steps: int) -> TensorDict:
            for _ in range(steps):
                _, tensordict = grid.step_and_maybe_reset(grid.rand_action(tensordict))
            return tensordict

        tensordict = step_on(grid.reset(), 200)
        gc.collect()
        before = psutil.Process().memory_info().rss
        step_on(tensordict, 2000)
        gc.collect()
        assert psutil.Process().memory_info().rss - before < 20e6


class TestFrameSkip:
    def test_it_takes_an_action_again_until_the_episode_ends(self) -> None:
        env = made("skip")
        env.set_seed(3)
        state, tensordict = worlds().reset(seed_keys(range(3, 3 + B))), env.reset()
        ends = 0
        for _ in range(8):
            now, tensordict = env.step_and_maybe_reset(env.rand_action(tensordict))
            action, given = now["action"].numpy(), now["next"]
            reward, over = np.zeros(B, np.float32), np.zeros(B, bool)
            last = np.zeros((B, 4), np.float32)
            for _ in range(3):
                state, step = worlds().step(state, action, ~over)
                reward += np.asarray(step.reward)
                last = np.where(over[:, None], last, step.final_obs)
                over = over | np.asarray(step.terminated | step.truncated)
            np.testing.assert_array_equal(given["observation"], last)
            np.testing.assert_allclose(given["reward"][:, 0], reward, rtol=1e-6)
            np.testing.assert_array_equal(given["done"][:, 0], over)
            np.testing.assert_array_equal(tensordict["observation"], state.obs)
            ends += over.sum()
        assert ends > B


class TestPixels:
    @pytest.fixture(autouse=True)
    def rays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same pictures on every machine."""
        monkeypatch.setenv("MUJOCO_GL", "disable")

    def test_they_show_what_is_observed(self) -> None:
        options = {"from_pixels": True, "pixels_size": (24, 32)}
        env = WorldlineWrapper(worldline.Worlds(puck(), 2), seed=4, **options)
        assert env.observation_spec["pixels"].shape == torch.Size([2, 24, 32, 3])
        renderer, ends = FrameRenderer(env.worlds.env.model, {}, (24, 32)), 0
        data = env.rollout(8, break_when_any_done=False)
        for now in data.unbind(1):
            for part in (now, now["next"]):
                for pixels, obs in zip(part["pixels"], part["observation"], strict=True):
                    frame = renderer.draw(obs[None, :2].numpy(), {}, {})[0]
                    np.testing.assert_array_equal(pixels, frame)
            ends += int(now["next", "done"].sum())
        assert ends > 0

    def test_they_may_be_all(self) -> None:
        options = {"from_pixels": True, "pixels_only": True, "pixels_size": (16, 16)}
        env = WorldlineWrapper(worldline.Worlds(puck(), 1), batch_size=[], **options)
        assert set(env.reset().keys()) - {"done", "terminated", "truncated"} == {"pixels", "world"}


class TestTorchRL:
    """With the rest of TorchRL."""

    def test_transforms(self, grid: WorldlineWrapper) -> None:
        env = TransformedEnv(grid, StepCounter())
        env.append_transform(RewardSum())
        env.set_seed(0)
        data = env.rollout(15, break_when_any_done=False)
        assert data["next", "step_count"].max() == LIMIT
        done = data["next", "done"]
        assert done.sum() > B
        whole, total = data["next", "episode_reward"], torch.zeros(*SHAPE, 1)
        for t in range(15):
            total = total + data["next", "reward"][..., t, :]
            torch.testing.assert_close(whole[..., t, :], total)
            total = total * ~done[..., t, :]

    def test_a_collector(self) -> None:
        from torchrl.collectors import Collector

        env = made("row")
        sizes = {"frames_per_batch": B * 5, "total_frames": B * 15}
        batches = [batch.clone() for batch in Collector(env, None, **sizes)]
        assert [batch.numel() for batch in batches] == [B * 5] * 3
        for now, after in pieces(torch.cat(batches, 1)):
            going = ~now["next", "done"][..., 0]
            assert (now["next", "state"][going] == after["state"][going]).all()


class TestRefusals:
    def test_of_what_cannot_be_built(self) -> None:
        of = worlds()
        with pytest.raises(ConfigError, match=r"batch_size \[4\] has 4 elements for 6 worlds"):
            WorldlineWrapper(of, batch_size=[4])
        with pytest.raises(ConfigError, match="frame_skip is 0; give 1"):
            WorldlineWrapper(of, frame_skip=0)
        without = worldline.Worlds(worldline.Env(toys.Puck(), "warp"), B)
        with pytest.raises(ConfigError, match="'warp' has no derivatives; leave requires_grad out"):
            WorldlineWrapper(without, requires_grad=True)
        with pytest.raises(ConfigError, match="set from_pixels too"):
            WorldlineWrapper(of, pixels_only=True)
        with pytest.raises(TaskError, match="did you mean 'gym/ant'"):
            WorldlineEnv("gym/amt")

    @pytest.mark.parametrize(
        ("action", "message"),
        [
            (torch.zeros(*SHAPE, 3), r"shape \(6, 3\); this environment takes \(6, 2\)"),
            (torch.zeros(*SHAPE, 2, dtype=torch.int32), "give floating point numbers"),
            (torch.full((*SHAPE, 2), float("nan")), "must be finite"),
        ],
    )
    def test_of_bad_actions(self, grid: WorldlineWrapper, action: Any, message: str) -> None:
        with pytest.raises(ActionError, match=message):
            grid.step(grid.reset().set("action", action))

    def test_of_a_tensordict_without_worlds(self, grid: WorldlineWrapper) -> None:
        bare = grid.rand_action(grid.reset()).exclude("world")
        with pytest.raises(ConfigError, match="no 'world'; give one that reset or step returned"):
            grid.step(bare)
