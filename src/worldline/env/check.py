"""check_env: tests a task for faults that would harm its training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.env import Env
from worldline.env.parts import check_parts
from worldline.env.task import inputs_of, specs_of
from worldline.env.trial import Trial, finite_bounds, results_of, run_worlds
from worldline.errors import TaskError
from worldline.keys import is_key
from worldline.parallel.devices import computing_on
from worldline.types import NDArray, PyTree, in_32_bits

#: What two programs compute in another order may differ by this share of its largest number, and
#: by this much: a function may divide the rounding of a difference by a time step.
_RTOL, _ATOL = 1e-3, 1e-5

#: Names of metrics that `Worlds`, updates and evaluations have of their own.
_TAKEN = (
    *("episode_return", "episode_length", "diverged"),
    *("return", "return_recent", "return_std", "length", "episodes", "updates"),
)


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of `check_env` for a task without faults."""

    warnings: tuple[str, ...]
    """One line for each thing that may be intended, but rarely is."""


def check_env(env: Env, *, steps: int = 50, seed: int = 0) -> Report:
    """Checks that a task does what `Task` asks for and that a policy can learn from it.

    It calls each function of the task; then it runs worlds for `steps` control steps under random
    actions, under the lowest action and under the highest.

    Args:
        env: the task on an engine.
        steps: control steps to run.
        seed: the random seed of the starts and the actions.

    Returns:
        A report with warnings; a good task has none.

    Raises:
        TaskError: the task has faults. A line for each says what is wrong, with which value, and
            how to fix it.
    """
    if env.action_repeat > 1 or env.last_action:  # the checks need each control step of the task
        env = env.but(action_repeat=1, last_action=False)
    check_parts(env.task, env.task_specs.obs)
    # The checks report a NaN as a fault; JAX's option would raise an error first.
    with jax.debug_nans(False), computing_on(env.device):
        calls, later_obs = _call_functions(env, seed)
        problems = [
            *_actions_are_bounded(env),
            *_functions_repeat_themselves(calls),
            *_types_are_right(env, calls, later_obs),
            *_metrics_are_numbers(calls),
        ]
        if not problems:  # else the worlds could not run, or not twice the same way
            trial = run_worlds(env, steps, seed)
            problems = [
                *_starts_are_finite(trial),
                *_simulation_holds(trial),
                *_numbers_are_finite(trial),
                *_observations_are_in_their_space(trial),
                *_compiled_functions_are_the_functions(trial),
                *_worlds_are_alone(trial),
                *_nothing_recompiles(trial),
            ]
    if problems:
        raise TaskError("\n".join(f"{type(env.task).__name__}{problem}" for problem in problems))
    warnings = [*_starts_differ(trial), *_episodes_last(trial), *_observations_vary(trial)]
    return Report(tuple(f"{type(env.task).__name__}{warning}" for warning in warnings))


#: For each function of the task, two results of it for the same arguments.
_Calls: TypeAlias = Mapping[str, tuple[Any, Any]]


def _call_functions(env: Env, seed: int) -> tuple[_Calls, PyTree]:
    """The results of the task's functions, and an observation after a control step."""
    task, state = env.task, env.reset(jax.random.key(seed))
    before, memory = state.physics, state.memory
    action = jnp.asarray(sum(finite_bounds(env)) / 2)
    after = env.physics.step(before, inputs_of(task, action, before, memory), 1)
    arguments = jax.random.key_data(jax.random.key(seed)), before, action, after, memory
    first, second = results_of(task, *arguments), results_of(task, *arguments)
    calls = {name: (first[name], second[name]) for name in first}
    return calls, in_32_bits(task.observe(after, first["outcome"].memory))


def _actions_are_bounded(env: Env) -> Iterator[str]:
    low, high = env.action_low, env.action_high
    if not low.size:
        yield (
            " has no actions: the model has no actuators; add some, for example <actuator><motor "
            'joint="..." ctrlrange="-1 1"/></actuator>'
        )
    for index in np.flatnonzero(~(np.isfinite(low) & np.isfinite(high))):
        yield (
            f".action_bounds are {low[index]} and {high[index]} for action {index}; give finite "
            "ones, or the actuator a ctrlrange in the MJCF"
        )
    for index in np.flatnonzero(low >= high):
        yield (
            f".action_bounds are {low[index]} and {high[index]} for action {index}; the first "
            "must be less than the second"
        )


