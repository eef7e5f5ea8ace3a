"""MuJoCo Playground's own environments, with MuJoCo in the place of MJX.

Their Python is what is compared: models, starts, controls, observations, rewards, terminations, and
what they remember. Their physics are stepped by MuJoCo's C library, in which ours are as well, for
in MJX a step of another solver would differ more than any of these.
"""

import atexit
import contextlib
import functools
import importlib
import inspect
import shutil
import sys
import tempfile
import types
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

from worldline.tasks.playground import assets

#: Our task's name to their module, class and arguments.
PEERS = {
    "playground/go1-joystick-flat": ("go1.joystick", "Joystick", {"task": "flat_terrain"}),
    "playground/go1-joystick-rough": ("go1.joystick", "Joystick", {"task": "rough_terrain"}),
    "playground/go1-getup": ("go1.getup", "Getup", {}),
    "playground/go1-handstand": ("go1.handstand", "Handstand", {}),
    "playground/go1-footstand": ("go1.handstand", "Footstand", {}),
    "playground/spot-flat": ("spot.joystick", "Joystick", {}),
    "playground/spot-getup": ("spot.getup", "Getup", {}),
    "playground/spot-gait-tracking": ("spot.joystick_gait_tracking", "JoystickGaitTracking", {}),
    "playground/apollo-joystick-flat": ("apollo.joystick", "Joystick", {}),
    "playground/barkour-joystick": ("barkour.joystick", "Joystick", {}),
    "playground/h1-inplace-gait-tracking": (
        "h1.inplace_gait_tracking", "InplaceGaitTracking", {}
    ),
    "playground/h1-joystick-gait-tracking": (
        "h1.joystick_gait_tracking", "JoystickGaitTracking", {}
    ),
    "playground/op3-joystick": ("op3.joystick", "Joystick", {}),
    **{
        f"playground/{ours}-joystick-{ground}": (
            f"{theirs}.joystick", "Joystick", {"task": f"{ground}_terrain"}
        )
        for ours, theirs in {"g1": "g1", "t1": "t1", "berkeley": "berkeley_humanoid"}.items()
        for ground in ("flat", "rough")
    },
}  # fmt: skip

#: The same of arms and hands.
MANIPULATION = {
    "playground/aloha-hand-over": ("aloha.handover", "HandOver", {}),
    "playground/aloha-single-peg-insertion": (
        "aloha.single_peg_insertion", "SinglePegInsertion", {}
    ),
    "playground/leap-cube-reorient": ("leap_hand.reorient", "CubeReorient", {}),
    "playground/leap-cube-rotate-z": ("leap_hand.rotate_z", "CubeRotateZAxis", {}),
    "playground/panda-open-cabinet": ("franka_emika_panda.open_cabinet", "PandaOpenCabinet", {}),
    "playground/panda-pick-cube": ("franka_emika_panda.pick", "PandaPickCube", {}),
    "playground/panda-pick-cube-cartesian": (
        "franka_emika_panda.pick_cartesian", "PandaPickCubeCartesian", {}
    ),
    "playground/panda-pick-cube-orientation": (
        "franka_emika_panda.pick", "PandaPickCubeOrientation", {}
    ),
    "playground/panda-robotiq-push-cube": (
        "franka_emika_panda_robotiq.push_cube", "PandaRobotiqPushCube", {}
    ),
}  # fmt: skip

#: The fields of MjData that their tasks read.
_FIELDS = (
    "actuator_force", "ctrl", "mocap_pos", "mocap_quat", "qacc", "qfrc_actuator", "qpos", "qvel",
    "sensordata", "site_xmat", "site_xpos", "xfrc_applied", "xmat", "xpos", "xquat",
)  # fmt: skip


class Data(SimpleNamespace):
    """What a task reads of a simulation, as `mjx.Data` has it."""

    def replace(self, **changes):
        return Data(**{**vars(self), **changes})

    def tree_replace(self, changes):
        return self.replace(**changes)


