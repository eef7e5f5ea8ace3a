"""Changes of constants that no simulation feels are refused in words, with what would work."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import worldline
from worldline.errors import VariationError
from worldline.model import Model
from worldline.tasks.registry import list_tasks
from worldline.types import Array, Key
from worldline.variation import (
    Domain,
    Uniform,
    actuator,
    add,
    features_of,
    geom,
    joint,
    opt,
    scale,
    set_,
)
from worldline.variation.domain import Term
from worldline.variation.effects import may_touch

#: A sled on a floor; the two touch by `<pair>`, whose numbers are its own.
SLED = """
<mujoco><option timestep="0.005"/><default><geom contype="0" conaffinity="0"/></default><worldbody>
  <geom name="floor" type="plane" size="5 5 .1"/>
  <body pos="0 0 .1"><joint name="x" type="slide" axis="1 0 0"/>
    <joint name="z" type="slide" axis="0 0 1"/>
    <geom name="foot" type="sphere" size=".1" mass="1"/>
    <body pos="0 0 .2"><joint name="h" axis="0 1 0"/>
      <geom name="arm" type="capsule" size=".03 .1" mass=".2"/></body></body></worldbody>
  <contact><pair geom1="foot" geom2="floor"/></contact>
  <actuator><motor name="push" joint="x" gear="3" ctrlrange="-1 1"/>
    <motor name="arm" joint="h" ctrllimited="false"/></actuator></mujoco>
