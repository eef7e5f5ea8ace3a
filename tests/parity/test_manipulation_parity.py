"""Each playground/* task of arms and hands is MuJoCo Playground's, as those of robots with legs.

They are compared as there: before each step their simulation is put where ours is, and what is
drawn at random is theirs as ours drew it. Random actions alone would not bring a gripper to a cube,
so that some paths begin where one is, or push on in one direction.
"""

import contextlib
import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from playground_peer import (
    MANIPULATION,
    observed,
    playground_env,
    randomised,
    reset,
    reset_to,
    step,
    synchronised,
)
from scipy import stats

from worldline.tasks.playground import rotations
from worldline.tasks.playground.panda_kinematics import joints_for
from worldline.tasks.registry import load_task, make

PATHS, STEPS, STARTS, RTOL = 4, 50, 128, 1e-4

#: Chance of a false alarm of one comparison; the seeds are fixed, so it is met once, or never.
ALPHA = 1e-5

#: Options of ours. Weights that are 0 by default are not compared at that.
OPTIONS = {
    "playground/aloha-hand-over": {},
    "playground/aloha-single-peg-insertion": {},
    "playground/leap-cube-reorient": {
        "noise_level": 0.0, "history_length": 2, "target_share": 0.7, "success_angle": 1.5,
        "jolted": True, "jolt_wait": (5, 14), "joint_vel_weight": -0.01,
    },
    "playground/leap-cube-rotate-z": {
        "noise_level": 0.0, "history_length": 2, "linvel_weight": -0.1, "pose_weight": -0.1,
        "torques_weight": -0.1, "energy_weight": -0.1, "action_rate_weight": -0.1,
    },
    "playground/panda-open-cabinet": {},
    "playground/panda-pick-cube": {},
    "playground/panda-pick-cube-cartesian": {"robot_target_qpos_weight": 0.3},
    "playground/panda-pick-cube-orientation": {},
    "playground/panda-robotiq-push-cube": {
        "box_noise": 0.0, "box_angle_noise": 0.0, "joint_noise": 0.0, "joint_velocity_noise": 0.0,
        "gripper_noise": 0.0, "gripper_angle_noise": 0.0, "action_delay": (2, 2),
        "observation_delay": (6, 6), "success_steps": 3,
    },
}  # fmt: skip

#: What theirs are configured by for these, where it is not the name.
CONFIG = {
    "playground/leap-cube-reorient": {
        "history_len": 2, "ema_alpha": 0.7, "success_threshold": 1.5, "pert_config.enable": True,
        "pert_config.pert_wait_steps": (5, 15),
    },
    "playground/leap-cube-rotate-z": {"history_len": 2},
    "playground/panda-robotiq-push-cube": {
        "noise_config.action_min_delay": 2, "noise_config.action_max_delay": 3,
        "noise_config.obs_min_delay": 6, "noise_config.obs_max_delay": 7,
        "reward_config.success_step_count": 3,
        **{
            f"noise_config.noise_scales.{name}": 0.0
            for name in (
                "obj_pos", "obj_angle", "robot_qpos", "robot_qvel", "eef_pos", "eef_angle"
            )
        },
    },
}  # fmt: skip

#: Metrics that are not theirs, though they are part of their reward.
OURS = {"playground/panda-pick-cube-cartesian": {"reward/action_rate", "reward/no_solution"}}

#: Ends that no path can meet: a drawer stays on its rail.
ENDLESS = {"playground/panda-open-cabinet"}

#: One is always compared, the others by `make nightly`.
ALWAYS = "playground/panda-pick-cube"


def marks(name: str) -> list[pytest.MarkDecorator]:
    group = pytest.mark.xdist_group(name)
    return [group] if name == ALWAYS else [group, pytest.mark.exhaustive]


every_task = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(name)) for name in MANIPULATION]
)


# Where paths begin: functions of the environment and a start of its own.


def thrown(thing, *velocity):
    """A start with a velocity of a thing, m/s."""

    def chosen(env, start):
        body = env.model.id("body", thing)
        first = int(env.model.mj.jnt_dofadr[env.model.mj.body_jntadr[body]])
        return {
            "qvel": start.physics.qvel.at[first : first + 3].set(np.array(velocity, np.float32))
        }

    return chosen


