"""Gradients through TorchRL rollouts, beside `jax.grad` of `Worlds.step` and finite differences."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from puck_twin import puck

import toys
import worldline
from worldline.bridges.resets import seed_keys

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

from tensordict import TensorDict  # noqa: E402

from worldline.bridges.torchrl import SecondDerivativeError, WorldlineWrapper  # noqa: E402

B, LONGEST = 3, 50
#: MJX compiles for most of a minute, twice here; finite differences check it in every run.
_MJX = pytest.param("mjx", marks=pytest.mark.exhaustive)


@functools.cache
def worlds(engine: str) -> worldline.Worlds:
    """Worlds whose episodes end on the way: pucks, or pendulums after twenty steps."""
    env = puck() if engine == "fake" else worldline.Env(toys.Swing(), physics=engine)
    return worldline.Worlds(env, B)


@functools.cache
def made(engine: str) -> WorldlineWrapper:
    return WorldlineWrapper(worlds(engine), requires_grad=True)


def random_actions(engine: str) -> np.ndarray:
    """Actions of the longest rollout, `(T, B, nact)`."""
    size = (LONGEST, B, *worlds(engine).env.action_low.shape)
    return np.random.default_rng(0).uniform(-0.5, 0.5, size).astype(np.float32)


def loss_of(obs: Any, reward: Any) -> Any:
    """Something that every observation and every reward has a part in, and that is not linear."""
    return (obs**2).sum() + (reward * reward).sum()


def torch_gradients(env: WorldlineWrapper, actions: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """The gradient of the loss of a rollout by each of its actions, `(T, B, nact)`; its steps."""
    leaves = [torch.tensor(action, requires_grad=True) for action in actions]
    env.set_seed(0)
    tensordict, total, steps = env.reset(), torch.zeros(()), []
    for leaf in leaves:
        now, tensordict = env.step_and_maybe_reset(tensordict.set("action", leaf))
        total = total + loss_of(now["next", "observation"], now["next", "reward"])
        steps.append(now.detach())
    total.backward()
    return np.stack([leaf.grad for leaf in leaves]), steps


@functools.cache
def jax_gradients(engine: str) -> Callable[..., Any]:
    """The gradient of that loss by a scan over `Worlds.step`: one program for all lengths."""
    of = worlds(engine)

    def loss(actions: Any, steps: Any) -> Any:
        def step(state: Any, action: Any) -> Any:
            state, step = of.step(state, action)
            return state, loss_of(step.final_obs, step.reward)

        losses = jax.lax.scan(step, of.reset(seed_keys(range(B))), actions)[1]
        return jnp.where(jnp.arange(LONGEST) < steps, losses, 0.0).sum()

    return jax.jit(jax.grad(loss))


@pytest.mark.parametrize("engine", ["fake", "native", _MJX])
@pytest.mark.parametrize("steps", [3, 8, LONGEST])
def test_every_step_has_the_gradient_that_jax_finds(engine: str, steps: int) -> None:
    actions = random_actions(engine)
    ours, _ = torch_gradients(made(engine), actions[:steps])
    wanted = jax_gradients(engine)(actions, steps)[:steps]
    norms = [np.linalg.norm(x, axis=(1, 2)) for x in (ours, wanted)]
    assert (norms[0] > 0).all()
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-5)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)


def differences(actions: np.ndarray, starts: dict[int, Any]) -> np.ndarray:
    """Central differences of the loss of one pendulum in plain MuJoCo, `(T, nact)`.

    Args:
        actions: `(T, nact)`.
        starts: the observation that each episode began with, by the number of its first step.
    """
    model = mujoco.MjModel.from_xml_string(toys.PENDULUM)

    def loss(actions: np.ndarray) -> float:
        data, total = mujoco.MjData(model), 0.0
        for t, action in enumerate(actions):
            if t in starts:
                mujoco.mj_resetData(model, data)
                data.qpos[:], data.qvel[:] = np.split(starts[t], 2)
            data.ctrl[:] = action
            mujoco.mj_step(model, data, nstep=2)
            obs = np.concatenate([data.qpos, data.qvel])
            total += loss_of(obs, np.abs(data.qpos))
        return total

    slopes, size = np.zeros(actions.shape), 1e-4
    for index in np.ndindex(*actions.shape):
        up, down = actions.copy(), actions.copy()
        up[index] += size
        down[index] -= size
        slopes[index] = (loss(up) - loss(down)) / (2 * size)
    return slopes


@pytest.mark.parametrize("engine", ["native", _MJX])
@pytest.mark.parametrize("steps", [3, 8, LONGEST])
def test_they_are_finite_differences_of_plain_mujoco(engine: str, steps: int) -> None:
    actions = random_actions(engine)[:steps]
    ours, taken = torch_gradients(made(engine), actions)
    for world in range(B):
        begins = [0, *(t + 1 for t in range(steps - 1) if taken[t]["next", "done"][world])]
        starts = {t: taken[t]["observation"][world].double().numpy() for t in begins}
        assert len(starts) == -(-steps // 20)
        slopes = differences(actions[:, world].astype(np.float64), starts)
        near = 1e-3 * np.abs(slopes).max()
        np.testing.assert_allclose(ours[:, world], slopes, rtol=1e-3, atol=near)


def test_the_start_has_one_too() -> None:
    env = made("fake")
    env.set_seed(0)
    start = env.reset()
    start["world_reals"].requires_grad_()
    env.step(env.rand_action(start))["next", "reward"].sum().backward()
    # After a step the reward of a puck is x + y, and x' = x + v dt: by hand, 1 for each position.
    by_position = start["world_reals"].grad
    assert ((by_position == 1).sum(dim=1) >= 2).all()


def test_they_go_through_a_rollout_and_a_policy() -> None:
    env, gain = made("fake"), torch.tensor(0.5, requires_grad=True)

    def policy(tensordict: TensorDict) -> TensorDict:
        return tensordict.set("action", torch.tanh(gain * tensordict["observation"][..., :2]))

    env.set_seed(0)
    data = env.rollout(8, policy, break_when_any_done=False)
    data["next", "reward"].sum().backward()

    def reward(gain: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            state, step = worlds("fake").step(state, jnp.tanh(gain * state.obs[:, :2]))
            return state, step.reward

        return jax.lax.scan(step, worlds("fake").reset(seed_keys(range(B))), None, 8)[1].sum()

    np.testing.assert_allclose(gain.grad, jax.jit(jax.grad(reward))(0.5), rtol=1e-5)


def test_a_second_derivative_is_refused() -> None:
    env = made("fake")
    action = torch.zeros(B, 2, requires_grad=True)
    reward = env.step(env.reset().set("action", action))["next", "reward"].sum()
    (gradient,) = torch.autograd.grad(reward, action, create_graph=True)
    with pytest.raises(SecondDerivativeError, match="leave create_graph out"):
        torch.autograd.grad(gradient.sum() + action.sum(), action)


def test_there_are_none_unless_asked_for() -> None:
    env = WorldlineWrapper(worlds("fake"))
    action = torch.zeros(B, 2, requires_grad=True)
    assert not env.step(env.reset().set("action", action))["next", "reward"].requires_grad


def test_what_is_saved_for_the_backward_pass_cannot_be_changed_unseen() -> None:
    """The worlds and actions of a step are needed again; torch notices who writes into them."""
    env = made("fake")
    start, action = env.reset(), torch.zeros(B, 2, requires_grad=True)
    reward = env.step(start.set("action", action))["next", "reward"].sum()
    start["world"].fill_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        reward.backward()
