"""The ctypes part of MuJoCo: settings that come back as they were, and arrays that are live."""

import ctypes
import threading

import mujoco
import mujoco.batch
import numpy as np
import pytest

import toys
from worldline.mujoco_c import Batch, library, unwatched


def log_settings() -> tuple[int, int]:
    config = library().mju_getLogConfig()
    return config.logto_console, config.logto_file


def timed(model: mujoco.MjModel) -> float:
    """Of one step: what MuJoCo's clock says."""
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data)
    return data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration


def test_unwatched_has_no_clock_and_then_the_one_from_before():
    model = mujoco.MjModel.from_xml_string(toys.ARM)
    assert timed(model) > 0
    with unwatched():
        assert timed(model) == 0
    assert timed(model) > 0


def test_a_clock_of_the_users_own_comes_back():
    model, asked = mujoco.MjModel.from_xml_string(toys.ARM), []
    clock = ctypes.c_void_p.in_dll(library(), "mjcb_time")
    before = clock.value
    try:
        mujoco.set_mjcb_time(lambda: asked.append(1) or float(len(asked)))
        with unwatched():
            timed(model)
        assert not asked
        timed(model)
        assert asked
    finally:
        mujoco.set_mjcb_time(None)
        clock.value = before


def test_unwatched_and_then_as_before():
    before = log_settings()
    with unwatched():
        assert log_settings() == (0, 0)
        with unwatched():
            assert log_settings() == (0, 0)
        assert log_settings() == (0, 0)
    assert log_settings() == before


def test_unwatched_in_threads_that_overlap():
    before = log_settings()
    both_in, first_out = threading.Barrier(2), threading.Event()
    seen = []

    def first():
        with unwatched():
            both_in.wait()
        first_out.set()

    def second():
        with unwatched():
            both_in.wait()
            first_out.wait()
            seen.append(log_settings())

    threads = [threading.Thread(target=run) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(0, 0)]
    assert log_settings() == before


def test_unwatched_lets_errors_through_and_restores():
    before = log_settings()
    with pytest.raises(ZeroDivisionError), unwatched():
        raise ZeroDivisionError
    assert log_settings() == before


def test_a_batch_is_mujocos_own():
    model = mujoco.MjModel.from_xml_string(toys.ARM)
    ours = Batch(model, 3, 2)
    theirs = mujoco.batch.Batch(model, 3, 2)
    xpos = ours.output("xpos", np.float64)
    bound = theirs.bind("xpos")
    ctrl = np.random.default_rng(0).uniform(-1, 1, (3, 3))
    ours.reset(None)
    theirs.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
    ours.component(mujoco.mjtState.mjSTATE_CTRL)[:] = ctrl
    theirs.bind("ctrl")[:] = ctrl
    ids = np.array([0, 2], np.int32)
    ours.step(ids, 5, mujoco.mjtStage.mjSTAGE_VEL)
    theirs.step(ids, 5, mujoco.mjtStage.mjSTAGE_VEL)
    np.testing.assert_array_equal(ours.state, theirs.state)
    np.testing.assert_array_equal(xpos.reshape(bound.shape)[ids], bound[ids])
    np.testing.assert_array_equal(ours.warnings, theirs.warning[:, :, 1])
    np.testing.assert_array_equal(ours.status, theirs.status)


def test_a_batch_says_what_it_cannot_hold():
    batch = Batch(mujoco.MjModel.from_xml_string(toys.ARM), 1, 1)
    with pytest.raises(ValueError, match="does not hold the field 'nonsense'"):
        batch.output("nonsense", np.float64)
    with pytest.raises(ValueError, match="'xpos' has items of 8 bytes, not"):
        batch.output("xpos", np.float32)
    assert batch.component(mujoco.mjtState.mjSTATE_MOCAP_POS).shape == (1, 0)
