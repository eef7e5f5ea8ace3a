"""Episodes of a policy as a Minari dataset; each episode can be replayed bit for bit.

An episode's metadata have its `seed`, and in `options` its constants and its context. The
environment that Minari recovers from the dataset can start the episode again:

```
env = dataset.recover_environment()
(metadata,) = dataset.storage.get_episode_metadata([7])
env.reset(seed=metadata["seed"], options=metadata.get("options"))
```

The recorded actions then reproduce it.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec

from worldline.bridges.gymnasium import Env as GymnasiumEnv
from worldline.bridges.registration import gymnasium_id
from worldline.bridges.resets import seed_keys
from worldline.env.disturb import undisturbed
from worldline.env.env import Env
from worldline.env.worlds import ContextLike, DomainLike, Worlds
from worldline.errors import ConfigError, MissingExtraError, TaskError
from worldline.learn.policy import Policy
from worldline.tasks.registry import name_of
from worldline.train.stored import as_tuples, described, made_again
from worldline.types import NDArray, PyTree

try:
    import h5py  # noqa: F401 # Minari's storage needs it
    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.dataset.minari_storage import MinariStorage
    from minari.namespace import create_namespace, list_local_namespaces
    from minari.storage.datasets_root_dir import get_dataset_path
except ImportError as error:
    raise MissingExtraError("recording a Minari dataset", "minari") from error

#: Steps between two visits of the disk.
CHUNK = 64
#: Where a copy of a task's file would be: a dataset has none.
_NO_COPY = Path(os.devnull) / "task.py"
#: The most numbers of a part of a task's memory that an episode's metadata has.
MOST_NUMBERS = 1000


def record_dataset(
    env: Env,
    policy: Policy,
    name: str,
    episodes: int,
    *,
    seed: int = 0,
    deterministic: bool = True,
    episode_length: int | None = None,
    domain: DomainLike | None = None,
    context: ContextLike | None = None,
    num_worlds: int = 16,
    about: Mapping[str, Any] | None = None,
    show: Callable[[int], None] = lambda recorded: None,
) -> Any:
    """Records episodes of a policy as a Minari dataset. Each episode is written to disk at its end.

    Args:
        env: the environment.
        policy: how to act.
        name: name of the dataset, `namespace/name-v0`.
        episodes: how many.
        seed: episode i has the seed `seed + i`.
        deterministic: the most likely action, rather than a draw.
        episode_length: as in `Worlds`.
        domain: as in `Worlds`. The constants that are drawn are in the episode's metadata, under
            `options/variation`.
        context: as in `Worlds`; under `options/context`.
        num_worlds: the number of episodes that are simulated at the same time.
        about: metadata of the dataset, for example `{"algorithm_name": "ppo", "author": {"me"}}`.
        show: is called with the number of recorded episodes whenever it grows.

    Returns:
        The `minari.MinariDataset`.

    Raises:
        ConfigError: the name is taken or malformed; the episodes have no time limit; or a file
            cannot store the environment, so that it could not be recovered.
    """
    path = _free_path(name)
    count = min(num_worlds, episodes)
    worlds = Worlds(env, count, episode_length, domain, context, adaptive=False)
    if not worlds.episode_length:
        raise ConfigError("episodes without a time limit cannot be recorded; give episode_length")
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        storage = MinariStorage.new(
            partial / "data",
            env.observation_space,
            env.action_space,
            _spec(env, worlds.episode_length),
            jpeg_encoding=False,
        )
        head = {"dataset_id": name, "minari_version": minari.__version__, **(about or {})}
        storage.update_metadata(head)
        for recorded, memories in _recorded(worlds, policy, episodes, seed, deterministic):
            first = storage.total_episodes
            storage.update_episodes(recorded)
            storage.update_episode_metadata(memories, range(first, first + len(recorded)))
            show(first + len(recorded))
        namespace = parse_dataset_id(name)[0]
        if namespace is not None and namespace not in list_local_namespaces():
            create_namespace(namespace)
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return minari.MinariDataset(path / "data")


def recovered_env(
    made_of: Mapping[str, Any], episode_length: int, render_mode: str | None = None
) -> GymnasiumEnv:
    """The environment of a dataset, for `recover_environment`.

    The file of a task that is not registered must still exist, unchanged.

    Args:
        made_of: the description in the dataset.
        episode_length: control steps after which an episode is truncated.
        render_mode: as in `worldline.bridges.gymnasium.Env`.

    Raises:
        TaskError: that file is gone or has changed, or this version has no such task.
    """
    try:
        env = made_again(as_tuples(made_of), _NO_COPY)
    except TaskError as error:
        file = made_of["code"].get("file")
        raise (
            error
            if file is None
            else TaskError(
                f"the dataset's environment needs the file of its task, {file!r}, which has "
                "changed or is gone; restore it"
            )
        ) from error
    return GymnasiumEnv(env, episode_length=episode_length, render_mode=render_mode)


def _free_path(name: str) -> Path:
    """The folder of a dataset that is not there yet."""
    try:
        parse_dataset_id(name)
    except (ValueError, TypeError):
        raise ConfigError(f"the dataset's name is {name!r}; give namespace/name-v0") from None
    path: Path = get_dataset_path(name)
    if path.exists():
        raise ConfigError(
            f"the dataset {name!r} already exists in {str(path)!r}; give another name"
        )
    return path


def _spec(env: Env, episode_length: int) -> EnvSpec:
    """How Gymnasium makes the environment again."""
    made_of = described(env)
    if missing := made_of["not_rebuilt"]:
        raise ConfigError(f"the dataset could not recover its environment: {missing}")
    kind = type(undisturbed(env.task)[0])
    return EnvSpec(
        id=gymnasium_id(name_of(kind) or kind.__name__),
        entry_point="worldline.bridges.minari:recovered_env",
        kwargs={"made_of": made_of, "episode_length": episode_length},
    )


def _recorded(
    worlds: Worlds, policy: Policy, episodes: int, seed: int, deterministic: bool
) -> Iterator[tuple[list[Any], list[dict[str, NDArray]]]]:
    """Episodes that have ended, with the tasks' memory at their starts, a few at a time."""
    plain = Worlds(worlds.env, worlds.num_worlds, worlds.episode_length, adaptive=False)
    advance, draw = jax.jit(_chunk(plain, deterministic)), jax.jit(worlds.draw)
    for first in range(seed, seed + episodes, worlds.num_worlds):
        seeds = range(first, first + worlds.num_worlds)
        variation, context = draw(seed_keys(seeds))
        state = plain.reset(seed_keys(seeds), variation, context)
        started = jax.device_get((state.obs, state.env.memory, variation, context))
        running = np.array(seeds) < seed + episodes
        carry: PyTree = state, policy.start(worlds.num_worlds), running, jax.random.key(first)
        parts: list[list[Any]] = [[] for _ in seeds]
        while running.any():
            carry, steps = advance(policy, carry)
            steps, still = jax.device_get((steps, carry[2]))
            for row in np.flatnonzero(running).tolist():
                taken = steps["running"][:, row]
                parts[row].append(jax.tree.map(lambda x, t=taken, r=row: x[t, r], steps))
            ended = np.flatnonzero(running & ~still).tolist()
            if ended:
                done = [_episode(parts[row], started, row, seeds[row]) for row in ended]
                yield done, [_memory(started[1], row) for row in ended]
            for row in ended:
                parts[row] = []
            running = still