"""
#: The same with contacts of the usual kind.
TOUCHING = SLED.replace(
    'name="foot"', 'name="foot" contype="1"'
).replace('name="floor"', 'name="floor" conaffinity="1"').replace(
    '<pair geom1="foot" geom2="floor"/>', ""
)  # fmt: skip
SPAN = Uniform([-0.5, 0.1], [-0.1, 0.5])

IDLE = {
    "range of a joint without limits": (set_(joint("h").range, SPAN), "the limit is off.*jnt_lim"),
    "force of an actuator without limits": (set_(actuator("arm").forcerange, SPAN), "limit is off"),
    "force on a joint without limits": (set_(joint("h").actfrcrange, SPAN), "limit is off"),
    "control without limits": (set_(actuator("arm").ctrlrange, SPAN), "ctrllimited"),
    "factor of armatures of zero": (scale("dof_armature", Uniform(0.5, 2)), "use add or set_"),
    "factor of a friction of zero": (scale(joint("h").frictionloss, Uniform(0.5, 2)), "use add"),
    "friction of geoms of a pair": (scale(geom("foot").friction, Uniform(0.1, 2)), "pair_friction"),
    "bounciness of geoms of a pair": (add("geom_solref", Uniform(0, 0.1)), "vary pair_solref"),
    "wind in a vacuum": (set_(opt.wind, Uniform([0, 0, 0], [1, 1, 1])), "no fluid"),
    "tendons that are not there": (scale("tendon_stiffness", Uniform(1, 2)), "has no tendon"),
}


@pytest.mark.parametrize("name", IDLE)
def test_what_changes_nothing_is_refused(name: str) -> None:
    term, words = IDLE[name]
    with pytest.raises(VariationError, match=f"changes nothing: .*{words}"):
        Domain(term).check(Model(SLED))


WORKING = {
    "limits that are on": (set_(actuator("push").ctrlrange, SPAN), SLED),
    "armatures of zero with a number more": (add("dof_armature", Uniform(0.01, 0.02)), SLED),
    "friction of the pair": (scale("pair_friction", Uniform(0.5, 2)), SLED),
    "friction of geoms and pairs": (
        scale(("geom_friction", "pair_friction"), Uniform(0.5, 2), per="world"),
        SLED,
    ),
    "friction of geoms that touch": (scale(geom("foot").friction, Uniform(0.5, 2)), TOUCHING),
}


@pytest.mark.parametrize("name", WORKING)
def test_what_changes_something_is_not(name: str) -> None:
    term, mjcf = WORKING[name]
    Domain(term).check(Model(mjcf))


def test_a_factor_of_what_an_earlier_term_sets_is_no_factor_of_zero() -> None:
    set_first = Domain(
        add("dof_armature", Uniform(0.1, 0.2), name="set"), scale("dof_armature", Uniform(1, 2))
    )
    set_first.check(Model(SLED))


def test_a_function_that_draws_what_nobody_feels_is_refused() -> None:
    def draw(key: Key, model: Model, ranges: dict) -> dict[str, Array]:
        friction = jnp.asarray(model.constant("geom_friction"), jnp.float32)
        return {"geom_friction": friction * jax.random.uniform(key, minval=0.5, maxval=2)}

    with pytest.raises(VariationError, match=r"change nothing.*vary pair_friction"):
        worldline.Worlds(worldline.Env(Sled()), 2, domain=draw)
    worldline.Worlds(worldline.Env(Sled(mjcf_text=TOUCHING)), 2, domain=draw)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Sled(worldline.Task):
    control_timestep: float = 0.02
    mjcf_text: str = SLED

    def mjcf(self) -> str:
        return self.mjcf_text

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.full(2, -1, np.float32), np.ones(2, np.float32)

    def start(self, key: Key) -> worldline.Start:
        return worldline.Start(qpos=jnp.zeros(3), qvel=jnp.array([1.0, 0.0, 0.5]))

    def observe(self, physics: worldline.EnvState, memory: tuple) -> Array:
        return jnp.concatenate([physics.qpos, physics.qvel])

    def outcome(self, before, action, after, memory) -> worldline.Outcome:
        return worldline.Outcome(reward=after.qvel[0], terminated=jnp.asarray(False))


def slid(**values: list[float]) -> np.ndarray:
    """How far sleds slide in contexts with these values."""
    worlds = worldline.Worlds(worldline.Env(Sled(), context=list(values)), 2)
    state = worlds.reset(jax.random.key(0), context={k: jnp.array(v) for k, v in values.items()})
    for _ in range(30):
        state, _ = worlds.step(state, np.zeros((2, 2), np.float32))
    return np.asarray(state.env.physics.qpos)


def test_contexts_and_presets_reach_pairs() -> None:
    offered = features_of(Model(SLED))
    assert {"friction", "elasticity"} <= offered.keys()
    rough, smooth = slid(friction=[1.5, 0.1])[:, 0]
    assert smooth > 2 * rough
    assert np.ptp(slid(elasticity=[0.1, 0.8])[:, 1]) > 1e-4
    assert Sled().domains["hard"].fields(Model(SLED)) >= {"pair_friction"}
    assert "geom_friction" not in Sled().domains["hard"].fields(Model(SLED))
    assert "geom_friction" in Sled(mjcf_text=TOUCHING).domains["hard"].fields(Model(TOUCHING))


def test_contexts_that_nobody_feels_are_not_offered() -> None:
    alone = SLED.replace('<pair geom1="foot" geom2="floor"/>', "")
    assert not {"friction", "elasticity"} & features_of(Model(alone)).keys()


@pytest.mark.parametrize(
    "task", ["gym/ant", "gym/humanoid", "arm/pick-cube", "gym/pusher", "suite/finger-spin"]
)
def test_who_may_touch_is_mujocos_own_answer(task: str) -> None:
    """With margins as wide as the world, MuJoCo finds a contact of all geoms that may touch."""
    model = worldline.make(task).model
    wide, found = copy.copy(model.mj), np.zeros(model.mj.ngeom, bool)
    wide.geom_margin[:], wide.body_margin[:] = 50, 50
    data = mujoco.MjData(wide)
    mujoco.mj_forward(wide, data)
    found[data.contact.geom] = True
    np.testing.assert_array_equal(may_touch(model), found)


@pytest.mark.parametrize("task", ["gym/half-cheetah", "arm/pick-cube"])
def test_the_presets_of_our_tasks_have_an_effect(task: str) -> None:
    _effects(task)


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", list_tasks())
def test_the_presets_of_all_tasks_have_an_effect(task: str) -> None:
    """All but friction, since random actions may lead to no contact."""
    _effects(task, may_rest=("friction",))


def _effects(task: str, may_rest: tuple[str, ...] = ()) -> None:
    env = worldline.make(task)
    for name in ("light", "medium", "hard"):
        domain = env.task.domains[name]
        domain.check(env.model)
        report = worldline.check_domain(env, domain, steps=30, num_worlds=4)
        idle = [term for term, effect in report.effects.items() if effect == 0]
        assert not set(idle).difference(may_rest), (name, report)


def test_check_domain_tells_what_moves() -> None:
    env = worldline.Env(Sled())
    terms: tuple[Term, ...] = (
        scale("pair_friction", Uniform(0.1, 2), name="friction"),
        scale("body_mass", Uniform(0.5, 2), name="mass"),
        scale("geom_size", Uniform(1, 1), name="none"),
        set_("geom_rgba", Uniform([0, 0, 0, 1], [1, 1, 1, 1]), name="paint"),
    )
    report = worldline.check_domain(env, Domain(*terms))
    assert report.effects["friction"] > 0.05
    assert report.effects["mass"] > 1e-3
    assert report.effects["none"] == report.effects["paint"] == 0
    assert len(report.warnings) == 2
    assert "'paint' moves none of 16 worlds in 50 steps" in report.warnings[1]


def test_check_domain_takes_functions() -> None:
    def draw(key: Key, model: Model, ranges: dict) -> dict[str, Array]:
        return {"body_mass": model.constant("body_mass") * jax.random.uniform(key, minval=0.5)}

    report = worldline.check_domain(worldline.Env(Sled()), draw)
    assert report.effects["domain"] > 1e-4
    assert not report.warnings