def _functions_repeat_themselves(calls: _Calls) -> Iterator[str]:
    for name, (first, second) in calls.items():
        if specs_of(first) != specs_of(second):
            yield (
                f".{name} returns {specs_of(first)}, then {specs_of(second)} for the same "
                "arguments; keep what must be remembered in the memory, not in Python"
            )
        elif not _same(first, second):
            yield (
                f".{name} returns two different results for the same arguments; draw random "
                "numbers only with the key of start, and keep what must be remembered in the memory"
            )


def _types_are_right(env: Env, calls: _Calls, later_obs: PyTree) -> Iterator[str]:
    outcome, memory = calls["outcome"][0], calls["start"][0].memory
    kinds = {"reward": (jnp.floating, "float32"), "terminated": (jnp.bool_, "bool")}
    for part, (kind, wanted) in kinds.items():
        value = jnp.asarray(getattr(outcome, part))
        if value.shape != () or not jnp.issubdtype(value.dtype, kind):
            yield (
                f".outcome returns a {part} of {value.dtype}{list(value.shape)}; it must be a "
                f"scalar of {wanted}"
            )
    if specs_of(outcome.memory) != specs_of(memory):
        yield (
            f".outcome changes the memory from {specs_of(memory)} to {specs_of(outcome.memory)}; "
            "keep the structure, shapes and dtypes of start"
        )
    for value in (*calls["observe"], later_obs):
        observed = specs_of(env.task_specs.obs)
        if specs_of(value) != observed:
            yield f".observe returns {specs_of(value)}, but at other times {observed}"
            break


def _metrics_are_numbers(calls: _Calls) -> Iterator[str]:
    for name, value in calls["outcome"][0].metrics.items():
        if name in _TAKEN:
            yield f".outcome returns a metric {name!r}, which every run measures itself; rename it"
        if np.shape(value) != ():
            yield (
                f".outcome returns the metric {name!r} a shape of {np.shape(value)}; a metric is "
                "one number"
            )


# Worlds that run.


def _starts_are_finite(trial: Trial) -> Iterator[str]:
    start = trial.start
    if start.physics.diverged.any():
        yield (
            ".start returns a state that MuJoCo cannot simulate (not finite, or above 1e10); give "
            "qpos, qvel and inputs finite values"
        )
    for where, value, _ in _not_finite(trial.first_obs, ~start.physics.diverged):
        yield f".observe returns {value} at {where} at a start; an observation must be finite"


def _simulation_holds(trial: Trial) -> Iterator[str]:
    for name, rows in _groups(trial):
        failed = trial.states.physics.diverged & trial.running & rows
        if failed.any():
            yield (
                f" diverges {_after(failed)} of {name}; lower the model's timestep, or narrow the "
                "action bounds"
            )


def _numbers_are_finite(trial: Trial) -> Iterator[str]:
    metrics = {f"the metric {name!r}": value for name, value in trial.states.metrics.items()}
    advice = "must be finite: mind divisions, roots and logarithms"
    for name, rows in _groups(trial):
        judged = trial.running & rows & ~trial.states.physics.diverged
        for where, value, bad in _not_finite(trial.obs, judged):
            yield (
                f".observe returns {value} at {where} {_after(bad)} of {name}; an observation "
                f"{advice}"
            )
        for what, numbers in {"a reward": trial.reward, **metrics}.items():
            for _, value, bad in _not_finite(numbers, judged):
                yield f".outcome returns {what} of {value} {_after(bad)} of {name}; it {advice}"


def _observations_are_in_their_space(trial: Trial) -> Iterator[str]:
    space = trial.env.observation_space
    for row in range(len(trial.driven_by)):
        obs = jax.tree.map(lambda x: np.asarray(x[row]), trial.start.obs)  # noqa: B023
        if not space.contains(obs):
            yield (
                f".observe returns {specs_of(obs)} at a start, which is not in {space}; change one "
                "of them"
            )
            return


def _compiled_functions_are_the_functions(trial: Trial) -> Iterator[str]:
    for name in _differing(trial.results["eager"], trial.results["compiled"]):
        yield (
            f".{name} returns a different result inside jax.jit than outside; it must depend only "
            "on its arguments, not on Python's state"
        )