def snapshot(data: mujoco.MjData) -> Data:
    """The fields of a simulation as they are now."""
    fields = {name: jnp.asarray(np.array(getattr(data, name)), jnp.float32) for name in _FIELDS}
    for name in ("site_xmat", "xmat"):
        fields[name] = fields[name].reshape(-1, 3, 3)
    return Data(**fields, simulation=data)


class Stepped:
    """MuJoCo's C library with the functions that Playground calls of MJX."""

    #: The integration state at which the next simulation begins, in place of its own start.
    start: np.ndarray | None = None

    #: The velocity with which ours begins the next step, of a robot that may get a knock.
    velocity: np.ndarray | None = None

    @classmethod
    def make_data(cls, model, **given):
        data = mujoco.MjData(model)
        for name in ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat"):
            if given.get(name) is not None:
                getattr(data, name)[:] = given[name]
        if cls.start is not None:
            mujoco.mj_setState(model, data, cls.start, mujoco.mjtState.mjSTATE_INTEGRATION)
            mujoco.mj_forward(model, data)  # arms and hands leave that out
        return snapshot(data)

    @staticmethod
    def forward(model, data):
        mujoco.mj_forward(model.compiled, data.simulation)
        return snapshot(data.simulation)

    @classmethod
    def step(cls, model, data, action, n_substeps=1):
        if cls.start is not None:
            return data  # a robot that has come to rest already
        simulation = data.simulation
        low, high = np.float32(model.actuator_ctrlrange.T)  # as MuJoCo would, but in our numbers
        limited = model.actuator_ctrllimited.astype(bool)
        simulation.ctrl[:] = np.where(limited, np.clip(action, low, high), action)
        if cls.velocity is not None:  # the same to the last bit: at some contacts it decides much
            np.testing.assert_allclose(data.qvel, cls.velocity, 1e-5, 1e-6)
            simulation.qvel[:] = cls.velocity
        for name in ("xfrc_applied", "mocap_pos", "mocap_quat"):
            getattr(simulation, name)[:] = getattr(data, name)
        mujoco.mj_step(model.compiled, simulation, n_substeps)
        return snapshot(simulation)


#: MJX's own functions, in whose place tests put others.
_MJX = {"put_model": mjx.put_model, "forward": mjx.forward}


@functools.cache
def _package():
    """The package, without what its `__init__` files import: other simulators and learners.

    Returns:
        Its module for environments, and the functions of that which tests replace.
    """
    spec = importlib.util.find_spec("mujoco_playground")
    folder = Path(spec.submodule_search_locations[0])
    for name in ("", "._src", "._src.locomotion", "._src.manipulation"):
        module = types.ModuleType(f"mujoco_playground{name}")
        module.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules.setdefault(module.__name__, module)
    for parent, child in (
        ("mujoco_playground", "_src"),
        ("mujoco_playground._src", "locomotion"),
        ("mujoco_playground._src", "manipulation"),
    ):
        setattr(sys.modules[parent], child, sys.modules[f"{parent}.{child}"])
    mjx_env = importlib.import_module("mujoco_playground._src.mjx_env")
    mjx_env.MENAGERIE_PATH = type(mjx_env.MENAGERIE_PATH)(str(_menagerie()))
    return mjx_env, {"make_data": mjx_env.make_data, "step": mjx_env.step}


@functools.cache
def _playground():
    """The package, with MuJoCo in the place of MJX."""
    mjx_env, _ = _package()
    mjx_env.make_data, mjx_env.step = Stepped.make_data, Stepped.step
    mjx.put_model = _Model
    mjx.forward = Stepped.forward


