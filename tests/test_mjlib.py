"""The ctypes part of MuJoCo: settings that come back as they were, and arrays that are live."""

import threading

import mujoco
import mujoco.batch
import numpy as np
import pytest

import toys
from worldline.mjlib import Batch, library, quiet


def log_settings() -> tuple[int, int]:
    config = library().mju_getLogConfig()
    return config.logto_console, config.logto_file


def test_quiet_is_quiet_and_then_as_before():
    before = log_settings()
    with quiet():
        assert log_settings() == (0, 0)
        with quiet():
            assert log_settings() == (0, 0)
        assert log_settings() == (0, 0)
    assert log_settings() == before


def test_quiet_in_threads_that_overlap():
    before = log_settings()
    both_in, first_out = threading.Barrier(2), threading.Event()
    seen = []

    def first():
        with quiet():
            both_in.wait()
        first_out.set()

    def second():
        with quiet():
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


def test_quiet_lets_errors_through_and_restores():
    before = log_settings()
    with pytest.raises(ZeroDivisionError), quiet():
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
