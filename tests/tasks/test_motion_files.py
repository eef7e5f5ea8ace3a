"""Reference motions from files: each layout, other rates, and errors by name."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from worldline.errors import ConfigError
from worldline.tasks.tracking.layouts import read_motion
from worldline.tasks.tracking.motion import Motion, resampled

#: A quarter turn about z, xyzw and wxyz.
XYZW, WXYZ = [0, 0, np.sqrt(0.5), np.sqrt(0.5)], [np.sqrt(0.5), 0, 0, np.sqrt(0.5)]


def written(path, text):
    path.write_text(text)
    return path


def test_csv_without_a_header_is_place_turn_and_joints(tmp_path):
    rows = f"1,2,3,{','.join(map(str, XYZW))},0.1,0.2\n4,5,6,0,0,0,1,0.3,0.4\n"
    motion = read_motion(written(tmp_path / "walk.csv", rows), fps=50)
    assert motion.fps == 50 and motion.joint_names is None
    np.testing.assert_array_equal(motion.root_pos, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(motion.root_quat, [WXYZ, [1, 0, 0, 0]])
    np.testing.assert_array_equal(motion.joint_pos, [[0.1, 0.2], [0.3, 0.4]])


@pytest.mark.parametrize(
    "root",
    [
        "root_x,root_y,root_z,root_qw,root_qx,root_qy,root_qz",
        "root_pos_x,root_pos_y,root_pos_z,root_rot_w,root_rot_x,root_rot_y,root_rot_z",
        "base_x,base_y,base_z,base_qw,base_qx,base_qy,base_qz",
    ],
)
def test_csv_with_a_header_has_any_order(tmp_path, root):
    rows = f"knee,time,{root},hip\n0.1,0,1,2,3,1,0,0,0,0.2\n0.3,0.04,4,5,6,1,0,0,0,0.4\n"
    motion = read_motion(written(tmp_path / "walk.csv", rows))
    assert motion.fps == pytest.approx(25)
    assert motion.joint_names == ("knee", "hip")
    np.testing.assert_array_equal(motion.root_pos, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(motion.root_quat, [[1, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(motion.joint_pos, [[0.1, 0.2], [0.3, 0.4]])


PLACES, JOINTS = np.arange(6.0).reshape(2, 3), np.array([[0.1, 0.2], [0.3, 0.4]])
BODIES = np.stack([PLACES, PLACES + 1], axis=1)  # of two bodies, the root first


@pytest.mark.parametrize(
    "arrays",
    [
        {"joint_pos": JOINTS, "root_pos": PLACES, "root_quat": [WXYZ] * 2},
        {"dof_pos": JOINTS, "root_trans": PLACES, "root_rot": [XYZW] * 2},
        {"joint_pos": JOINTS, "body_pos_w": BODIES, "body_quat_w": [[WXYZ] * 2] * 2},
        {"qpos": np.concatenate([PLACES, [WXYZ] * 2, JOINTS], axis=1)},
    ],
    ids=["named", "xyzw", "bodies", "qpos"],
)
def test_npz_by_its_keys(tmp_path, arrays):
    np.savez(tmp_path / "walk.npz", fps=[60], joint_names=["knee", "hip"], **arrays)
    motion = read_motion(tmp_path / "walk.npz")
    assert motion.fps == 60 and motion.joint_names == ("knee", "hip")
    np.testing.assert_array_equal(motion.root_pos, PLACES)
    np.testing.assert_array_equal(motion.root_quat, [WXYZ] * 2)
    np.testing.assert_array_equal(motion.joint_pos, JOINTS)


ROOT = "root_x,root_y,root_z,root_qx,root_qy,root_qz,root_qw"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "walk.csv is empty"),
        ("1,2,3\n", "has 3 columns; without a header"),
        ("1,2,3,0,0,0,1,0\n1,2,3\n", "row 2 has 3 columns, and the first 8"),
        (f"{ROOT},knee\n0,0,0,0,0,0,1,x\n", "'knee' is 'x' in row 2"),
        (f"{ROOT},knee\n0,0,0,0,0,0,1,0\n0,0,0,0,0,0,1,nan\n", "joint 'knee' is nan in frame 1"),
        (f"{ROOT},knee,knee\n", "two columns 'knee'"),
        (ROOT.replace("root_qw", "root_w") + ",knee\n", "no column 'root_qw'; did you mean"),
        (f"{ROOT},time,knee\n0,0,0,0,0,0,1,0,0\n0,0,0,0,0,0,1,0,0\n", "'time' is not even"),
        (f"{ROOT}\n0,0,0,0,0,0,1\n", "no column of a joint"),
        ("0,0,0,1,1,0,1,0\n0,0,0,0,0,0,1,0\n", "quaternion in frame 0 has length 1.73"),
        ("0,0,0,0,0,0,1,0\n", "give as many of each, 2 or more"),
    ],
)
def test_what_is_wrong_in_a_csv_is_named(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_motion(written(tmp_path / "walk.csv", text))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"poses": JOINTS}, "no 'joint_pos' or 'qpos'; it has poses"),
        ({"joint_pos": JOINTS}, "no 'root_pos', and no 'body_pos_w'"),
        ({"joint_pos": JOINTS, "root_pos": PLACES}, "no 'root_quat'"),
        (
            {"joint_pos": JOINTS, "root_pos": PLACES, "root_quat": PLACES},
            r"'root_quat' has shape \(2, 3\); give \(T, 4\)",
        ),
        (
            {"qpos": np.ones((2, 9)), "joint_names": ["knee"]},
            "1 joint_names and 2 columns of joints",
        ),
    ],
)
def test_what_is_wrong_in_an_npz_is_named(tmp_path, arrays, says):
    np.savez(tmp_path / "walk.npz", **arrays)
    with pytest.raises(ConfigError, match=says):
        read_motion(tmp_path / "walk.npz")


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(ConfigError, match="there is no motion at"):
        read_motion(tmp_path / "walk.csv")
    with pytest.raises(ConfigError, match=r"ends in \.csv or \.npz"):
        read_motion(tmp_path / "walk.pkl")
    with pytest.raises(ConfigError, match=r"walk\.npz is no NPZ file"):
        read_motion(written(tmp_path / "walk.npz", "text"))


def test_another_rate_is_linear_and_turns_evenly():
    axis, seconds = np.array([2.0, -1.0, 2.0]) / 3, np.arange(4) / 30
    turns = Rotation.from_rotvec(np.outer(9.0 * seconds, axis))  # 9 rad/s
    quaternions = turns.as_quat(scalar_first=True)
    quaternions[2] *= -1  # the same orientation
    given = Motion("", 30, np.outer(seconds, [1, 2, 3]), quaternions, np.outer(seconds, [5.0, -7]))
    motion = resampled(given, 100)
    times = np.arange(11) / 100
    assert motion.fps == 100 and motion.frames == 11  # 0.1 s, both ends
    np.testing.assert_allclose(motion.root_pos, np.outer(times, [1, 2, 3]), atol=1e-12)
    np.testing.assert_allclose(motion.joint_pos, np.outer(times, [5, -7]), atol=1e-12)
    # In closed form: cos(a / 2) and the axis times sin(a / 2), at a = 9 t.
    half = 9 * times / 2
    wanted = np.column_stack([np.cos(half), np.outer(np.sin(half), axis)])
    np.testing.assert_allclose(np.abs(np.sum(motion.root_quat * wanted, 1)), 1, atol=1e-12)


def test_a_rate_of_its_own_leaves_a_motion_as_it_is():
    given = Motion("", 30, np.zeros((91, 3)), np.tile([1.0, 0, 0, 0], (91, 1)), np.ones((91, 1)))
    assert resampled(given, 30).frames == 91
    with pytest.raises(ConfigError, match=r"less than a frame at 0\.2 Hz"):
        resampled(given, 0.2)
