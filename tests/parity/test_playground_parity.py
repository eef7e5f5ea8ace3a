"""Each playground/* task is MuJoCo Playground's: on paths of ours, theirs sees and rewards alike.

Before each step their simulation is put where ours is, so that 200 states are compared, each after
one control step from the same place. What is drawn at random, commands and pushes, is theirs as
ours drew it, and observations have no noise. What a task remembers each keeps by itself.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from playground_peer import (
    MANIPULATION,
    PEERS,
    playground_env,
    randomised,
    reset,
    reset_to,
    step,
    synchronised,
)
from scipy import stats

from worldline.tasks.playground.legged import draws
from worldline.tasks.playground.pushes import knock
from worldline.tasks.registry import list_tasks, make

PATHS, STEPS, STARTS, RTOL = 4, 50, 128, 1e-4

#: Chance of a false alarm of one comparison; the seeds are fixed, so it is met once, or never.
ALPHA = 1e-5

#: How large the random actions of each path are: from a robot that stands to one that falls.
AMPLITUDES = np.linspace(0.2, 1.0, PATHS, dtype=np.float32)

#: Options of ours: no noise, and commands, also to stand, and pushes that come often.
_JOYSTICK = {
    "noise_level": 0.0,
    "command_time": 0.1,
    "command_probability": (0.2, 0.2, 0.2),
    "pushed": True,
    "push_wait": (0.2, 0.6),
    "soft_limit": 0.7,
}
#: Weights that are 0 by default are not compared at that.
_STAND = {
    "noise_level": 0.0,
    "action_rate_weight": -0.01,
    "termination_weight": -1.0,
    "torques_weight": -1e-4,
    "stay_still_weight": -0.1,
    "energy_weight": -0.003,
    "dof_acc_weight": -2.5e-7,
}
#: The same for humanoids.
_HUMANOID = {
    "noise_level": 0.0,
    "command_steps": 15,
    "stand_probability": 0.4,
    "push_wait": (0.2, 0.6),
    "soft_limit": 0.6,
    **{
        f"{term}_weight": -0.01
        for term in (
            "lin_vel_z",
            "base_height",
            "torques",
            "action_rate",
            "energy",
            "feet_clearance",
            "feet_height",
            "stand_still",
            "termination",
        )
    },
}
OPTIONS = {
    **{f"playground/berkeley-joystick-{ground}": _HUMANOID for ground in ("flat", "rough")},
    **{
        f"playground/g1-joystick-{ground}": {
            **_HUMANOID, "alive_weight": 0.1, "dof_acc_weight": -1e-7,
            "largest_contact_force": 100.0, "restricted_joint_range": ground == "rough",
        }
        for ground in ("flat", "rough")
    },
    **{
        f"playground/t1-joystick-{ground}": {
            **_HUMANOID, "dof_acc_weight": -1e-7, "dof_vel_weight": -1e-4
        }
        for ground in ("flat", "rough")
    },
    "playground/apollo-joystick-flat": {
        "noise_level": 0.0, "command_time": 0.1, "command_probability": (0.2, 0.2, 0.2),
        "push_wait": (0.2, 0.6), "lin_vel_z_weight": -0.1, "torques_weight": -1e-4,
        "action_rate_weight": -0.01, "energy_weight": -0.01, "alive_weight": 0.1,
        "termination_weight": -1.0,
    },
    "playground/h1-inplace-gait-tracking": {"noise_level": 0.0},
    "playground/h1-joystick-gait-tracking": {
        "noise_level": 0.0, "command_steps": 15, "gaits": ("walk", "jump"),
        "feet_air_time_weight": 0.5, "ang_vel_xy_weight": -0.1, "lin_vel_z_weight": -0.1,
        "foot_slip_weight": -0.1,
    },
    "playground/op3-joystick": {
        "noise_level": 0.0, "stand_probability": 0.4, "command_steps": 15,
        "feet_clearance_weight": -1.0,
    },
    "playground/barkour-joystick": {
        "noise_level": 0.0, "kick_speed": (10.0, 20.0), "kick_wait": (8, 12)
    },
    "playground/go1-footstand": _STAND,
    "playground/go1-getup": {
        "noise_level": 0.0, "standing_height": 0.2, "largest_power": 200.0, "soft_limit": 0.7
    },
    "playground/go1-handstand": _STAND,
    "playground/go1-joystick-flat": _JOYSTICK,
    "playground/go1-joystick-rough": _JOYSTICK,
    "playground/spot-flat": {
        "noise_level": 0.0, "stand_probability": 0.5, "command_steps": 15, "pushed": True,
        "push_wait": (0.2, 0.6), "push_speed": (5.0, 10.0),
    },
    "playground/spot-gait-tracking": {"noise_level": 0.0, "command_steps": 15},
    "playground/spot-getup": {
        "noise_level": 0.0, "standing_height": 0.4, "torques_weight": -1e-4,
        "action_rate_weight": -0.01,
    },
}  # fmt: skip

#: Terms that these paths do not meet: the one that is constant, and the feet of a T1 that touch
#: each other, which the ranges of its hips hardly allow.
UNMET = {
    "reward/alive": ("g1", "t1", "berkeley"),
    "reward/collision": ("t1",),
}

#: Their names of options of ours, and of those that are no part of their configuration.
_CONFIG = {
    "pushed": "pert_config.enable",
    "soft_limit": "soft_joint_pos_limit_factor",
    "largest_power": "energy_termination_threshold",
    "largest_contact_force": "reward_config.max_contact_force",
    "restricted_joint_range": "restricted_joint_range",
}
_ATTRIBUTES = {"standing_height": "_z_des"}

#: Each takes half a minute; one is always compared, the others by `make nightly`.
ALWAYS = "playground/go1-joystick-flat"


def marks(name: str) -> list[pytest.MarkDecorator]:
    group = pytest.mark.xdist_group(name)
    return [group] if name == ALWAYS else [group, pytest.mark.exhaustive]


every_task = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(name)) for name in PEERS]
)


def test_every_task_is_compared():
    ours = {name for name in list_tasks() if name.startswith("playground/")}
    assert {*PEERS, *MANIPULATION} == ours


def their_env(name):
    """Their environment with the same options."""
    options = OPTIONS[name]
    weights = {n.removesuffix("_weight"): v for n, v in options.items() if n.endswith("_weight")}
    config = {f"reward_config.scales.{term}": weight for term, weight in weights.items()}
    config |= {_CONFIG[n]: value for n, value in options.items() if n in _CONFIG}
    peer = playground_env(name, config)
    for option, attribute in _ATTRIBUTES.items():
        if option in options:
            setattr(peer, attribute, options[option])
    return peer


@functools.cache
def our_paths(name):
    """The environment, actions `(PATHS, STEPS, nu)`, starts, and the states; NumPy leaves."""
    env = make(name, **OPTIONS[name])
    shape = (PATHS, STEPS, *env.action_space.shape)
    noise = np.random.default_rng(7).uniform(-1, 1, shape).astype(np.float32)
    actions = AMPLITUDES[:, None, None] * noise

    @jax.jit
    @jax.vmap
    def run(key, actions):
        def step_ours(state, action):
            following = env.step(state, action)
            return following, following

        start = env.reset(key)
        return start, jax.lax.scan(step_ours, start, actions)[1]

    return env, actions, *jax.device_get(run(jax.random.split(jax.random.key(5), PATHS), actions))


def integration_state(env, states):
    """MuJoCo's, `(..., n)`."""
    return env.physics.integration_state(states.physics)


