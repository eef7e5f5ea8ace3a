"""Writes a task file for a robot, for `worldline init`."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

import mujoco
import numpy as np

from worldline.errors import ConfigError, ModelError
from worldline.model import Model

#: Seconds between two actions, rounded to a multiple of the model's time step.
_CONTROL_TIMESTEP = 0.02


def write_task(mjcf: Path, out: Path | None = None, *, motors: bool = False) -> Path:
    """Writes a Python file with a task for a robot, ready to train and to be filled in.

    Args:
        mjcf: the robot's MJCF file.
        out: the file to write; by default named after the MJCF, in the current folder.
        motors: put a motor on every hinge and slide of a model without actuators.

    Returns:
        The file.

    Raises:
        ModelError: MuJoCo refuses the model, nothing in it moves, or it has no actuators.
        ConfigError: the file exists, or is no Python file.
    """
    model = Model(mjcf)
    _check_it_moves(mjcf, model, motors)
    name = _identifier(mjcf.stem)
    out = Path(f"{name}.py") if out is None else out
    if out.suffix != ".py":
        raise ConfigError(f"out is {str(out)!r}; give a file that ends in .py")
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists; move it, or give another file with --out")
    substeps = max(1, round(_CONTROL_TIMESTEP / model.timestep))
    forces = _motor_forces(model) if motors else {}
    listed = _listed(model, "actuator", "actuators")
    actuators = "a motor on each hinge and slide" if motors else listed
    is_free = model.mj.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
    holds = model.mj.nkey and not motors and model.mj.key_ctrl[0].any()
    rest, words = _KEYFRAME_CONTROL if holds else _MIDDLE
    text = _TEMPLATE.substitute(
        name=name,
        file=_in_text(out.name),
        mjcf=_path_in_python(mjcf, out),
        task="".join(word.capitalize() for word in name.split("_")) or "Robot",
        joints=_listed(model, "joint", "joints"),
        actuators=actuators,
        nobs=model.nq + model.nv - (2 if is_free else 0),
        nact=len(forces) or model.nu,
        control_timestep=f"{substeps * model.timestep:.6g}",
        timestep=f"{model.timestep:.6g}",
        source=_WITH_MOTORS if motors else _AS_IT_IS,
        pose=_KEYFRAME if model.mj.nkey else _DEFAULT_POSE,
        rest=rest,
        rest_words=words,
        imports="import mujoco\n" if motors else "",
        motors=_motor_table(forces) if motors else "",
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    return out


def _check_it_moves(mjcf: Path, model: Model, motors: bool) -> None:
    """Refuses a model in which nothing can move, or that a policy could not act on."""
    if not model.nv:
        raise ModelError(f"{str(mjcf)!r} has no joints, so that nothing can move; add <joint>s")
    if motors and model.nu:
        raise ConfigError(f"{str(mjcf)!r} has actuators; leave --motors out")
    if motors and not _motor_forces(model):
        raise ModelError(f"{str(mjcf)!r} has no hinge or slide with a name to put a motor on")
    if not (motors or model.nu):
        raise ModelError(
            f"{str(mjcf)!r} has no actuators, so that a policy could do nothing; add some, such as "
            '<actuator><motor joint="..." ctrlrange="-1 1"/></actuator>, or give --motors for one '
            "on each hinge and slide"
        )


def _motor_forces(model: Model) -> dict[str, float]:
    """The torque (N m) or force (N) of a motor for each hinge and slide with a name.

    It is twice what holds the joint in the default pose, and what accelerates it by 20 rad/s^2 or
    20 m/s^2.
    """
    mj, data = model.mj, mujoco.MjData(model.mj)
    mujoco.mj_forward(mj, data)
    needed = 2 * np.abs(data.qfrc_bias) + 20 * mj.dof_M0
    kinds = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    return {
        name: float(f"{needed[mj.jnt_dofadr[joint]]:.2g}")
        for joint, name in enumerate(model.names("joint"))
        if name and mujoco.mjtJoint(mj.jnt_type[joint]) in kinds
    }


def _motor_table(forces: dict[str, float]) -> str:
    rows = "".join(f"    {_literal(joint)}: {force},\n" for joint, force in forces.items())
    return f"""
#: YOURS: the motor of each joint, and what it can do: N m, or N for a slide.
MOTORS = {{
{rows}}}
"""


def _identifier(stem: str) -> str:
    """A Python name for a file's: `my-robot.v2` -> `my_robot_v2`."""
    name = re.sub(r"\W+", "_", stem).strip("_").lower()
    return f"robot_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name


def _path_in_python(mjcf: Path, out: Path) -> str:
    """A Python expression for the path of the MJCF, relative to a file in a folder above it."""
    path, folder = mjcf.resolve(), out.resolve().parent
    if path.is_relative_to(folder):
        return f"Path(__file__).parent / {_literal(path.relative_to(folder).as_posix())}"
    return f"Path({_literal(path.as_posix())})"


def _literal(text: str) -> str:
    """A string of Python, in double quotes."""
    return f'"{_in_text(text)}"'


