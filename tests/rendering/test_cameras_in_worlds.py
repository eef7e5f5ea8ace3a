"""Images in worlds: the true frames at the true moments, and none that nobody sees."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from viewers import world

import toys
from worldline.bridges.vector import VectorEnv
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.rendering.camera import Camera

LENGTH, STACK = 4, 3
SCENE = toys.PUCK.replace(
    "<worldbody>",
    "<worldbody><camera name='top' pos='0 0 3'/>"
    "<geom type='box' size='.1 .3 .1' pos='.7 0 -.3' rgba='0 0 1 1'/>",
)


@functools.cache
def worlds():
    task = toys.Puck(wall=0.4, episode_length=LENGTH, mjcf_text=SCENE)
    camera = Camera("top", 20, 24, depth=True, stack=STACK)
    return Worlds(Env(task), 3, cameras={"top": camera})


@functools.cache
def rolled(steps=11):
    """The first observation, and the steps after it, by a scan inside a jit."""
    start = worlds().reset(jax.random.key(3))
    actions = jax.random.uniform(jax.random.key(4), (steps, 3, 2), minval=-1.0)
    state, taken = jax.jit(functools.partial(jax.lax.scan, worlds().step))(start, actions)
    return jax.device_get((start.obs, taken)), (start, state, actions)


@functools.cache
def frame(x, y):
    """What the camera sees of a puck at a place: colours, and distances."""
    images = jax.device_get(worlds().env.cameras.first(world(np.float32([x, y]))))
    return images["pixels/top"][..., :3], images["depth/top"][..., :1]


def of_state(state):
    return frame(float(state[0]), float(state[1]))


def _at(time, obs):
    return {name: value[time] for name, value in obs.items()}


def assert_shows(obs, row, frames):
    for index, name in enumerate(("pixels/top", "depth/top")):
        stack = np.concatenate([each[index] for each in frames], axis=-1)
        np.testing.assert_array_equal(obs[name][row], stack)


def test_every_frame_is_the_true_one():
    """Stacks hold the frames of their own episode, `final_obs` the last one of the old."""
    (first, taken), _ = rolled()
    ended = taken.terminated | taken.truncated
    assert taken.terminated.any()
    assert taken.truncated.any()
    for row in range(3):
        frames = [of_state(first["state"][row])] * STACK
        assert_shows(first, row, frames)
        for time in range(len(ended)):
            final, obs = _at(time, taken.final_obs), _at(time, taken.obs)
            frames = [*frames[1:], of_state(final["state"][row])]
            assert_shows(final, row, frames)
            if ended[time, row]:
                frames = [of_state(obs["state"][row])] * STACK
            assert_shows(obs, row, frames)


def test_each_world_is_drawn_once_a_step_and_once_a_reset(monkeypatch):
    (_, taken), (state, _, actions) = rolled()
    renderers, drawn = worlds().env.cameras._renderers, []
    draw = renderers.draw

    def count(world, rows):
        drawn.append(len(rows))
        return draw(world, rows)

    monkeypatch.setattr(renderers, "draw", count)
    for time, action in enumerate(actions):
        drawn.clear()
        state, step = worlds().step(state, action)
        jax.block_until_ready(step)
        ended = int((taken.terminated | taken.truncated)[time].sum())
        assert sorted(drawn, reverse=True) == [3, *([ended] if ended else [])]
        for name, image in jax.device_get(step.obs).items():
            np.testing.assert_array_equal(image, taken.obs[name][time])


def test_an_action_taken_again_draws_no_more(monkeypatch):
    repeating = worlds().repeating(3)
    renderers, drawn = repeating.env.cameras._renderers, []
    draw = renderers.draw

    def count(world, rows):
        drawn.append(len(rows))
        return draw(world, rows)

    monkeypatch.setattr(renderers, "draw", count)
    state = repeating.reset(jax.random.key(0))
    jax.block_until_ready(state)
    drawn.clear()
    state, step = repeating.step(state, jnp.zeros((3, 2)))
    jax.block_until_ready(step)
    ended = int((step.terminated | step.truncated).sum())
    assert sorted(drawn, reverse=True) == [3, *([ended] if ended else [])]


def test_a_masked_world_keeps_its_frames(monkeypatch):
    _, (state, _, actions) = rolled()
    after, _ = worlds().step(state, actions[0], jnp.array([True, False, True]))
    for name, image in jax.device_get(after.obs).items():
        np.testing.assert_array_equal(image[1], state.obs[name][1])
    assert (after.obs["state"][0] != state.obs["state"][0]).any()


def test_spaces_are_those_of_images():
    """Gymnasium's users get uint8 images, and so does a copy of the environment elsewhere."""
    env = VectorEnv(worlds())
    space = env.single_observation_space
    assert space["pixels/top"].dtype == np.uint8
    assert space["pixels/top"].shape == (20, 24, 9)
    assert space["pixels/top"].high.max() == 255
    assert space["depth/top"].dtype == np.uint16
    assert space["depth/top"].high.max() == 65535
    obs, _ = env.reset(seed=1)
    assert obs in env.observation_space
    copy = pickle.loads(pickle.dumps(env))
    other, _ = copy.reset(seed=1)
    for name, image in obs.items():
        np.testing.assert_array_equal(other[name], image)


def test_an_environment_has_them_too():
    """One world by itself; and the worlds' own cameras go before the environment's."""
    env = worlds().env
    state = env.reset(jax.random.key(0))
    expected = frame(*map(float, state.obs["state"][:2]))
    np.testing.assert_array_equal(state.obs["pixels/top"][..., -3:], expected[0])
    other = Worlds(env, 1, cameras={"small": Camera("top", 8, 8)})
    assert set(other.env.observation_space.spaces) == {"state", "pixels/small"}
    with pytest.raises(ConfigError, match="cameras is empty"):
        Worlds(env, 1, cameras={})


def test_an_environment_takes_open_cameras():
    """As is done to choose the renderer; two environments then share one."""
    env = worlds().env
    again = Env(env.task, cameras=env.cameras)
    assert again.cameras is env.cameras
    assert again.observation_space == env.observation_space
    with pytest.raises(ConfigError, match="no camera 'front'; there are top"):
        Env(env.task, cameras={"f": Camera("front")})


def test_torchrl_gets_the_same_images():
    """Distances as int32: torch does not compute with uint16."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchrl")
    from torchrl.envs.utils import check_env_specs

    from worldline.bridges.torchrl import WorldlineWrapper

    env = WorldlineWrapper(worlds())
    check_env_specs(env, seed=0)
    obs = env.reset()
    assert obs["pixels/top"].dtype is torch.uint8
    assert obs["depth/top"].dtype is torch.int32
    for row in range(3):
        assert_shows(obs, row, [of_state(obs["state"][row])] * STACK)