def at(states, *place):
    return jax.tree.map(lambda x: x[place], states)


def walk_of(memory):
    """What joystick tasks remember of commands and pushes."""
    return getattr(memory, "walk", memory)


def gait_of(memory):
    """What tasks remember of a gait that is drawn."""
    return getattr(memory, "track", memory)


def drawn_at_start(start, timestep):
    """What was drawn for our episode, by the names of theirs."""
    memory, info = walk_of(start.memory), {}
    if hasattr(memory, "pushes"):
        pushes = memory.pushes
        info |= {
            "steps_until_next_pert": pushes.wait,
            "pert_duration_seconds": pushes.seconds,
            "pert_duration": jnp.round(pushes.seconds / timestep).astype(jnp.int32),
            "pert_mag": pushes.speed,
        }
    if hasattr(memory, "knocks"):
        info |= {
            "push_interval_steps": memory.knocks.wait,
            "phase": memory.phase,
            "phase_dt": 2 * np.pi * timestep * memory.frequency[None],
        }
    if hasattr(memory, "kicks"):
        kicks = memory.kicks
        info |= {
            "kick_wait_steps": kicks.wait[None],
            "kick_duration_steps": kicks.steps[None],
            "vel_kick": kicks.speed,
        }
    gait = gait_of(memory)
    if hasattr(gait, "gait"):
        info |= {
            "gait": gait.gait,
            "gait_freq": gait.frequency,
            "phase": gait.phase,
            "phase_dt": 2 * np.pi * timestep * gait.frequency,
            "foot_height": gait.swing_height,
        }
    return info


