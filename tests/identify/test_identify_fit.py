"""Constants come back from recordings of plain MuJoCo, with intervals that hold."""

import json
import re

import jax
import numpy as np
import pytest
from recordings import ARM, PENDULUM, changed, pushes, simulated, write

from worldline.cli import main as cli
from worldline.errors import ConfigError, VariationError
from worldline.identify import Log, domain_around, find_parameters, fit
from worldline.model import Model
from worldline.train.config import TrainConfig
from worldline.variation import Domain

SLEDGE = """
<mujoco>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <body name="sledge"><joint name="rail" type="slide" axis="1 0 0"/>
      <geom size="0.1" mass="2"/></body>
    <body name="bolted" pos="0 5 0"><geom size="0.1" mass="2"/></body>
  </worldbody>
  <actuator><motor name="push" joint="rail" gear="4"/></actuator>
</mujoco>"""


def recording(mjcf, rows, noise, seed, *, substeps=5, velocity=False, **truth):
    """A log of a model with these constants, and the model before they changed."""
    model, random = Model(mjcf), np.random.default_rng(seed)
    period = substeps * model.timestep
    control = pushes(rows, model.nu, period, seed)
    measured = simulated(changed(mjcf, **truth), control, substeps)
    noisy = [x + noise * random.standard_normal(x.shape) for x in measured]
    return model, Log(substeps, period, noisy[0], noisy[1] if velocity else None, control)


def test_masses_friction_and_damping_come_back_to_two_percent():
    truth = {
        "body_mass": [1.2, 0.4],
        "dof_damping": [0.3, 0.06],
        "dof_frictionloss": [0.08, 0.02],
    }
    model, log = recording(ARM, 400, 5e-4, 0, **truth)
    names = ("body_mass", "joint_damping", "joint_frictionloss")
    result = fit(model, log, find_parameters(model, names), segment=2.0)
    values = np.concatenate(list(truth.values()))
    np.testing.assert_allclose(result.values, values, rtol=0.02)
    apart = (result.values - values) / np.sqrt(np.diag(result.covariance))
    assert np.abs(apart).max() < 3.0, apart
    np.testing.assert_allclose(result.noise, 5e-4, rtol=0.15)
    assert (result.noise_before > 50 * result.noise).all() and abs(result.correlation) < 0.1


def test_a_constant_that_is_zero_in_the_model_is_found_too():
    without = PENDULUM.replace('damping="0.1"', "")
    model, log = recording(without, 150, 1e-3, 1, substeps=2, velocity=True, dof_damping=0.12)
    result = fit(model, log, find_parameters(model, ["joint_damping"]))
    np.testing.assert_allclose(result.values, 0.12, rtol=0.02)


def test_the_interval_is_that_of_the_closed_form():
    """Under a constant force the motion is a parabola: the textbook's linear least squares."""
    model, rows, force, noise = Model(SLEDGE), 80, 0.5, 0.01
    control = np.full((rows, 1), force)
    x, _ = simulated(changed(SLEDGE, body_mass=[2.5, 2.0]), control, 2)
    x = x + noise * np.random.default_rng(2).standard_normal(x.shape)
    parameters = find_parameters(model, ["body_mass"])
    assert [it.name for it in parameters] == ["body_mass:sledge"]  # the other cannot move
    result = fit(model, Log(2, 0.02, x, None, control), parameters, segment=10)
    time = 0.02 * np.arange(rows)
    basis = np.stack([np.ones(rows), time, time * (time + 0.01) / 2], axis=1)  # Euler's steps
    ours, *_ = np.linalg.lstsq(basis, x[:, 0], rcond=None)
    left = ((x[:, 0] - basis @ ours) ** 2).sum() / (rows - 3)
    deviation = np.sqrt(left * np.linalg.inv(basis.T @ basis)[2, 2])
    mass = 4 * force / ours[2]
    np.testing.assert_allclose(result.values, mass, rtol=1e-4)
    half = 1.959964 * mass * deviation / ours[2]
    np.testing.assert_allclose(result.interval, [[mass - half, mass + half]], rtol=2e-3)