def _in_text(text: str) -> str:
    """A text as it stands between double quotes, one or three, in Python.

    Names in an MJCF file are anybody's: one with quotes in it must not end the string.
    """
    return ascii(text)[1:-1].replace('"', '\\"')


def _listed(model: Model, kind: str, plural: str, most: int = 6) -> str:
    """The number of objects of a kind, and the names of the first ones."""
    names = [_in_text(name) for name in model.names(kind) if name]
    shown = ", ".join(names[:most]) + (", ..." if len(names) > most else "")
    count = len(model.names(kind))
    return f"{count} {kind if count == 1 else plural}" + (f" ({shown})" if shown else "")


_AS_IT_IS = "return str(MJCF)"

_WITH_MOTORS = """spec = mujoco.MjSpec.from_file(str(MJCF))
        for joint, force in MOTORS.items():
            motor = spec.add_actuator(name=joint, target=joint)
            motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
            motor.set_to_motor()
            motor.gear[0], motor.ctrllimited, motor.ctrlrange = force, True, (-1.0, 1.0)
        return spec"""

_DEFAULT_POSE = "jnp.asarray(self.model.qpos0)"
_KEYFRAME = "jnp.asarray(self.model.mj.key_qpos[0], jnp.float32)  # the model's first keyframe"

#: The control for an action of 0, in Python and in words.
_MIDDLE = "(low + high) / 2.0", "in the middle of the range"
_KEYFRAME_CONTROL = "np.clip(self.model.mj.key_ctrl[0], low, high)", "of the model's first keyframe"

_TEMPLATE = Template('''\
"""$name: a task to fill in, written by `worldline init`.

    python $file

checks it, trains a policy, and leaves a run folder with a learning curve and a video; `worldline
train $file` trains it with all options of the command line. The places to make it yours are marked
with YOURS.
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
${imports}import numpy as np
import worldline
from worldline.learn.ppo import PPOConfig
from worldline.train import TrainConfig, train
from worldline.tuning import tune_process

MJCF = $mjcf
$motors

@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class $task(worldline.Task):
    """YOURS: what the robot is to do.

    It has $joints and
    $actuators.
    Observation `($nobs,)`: positions (without x and y of a robot that moves freely), velocities.
    Action `($nact,)`: from -1 to 1, over the range of each actuator.
    """

    control_timestep: float = $control_timestep
    """Seconds between two actions; a multiple of the model's time step of $timestep s."""
    episode_length: int = 500
    """Control steps after which an episode is truncated; 0 for no limit."""
    effort_cost: float = 0.1
    """Cost of the mean of the squared actions."""

    def mjcf(self):
        """The model."""
        $source

    def start(self, key):
        """YOURS: where an episode begins. Now: near one pose, at rest but for a little noise."""
        joints_key, velocity_key = jax.random.split(key)
        qpos = $pose
        kind = self.model.mj.jnt_type  # 0 free, 1 ball, 2 slide, 3 hinge
        joints = self.model.mj.jnt_qposadr[kind >= 2]
        noise = 0.01 * jax.random.normal(joints_key, joints.shape)
        velocity = 0.01 * jax.random.normal(velocity_key, (self.model.nv,))
        return worldline.Start(qpos=qpos.at[joints].add(noise), qvel=velocity)

    @property
    def action_bounds(self):
        """From -1 to 1 for each actuator."""
        return -np.ones(self.model.nu, np.float32), np.ones(self.model.nu, np.float32)

    def control(self, action, physics, memory):
        """Maps an action to the actuators' ranges; -1 to 1 where an actuator has no range.

        An action of 0, where a policy begins, is the control $rest_words.
        """
        low, high = np.clip(self.model.ctrlrange.T, -1e6, 1e6)
        low, high = np.where(high - low < 1e6, low, -1.0), np.where(high - low < 1e6, high, 1.0)
        rest = $rest
        return rest + action * jnp.where(action < 0, rest - low, high - rest)

    def observe(self, physics, memory):
        """YOURS: what the policy sees. `fields` names what else it may read of MuJoCo's MjData."""
        free = self.model.mj.jnt_type[0] == 0
        return jnp.concatenate([physics.qpos[2 if free else 0 :], physics.qvel])

    def outcome(self, before, action, after, memory):
        """YOURS: what a step is worth, and whether the episode is over."""
        # Now: move along the first coordinate, which is x for a robot that moves freely.
        speed = after.qvel[0]
        effort = jnp.mean(jnp.square(action))
        return worldline.Outcome(
            reward=jnp.tanh(speed) - self.effort_cost * effort,
            # True for an end with no more return to come, such as a fall: after.qpos[2] < 0.2
            terminated=jnp.asarray(False),
            metrics={"speed": speed, "effort": effort},
        )


if __name__ == "__main__":
    tune_process()  # keeps compiled programs for the next time
    env = worldline.Env($task())
    for warning in worldline.check_env(env).warnings:  # a problem is an error
        print("warning:", warning)
    result = train("$name", env, TrainConfig(steps=300_000), PPOConfig(num_worlds=64))
    print(result.folder, result.evaluation.episode_return.mean())
''')
