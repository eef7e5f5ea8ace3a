"""Rollouts of TorchRL environments of ants: `step_torchrl.py KIND BATCH STEPS [gradient]`.

KIND is `worldline`, `worldline-euler` (with the Euler integrator, as in Brax's ant), `brax`
(TorchRL's BraxEnv without its cache clearing), `brax-default` (as it comes), `brax-worlds` (the
same environment of Brax through Worldline); or, without torch, the compiled step of Worldline's ant
(`raw`) or of Brax's (`brax-raw`) in a Python loop. With `gradient`, a linear policy acts, and each
rollout ends with the gradient of the mean reward in its weights, back through all steps.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from protocol import serve_steps


def torchrl_rollout(kind: str, batch: int, steps: int, gradient: bool) -> Callable[[], Any]:
    """A rollout in which every episode that ends is followed by the next."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = torchrl_env(kind, batch, gradient)
    if not gradient:
        return lambda: env.rollout(steps, break_when_any_done=False)
    sizes = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    policy = torch.nn.Linear(*sizes, bias=False)
    torch.nn.init.zeros_(policy.weight)

    def act(tensordict):  # by this name TorchRL knows what it takes
        obs = tensordict["observation"].clamp(-10.0, 10.0)
        tensordict["action"] = torch.tanh(policy(obs))
        return tensordict

    def pull() -> None:
        policy.zero_grad()
        rollout = env.rollout(steps, act, auto_reset=True, break_when_any_done=False)
        rollout["next", "reward"].mean().backward()

    return pull


def torchrl_env(kind: str, batch: int, gradient: bool) -> Any:
    """The environment of a kind, which passes gradients on or not."""
    settings = {"batch_size": [batch], "requires_grad": gradient}
    if kind.startswith("brax") and kind != "brax-worlds":
        from torchrl.envs import BraxEnv

        clearing = {} if kind == "brax-default" else {"cache_clear_frequency": False}
        env = BraxEnv("ant", device="cpu", **settings, **clearing)
        env.set_seed(0)
        return env

    from worldline.bridges.torchrl import WorldlineEnv, WorldlineWrapper
    from worldline.tuning import tune_process

    if kind == "brax-worlds":
        from brax.envs import get_environment

        from worldline.bridges.brax import BraxWorlds

        return WorldlineWrapper(BraxWorlds(get_environment("ant"), batch), **settings, seed=0)
    tune_process()
    if kind == "worldline":
        return WorldlineEnv("gym/ant", **settings, seed=0)
    import mujoco

    import worldline

    task = worldline.make("gym/ant").task
    task.model.mj.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    return WorldlineWrapper(worldline.Worlds(worldline.Env(task), batch), **settings, seed=0)


def raw_loop(kind: str, batch: int, steps: int) -> Callable[[], Any]:
    """Steps with nothing between them but Python."""
    import jax

    reset, step, nact = raw_brax(batch) if kind == "brax-raw" else raw_worlds(batch)

    @jax.jit
    def act(state: Any, key: Any) -> Any:
        key, action_key = jax.random.split(key)
        action = jax.random.uniform(action_key, (batch, nact), minval=-1.0, maxval=1.0)
        state, kept = step(state, action)
        return state, kept, key

    def loop() -> None:
        state, key, kept = reset(jax.random.key(0)), jax.random.key(1), []
        for _ in range(steps):
            state, given, key = act(state, key)
            kept.append(given)
        jax.block_until_ready(kept)

    return loop


def raw_worlds(batch: int) -> tuple[Callable[..., Any], Callable[..., Any], int]:
    """Our ants: `reset(key)`, `step(state, action)`, and the size of an action."""
    import worldline
    from worldline.tuning import tune_process

    tune_process()
    worlds = worldline.Worlds(worldline.make("gym/ant"), batch)
    return worlds.reset, worlds.step, worlds.env.action_low.size


def raw_brax(batch: int) -> tuple[Callable[..., Any], Callable[..., Any], int]:
    """The same of Brax's own ants, whose episodes never begin anew."""
    import jax
    from brax.envs import get_environment

    env = get_environment("ant")
    reset = jax.jit(lambda key: jax.vmap(env.reset)(jax.random.split(key, batch)))

    def step(state: Any, action: Any) -> tuple[Any, Any]:
        state = jax.vmap(env.step)(state, action)
        return state, (state.obs, state.reward, state.done)

    return reset, step, env.action_size


def main() -> None:
    """Serves whole rollouts."""
    kind, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    gradient = "gradient" in sys.argv[4:]
    with contextlib.redirect_stdout(sys.stderr):  # Brax says there what it has not found
        if kind in ("raw", "brax-raw"):
            rollout = raw_loop(kind, batch, steps)
        else:
            rollout = torchrl_rollout(kind, batch, steps, gradient)
    serve_steps(rollout)


if __name__ == "__main__":
    main()
