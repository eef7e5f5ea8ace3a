"""Worldline's tasks in Gymnasium's registry: `gym/ant` as `worldline/gym-ant-v0`.

Importing `worldline.bridges.gymnasium` registers them; so does `import worldline` where Gymnasium
was imported before it. This module imports neither JAX nor MuJoCo, so that it costs no time there.
"""

from __future__ import annotations

from collections.abc import Mapping

from worldline.tasks.names import TASKS


def gymnasium_id(task: str) -> str:
    """The id of a task in Gymnasium's registry."""
    return f"worldline/{task.replace('/', '-')}-v0"


def register_built_in() -> None:
    """Registers the tasks that come with Worldline."""
    register_all({name: entry.episode_length for name, entry in TASKS.items()})


def register_all(episode_lengths: Mapping[str, int]) -> None:
    """Registers tasks that are not registered yet.

    Gymnasium keeps the time limit, as for its own environments, so that `max_episode_steps` and
    `spec.max_episode_steps` mean what its users expect.

    Args:
        episode_lengths: each task and the length of its episodes, in control steps; 0: no limit.
    """
    import gymnasium

    for task, length in episode_lengths.items():
        if gymnasium_id(task) not in gymnasium.registry:
            gymnasium.register(
                gymnasium_id(task),
                entry_point="worldline.bridges.gymnasium:Env",
                vector_entry_point="worldline.bridges.gymnasium:make_vector_env",
                max_episode_steps=length or None,
                kwargs={"env": task, "episode_length": 0},
            )