def drawn(before, after):
    """What was drawn for a step of ours, by the names of theirs."""
    earlier, later, info = walk_of(before.memory), walk_of(after.memory), {}
    if hasattr(later, "command"):
        info["command"] = later.command.velocity
    if hasattr(later, "pushes"):
        info["pert_dir"] = earlier.pushes.direction
    if hasattr(later, "kicks"):
        info["kick_dir"] = earlier.kicks.direction
        info["step"] = earlier.kicks.clock  # theirs begins anew at an end, after which we go on
    elif hasattr(later, "frames"):  # likewise; of a command that lasts 501 steps
        left, whole = earlier.command.steps, later.command.steps + 1
        info["step"] = 501 - np.where(left > 0, left, whole)
    return info


def knock_in(env, before, action):
    """The velocity with which ours begins the next step; a knock's direction, rad, and speed."""
    if not hasattr(before.memory, "knocks"):
        return {}
    physics, memory = jax.tree.map(jnp.asarray, (before.physics, before.memory))
    velocity = env.task.control(jnp.asarray(action), physics, memory)["qvel"]
    x, y = knock(draws(memory.words).push, env.task.push_speed)
    return {"velocity": np.asarray(velocity), "first": (jnp.arctan2(y, x), jnp.hypot(x, y))}


def parts(obs):
    return obs if isinstance(obs, dict) else {"state": obs}


def assert_close(ours, theirs, what):
    """Within `RTOL`, or what float32 leaves of numbers of this size."""
    np.testing.assert_allclose(ours, theirs, RTOL, 2e-5, err_msg=str(what))


def assert_alike(ours, theirs, where):
    """The observation, the terms of the reward, the reward and the end of the episode."""
    for part, value in parts(theirs.obs).items():
        assert_close(parts(ours.obs)[part], value, (where, part))
    assert ours.metrics.keys() == theirs.metrics.keys()
    for term, value in theirs.metrics.items():
        assert_close(ours.metrics[term], value, (where, term))
    assert_close(ours.reward, theirs.reward, (where, "reward"))
    assert bool(ours.terminated) == bool(theirs.done), where


@every_task
def test_two_hundred_states_agree(name):
    env, actions, starts, states = our_paths(name)
    assert not states.diverged.any()
    peer = their_env(name)
    assert env.task.control_timestep == pytest.approx(peer.dt)
    assert env.task.episode_length == peer._config.episode_length
    words = integration_state(env, states)
    for path in range(PATHS):
        before, place = at(starts, path), integration_state(env, starts)[path]
        theirs = reset_to(peer, place)
        theirs = theirs.replace(obs=before.obs)  # which, in one task, is part of later ones
        theirs.info.update(drawn_at_start(before, peer.dt))
        for number, action in enumerate(actions[path]):
            after = at(states, path, number)
            theirs = synchronised(peer, theirs, place, **drawn(before, after))
            theirs = step(peer, theirs, action, **knock_in(env, before, action))
            assert_alike(after, theirs, (path, number))
            before, place = after, words[path, number]


@every_task
def test_each_term_and_each_end_are_met(name):
    """Else the paths compare less than they seem to."""
    _, _, _, states = our_paths(name)
    for term, values in states.metrics.items():
        robot = name.removeprefix("playground/").partition("-")[0]
        assert np.ptp(values) > 0 or robot in UNMET.get(term, ()), term
    assert 0 < states.terminated.mean() < 1


