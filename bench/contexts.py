"""What each context feature changes, in our ant and in that of CARL's published package.

`python bench/contexts.py`, or `worldline bench contexts`. See `bench/README.md`.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import tyro

from _harness import PEERS, machine, peer_python, save, say, scratch_folder, show_table
from worldline.tuning import tune_process

STEPS = 20
#: A value far from the default of each feature, under CARL's names and ours.
FAR = {
    "gravity": ("gravity", -3.7),
    "friction": ("friction", 0.05),
    "elasticity": ("elasticity", 0.9),
    "ang_damping": ("joint_damping", 4.0),
    "mass_torso": ("mass_torso", 1.0),
    "viscosity": ("viscosity", 2.0),
}


@dataclasses.dataclass(frozen=True)
class ContextsBench:
    """What each context feature changes, in our ant and in that of CARL's published package."""

    json: Path | None = None
    """Where to write the results."""


def main(config: ContextsBench) -> None:
    """Rolls both out, prints the table and writes the results."""
    say("CARL")
    command = [peer_python("carl"), str(PEERS / "contexts_carl.py")]
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=scratch_folder()
    ).stdout
    theirs = json.loads(output.splitlines()[-1])["changes"]
    say("Worldline")
    ours = {feature: largest_change(*far) for feature, far in FAR.items()}
    rows = [
        (f"{name} -> {far:g}", f"{ours[carls]:.3g}", carls, f"{theirs[carls]:.3g}")
        for carls, (name, far) in FAR.items()
    ]
    title = f"Largest change of a joint's position, {STEPS} steps of ant, same start and actions"
    show_table(title, ("gym/ant", "ours", "CARLBraxAnt", "theirs"), rows)
    save(config.json, {"machine": machine(), "ours": ours, "carl": theirs})


def largest_change(name: str, value: float) -> float:
    """How far a feature takes any joint from where it would be, in metres or radians."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import worldline

    env = worldline.Env(worldline.make("gym/ant", physics="fake").task, context=[name])
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, 8)).astype(np.float32)

    @jax.jit
    def roll(context: dict[str, Any]) -> Any:
        state = env.reset(jax.random.key(0), context=context)

        def step(state: Any, action: Any) -> tuple[Any, Any]:
            state = env.step(state, action)
            return state, state.physics.qpos

        return jax.lax.scan(step, state, actions)[1]

    default = env.context.features(env.model)[name].default
    plain, changed = (roll({name: jnp.float32(x)}) for x in (default, value))
    return float(jnp.abs(changed - plain).max())


if __name__ == "__main__":
    tune_process()
    main(tyro.cli(ContextsBench, description=ContextsBench.__doc__))
