"""What `worldline export` writes, and what it says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worldline.env.env import Env
from worldline.export.deployment import CONTRACT_FILE, PROGRAM_FILE, export_folder
from worldline.export.onnx_file import save_onnx
from worldline.export.policy_file import policy_about, policy_file
from worldline.learn.policy import Policy
from worldline.report import RunFolder


def export_run(
    folder: RunFolder, env: Env, policy: Policy, out: Path | None, checkpoint: str
) -> Iterator[str]:
    """Exports the policy of a run; gives the lines that say what was written.

    Args:
        folder: the run folder.
        env: its environment.
        policy: its policy.
        out: the folder to write, or a file that ends in .onnx; None: `deploy` in the run folder.
        checkpoint: which policy it is.
    """
    place = out or folder.path / "deploy"
    alone = place.suffix == ".onnx"
    if alone:
        worst = save_onnx(place, policy, env.observation_space)
    else:
        training = _training(folder, checkpoint)
        worst = export_folder(place, env, policy, training, run=str(folder.path))
    yield f"{place}: its actions differ from those of the policy by at most {worst:.1g}"
    space = env.observation_space
    parts = dict(space.spaces) if hasattr(space, "spaces") else {"state": space}
    for name in policy.obs_keys:
        yield f"  {name}, of each world {parts[name].shape}"
    yield f"  -> action, of each world {policy.low.shape}"
    if not alone:
        yield _next_step(place)


def _training(folder: RunFolder, checkpoint: str) -> dict[str, Any]:
    """What the contract says of how the policy was made."""
    config, about = folder.config, policy_about(policy_file(folder.path, checkpoint))
    kept = ("task", "options", "env", "domain", "context", "algorithm", "seed")
    return {
        **{name: config[name] for name in kept if name in config},
        **{name: about[name] for name in ("step", "return") if name in about},
        "versions": folder.versions,
    }


def _next_step(place: Path) -> str:
    """What a reader can do with the folder, or what the task does not say."""
    contract = json.loads((place / CONTRACT_FILE).read_text())
    unknown = [part["name"] for part in contract["observation"] if part["source"] == "task"]
    unknown += [part["name"] for part in contract["action"]["parts"] if part["kind"] == "task"]
    program = f"python {place / PROGRAM_FILE}"
    if unknown:
        names = ", ".join(unknown)
        return f"  only the task can compute {names}: add them to RobotIO in {place / PROGRAM_FILE}"
    return f"  `{program} --check` repeats an episode of the policy without Worldline"


def write_page(
    file: Path, title: str, env: Env, policy: Policy, worlds: int, seconds: float, seed: int
) -> str:
    """Writes a page that plays episodes of a policy; gives the line that says so.

    Args:
        file: the page.
        title: of the page.
        env: the environment.
        policy: acts in it.
        worlds: how many, side by side.
        seconds: of simulated time.
        seed: decides the starts.
    """
    from worldline.watch.page import save_page
    from worldline.watch.source import Source, watchable

    source = Source(title, watchable(env))
    size = save_page(file, source, policy, num_worlds=worlds, seconds=seconds, seed=seed)
    return f"{file}: {seconds:g} s of {worlds} worlds, {size / 1e6:.1f} MB"