#: Where the observation holds what they draw at a start: a command, or a gait.
DRAWN = {
    **{
        f"playground/{robot}-joystick-{ground}": slice(9, 12)
        for robot in ("berkeley", "g1", "t1")
        for ground in ("flat", "rough")
    },
    "playground/apollo-joystick-flat": slice(9, 12),
    "playground/h1-inplace-gait-tracking": slice(179, 186),
    "playground/h1-joystick-gait-tracking": np.r_[63:66, 106:113],
    "playground/op3-joystick": slice(6, 9),
    "playground/barkour-joystick": slice(4, 7),
    "playground/go1-joystick-flat": slice(45, 48),
    "playground/go1-joystick-rough": slice(45, 48),
    "playground/spot-flat": slice(78, 81),
    "playground/spot-gait-tracking": slice(58, 69),
}


@every_task
def test_a_start_is_observed_alike(name):
    env, _, starts, _ = our_paths(name)
    start, place = at(starts, 0), integration_state(env, starts)[0]
    theirs = reset_to(their_env(name), place)
    for part, value in parts(theirs.obs).items():
        same = np.ones(value.shape, bool)
        same[DRAWN.get(name, [])] = False
        assert_close(parts(start.obs)[part][same], np.asarray(value)[same], part)


def our_draws(name):
    """What is drawn for `STARTS` episodes, `(STARTS, n)` by their names."""
    env = make(name)
    keys = jax.random.split(jax.random.key(3), STARTS)
    starts = jax.device_get(jax.jit(jax.vmap(env.reset))(keys))
    memory = walk_of(starts.memory)
    draws = {"qpos": starts.physics.qpos, "qvel": starts.physics.qvel}
    if hasattr(memory, "command"):
        draws["command"] = memory.command.velocity
        draws["steps_until_next_cmd"] = memory.command.steps
    known = jax.vmap(lambda start: drawn_at_start(start, env.task.control_timestep))(starts)
    return {n: np.reshape(value, (STARTS, -1)) for n, value in {**draws, **known}.items()}


@every_task
def test_starts_are_distributed_alike(name):
    ours, peer = our_draws(name), playground_env(name)
    peer._get_obs = lambda *_: None  # takes most of the time, and tells no more
    theirs = [reset(peer, key) for key in jax.random.split(jax.random.key(4), STARTS)]
    fixed = {"phase_dt", "pert_duration"}  # which follow from others
    for field in ours.keys() - fixed:
        of_data = field in ("qpos", "qvel")
        if not of_data and field not in theirs[0].info:
            continue  # one of ours that is drawn for others
        values = [getattr(t.data, field) if of_data else t.info[field] for t in theirs]
        wanted = np.stack([np.ravel(value) for value in values]).astype(np.float32)
        assert wanted.shape == ours[field].shape, field
        for column, (a, b) in enumerate(zip(ours[field].T, wanted.T, strict=True)):
            if np.ptp(b) < 1e-6:
                np.testing.assert_allclose(a, b, atol=1e-6, err_msg=field)
            else:
                assert stats.ks_2samp(a, b).pvalue > ALPHA, (field, column)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [
        "playground/berkeley-joystick-flat",
        "playground/g1-joystick-flat",
        "playground/go1-getup",
        "playground/go1-joystick-rough",
        "playground/t1-joystick-flat",
    ],
)
def test_the_randomisation_is_theirs(name):
    env, keys = make(name), jax.random.split(jax.random.key(3), 2 * STARTS)
    domain = env.task.domains["playground"]
    drawn = jax.vmap(lambda key: domain(key, env.model, domain.ranges))(keys[:STARTS])
    theirs = randomised(name, keys[STARTS:])
    assert drawn.keys() == theirs.keys()
    for field, wanted in theirs.items():
        ours = np.reshape(drawn[field], (STARTS, -1))
        for column, (a, b) in enumerate(zip(ours.T, wanted.reshape(STARTS, -1).T, strict=True)):
            if np.ptp(b) < 1e-6:
                np.testing.assert_allclose(a, b, 1e-5, 1e-6, err_msg=field)
            else:
                assert stats.ks_2samp(a, b).pvalue > ALPHA, (field, column)
