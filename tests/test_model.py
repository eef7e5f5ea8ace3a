"""Model: MJCF in every form, names, and errors that carry MuJoCo's own line."""

import mujoco
import numpy as np
import pytest

import toys
from worldline.errors import ModelError, VariationError
from worldline.model import Model


def test_every_source_gives_the_same_model(tmp_path):
    path = tmp_path / "pendulum.xml"
    path.write_text(toys.PENDULUM)
    compiled = mujoco.MjModel.from_xml_string(toys.PENDULUM)
    spec = mujoco.MjSpec.from_string(toys.PENDULUM)
    first, binary = Model(toys.PENDULUM), tmp_path / "pendulum.mjb"
    mujoco.mj_saveModel(compiled, str(binary))
    for source in (path, str(path), binary, spec, compiled, first, f"\n  {toys.PENDULUM}"):
        model = Model(source)
        np.testing.assert_array_equal(model.mj.body_mass, compiled.body_mass)
        assert model.names("body") == ["world", "pole"]
    assert (first.nq, first.nv, first.na, first.nu, first.timestep) == (1, 1, 0, 1, 0.01)


def test_a_damaged_binary_is_an_error_of_one_line(tmp_path):
    binary = tmp_path / "pendulum.mjb"
    mujoco.mj_saveModel(mujoco.MjModel.from_xml_string(toys.PENDULUM), str(binary))
    whole = binary.read_bytes()
    for damaged in (b"", b"no model", whole[:100], whole[: len(whole) // 2]):
        binary.write_bytes(damaged)
        with pytest.raises(ModelError, match="MuJoCo cannot load the model: "):
            Model(binary)


def test_a_compiled_model_is_copied():
    compiled = mujoco.MjModel.from_xml_string(toys.PENDULUM)
    model = Model(compiled)
    before = model.mj.body_mass.copy()
    compiled.body_mass[:] = 99
    np.testing.assert_array_equal(model.mj.body_mass, before)


def test_a_digest_follows_what_is_in_the_model():
    model = Model(toys.PENDULUM)
    before = model.digest
    assert Model(toys.PENDULUM).digest == before
    model.mj.body_mass[1] *= 2
    assert model.digest != before


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.xml", "no MJCF file at 'nowhere.xml'; give a path, or MJCF text"),
        ("<mujoco><wordbody/></mujoco>", "MuJoCo cannot load the model: .*wordbody"),
        ("<mujoco><worldbody>", "MuJoCo cannot load the model: "),
        (
            "<mujoco><worldbody><body><joint/></body></worldbody></mujoco>",
            "MuJoCo cannot load.*mass",
        ),
        ("<mujoco><option timestep='nan'/></mujoco>", "the model's timestep is nan; give seconds"),
    ],
)
def test_a_bad_model_is_one_line(source, message):
    with pytest.raises(ModelError, match=message) as error:
        Model(source)
    assert "\n" not in str(error.value)


def test_a_bad_file_and_a_bad_spec_are_one_line(tmp_path):
    path = tmp_path / "broken.xml"
    path.write_text("<mujoco>\n<worldbody>\n<geom size='a b'/>\n</worldbody></mujoco>")
    spec = mujoco.MjSpec()
    spec.worldbody.add_body(name="massless").add_joint()
    for source, message in ((path, "line 3"), (spec, "mass")):
        with pytest.raises(
            ModelError, match=rf"MuJoCo cannot load the model: .*{message}"
        ) as error:
            Model(source)
        assert "\n" not in str(error.value)


def test_objects_are_found_by_name():
    model = Model(toys.MECHANISM)
    assert model.id("body", "left") == mujoco.mj_name2id(model.mj, mujoco.mjtObj.mjOBJ_BODY, "left")
    assert model.names("tendon") == ["rope", "pair"]
    assert model.id("tendon", "pair") == 1
    assert model.names("geom")[0] == "floor"
    assert "" in model.names("geom")
    with pytest.raises(ModelError, match="the model has no joint 'rigth'; did you mean 'right'"):
        model.id("joint", "rigth")
    with pytest.raises(
        ModelError, match="no kind of object is called 'jont'; did you mean 'joint'"
    ):
        model.id("jont", "left")


def test_sensors_are_slices_of_sensordata():
    model = Model(toys.PENDULUM)
    assert model.sensor("angle") == slice(0, 1)
    assert model.sensor("tip velocity") == slice(1, 4)


def test_control_ranges():
    np.testing.assert_array_equal(Model(toys.PENDULUM).ctrlrange, [[-1, 1]])
    unlimited = Model(toys.PENDULUM.replace('ctrlrange="-1 1"', ""))
    np.testing.assert_array_equal(unlimited.ctrlrange, [[-np.inf, np.inf]])


def test_constants_are_read_only_views_of_the_models_own():
    model = Model(toys.BOXES)
    np.testing.assert_array_equal(model.constant("body_mass"), model.mj.body_mass)
    np.testing.assert_array_equal(model.constant("opt.gravity"), model.mj.opt.gravity)
    assert model.constant("opt.timestep").shape == ()
    with pytest.raises(ValueError, match="read-only"):
        model.constant("body_mass")[:] = 1
    with pytest.raises(VariationError, match="'body_mas' is not a model field that can vary; did"):
        model.constant("body_mas")
    with pytest.raises(VariationError, match="'geom_type' holds int32; only real numbers can vary"):
        model.constant("geom_type")


def test_fields_of_the_data():
    model = Model(toys.BOXES)
    assert model.data_field("xpos") == ((3, 3), np.dtype(np.float64))
    assert model.data_field("ncon") == ((), np.dtype(np.int32))
    with pytest.raises(ModelError, match=r"'xposs' is not an MjData field.*did you mean 'xpos'"):
        model.data_field("xposs")


@pytest.mark.parametrize(("seconds", "substeps"), [(0.01, 1), (0.02, 2), (0.3, 30), (1.0, 100)])
def test_time_steps_that_divide(seconds, substeps):
    assert Model(toys.PENDULUM).substeps(seconds) == substeps


@pytest.mark.parametrize("seconds", [0.015, 0.005, 0.0, -0.01, 0.0101])
def test_time_steps_that_do_not(seconds):
    with pytest.raises(ModelError, match=rf"{seconds:g} s is no multiple.*0\.01 s; choose"):
        Model(toys.PENDULUM).substeps(seconds)
