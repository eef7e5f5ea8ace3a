"""The ctypes part of MuJoCo: settings that come back as they were, and arrays that are live."""

import ctypes

import mujoco
import mujoco.batch
import numpy as np
import pytest

import toys
from worldline import tuning
from worldline.mujoco_c import Batch, library, without_timers


@pytest.fixture(autouse=True)
def as_imported():
    """MuJoCo's clock as in a new process: an earlier test may have run the `worldline` command."""
    tuning._tuned.close()


def timed(model: mujoco.MjModel) -> float:
    """Of one step: what MuJoCo's clock says."""
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data)
    return data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration


def test_without_timers_and_then_with_those_from_before():
    model = mujoco.MjModel.from_xml_string(toys.ARM)
    assert timed(model) > 0
    with without_timers():
        assert timed(model) == 0
    assert timed(model) > 0


def test_a_clock_of_the_users_own_comes_back():
    model, asked = mujoco.MjModel.from_xml_string(toys.ARM), []
    clock = ctypes.c_void_p.in_dll(library(), "mjcb_time")
    before = clock.value
    try:
        mujoco.set_mjcb_time(lambda: asked.append(1) or float(len(asked)))
        with pytest.raises(ZeroDivisionError), without_timers():
            timed(model)
            raise ZeroDivisionError
        assert not asked
        timed(model)
        assert asked
    finally:
        mujoco.set_mjcb_time(None)
        clock.value = before


def test_a_batch_counts_warnings_and_writes_none(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    batch = Batch(mujoco.MjModel.from_xml_string(toys.ARM), 3, 2)
    batch.reset(None)
    bad = [int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQVEL)]
    for _ in range(3):
        batch.forget_warnings()
        batch.component(mujoco.mjtState.mjSTATE_QVEL)[1] = np.nan
        batch.step(None, 2, mujoco.mjtStage.mjSTAGE_NONE)
        assert batch.warned(bad).tolist() == [False, True, False]
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_a_batch_is_mujocos_own():
    model = mujoco.MjModel.from_xml_string(toys.ARM)
    ours = Batch(model, 3, 2)
    theirs = mujoco.batch.Batch(model, 3, 2)
    xpos = ours.output("xpos", np.float64)
    bound = theirs.bind("xpos")
    ctrl = np.random.default_rng(0).uniform(-1, 1, (3, 3))
    ours.reset(None)
    ours.forget_warnings()
    theirs.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
    ours.component(mujoco.mjtState.mjSTATE_CTRL)[:] = ctrl
    theirs.bind("ctrl")[:] = ctrl
    ids = np.array([0, 2], np.int32)
    ours.step(ids, 5, mujoco.mjtStage.mjSTAGE_VEL)
    theirs.step(ids, 5, mujoco.mjtStage.mjSTAGE_VEL)
    np.testing.assert_array_equal(ours.state, theirs.state)
    np.testing.assert_array_equal(xpos.reshape(bound.shape)[ids], bound[ids])
    assert not ours.warned(range(mujoco.mjtWarning.mjNWARNING)).any()
    np.testing.assert_array_equal(ours.status, theirs.status)


def test_a_batch_says_what_it_cannot_hold():
    batch = Batch(mujoco.MjModel.from_xml_string(toys.ARM), 1, 1)
    with pytest.raises(ValueError, match="does not hold the field 'nonsense'"):
        batch.output("nonsense", np.float64)
    with pytest.raises(ValueError, match="'xpos' has items of 8 bytes, not"):
        batch.output("xpos", np.float32)
    assert batch.component(mujoco.mjtState.mjSTATE_MOCAP_POS).shape == (1, 0)
