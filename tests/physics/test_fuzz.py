"""Whatever the model and the constants: an engine is right beside plain MuJoCo, or it refuses.

Hundreds of generated models, each with random constants of its own, on each engine. Right is, on
`native`, bit for bit. On `warp`, in float32, it is as near as rounding lets it be: plain MuJoCo is
run again with its state moved by `NOISE` at each step, and an engine may be off by some times what
that changes. `mjx` is held to the same, in float64: what it is off by there, rounding did not do.
Where rounding decides all, as after a collision that only just happens, there is nothing left to
compare, nor where geoms touched that the guide on engines says to touch in another way.
"""

from __future__ import annotations

import copy
import functools

import generated_scene
import generated_worlds
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from generated_worlds import Truth, World
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.errors import ConfigError, ModelError, VariationError
from worldline.physics import make_physics
from worldline.physics.base import Reads

ENGINES = ("native", "mjx", "warp")
SEEDS = range(300)

#: By how much a state is moved to see how far rounding may lead: some times float32's precision.
NOISE = 1e-6
#: How many times as far as that an engine may be off, beside `LEAST` of its size.
TIMES, LEAST = 20.0, 2e-5
#: Conjugate gradients stop at this tolerance in float32, so they may be off by what it allows.
ROUGHLY = 1e-5
#: Where noise moves a state by this part of its size, it is too late to compare.
CHAOTIC = 0.02


def judged(engine: str, world: World) -> str:
    """What an engine does with a world: "right", or what else is well; or an AssertionError."""
    rows = [world.variation, generated_worlds.stored(world)]
    try:
        models = [generated_worlds.edited(world.model, row) for row in rows]
    except mujoco.FatalError as error:
        models, why = [], str(error)
    try:
        ends, diverged = simulated(engine, world, rows)
    except (ConfigError, ModelError, VariationError) as error:
        check_refusal(engine, str(error))
        return f"refused: {error}"
    assert models, f"MuJoCo refuses the constants: {why}"
    verdicts = []
    for row, mj in enumerate(models):
        if engine == "native":
            truth = generated_worlds.truth(world, mj)
            check_bits(truth, ends[row], diverged[row])
            verdicts.append("right")
        else:
            verdicts.append(check_nearness(engine, world, mj, ends[row], diverged[row]))
    return verdicts[0]


def check_idle(world: World) -> None:
    """What a domain refuses since nothing feels it, nothing feels."""
    base = generated_worlds.stored(world)
    before = generated_worlds.truth(world, generated_worlds.edited(world.model, base))
    for field, value in world.idle.items():
        mj = generated_worlds.edited(world.model, {**base, field: value})
        after = generated_worlds.truth(world, mj)
        np.testing.assert_array_equal(after.ends, before.ends, f"{field} is felt")


def check_refusal(engine: str, said: str) -> None:
    """The error names the engine that can, or is about all of them."""
    by_engine = f"the engine {engine!r}" in said and "physics='native'" in said
    assert by_engine or "the model enables" in said or "MuJoCo does not accept" in said, said


def check_bits(truth: Truth, ends: np.ndarray, diverged: np.ndarray) -> None:
    count = len(truth.ends)
    assert not diverged[:count].any()
    np.testing.assert_array_equal(ends[:count], np.float32(truth.ends))
    assert not truth.failed or diverged[count]


