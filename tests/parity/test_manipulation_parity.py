"""Each playground/* task of arms and hands is MuJoCo Playground's, as those of robots with legs.

They are compared as there: before each step their simulation is put where ours is, and what is
drawn at random is theirs as ours drew it. Random actions alone would not bring a gripper to a cube,
so that some paths begin where one is, or push on in one direction.
"""

import functools

import jax
import numpy as np
import pytest
from playground_peer import MANIPULATION, observed, playground_env, reset_to, step, synchronised

from worldline.tasks.registry import make

PATHS, STEPS, STARTS, RTOL = 4, 50, 128, 1e-4

#: Chance of a false alarm of one comparison; the seeds are fixed, so it is met once, or never.
ALPHA = 1e-5

#: Options of ours. Weights that are 0 by default are not compared at that.
OPTIONS = {
    "playground/panda-open-cabinet": {},
    "playground/panda-pick-cube": {},
    "playground/panda-pick-cube-cartesian": {"robot_target_qpos_weight": 0.3},
    "playground/panda-pick-cube-orientation": {},
}

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


# Where paths begin, and what pushes them on: functions of the environment and a start of its own.


def cube_in_hand(env, start):
    first = env.task.coordinates("box")
    qpos = start.physics.qpos.at[first : first + 3].set(env.task.gripper(start.physics))
    return {"qpos": qpos}


def cube_thrown(env, start):
    return {"qvel": start.physics.qvel.at[9:12].set(np.array([0.0, 4.0, 2.0]))}


def hand_at_handle(env, start):
    from worldline.tasks.playground.panda_kinematics import joints_for

    axes = np.array([[1, 0, 0], [0, -1, 0], [0, 0, -1]], np.float32)  # pointing down
    now = np.array([0, 0.5, 0, -2.0, 0, 2.5, 0.8], np.float32)
    joints, reachable = joints_for(np.array([0.5, 0.0, 0.5], np.float32), axes, now)
    assert reachable
    return {"qpos": start.physics.qpos.at[:7].set(joints)}


_PICK = ({0: cube_in_hand, 3: cube_thrown}, {2: [0, 1, 0, 0, 0, 0, 0, 0]})
PUSHED = {
    "playground/panda-open-cabinet": ({0: hand_at_handle}, {2: [0, 1, 0, 0, 0, 0, 0, 0]}),
    "playground/panda-pick-cube": _PICK,
    "playground/panda-pick-cube-cartesian": (
        {0: cube_in_hand, 3: cube_thrown}, {1: [4, 4, 0], 2: [0, -2, 0]}
    ),
    "playground/panda-pick-cube-orientation": _PICK,
}  # fmt: skip


def their_env(name):
    """Their environment with the same options."""
    weights = {n.removesuffix("_weight"): v for n, v in OPTIONS[name].items() if "_weight" in n}
    scales = "reward_scales" if "cartesian" in name or "push" in name else "scales"
    return playground_env(
        name, {f"reward_config.{scales}.{term}": weight for term, weight in weights.items()}
    )


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


def drawn(state, steps):
    """What was drawn for an episode of ours of so many steps, by their names."""
    memory, info = state.memory, {"_steps": np.int32(steps)}
    if hasattr(memory, "place"):
        info["target_pos"] = memory.place
    return info


def their_terms(name, peer, metrics):
    """Their metrics under our names, with their weights."""
    config = peer._config.reward_config
    scales, named = config.get("scales") or config.reward_scales, {}
    raw = "panda-pick" in name or "cabinet" in name
    for metric, value in metrics.items():
        term = metric.removeprefix("reward/")
        if term == "no_box_collision":
            named[term] = value  # which no weight makes part of their reward
        elif term in scales:
            named[f"reward/{term}"] = value * scales[term] if raw else value
        elif metric == "reward/success":
            named[metric] = value * config.success_reward
        else:
            named[metric] = value
    return named


def parts(obs):
    return obs if isinstance(obs, dict) else {"state": obs}


def assert_close(ours, theirs, what):
    """Within `RTOL`, or what float32 leaves of numbers of this size."""
    np.testing.assert_allclose(ours, theirs, RTOL, 2e-5, err_msg=str(what))


def assert_alike(name, peer, ours, theirs, where):
    """The observation, the terms of the reward, the reward and the end of the episode."""
    for part, value in parts(theirs.obs).items():
        assert_close(parts(ours.obs)[part], value, (where, part))
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
        theirs = synchronised(peer, reset_to(peer, place), place, inputs=True)
        for number, action in enumerate(actions[path]):
            theirs = synchronised(peer, theirs, place, **drawn(before, number))
            theirs = step(peer, theirs, action)
            after = at(states, path, number)
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
    theirs = synchronised(peer, reset_to(peer, place), place, inputs=True, **drawn(start, 0))
    for part, value in parts(observed(peer, theirs)).items():
        assert_close(parts(start.obs)[part][: value.size], value, part)
