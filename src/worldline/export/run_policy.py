"""Runs the policy of this folder, in plain MuJoCo or on a robot; writes log.npz.

    python run_policy.py --command 0.5 0 0      simulates in MuJoCo, with a command
    python run_policy.py --check                repeats the episode of reference.npz, and compares
It needs numpy, onnxruntime and mujoco. For a robot, rewrite the four methods of `RobotIO`.
"""

import argparse
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import onnxruntime

#: The quantity of a part in MuJoCo's data, by its source, for the objects that it names.
QUANTITIES: dict[str, Any] = {
    "joint_position": lambda *joints: np.concatenate([it.qpos for it in joints]),
    "joint_velocity": lambda *joints: np.concatenate([it.qvel for it in joints]),
    "sensor": lambda *sensors: np.concatenate([it.data for it in sensors]),
    "site_position": lambda site: site.xpos,
    "site_to_body": lambda site, body: (body.xpos - site.xpos) @ site.xmat.reshape(3, 3),
    "projected_gravity": lambda frame: -frame.xmat.reshape(3, 3)[2],
    "linear_velocity": lambda body, root: root.qvel[:3] @ body.xmat.reshape(3, 3),
    "angular_velocity": lambda body, root: root.qvel[3:],
}


class RobotIO:
    """The robot. Here it is the model in MuJoCo, at the start of the reference episode."""

    def __init__(self, contract: Any, folder: Path, start: Any) -> None:
        self.contract, file = contract, folder / contract["model"]["file"]
        if hashlib.sha256(file.read_bytes()).hexdigest() != contract["model"]["sha256"]:
            raise SystemExit(f"error: {file.name} is not the model of contract.json")
        kinds = {".xml": mujoco.MjModel.from_xml_path, ".mjb": mujoco.MjModel.from_binary_path}
        self.model = kinds[file.suffix](str(file))
        self.data, self.renderers = mujoco.MjData(self.model), dict[str, Any]()
        self.substeps = round(contract["control_period"] / self.model.opt.timestep)
        mujoco.mj_setState(self.model, self.data, start, mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_forward(self.model, self.data)

    def describe(self) -> tuple[list[str], float]:
        """The joints in the order of `write`, and the control period in s."""
        joints = [self.model.joint(int(index)).name for index in self.model.actuator_trnid[:, 0]]
        return joints, self.substeps * self.model.opt.timestep

    def read(self) -> dict[str, Any]:
        """The current measurements: the numbers of each part by its name, in the part's unit."""
        return {it["name"]: self._measure(**it) for it in self.contract["observation"] if it["of"]}

    def command(self, part: Any, step: int) -> Any:
        """The command of a part at a control step, in the part's unit."""
        return part["commands"][min(step, len(part["commands"]) - 1)]

    def write(self, targets: Any) -> None:
        """Sends each joint its target; returns when the next control period begins."""
        self.data.ctrl[:] = targets
        mujoco.mj_step(self.model, self.data, self.substeps)
        if self.contract["model"]["refresh"]:  # measure this state, not that of one step before
            mujoco.mj_step1(self.model, self.data)

    def _measure(self, source: str, of: Any, index: Any, **_: Any) -> Any:
        if source != "camera":
            return QUANTITIES[source](*(getattr(self.data, it)(name) for it, name in of))[index]
        camera, height, width = of
        if camera not in self.renderers:
            self.model.vis.quality.offsamples = self.model.vis.quality.shadowsize = 0
            self.renderers[camera] = mujoco.Renderer(self.model, height, width)
            self.renderers[camera].scene.flags[[0, 2]] = 0  # no shadows, no reflections
        self.renderers[camera].update_scene(self.data, camera)
        return self.renderers[camera].render()


def control(contract: Any, session: Any, robot: Any) -> Any:
    """Acts on the robot step by step; yields each action and its observation."""
    number = {name: np.float32(it) for name, it in contract["action"]["numbers"].items()}
    memory = {name: np.zeros((1, *it), np.float32) for name, it in contract["memory"].items()}
    base, repeat, frames = contract["action"]["base"], contract["action_repeat"], dict[str, Any]()
    seconds, goal, actions = repeat * contract["control_period"], None, [0 * number["scale"]] * 2
    for step in itertools.count():
        measured, seen = robot.read(), dict[str, Any]()
        for part in contract["observation"]:
            value = measured.get(part["name"])
            if part["source"] == "action":
                value = actions[-part["ago"]]
            elif part["source"] == "command":
                value = robot.command(part, step)
            elif part["source"] == "clock":
                phase = np.float32(2 * np.pi * part["frequency"]) * np.float32(step * seconds)
                value = [np.sin(phase), np.cos(phase)]
            if part["source"] != "camera":
                value = np.float32(part["scale"]) * (np.float32(value) - np.float32(part["offset"]))
            before = frames.get(part["name"], [value] * part["history"])
            frames[part["name"]] = [*before, value][-part["history"] :]  # the oldest first
            seen[part["input"]] = [*seen.get(part["input"], []), *frames[part["name"]]]
        inputs = {name: np.concatenate(it, -1)[None] for name, it in seen.items()}
        (action,), *after = session.run(None, inputs | memory)
        memory, actions = dict(zip(memory, after, strict=True)), [actions[-1], action]
        for _ in range(repeat):
            if base == "joint_position" or (base and goal is None):
                goal = np.float32(robot.read()["joint_position"])
            goal = number["offset"] + number["scale"] * action + (goal if base else 0)
            robot.write(np.clip(goal, number["low"], number["high"]))
        yield {"action": action, **{name: it[0] for name, it in inputs.items()}}


def check(contract: Any, other: Any, robot: Any) -> None:
    """Ends the program if contract.json, policy.onnx (`other`) and the robot disagree."""
    (joints, period), known = robot.describe(), {"action", "command", "clock", *robot.read()}
    seen = [it for it in contract["observation"] if {it["name"], it["source"]} & known]
    robots = {"action": {"joints": joints}, "observation": seen, "control_period": period}
    robots |= {"motors": getattr(robot, "motors", "model")}
    for where, found in (("policy.onnx", other), ("the robot", robots)):
        ours, theirs = (
            [f"joint {name!r}" for name in it["action"]["joints"]]
            + [f"part {part['name']!r}" for part in it["observation"]]
            + [f"control period {it['control_period']:.9g} s", f"motors of the {it['motors']}"]
            for it in (contract, found)
        )
        for here, there in itertools.zip_longest(ours, theirs):
            if here != there:
                raise SystemExit(f"error: contract.json has {here}, but {where} has {there}")


def main() -> None:
    """Reads the options and runs the policy."""
    options = argparse.ArgumentParser(description="Runs the policy of this folder.")
    options.add_argument("--command", type=float, nargs="*", help="numbers, for example 0.5 0 0")
    options.add_argument("--check", action="store_true", help="compare with reference.npz")
    given, folder = options.parse_args(), Path(__file__).parent
    contract = json.loads((folder / "contract.json").read_text())
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    was = np.load(folder / "reference.npz")
    for part in (it for it in contract["observation"] if it["source"] == "command"):
        part["commands"] = was[part["name"]] if given.check else [given.command or part["default"]]
    robot = RobotIO(contract, folder, was["start"])
    check(contract, json.loads(session.get_modelmeta().custom_metadata_map["contract"]), robot)
    log = list(itertools.islice(control(contract, session, robot), len(was["action"])))
    rows: Any = {name: np.array([it[name] for it in log]) for name in log[0]}
    np.savez(folder / "log.npz", **rows)
    for name in sorted(rows.keys() & {*was.files}) if given.check else ():
        print(f"{name}: differs by {np.abs(np.float64(rows[name]) - was[name]).max():.1e} at most")


if __name__ == "__main__":
    main()