@contextlib.contextmanager
def on_mjx():
    """Playground as it is, its simulations in MJX: a function that imports a module of it."""
    mjx_env, functions = _package()
    clip = mock.patch("jax.numpy.clip", _clip)  # their JAX had other names of arguments
    with mock.patch.multiple(mjx_env, **functions), mock.patch.multiple(mjx, **_MJX), clip:
        yield lambda name: importlib.import_module(f"mujoco_playground._src.{name}")


def _menagerie():
    """A folder of links to the robots of the packages, which `atexit` deletes."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    for package in map(importlib.util.find_spec, assets.PACKAGES):
        [place] = package.submodule_search_locations
        for robot in Path(place).glob("mujoco/playground/assets/mujoco_menagerie/*"):
            link = folder / robot.name
            if not link.exists():
                link.symlink_to(robot)
    return folder


class _Model:
    """A compiled model that says, as one of MJX does, what steps it."""

    impl = SimpleNamespace(value="c")

    def __init__(self, compiled, **_):
        self.compiled = compiled
        for body in range(compiled.nbody):
            # They change what a geom of a compiled model touches, and MJX looks at geoms alone.
            for mask in ("contype", "conaffinity"):
                geoms = getattr(compiled, f"geom_{mask}")[compiled.geom_bodyid == body]
                getattr(compiled, f"body_{mask}")[body] = np.bitwise_or.reduce(geoms, initial=0)

    def __getattr__(self, name):
        return getattr(self.compiled, name)


def playground_env(name: str, overrides=None):
    """Their environment of the same name as ours, without noise.

    Args:
        name: our task.
        overrides: of their configuration.
    """
    _playground()
    kind = "locomotion" if name in PEERS else "manipulation"
    module, cls, arguments = {**PEERS, **MANIPULATION}[name]
    found = importlib.import_module(f"mujoco_playground._src.{kind}.{module}")
    config = found.default_config()
    for noise in ("noise_config", "obs_noise"):
        if noise in config:
            _silence(config, noise)
    config.update_from_flattened_dict(overrides or {})
    return getattr(found, cls)(config=config, **arguments)


def _silence(config, noise):
    """Sets the noise of a configuration to 0."""
    if not hasattr(config[noise], "keys"):
        config[noise] = 0.0
    elif "level" in config[noise]:
        config[noise].level = 0.0
    elif "scales" in config[noise]:
        for scale in config[noise].scales:
            was = config[noise].scales[scale]
            config[noise].scales[scale] = [0.0] * len(was) if hasattr(was, "__len__") else 0.0


@contextlib.contextmanager
def without_alarms():
    """Their code mixes dtypes, and is not to be stopped for it; nor compiled, as it runs once."""
    alarms = jax.numpy_dtype_promotion("standard"), jax.debug_key_reuse(False)
    patches = mock.patch("jax.lax.cond", _cond), mock.patch("jax.numpy.clip", _clip)
    with alarms[0], alarms[1], patches[0], patches[1]:
        yield


def _clip(x, low=None, high=None, clip=jnp.clip, **names):
    """With a name of an argument that JAX no longer has, `a_max`, beside those that it has."""
    return clip(x, names.get("min", low), names.get("a_max", names.get("max", high)))


def _cond(which, yes, no, *operands):
    return yes(*operands) if which else no(*operands)


def reset(env, key):
    """Their state at a start of their own."""
    with without_alarms():
        return env.reset(key)


def reset_to(env, words):
    """Their state at a start of ours; `words` are MuJoCo's integration state."""
    Stepped.start = words
    try:
        return reset(env, jax.random.key(0))
    finally:
        Stepped.start = None


def step(env, state, action, velocity=None, first=()):
    """Their state after a control step.

    Args:
        env: their environment.
        state: their state before it.
        action: of the policy.
        velocity: with which ours begins the step, of a robot that may get a knock; theirs is to be
            the same.
        first: the first numbers that they draw.
    """
    drawn, uniform = list(first), jax.random.uniform

    def draw(*arguments, **bounds):
        return drawn.pop(0) if drawn else uniform(*arguments, **bounds)

    knocked = mock.patch.object(Stepped, "velocity", velocity)
    with without_alarms(), mock.patch("jax.random.uniform", draw), _feet_found(env), knocked:
        return env.step(state, jnp.asarray(action))