def test_what_a_log_does_not_tell_is_refused_by_name():
    model, log = recording(SLEDGE, 60, 1e-4, 3, substeps=2)
    both = find_parameters(model, ["body_mass", "actuator_gear:push[0]"])
    with pytest.raises(ConfigError, match="only a combination of body_mass:sledge, actuator_gear"):
        fit(model, log, both)
    with pytest.raises(ConfigError, match="does not determine 'geom_friction:ball'"):
        named = Model(SLEDGE.replace("<geom size", '<geom name="ball" size', 1))
        fit(named, log, find_parameters(named, ["geom_friction:ball"]))


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ([], ConfigError, "--fit is empty"),
        (["joint damping"], ConfigError, "is not a constant"),
        (["joint_dampin"], VariationError, "did you mean 'joint_damping'"),
        (["joint_damping:knee"], VariationError, "no joint 'knee'"),
        (["joint_damping", "joint_damping:rail"], ConfigError, "'joint_damping:rail'.*twice"),
        (["actuator_gear"], ConfigError, r"0 to 5 in brackets: actuator_gear\[0\]"),
        (["joint_damping[0]"], ConfigError, "give no brackets"),
        (["body_mass:bolted"], ConfigError, "matches no object that can move"),
        (["opt.gravity"], ConfigError, "is not a constant"),
        (["geom_friction"], ConfigError, "geom number 0 has no name"),
    ],
)
def test_a_wrong_name_is_refused(names, error, message):
    with pytest.raises(error, match=message):
        find_parameters(Model(SLEDGE), names)


def test_the_command_writes_a_domain_that_training_reads(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rod.xml").write_text(PENDULUM)
    model, log = recording(PENDULUM, 150, 1e-3, 4, substeps=2, body_mass=[1.3])
    columns = {"time": log.period * np.arange(150), "hinge": log.position[:, 0]}
    write(tmp_path / "log.csv", {**columns, "motor": log.control[:, 0]})
    arguments = ["identify", "rod.xml", "log.csv", "--fit", "body_mass,joint_damping"]
    assert cli.main(arguments) == 0
    assert re.search(r"body_mass:rod +1 +1\.(29|3)", capsys.readouterr().out)
    folder = tmp_path / "log-identified"
    found = json.loads((folder / "identified.json").read_text())["constants"]
    assert (folder / "identified.png").read_bytes().startswith(b"\x89PNG")
    domain = TrainConfig(domain=f"{folder}/domain.json").domain
    assert isinstance(domain, Domain)
    keys = jax.random.split(jax.random.key(0), 200)
    drawn = jax.vmap(lambda key: domain(key, model, domain.ranges))(keys)
    mass = np.asarray(drawn["body_mass"])[:, 1]
    rod = found["body_mass:rod"]
    wide = [rod["low"] - 0.05 * rod["found"], rod["high"] + 0.05 * rod["found"]]
    assert wide[0] <= mass.min() < rod["low"] and rod["high"] < mass.max() <= wide[1]
    ratio = np.asarray(drawn["body_inertia"])[:, 1] / model.constant("body_inertia")[1]
    np.testing.assert_allclose(ratio, np.repeat(mass[:, None], 3, axis=1), rtol=1e-5)


def test_the_domain_draws_one_number_of_a_row():
    model, log = recording(SLEDGE, 60, 1e-4, 3, substeps=2)
    result = fit(model, log, find_parameters(model, ["actuator_gear:push[0]"]))
    domain = domain_around(model, result, 0.1)
    gear = np.asarray(domain(jax.random.key(0), model, domain.ranges)["actuator_gear"])
    assert 0 < abs(gear[0, 0] - 4) < 0.5 and not gear[0, 1:].any()


@pytest.mark.parametrize("logs", [4, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_intervals_contain_the_truth_as_often_as_they_say(logs):
    truth = {"body_mass": [1.2], "dof_damping": [0.14], "dof_frictionloss": [0.07]}
    values, inside, worst = np.array([1.2, 0.14, 0.07]), 0, 0.0
    for seed in range(logs):
        model, log = recording(PENDULUM, 160, 2e-4, seed, substeps=2, **truth)
        log = Log(log.substeps, log.period, log.position, None, log.control)
        names = ["body_mass", "joint_damping", "joint_frictionloss"]
        result = fit(model, log, find_parameters(model, names))
        low, high = result.interval.T
        inside += ((low <= values) & (values <= high)).sum()
        worst = max(worst, np.abs(result.values / values - 1).max())
    # 95% of 3 intervals a log; three standard deviations of a binomial's share.
    share = inside / (3 * logs)
    assert abs(share - 0.95) <= 3 * np.sqrt(0.95 * 0.05 / logs), share
    assert worst < 0.02, worst