def _chunk(worlds: Worlds, deterministic: bool) -> Callable[[Policy, PyTree], Any]:
    """Some steps of the worlds whose episode has not ended."""

    def step(policy: Policy, carry: PyTree, _: None) -> tuple[PyTree, dict[str, Any]]:
        state, memory, running, key = carry
        key, noise = jax.random.split(key)
        action, memory = policy.step(state.obs, memory, None if deterministic else noise)
        state, step = worlds.step(state, action, running)
        taken = {
            "observations": step.final_obs,
            "actions": action,
            "rewards": step.reward,
            "terminations": step.terminated,
            "truncations": step.truncated,
            "running": running,
        }
        return (state, memory, running & ~(step.terminated | step.truncated), key), taken

    return lambda policy, carry: jax.lax.scan(functools.partial(step, policy), carry, None, CHUNK)


def _episode(parts: list[Any], started: Any, row: int, seed: int) -> Any:
    """An episode of one world, from the parts that were recorded of it."""
    obs, _, variation, context = jax.tree.map(lambda x: x[row], started)
    steps = jax.tree.map(lambda *each: np.concatenate(each), *parts)
    seen = jax.tree.map(lambda a, b: np.concatenate([a[None], b]), obs, steps["observations"])
    given = {"variation": variation, "context": context}
    options = {name: values for name, values in given.items() if values}
    return EpisodeBuffer(
        seed=seed,
        options=options or None,
        observations=seen,
        **{n: steps[n] for n in ("actions", "rewards", "terminations", "truncations")},
    )


def _memory(memory: PyTree, row: int) -> dict[str, NDArray]:
    """The task's memory at an episode's start, a command for instance, by its place."""
    parts, _ = jax.tree.flatten_with_path(memory)
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): x[row] for path, x in parts}
    return {
        f"memory/{name or 'value'}": np.asarray(value)
        for name, value in named.items()
        if isinstance(value, np.ndarray | np.generic) and value.size <= MOST_NUMBERS
    }
