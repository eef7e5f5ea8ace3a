"""Algorithms by name: the configuration tells which, and a name that is none is told."""

import dataclasses

import pytest

from worldline.errors import ConfigError
from worldline.learn.algorithms import find_algorithm, list_algorithms, name_of_algorithm


@pytest.mark.parametrize("name", list_algorithms())
def test_an_algorithm_is_found_by_its_name_and_by_its_configuration(name):
    algorithm = find_algorithm(name)
    config = algorithm.config()
    assert name_of_algorithm(config) == name
    assert name_of_algorithm(dataclasses.replace(config, num_worlds=8)) == name
    assert config.num_worlds > 0
    assert name in algorithm.learner.__name__


def test_ppo_and_sac_are_there():
    assert {"ppo", "sac"} <= set(list_algorithms())


def test_what_is_no_algorithm_is_told():
    with pytest.raises(ConfigError, match="no algorithm 'poo'; did you mean 'ppo'"):
        find_algorithm("poo")
    with pytest.raises(
        ConfigError, match="a dict is not the configuration of an algorithm; give one of PPOConfig"
    ):
        name_of_algorithm({})