@contextlib.contextmanager
def _feet_found(env):
    """The H1's steps look for contacts of feet at the numbers of sensors, not at their addresses.

    What lies there is the height of the robot and its vertical. Ours looks at the contacts.
    """
    if ".h1." not in type(env).__module__:
        yield
        return
    names = "_left_foot_floor_found_sensor", "_right_foot_floor_found_sensor"
    places = {name: [int(env.mj_model.sensor_adr[i]) for i in getattr(env, name)] for name in names}
    with mock.patch.multiple(env, **places):
        yield


def synchronised(env, state, words, inputs=False, **info):
    """Their state with the simulation where ours is, and some of what they remember replaced.

    Args:
        env: their environment.
        state: their state.
        words: MuJoCo's integration state of ours.
        inputs: whether controls and the places of what is moved by hand are ours as well.
        info: values of `state.info`.
    """
    simulation = state.data.simulation
    mujoco.mj_setState(env.mj_model, simulation, words, mujoco.mjtState.mjSTATE_INTEGRATION)
    now = snapshot(simulation)
    names = ("qpos", "qvel", *(("ctrl", "mocap_pos", "mocap_quat") if inputs else ()))
    data = state.data.replace(**{name: getattr(now, name) for name in names})
    return state.replace(data=data, info={**state.info, **info})


def observed(env, state):
    """What they observe in a state at a start."""
    blank = {n: jnp.zeros_like(x) for n, x in state.info.items() if n.endswith("_history")}
    known = {"data": state.data, "info": {**state.info, **blank}}
    observe = getattr(env, "_get_single_obs", env._get_obs)
    with without_alarms():
        if "obs_history" in inspect.signature(observe).parameters:
            known["obs_history"] = jnp.zeros_like(state.obs["state"])
        return observe(*(known[name] for name in inspect.signature(observe).parameters))


@jax.tree_util.register_pytree_node_class
class _Randomised:
    """A model as one of MJX is replaced in parts; its fields are a tree's leaves."""

    def __init__(self, **fields):
        vars(self).update(fields)

    def tree_replace(self, changes):
        return _Randomised(**{**vars(self), **changes})

    def tree_flatten(self):
        return list(vars(self).values()), tuple(vars(self))

    @classmethod
    def tree_unflatten(cls, names, values):
        return cls(**dict(zip(names, values, strict=True)))


def randomised(name, keys):
    """The constants that their `domain_randomize` draws: `(n, ...)` by field."""
    if name in PEERS:
        module = f"locomotion.{PEERS[name][0].partition('.')[0]}.randomize"
        fields = (
            "geom_friction", "pair_friction", "body_ipos", "body_mass", "qpos0", "dof_frictionloss",
            "dof_armature", "dof_damping", "actuator_gainprm", "actuator_biasprm",
        )  # fmt: skip
    else:
        module = f"manipulation.{MANIPULATION[name][0]}"
        fields = (
            "geom_friction", "body_ipos", "body_mass", "body_inertia", "qpos0", "dof_frictionloss",
            "dof_armature", "dof_damping", "actuator_gainprm", "actuator_biasprm",
        )  # fmt: skip
    env = playground_env(name)
    found = importlib.import_module(f"mujoco_playground._src.{module}")
    model = _Randomised(
        **{field: jnp.asarray(getattr(env.mj_model, field), jnp.float32) for field in fields},
        nbody=env.mj_model.nbody,
        nu=env.mj_model.nu,
    )
    with without_alarms():
        drawn, axes = found.domain_randomize(model, keys)
    own = [field for field in fields if getattr(axes, field) == 0]
    return {field: np.asarray(getattr(drawn, field)) for field in own}