def _worlds_are_alone(trial: Trial) -> Iterator[str]:
    for name in _differing(trial.results["compiled"], trial.results["among others"]):
        yield (
            f".{name} returns a different result for a world alone than among "
            f"{len(trial.driven_by)} worlds; it must use only the arguments of one world"
        )


def _nothing_recompiles(trial: Trial) -> Iterator[str]:
    if trial.traces > 1:
        before, after = (_types(state.memory) for state in trial.alone[:2])
        yield (
            f".outcome makes the step compile {trial.traces} times: the memory goes from {before} "
            f"to {after}; begin with strict types, for example jnp.float32(0) for 0.0"
        )


def _starts_differ(trial: Trial) -> Iterator[str]:
    parts = (trial.start.physics.qpos, trial.start.physics.qvel, trial.start.memory)
    if all((_plain(x) == _plain(x)[:1]).all() for x in jax.tree.leaves(parts)):
        yield ".start returns the same start for every key; draw some of it with the key"


def _episodes_last(trial: Trial) -> Iterator[str]:
    first = (trial.states.terminated | trial.states.diverged)[0]
    if first.mean() > 0.5:
        yield (
            f".outcome ends {first.sum()} of {first.size} episodes at their first step; see "
            "whether a start already fulfils the condition for terminated"
        )


def _observations_vary(trial: Trial) -> Iterator[str]:
    for path, leaf in jax.tree.leaves_with_path(trial.obs):
        if leaf.dtype.kind == "u":  # an image
            continue
        seen = leaf[trial.running].reshape(trial.running.sum(), -1)
        constant = np.flatnonzero((seen == seen[:1]).all(axis=0))
        if constant.size:
            indices = ", ".join(str(i) for i in constant[:8]) + (", ..." * (constant.size > 8))
            yield (
                f".observe always returns the same number at index {indices}{_at(path)}; a policy "
                "learns nothing from it"
            )


# What the checks share.


def _groups(trial: Trial) -> Iterator[tuple[str, NDArray]]:
    """The ways actions were chosen, each with its worlds as a mask `(B,)`."""
    for name in dict.fromkeys(trial.driven_by):
        yield name, np.array([chosen == name for chosen in trial.driven_by])


def _after(bad: NDArray) -> str:
    step = int(np.argwhere(bad)[0, 0]) + 1
    return f"after {step} step{'s' if step > 1 else ''}"


def _not_finite(tree: PyTree, judged: NDArray) -> Iterator[tuple[str, Any, NDArray]]:
    """Finds numbers that are not finite in the rows of a mask.

    Args:
        tree: arrays whose first axes are those of `judged`.
        judged: bool, the rows to look at.

    Yields:
        For each such array, the place of its first such number, that number, and the rows, bool,
        that have one.
    """
    for path, leaf in jax.tree.leaves_with_path(tree):
        table = leaf.reshape(*judged.shape, -1)
        bad = ~np.isfinite(table) & judged[..., None]
        if bad.any():
            first = tuple(np.argwhere(bad)[0])
            yield f"index {first[-1]}{_at(path)}", table[first], bad.any(axis=-1)


def _at(path: Any) -> str:
    return f" of {jax.tree_util.keystr(path, simple=True)!r}" if path else ""


def _differing(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """The functions whose results differ by more than rounding."""
    return [name for name in left if not _same(left[name], right[name], _RTOL, _ATOL)]


def _same(left: PyTree, right: PyTree, rtol: float = 0.0, atol: float = 0.0) -> bool:
    """Whether two trees agree, but for a share of the largest number of each leaf."""
    if specs_of(left) != specs_of(right):
        return False
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(_close(_plain(a), _plain(b), rtol, atol) for a, b in pairs)


def _close(left: NDArray, right: NDArray, rtol: float, atol: float) -> bool:
    if left.dtype.kind != "f":
        return bool((left == right).all())
    largest = np.abs(left[np.isfinite(left)]).max(initial=0.0)
    return np.allclose(left, right, rtol=0.0, atol=atol + rtol * largest, equal_nan=True)


def _plain(leaf: Any) -> NDArray:
    """A leaf as numbers, be it an array of keys."""
    return np.asarray(jax.random.key_data(leaf) if is_key(jnp.asarray(leaf)) else leaf)


def _types(tree: PyTree) -> Any:
    """Dtypes as a compiler distinguishes them: a Python number's is weak."""
    return jax.tree.map(lambda x: f"{'weak ' if x.weak_type else ''}{x.dtype}", tree)
