"""Worldline's tasks in Gymnasium's registry: `gym/ant` as `worldline/gym-ant-v0`.

Gymnasium 1.x loads no plug-ins: an id exists once somebody has registered it. `import worldline`
therefore calls `register_when_imported`. That imports neither Gymnasium nor JAX, which is why names
and episode lengths stand here in a table, and not only in the tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_THOUSAND = (
    "gym/ant",
    "gym/half-cheetah",
    "gym/hopper",
    "gym/humanoid",
    "gym/humanoid-standup",
    "gym/inverted-double-pendulum",
    "gym/inverted-pendulum",
    "gym/swimmer",
    "gym/walker2d",
    "robot/quadruped-joystick",
    "suite/acrobot-swingup",
    "suite/acrobot-swingup_sparse",
    "suite/ball_in_cup-catch",
    "suite/cartpole-balance",
    "suite/cartpole-balance_sparse",
    "suite/cartpole-swingup",
    "suite/cartpole-swingup_sparse",
    "suite/cartpole-three_poles",
    "suite/cartpole-two_poles",
    "suite/cheetah-run",
    "suite/finger-spin",
    "suite/finger-turn_easy",
    "suite/finger-turn_hard",
    "suite/fish-swim",
    "suite/fish-upright",
    "suite/hopper-hop",
    "suite/hopper-stand",
    "suite/humanoid-run",
    "suite/humanoid-run_pure_state",
    "suite/humanoid-stand",
    "suite/humanoid-walk",
    "suite/manipulator-bring_ball",
    "suite/manipulator-bring_peg",
    "suite/manipulator-insert_ball",
    "suite/manipulator-insert_peg",
    "suite/pendulum-swingup",
    "suite/point_mass-easy",
    "suite/point_mass-hard",
    "suite/quadruped-escape",
    "suite/quadruped-fetch",
    "suite/quadruped-run",
    "suite/quadruped-walk",
    "suite/reacher-easy",
    "suite/reacher-hard",
    "suite/swimmer-swimmer15",
    "suite/swimmer-swimmer6",
    "suite/walker-run",
    "suite/walker-stand",
    "suite/walker-walk",
)

#: Each built-in task and the length of its episodes, in control steps.
EPISODE_LENGTHS = dict.fromkeys(_THOUSAND, 1000) | {
    "arm/pick-cube": 100,
    "gym/pusher": 100,
    "gym/reacher": 50,
    "robot/reach": 50,
}


def gymnasium_id(task: str) -> str:
    """The id of a task in Gymnasium's registry."""
    return f"worldline/{task.replace('/', '-')}-v0"


def register_all(episode_lengths: Mapping[str, int]) -> None:
    """Registers the tasks named, with the length of their episodes, unless they are already.

    The time limit is left to Gymnasium, as its own environments do, so that `max_episode_steps`
    and `spec.max_episode_steps` mean what its users expect.
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


def register_when_imported() -> None:
    """Registers the built-in tasks: now if Gymnasium is imported, else as soon as it is."""
    if "gymnasium" in sys.modules:
        register_all(EPISODE_LENGTHS)
    else:
        sys.meta_path.insert(0, _GymnasiumWatch())


class _GymnasiumWatch:
    """An import hook that waits for Gymnasium, to register the tasks when it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds what the others find; for Gymnasium with a loader that registers afterwards."""
        if fullname != "gymnasium":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                if self in sys.meta_path:  # until now: who looks for a module need not import it
                    sys.meta_path.remove(self)
                load(module)
                register_all(EPISODE_LENGTHS)

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
