"""A log is read by the names of its columns, and refused by them."""

import numpy as np
import pytest
from recordings import ARM, PENDULUM, write

from worldline.errors import ConfigError, ModelError
from worldline.identify import read_log
from worldline.model import Model

ROWS = 20


def columns(**others):
    numbers = np.arange(ROWS, dtype=float)
    good = {
        "time": 0.01 * numbers,
        "elbow": numbers,
        "position.shoulder": 10 + numbers,
        "control.shoulder": 20 + numbers,
        "bend": 30 + numbers,
    }
    return {name: values for name, values in {**good, **others}.items() if values is not None}


def test_columns_are_found_by_name_in_any_order(tmp_path):
    shuffled = dict(reversed(columns(voltage=np.zeros(ROWS)).items()))
    log = read_log(write(tmp_path / "log.csv", shuffled), Model(ARM))
    numbers = np.arange(ROWS, dtype=float)
    np.testing.assert_array_equal(log.position, np.stack([10 + numbers, numbers], 1))
    np.testing.assert_array_equal(log.control, np.stack([20 + numbers, 30 + numbers], 1))
    assert log.velocity is None and log.substeps == 5 and log.unused == ("voltage",)


def test_velocities_are_taken_if_there_are_some(tmp_path):
    numbers = np.arange(ROWS, dtype=float)
    speeds = {"velocity.elbow": numbers, "velocity.shoulder": 2 * numbers}
    log = read_log(write(tmp_path / "log.csv", columns(**speeds)), Model(ARM))
    np.testing.assert_array_equal(log.velocity, np.stack([2 * numbers, numbers], 1))
    assert log.measured.shape == (ROWS, 4)


NAN = np.where(np.arange(ROWS) == 3, np.nan, 1.0)
JUMP = 0.01 * np.arange(ROWS) + 0.1 * (np.arange(ROWS) > 7)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"time": None}, "no column 'time'"),
        ({"elbow": None}, "no column 'position.elbow' for the joint 'elbow'"),
        ({"elbow": None, "elbo": np.ones(ROWS)}, "'position.elbow'.*did you mean 'elbo'"),
        ({"bend": None}, "no column 'control.bend' for the actuator 'bend'"),
        ({"shoulder": np.ones(ROWS)}, "both 'position.shoulder' and 'shoulder' are columns"),
        (
            {"position.shoulder": None, "shoulder": np.ones(ROWS)},
            "column 'shoulder' may be the joint or the actuator",
        ),
        ({"velocity.elbow": np.ones(ROWS)}, "no column 'velocity.shoulder'"),
        ({"elbow": NAN}, "line 5: column 'elbow' has 'nan'"),
        ({"elbow": ["1"] * 19 + ["1,5"]}, "line 21: column 'elbow' has '1,5'"),
        ({"time": JUMP}, "line 10: 'time' goes from 0.07 to 0.18 s, but other rows are 0.01"),
        ({"time": 0.003 * np.arange(ROWS)}, "0.003 s apart, no multiple of the model's.* 0.002 s"),
    ],
)
def test_a_bad_log_is_refused_by_the_name_of_the_column(tmp_path, others, message):
    with pytest.raises(ConfigError, match=message):
        read_log(write(tmp_path / "log.csv", columns(**others)), Model(ARM))


def test_a_file_that_is_no_log_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the log"):
        read_log(tmp_path / "none.csv", Model(ARM))
    file = tmp_path / "log.csv"
    file.write_text("time,time\n" + "1,2\n" * 10)
    with pytest.raises(ConfigError, match="there are two columns 'time'"):
        read_log(file, Model(ARM))
    file.write_text("time,elbow\n" + "1,2\n" * 5 + "1\n" + "1,2\n" * 5)
    with pytest.raises(ConfigError, match="line 7: 1 values for 2 columns"):
        read_log(file, Model(ARM))


def test_joints_that_no_column_can_hold_are_refused(tmp_path):
    file = write(tmp_path / "log.csv", columns())
    first = '<joint name="shoulder" axis="0 1 0" damping="0.2" frictionloss="0.05"/>'
    free = ARM.replace(first, '<freejoint name="base"/>').replace('"shoulder"', '"elbow"')
    with pytest.raises(ModelError, match="'base' is a free joint"):
        read_log(file, Model(free))
    nameless = PENDULUM.replace('name="hinge" ', "").replace('joint="hinge"', 'body="rod"')
    nameless = nameless.replace('<motor name="motor" body="rod" gear="3"/>', "")
    with pytest.raises(ModelError, match="joint number 0 has no name"):
        read_log(file, Model(nameless))