def placed(qpos, env, thing, place):
    first = env.task.coordinates(thing)
    return qpos.at[first : first + len(place)].set(np.asarray(place, np.float32))


def box_in_hand(env, start):
    place = env.task.gripper(start.physics)
    return {"qpos": placed(start.physics.qpos, env, "box", place)}


def box_over_middle(env, start):
    """It flies off; before that it is on the right."""
    qpos = placed(start.physics.qpos, env, "box", [0.05, 0.0, 0.24])
    return {"qpos": qpos, **thrown("box", 0, 5, 2)(env, start)}


def box_at_target(env, start):
    place = np.concatenate([start.memory.place, start.memory.turn])
    return {"qpos": placed(start.physics.qpos, env, "box", place)}


def box_at_gripper(env, start):
    place = env.task.site(start.physics, "gripper") + np.array([0.09, 0.0, 0.0])
    return {"qpos": placed(start.physics.qpos, env, "box", place)}


def box_at_border(env, start):
    qpos = placed(start.physics.qpos, env, "box", [0.5, 0.66, 0.03])
    return {"qpos": qpos, **thrown("box", 0, 2, 0)(env, start)}


def peg_in_socket(env, start):
    qpos = placed(start.physics.qpos, env, "socket", [-0.05, 0.0, 0.15])
    return {"qpos": placed(qpos, env, "peg", [0.0, 0.0, 0.15])}


def hands_on_table(env, start):
    return {"qpos": start.physics.qpos.at[np.array([1, 9])].add(0.55)}


def hand_at_handle(env, start):
    axes = np.array([[1, 0, 0], [0, -1, 0], [0, 0, -1]], np.float32)  # pointing down
    now = np.array([0, 0.5, 0, -2.0, 0, 2.5, 0.8], np.float32)
    joints, reachable = joints_for(np.array([0.5, 0.0, 0.5], np.float32), axes, now)
    assert reachable
    return {"qpos": start.physics.qpos.at[:7].set(joints)}


def along(size, **motors):
    """Actions that push these motors on, `j1` the second, on top of noise."""
    way = np.zeros(size, np.float32)
    for motor, push in motors.items():
        way[int(motor[1:])] = push
    return way


_PICK = ({0: box_in_hand, 3: thrown("box", 0, 4, 2)}, {2: along(8, j1=1)})

#: By path: where it begins, and what pushes it on.
PUSHED = {
    "playground/aloha-hand-over": (
        {1: box_over_middle, 3: thrown("box", 0, 0, 2)},
        {2: along(14, j1=1, j8=1)},
    ),
    "playground/aloha-single-peg-insertion": (
        {0: peg_in_socket, 2: hands_on_table, 3: thrown("peg", 12, 0, 1)}, {}
    ),
    "playground/leap-cube-reorient": ({3: thrown("cube", 0, 1, 0)}, {}),
    "playground/leap-cube-rotate-z": ({3: thrown("cube", 0, 1, 0)}, {}),
    "playground/panda-open-cabinet": ({0: hand_at_handle}, {2: along(8, j1=1)}),
    "playground/panda-pick-cube": _PICK,
    "playground/panda-pick-cube-cartesian": (
        {0: box_in_hand, 3: thrown("box", 0, 4, 2)}, {1: along(3, j0=4, j1=4), 2: along(3, j1=-2)}
    ),
    "playground/panda-pick-cube-orientation": _PICK,
    "playground/panda-robotiq-push-cube": (
        {0: box_at_target, 1: box_at_gripper, 3: box_at_border}, {2: along(7, j6=4)}
    ),
}  # fmt: skip


def their_env(name):
    """Their environment with the same options."""
    weights = {n.removesuffix("_weight"): v for n, v in OPTIONS[name].items() if "_weight" in n}
    scales = "reward_scales" if "cartesian" in name or "push" in name else "scales"
    config = {f"reward_config.{scales}.{term}": weight for term, weight in weights.items()}
    return playground_env(name, {**config, **CONFIG.get(name, {})})


