"""Observations of every shape and dtype: they work, or an error names the part and the mend."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.env.check import check_env
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, TaskError
from worldline.learn.ppo import PPOConfig, ppo


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Seen(toys.Puck):
    """The puck, of which a function of the state is seen."""

    see: Callable[[Any], Any]

    def observe(self, physics: Any, memory: Any) -> Any:
        return self.see(physics)


def env_of(see: Callable[[Any], Any]) -> Env:
    return Env(Seen(see=see), "fake")


def learner_of(env: Env, *parts: str) -> Any:
    config = PPOConfig(num_worlds=4, unroll_length=2, minibatches=1, epochs=1, actor_obs=parts)
    return ppo(Worlds(env, 4), config)


#: Vectors of every dtype that a space has.
VECTORS = {
    "float": lambda state: state.qpos,
    "bool": lambda state: state.qpos > 0,
    "int": lambda state: (100 * state.qpos).astype(jnp.int32),
    "uint8": lambda state: (state.qpos > 0).astype(jnp.uint8),
}


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("dtype", VECTORS)
def test_a_vector_of_any_dtype_is_checked_and_learnt_from(dtype: str, alone: bool) -> None:
    see = VECTORS[dtype]
    env = env_of(see if alone else lambda state: {"state": state.qvel, "more": see(state)})
    check_env(env, steps=3)
    state = Worlds(env, 4).reset(jax.random.key(0))
    for row in range(4):
        assert env.observation_space.contains(
            jax.tree.map(lambda x: np.asarray(x[row]), state.obs)  # noqa: B023
        )
    learner = learner_of(env, "state") if alone else learner_of(env, "state", "more")
    after, _ = learner.update(learner.init(jax.random.key(0)))
    policy = learner.policy(after)
    action = policy(jax.tree.map(np.asarray, state.obs))
    assert action.shape == (4, 2)
    assert np.isfinite(action).all()


NO_VECTORS = {
    "(), but networks read vectors; give x[None] for a number": lambda state: state.qpos[0],
    "(2, 2), but networks read vectors": lambda state: jnp.outer(state.qpos, state.qvel),
}


@pytest.mark.parametrize("message", NO_VECTORS)
def test_worlds_show_any_shape_but_a_learner_reads_vectors(message: str) -> None:
    env = env_of(lambda state: {"state": state.qpos, "more": NO_VECTORS[message](state)})
    check_env(env, steps=3)
    learner_of(env, "state")
    with pytest.raises(ConfigError) as error:
        learner_of(env, "state", "more")
    assert f"the observation 'more' has shape {message}" in str(error.value)


def test_a_privileged_state_that_the_critic_would_read_by_itself_is_a_vector_too() -> None:
    env = env_of(lambda state: {"state": state.qpos, "privileged_state": state.qvel[None]})
    with pytest.raises(ConfigError, match=r"'privileged_state' has shape \(1, 2\), but networks"):
        learner_of(env, "state")


REFUSED = {
    "a part 'a' of {'b': 'float32[2]'}; give an array, or a dict of arrays without": lambda state: {
        "a": {"b": state.qpos}
    },
    "('float32[2]', 'float32[2]'); give an array": lambda state: (state.qpos, state.qvel),
    "bfloat16[2]; give float32, integers or bool": lambda state: state.qpos.astype(jnp.bfloat16),
    "a part 'a' of float16[2]; give float32": lambda state: {"a": state.qpos.astype(jnp.float16)},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_space_describes_is_refused_by_check_env_and_by_learners(message: str) -> None:
    env = env_of(REFUSED[message])
    for refuse in (lambda: check_env(env), lambda: learner_of(env, "state")):
        with pytest.raises(TaskError) as error:
            refuse()
        assert f"Seen.observe returns {message}" in str(error.value)