def check_nearness(
    engine: str, world: World, mj: mujoco.MjModel, ends: np.ndarray, diverged: np.ndarray
) -> str:
    """Compares with MuJoCo as long as rounding leaves something to compare."""
    rough = copy.copy(mj)
    mj.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON  # all of them have one optimum
    if rough.opt.solver == mujoco.mjtSolver.mjSOL_CG:
        rough.opt.tolerance = ROUGHLY
    else:
        rough.opt.solver = mj.opt.solver
    truth = generated_worlds.truth(world, mj)
    noisy = [
        generated_worlds.truth(world, rough, np.random.default_rng(n), NOISE) for n in range(4)
    ]
    assert np.isfinite(ends[~diverged]).all(), "not finite, and not diverged"
    groups = np.split(np.arange(ends.shape[1]), [mj.nq, mj.nq + mj.nv])
    compared = min(len(t.ends) for t in (truth, *noisy))
    for step in range(compared):
        right = truth.ends[step]
        for name, group in zip(("qpos", "qvel", "act"), groups, strict=True):
            if not group.size:
                continue
            if documented(engine, mj, truth.pairs[step]):
                return "as documented"
            size = max(1.0, np.abs(right[group]).max())
            spread = max(np.abs(t.ends[step] - right)[group].max() for t in noisy)
            if spread > CHAOTIC * size:
                return "right" if step else "chaotic"
            assert not diverged[step], f"diverged at step {step}"
            off = np.abs(ends[step] - right)[group].max()
            most = LEAST * size + TIMES * spread
            assert off <= most, f"{name} off by {off:.1e} at step {step}, at most {most:.1e}"
    return "right" if compared else "chaotic"


def documented(engine: str, mj: mujoco.MjModel, pairs: set[tuple[int, int]]) -> bool:
    """Whether these geoms touched, which the guide on engines says to touch in another way."""
    kinds, pyramidal = mujoco.mjtGeom, mj.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    capsule = (int(kinds.mjGEOM_PLANE), int(kinds.mjGEOM_CAPSULE))
    round_ = {int(kinds.mjGEOM_PLANE), int(kinds.mjGEOM_SPHERE), int(kinds.mjGEOM_CAPSULE)}
    convex = any(first and not {first, second} <= round_ for first, second in pairs)
    return convex or (engine == "warp" and pyramidal and capsule in pairs)


def simulated(engine: str, world: World, rows: list[dict]) -> tuple[np.ndarray, np.ndarray]:
    """Where an engine takes worlds with these constants, `(len(rows), STEPS, ...)`: `qpos`, `qvel`
    and `act`, and whether they have diverged.
    """
    with jax.enable_x64(engine == "mjx"), jax.debug_nans(False):
        physics = make_physics(engine, world.model, Reads())
        inputs = {n: x for n, x in world.start.items() if n not in ("qpos", "qvel")}

        def step(state, ctrl):
            state = physics.step(state, {"ctrl": ctrl} if ctrl.size else {}, world.substeps)
            return state, (jnp.concatenate([state.qpos, state.qvel, state.act]), state.diverged)

        @jax.jit
        @functools.partial(jax.vmap, axis_size=len(rows))
        def run(variation):
            start = physics.start(world.start["qpos"], world.start["qvel"], variation, inputs)
            return jax.lax.scan(step, start, jnp.asarray(world.ctrl))[1]

        both = jax.tree.map(lambda *x: jnp.stack(x), *rows)
        ends, diverged = jax.device_get(run(both))
    return ends, np.logical_or.accumulate(diverged, axis=1)


#: In each CI. The others are its rotating part, and of the night: MJX and MuJoCo Warp compile up to
#: a minute for a model.
OFTEN = {("native", 0), ("native", 4), ("warp", 27), ("warp", 57)}
CASES = [
    pytest.param(engine, seed, marks=[] if (engine, seed) in OFTEN else pytest.mark.exhaustive)
    for engine in ENGINES
    for seed in SEEDS
]


@pytest.mark.parametrize(("engine", "seed"), CASES)
def test_a_generated_world_is_right_or_refused(engine: str, seed: int) -> None:
    world = generated_worlds.world(seed)
    if engine == "native":
        check_idle(world)
    judged(engine, world)


@settings(max_examples=4, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    having=st.frozensets(st.sampled_from(sorted(generated_scene.FEATURES)), max_size=20),
)
def test_any_generated_world_is_right_on_native(seed: int, having: frozenset[str]) -> None:
    world = generated_worlds.world(seed, having)
    check_idle(world)
    assert not judged("native", world).startswith("refused: the engine")