@functools.cache
def our_paths(name):
    """The environment, actions `(PATHS, STEPS, n)`, starts, and the states; NumPy leaves."""
    env = make(name, **OPTIONS[name])
    begin, push = PUSHED[name]
    keys = jax.random.split(jax.random.key(5), PATHS)
    starts = [env.reset(key) for key in keys]
    for path, chosen in begin.items():
        starts[path] = env.reset_to(keys[path], **chosen(env, starts[path]))
    starts = jax.tree.map(lambda *leaves: np.stack(leaves), *starts)
    shape = (PATHS, STEPS, *env.action_low.shape)
    actions = np.random.default_rng(7).uniform(-1, 1, shape).astype(np.float32)
    for path, way in push.items():
        actions[path] = 0.3 * actions[path] + np.array(way, np.float32)

    @jax.jit
    @jax.vmap
    def run(start, actions):
        def step_ours(state, action):
            following = env.step(state, action)
            return following, following

        return jax.lax.scan(step_ours, start, actions)[1]

    return env, actions, starts, jax.device_get(run(starts, actions))


def at(states, *place):
    return jax.tree.map(lambda x: x[place], states)


def drawn_at_start(state):
    """What was drawn for an episode of ours, by their names."""
    memory, info = state.memory, {}
    if hasattr(memory, "place"):
        info["target_pos"] = memory.place
    if hasattr(memory, "jolts"):
        jolts = memory.jolts
        info |= {
            "pert_wait_steps": jolts.wait[None],
            "pert_duration_steps": jolts.steps[None],
            "pert_vel": jolts.velocity,
        }
    return info


def following(peer, theirs, before, place, steps):
    """Their state where ours is before a step, the first of which is number 0."""
    info = {"_steps": np.int32(steps)}  # theirs begins anew at an end, after which we go on
    theirs = synchronised(peer, theirs, place, **info)
    memory = before.memory
    if hasattr(memory, "goal") and memory.since == 0:  # the next goal is drawn at a success
        theirs = theirs.replace(
            data=theirs.data.replace(mocap_quat=memory.goal[None]),
            info={**theirs.info, "goal_quat_dquat": memory.goal_velocity},
        )
    return theirs


@contextlib.contextmanager
def drawn_alike(env, peer, after):
    """Draws in their step what was drawn in ours, which led to `after`."""
    memory = after.memory

    def normal(_, shape=()):
        return memory.jolts.direction if shape == (6,) else np.zeros(shape, np.float32)

    def target(_, reach):
        assert reach == np.float32(env.task.target_ranges[memory.level])
        return memory.place

    def turn(_, angle):
        assert angle == np.float32(env.task.target_angles[memory.level])
        box = after.physics.fields["xquat"][env.model.id("body", "box")]
        return rotations.product(rotations.inverse(box), memory.turn)

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch("jax.random.normal", normal))
        if hasattr(memory, "level"):
            patches.enter_context(mock.patch.object(peer, "_get_rand_target_pos", target))
            patches.enter_context(mock.patch.object(peer, "_get_rand_target_quat", turn))
        yield


#: Their names of metrics of ours.
_NAMES = {"success_1": "near", "success_2": "aligned"}


def their_terms(name, peer, metrics):
    """Their metrics under our names, with their weights."""
    config = peer._config.reward_config
    scales, named = config.get("scales") or config.reward_scales, {}
    raw = "panda-pick" in name or "cabinet" in name
    for metric, value in metrics.items():
        term = metric.removeprefix("reward/")
        if metric in _NAMES:
            named[_NAMES[metric]] = value
        elif term == "no_box_collision":
            assert value == 1  # always, as palm and cube cannot touch; no part of the reward
        elif term in scales:
            named[f"reward/{term}"] = value * scales[term] if raw else value
        elif metric == "reward/success":
            named[metric] = value * config.success_reward
        else:
            named[metric] = value
    return named


#: Where the share of the episode is seen last, which at its end is 0 in theirs.
_SHARE_LAST = {"playground/aloha-hand-over"}


def parts(obs):
    return obs if isinstance(obs, dict) else {"state": obs}


def assert_close(ours, theirs, what):
    """Within `RTOL`, or what float32 leaves of numbers of this size."""
    np.testing.assert_allclose(ours, theirs, RTOL, 2e-5, err_msg=str(what))


