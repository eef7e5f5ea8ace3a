"""Domains as data: they come back, bit for bit."""

import json

import jax
import numpy as np
import pytest

import worldline
from worldline.errors import ConfigError
from worldline.variation import (
    Choice,
    CustomDomain,
    Domain,
    LogUniform,
    TruncatedNormal,
    Uniform,
    add,
    body,
    opt,
    scale,
    set_,
)
from worldline.variation.as_data import from_data, to_data

DOMAINS = {
    "uniform": Domain(scale(("body_mass", "body_inertia"), Uniform(0.1, 1.3), name="mass")),
    "of a vector": Domain(add(opt.gravity, Uniform([-1, -1, -2], [1, 1, 2]))),
    "log-uniform of one body": Domain(scale(body("fore*").mass, LogUniform(1 / 3, 3))),
    "normal, one draw a world": Domain(
        scale("dof_damping", TruncatedNormal(1, 0.1, 0.7, 1.3), per="world")
    ),
    "choice": Domain(set_(opt.gravity, Choice([[0, 0, -9.81], [0, 0, -1.62]], weights=[1, 3]))),
    "several": Domain(scale("body_mass", Uniform(0.5, 2)), add("dof_armature", Uniform(0, 0.1))),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_a_domain_comes_back_and_draws_the_same(name):
    domain = DOMAINS[name]
    again = from_data(json.loads(json.dumps(to_data(domain))))
    model = worldline.make("robot/reach", "fake").model
    draws = [d(jax.random.key(3), model, d.ranges) for d in (domain, again)]
    assert list(draws[0]) == list(draws[1]) and draws[0]
    for field in draws[0]:
        np.testing.assert_array_equal(*(np.asarray(draw[field]) for draw in draws))
    assert to_data(again) == to_data(domain)


def test_what_no_file_can_hold_is_said():
    with pytest.raises(ConfigError, match=r"no file can hold .*; give numbers, texts, distrib"):
        to_data(CustomDomain(lambda key, model, ranges: {}))
    with pytest.raises(ConfigError, match="there is no 'unifrom'; give one of"):
        from_data({"type": "unifrom", "low": 0, "high": 1})
    with pytest.raises(ConfigError, match="the 'uniform' is damaged"):
        from_data({"type": "uniform", "low": 0})
