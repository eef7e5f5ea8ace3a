"""Terrain: heights against MuJoCo's rays, kinds against numbers by hand, worlds on their tiles."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import worldline
from worldline.cli.arguments import train_settings
from worldline.errors import ConfigError, TaskError
from worldline.model import Model
from worldline.tasks.terrain import HeightField, Terrain
from worldline.tasks.terrain.config import NAMES
from worldline.tasks.terrain.kinds import tile_heights
from worldline.tasks.terrain.scene import atlas_heights, with_terrain
from worldline.train.stored import as_tuples, described, made_again
from worldline.variation import Uniform

QUADRUPED = "robot/quadruped-joystick"
GROUND = '<mujoco><worldbody><geom name="ground" type="plane" size="9 9 1"/></worldbody></mujoco>'
#: Tiles of 4 m whose middles are at x = -4, 0 and 4 (levels), and y = -2 and 2 (kinds).
SMALL = Terrain(
    kinds=("flat", "stairs_up"), levels=3, tile=4.0, platform=1.2, step_height=(0.1, 0.2)
)
#: Where the atlas ends along x, m.
REACH = 4.0 * 3 / 2 + SMALL.border


@pytest.fixture(scope="module")
def env():
    return worldline.make(QUADRUPED, terrain=SMALL)


@pytest.fixture(scope="module")
def plain():
    return worldline.make(QUADRUPED)


#: The quadruped in its stance.
STANDING = np.array([0.0, 0.0, 0.33, 1, 0, 0, 0, *np.tile([0.0, 0.7, -1.4], 4)], np.float32)


@functools.cache
def programs(env):
    """The compiled `reset_to` of a configuration, and `step`."""
    reset = jax.jit(lambda qpos: env.reset_to(jax.random.key(3), qpos=qpos))
    return reset, jax.jit(env.step)


def field_of(terrain):
    model = Model(with_terrain(GROUND, terrain))
    data = mujoco.MjData(model.mj)
    mujoco.mj_forward(model.mj, data)
    return HeightField(model, "ground"), model.mj, data


@pytest.mark.parametrize("kind", NAMES)
def test_heights_are_those_that_rays_find(kind):
    field, mj, data = field_of(Terrain(kinds=(kind,), levels=3, tile=6.0))
    rng = np.random.default_rng(0)
    half = [9.0 + 1.5, 3.0 + 1.5]  # half a metre of them on the plain around
    places = rng.uniform(-np.array(half), half, (10_000, 2)).astype(np.float32)
    heights, hit = np.asarray(jax.jit(field.height)(places)), np.zeros(1, np.int32)
    down, found = np.array([0.0, 0.0, -1.0]), []
    for x, y in places:
        found.append(5 - mujoco.mj_ray(mj, data, np.array([x, y, 5.0]), down, None, 1, -1, hit))
    assert np.abs(heights - found).max() < 1e-4
    assert kind == "flat" or np.ptp(heights) > 0.05


def test_normals_and_clearances_are_those_that_rays_find():
    field, mj, data = field_of(Terrain(kinds=("rough", "slope_up"), levels=2, tile=4.0))
    points = np.random.default_rng(1).uniform(-4.0, 4.0, (300, 3)).astype(np.float32)
    points[:, 2] += 6
    normals, clearances = jax.jit(field.normal)(points), jax.jit(field.clearance)(points)
    normal, down, geom = np.zeros(3), np.array([0.0, 0.0, -1.0]), mj.geom("ground").id
    for point, ours, clearance in zip(points, normals, clearances, strict=True):
        far = mujoco.mj_rayHfield(mj, data, geom, point.astype(float), down, normal)
        assert abs(far - clearance) < 1e-4
        assert np.abs(normal - ours).max() < 1e-4
    points[:, 0] += 100.0
    assert (jax.jit(field.normal)(points) == np.array([0.0, 0.0, 1.0])).all()


def test_tiles_fit_beside_each_other_and_get_more_difficult():
    terrain = Terrain(levels=4)
    for kind in NAMES:
        tiles = [tile_heights(terrain, kind, level) for level in range(4)]
        for tile in tiles:
            border = np.concatenate([tile[0], tile[-1], tile[:, 0], tile[:, -1]])
            assert not border.any()
        spans = [np.ptp(tile) for tile in tiles]
        same = kind in ("flat", "gaps", "stepping_stones")  # always as deep
        assert spans == sorted(spans) and (same or spans[-1] > spans[0])


def test_stairs_are_as_high_and_deep_as_they_say():
    terrain = Terrain(levels=3, tile=8.0, step_height=(0.05, 0.15), step_depth=0.3, platform=1.6)
    tile = tile_heights(terrain, "stairs_down", 1)
    middle = len(tile) // 2
    # From the edge at 3.6 m to the platform at 0.8 m there is room for 9 steps of 0.3 m.
    assert tile[middle, middle] == pytest.approx(9 * 0.1)
    for distance, steps in {3.7: 0, 3.45: 1, 3.15: 2, 1.05: 9, 0.4: 9}.items():
        point = middle + round(distance / terrain.cell)
        assert tile[middle, point] == pytest.approx(steps * 0.1)
    assert (tile_heights(terrain, "stairs_up", 1) == -tile).all()
    slope = tile_heights(Terrain(levels=3, slope=(0.0, 0.5)), "slope_down", 2)
    assert slope[middle, middle + 40] == pytest.approx(0.5 * (3.6 - 2.0))


def test_a_tile_is_the_same_whatever_is_around_it():
    alone = atlas_heights(Terrain(kinds=("rough",), levels=3, border=0.0))
    among = atlas_heights(Terrain(kinds=("pit", "rough"), levels=3, border=0.0))
    assert (among[len(alone) - 1 :] == alone).all()


def test_what_is_no_terrain_is_refused():
    with pytest.raises(ConfigError, match="no terrain 'stairs'; did you mean 'stairs_up'"):
        Terrain(kinds=("stairs",))
    with pytest.raises(ConfigError, match=r"step_height is 0\.1; give several"):
        Terrain(step_height=0.1)
    with pytest.raises(ConfigError, match=r"step_height is \(0\.1, -1\.0\), in which -1\.0"):
        Terrain(step_height=(0.1, -1.0))
    with pytest.raises(ConfigError, match="no room for a platform of 4 m"):
        Terrain(tile=4.0, platform=4.0)
    with pytest.raises(ConfigError, match="heights; give a larger cell"):
        Terrain(kinds=NAMES, cell=0.005)
    with pytest.raises(TaskError, match="the model has none"):
        with_terrain("<mujoco/>", SMALL)
    with pytest.raises(TaskError, match="terrain needs a model that can be edited"):
        with_terrain(mujoco.MjModel.from_xml_string(GROUND), SMALL)
    with pytest.raises(TaskError, match="'ground' is no height field"):
        HeightField(Model(GROUND), "ground")


def worlds_on(env, num_worlds, level, kind):
    context = {"terrain_level": level, "terrain_kind": kind}
    on_tiles = worldline.Env(env.task, context=worldline.variation.Context(context, visible=()))
    return worldline.Worlds(on_tiles, num_worlds, context=context)


def test_an_episode_begins_on_its_tile_above_the_ground(env):
    worlds = worlds_on(env, 12, Uniform(1.0, 3.0), 1.0)
    state = worlds.reset(jax.random.key(0))
    place = np.asarray(state.env.physics.qpos[:, :3])
    assert set(np.round(place[:, 0]).tolist()) == {0.0, 4.0}
    assert (np.round(place[:, 1]) == 2.0).all()
    levels = np.asarray(env.task.tiles.level(place[:, 0]))
    assert levels.tolist() == (np.round(place[:, 0]) / 4 + 1).tolist()
    # Three steps up to the edge: the bottom of level 1 is at -3 * 0.15 m, of level 2 at -0.6 m.
    depth = np.where(levels == 1, 0.45, 0.6)
    clearance = np.asarray(env.task.ground.clearance(place))
    assert clearance == pytest.approx(place[:, 2] + depth, abs=1e-5)
    assert clearance == pytest.approx(np.full(12, 0.35), abs=1e-5)
    for qpos in np.asarray(state.env.physics.qpos, np.float64)[:4]:
        data = mujoco.MjData(env.model.mj)
        data.qpos[:] = qpos
        mujoco.mj_forward(env.model.mj, data)
        assert all(contact.dist > -0.03 for contact in data.contact)  # as on a plane


def test_levels_move_with_the_ranges_and_nothing_recompiles(env):
    worlds = worlds_on(env, 4, Uniform(0.0, 1.0), Uniform(0.0, 2.0))
    state = worlds.reset(jax.random.key(0))
    assert (np.asarray(state.env.physics.qpos[:, 0]) < -3).all()
    reset = jax.jit(worlds.reset_where)
    state = reset(state, np.ones(4, bool))
    state = dataclasses.replace(state, ranges={**state.ranges, "terrain_level": Uniform(2.0, 3.0)})
    state = reset(state, np.ones(4, bool))
    assert (np.asarray(state.env.physics.qpos[:, 0]) > 3).all()
    assert reset._cache_size() == 1


def test_nothing_ends_at_the_border_of_a_tile_or_of_the_atlas(env, plain):
    """At the seam of two tiles, at that of the atlas and the plain, and far out on the plain."""
    for x in (2.0, REACH, REACH + 50.0):
        ends = []
        for reset, step in (programs(env), programs(plain)):
            state = reset(STANDING + np.array([x, -2.0, 0.02, *np.zeros(16)], np.float32))
            for _ in range(25):
                state = step(state, jnp.zeros(12))
            ends.append(state)
        on_terrain, on_plane = ends
        assert not on_terrain.terminated and not on_terrain.diverged
        height = float(on_terrain.physics.qpos[2])
        assert height == pytest.approx(float(on_plane.physics.qpos[2]), abs=0.01)
        assert np.abs(on_terrain.obs[50:] - (height - 0.33)).max() < 1e-4  # all of it at height 0


def test_the_task_sees_heights_above_the_ground(env, plain):
    """A robot deep in a pit of stairs is to its task as high as on a plane; its scan is by hand."""
    (reset, _), (reset_plain, _) = programs(env), programs(plain)
    deep = reset(STANDING + np.array([4.0, 2.0, -0.6, *np.zeros(16)], np.float32))
    above = jax.jit(env.task.above_ground)(deep.physics)
    assert above.qpos[2] == pytest.approx(0.33, abs=1e-5)
    feet = np.asarray(reset_plain(STANDING).physics.fields["site_xpos"][1:, 2])
    assert np.asarray(above.fields["site_xpos"][2:, 2]) == pytest.approx(feet, abs=1e-5)
    scan = np.asarray(deep.obs[50:]).reshape(13, 9)
    # The platform ends at 0.6 m, where the first and the last row of points is: a step of 0.2 m.
    assert scan[1:-1] == pytest.approx(np.zeros((11, 9)), abs=1e-4)
    part = env.task.observation_parts["state"][-1]
    assert (part.name, part.size) == ("height_scan", scan.size)


def test_cameras_see_a_robot_that_is_near(env):
    """The plain is a kilometre wide, and MuJoCo leaves out what is nearer than 1% of a scene."""
    model = env.model.mj
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    away = np.linalg.norm(data.cam("side").xpos - data.body("torso").xpos)
    near = model.vis.map.znear * model.stat.extent
    assert near < away / 5 < away < model.vis.map.zfar * model.stat.extent


def test_a_run_folder_holds_the_terrain(env, tmp_path):
    saved = as_tuples(json.loads(json.dumps(described(env))))
    again = made_again(saved, tmp_path)
    assert again.task.plain.terrain == SMALL
    assert saved["not_rebuilt"] == ""
    del saved["options"]["terrain"]
    with pytest.raises(ConfigError, match="'terrain' of the task is missing"):
        made_again(saved, tmp_path)


def test_the_command_line_takes_a_terrain():
    arguments = ["--task.terrain.kinds", "rough", "pit", "--task.terrain.step-height", "0.1", "0.2"]
    task = train_settings(QUADRUPED, arguments).task
    assert task.terrain == Terrain(kinds=("rough", "pit"), step_height=(0.1, 0.2))
    assert [part.name for part in task.to_run().observation_parts["state"]][-1] == "height_scan"


@pytest.mark.parametrize(
    "name",
    [
        "playground/go1-joystick-flat",
        pytest.param("playground/go1-joystick-rough", marks=pytest.mark.exhaustive),
        pytest.param("playground/g1-joystick-flat", marks=pytest.mark.exhaustive),
        pytest.param("playground/spot-flat", marks=pytest.mark.exhaustive),
        pytest.param("playground/barkour-joystick", marks=pytest.mark.exhaustive),
        pytest.param("playground/h1-joystick-gait-tracking", marks=pytest.mark.exhaustive),
        pytest.param("playground/berkeley-joystick-flat", marks=pytest.mark.exhaustive),
        pytest.param("playground/apollo-joystick-flat", marks=pytest.mark.exhaustive),
        pytest.param("playground/t1-joystick-flat", marks=pytest.mark.exhaustive),
        pytest.param("playground/op3-joystick", marks=pytest.mark.exhaustive),
    ],
)
def test_robots_of_playground_stand_on_terrain_and_on_the_plain_around_it(name):
    env = worldline.make(name, terrain=SMALL)
    assert env.task.observation_parts["state"][-1].name == "height_scan"
    reset, step = programs(env)
    begin = np.asarray(jax.jit(env.reset)(jax.random.key(0)).physics.qpos)
    on_plain, stood = begin.copy(), []
    on_plain[:2] = REACH + 3.0, 0.0
    on_plain[2] -= jax.jit(env.task.ground.height)(begin[:2])
    for qpos in (begin, on_plain):
        state = reset(qpos)
        for _ in range(5):
            state = step(state, jnp.zeros(len(env.action_low)))
        assert not state.terminated and not state.diverged
        stood.append(float(jax.jit(env.task.above_ground)(state.physics).qpos[2]))
    assert stood[0] == pytest.approx(stood[1], abs=0.03)