def assert_alike(name, peer, ours, theirs, where):
    """The observation, the terms of the reward, the reward and the end of the episode."""
    for part, value in parts(theirs.obs).items():
        same = slice(-1 if name in _SHARE_LAST and theirs.done else None)
        assert_close(parts(ours.obs)[part][same], value[same], (where, part))
    terms = their_terms(name, peer, theirs.metrics)
    assert ours.metrics.keys() == terms.keys() | OURS.get(name, set())
    for term, value in terms.items():
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
    words = env.physics.integration_state(states.physics)
    for path in range(PATHS):
        before, place = at(starts, path), env.physics.integration_state(starts.physics)[path]
        theirs = reset_to(peer, place)
        theirs = synchronised(peer, theirs, place, inputs=True, **drawn_at_start(before))
        for number, action in enumerate(actions[path]):
            after = at(states, path, number)
            theirs = following(peer, theirs, before, place, number)
            with drawn_alike(env, peer, after):
                theirs = step(peer, theirs, action)
            assert_alike(name, peer, after, theirs, (path, number))
            before, place = after, words[path, number]


@every_task
def test_each_term_and_each_end_are_met(name):
    """Else the paths compare less than they seem to."""
    _, _, _, states = our_paths(name)
    still = {"out_of_bounds"} if name in ENDLESS else set()
    constant = {term for term, values in states.metrics.items() if np.ptp(values) == 0}
    assert constant == still
    assert (0 < states.terminated.mean() < 1) != (name in ENDLESS)


@every_task
def test_a_start_is_observed_alike(name):
    """Theirs before anything is computed is zeros; it is compared with what was computed."""
    env, _, starts, _ = our_paths(name)
    start, place = at(starts, 0), env.physics.integration_state(starts.physics)[0]
    peer = their_env(name)
    theirs = reset_to(peer, place)
    theirs = synchronised(peer, theirs, place, inputs=True, **drawn_at_start(start))
    for part, value in parts(observed(peer, theirs)).items():
        assert_close(parts(start.obs)[part][: value.size], value, part)


@every_task
def test_starts_are_distributed_alike(name):
    # Theirs swap a cube into the hand at the first step, not at the start.
    task = load_task(name, **({"grasped_probability": 0.0} if "cartesian" in name else {}))
    keys = jax.random.split(jax.random.key(3), STARTS)
    starts = jax.device_get(jax.jit(jax.vmap(task.start))(keys))
    ours = {"qpos": starts.qpos, "qvel": starts.qvel, **starts.inputs}
    peer = playground_env(name)
    # Takes most of the time, and tells no more.
    peer._get_obs = peer._get_single_obs = lambda *_: jnp.zeros(1)
    theirs = [reset(peer, key) for key in jax.random.split(jax.random.key(4), STARTS)]
    for field, values in ours.items():
        wanted = np.stack([np.ravel(getattr(state.data, field)) for state in theirs])
        assert_distributed_alike(values.reshape(STARTS, -1), wanted, field)
    if hasattr(starts.memory, "jolts"):
        for field, values in jax.vmap(drawn_at_start)(starts).items():
            wanted = np.stack([np.ravel(state.info[field]) for state in theirs])
            assert_distributed_alike(values.reshape(STARTS, -1), wanted, field)


def assert_distributed_alike(ours, theirs, field):
    """Column by column, `(n, m)` each."""
    assert ours.shape == theirs.shape, field
    for column, (a, b) in enumerate(zip(ours.T, theirs.T, strict=True)):
        if np.ptp(b) < 1e-6:
            np.testing.assert_allclose(a, b, 1e-5, 1e-6, err_msg=field)
        else:
            assert stats.ks_2samp(a, b).pvalue > ALPHA, (field, column)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["playground/leap-cube-reorient", "playground/leap-cube-rotate-z"])
def test_the_randomisation_is_theirs(name):
    env, keys = make(name), jax.random.split(jax.random.key(3), 2 * STARTS)
    domain = env.task.domains["playground"]
    drawn = jax.vmap(lambda key: domain(key, env.model, domain.ranges))(keys[:STARTS])
    theirs = randomised(name, keys[STARTS:])
    assert drawn.keys() == theirs.keys()
    for field, wanted in theirs.items():
        ours = np.reshape(drawn[field], (STARTS, -1))
        assert_distributed_alike(ours, wanted.reshape(STARTS, -1), field)
