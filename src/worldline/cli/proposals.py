"""`worldline sweep --optuna`: Optuna proposes the settings, and keeps what came of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from worldline.cli.sweeping import Plan, Setting, values_of
from worldline.errors import ConfigError, WorldlineError
from worldline.report.aggregate import interquartile_mean
from worldline.report.sweep import Arm, curves_of

#: Runs a setting: gives its arms, and a line for each run that failed.
RunArms = Callable[[Sequence[Setting]], tuple[list[Arm], list[str]]]


class Range(NamedTuple):
    """The values that an option may have."""

    low: float
    high: float
    log: bool
    """Whether they are spread evenly over magnitudes."""


def range_of(name: str, values: Sequence[str]) -> Range:
    """A range from `1e-5:1e-2`, or `1e-5:1e-2:log`.

    Raises:
        ConfigError: it is not of this form.
    """
    parts = values[0].split(":") if len(values) == 1 else []
    with contextlib.suppress(ValueError):
        low, high = map(float, parts[:2])
        if low < high and parts[2:] in ([], ["log"]) and (low > 0 or not parts[2:]):
            return Range(low, high, bool(parts[2:]))
    text = f"{name}={','.join(values)}"
    raise ConfigError(
        f"set is {text!r}; Optuna needs a range, for example learning-rate=1e-5:1e-2:log"
    )


def search(plan: Plan, run: RunArms) -> tuple[list[Arm], list[str]]:
    """Trains as many proposals as asked for; those of earlier calls count.

    A proposal whose runs were cut off is proposed again, and its runs go on. Its value is the
    interquartile mean of the last evaluations of its seeds.

    Raises:
        WorldlineError: Optuna is not installed.
        ConfigError: a setting is no range, or there are several tasks, whose returns have no common
            measure.
    """
    if len(plan.tasks) > 1:
        raise ConfigError(f"--optuna takes one task, not {len(plan.tasks)}; give one task")
    ranges = {name: range_of(name, values) for name, values in map(values_of, plan.config.settings)}
    study = _study(plan)
    arms: list[Arm] = []
    failed: list[str] = []
    for trial in _again(study):
        study.enqueue_trial(trial)
    finished = _settings_of(study)
    if finished:
        arms += run(finished)[0]
    while len(arms) < plan.config.trials:
        trial = study.ask()
        values = {n: trial.suggest_float(n, r.low, r.high, log=r.log) for n, r in ranges.items()}
        made, wrong = run([_setting(values)])
        arms, failed = arms + made, failed + wrong
        returns = [curves_of(arm).returns for arm in made if not wrong]
        if not returns or not returns[0].size:
            study.tell(trial, state=_states().FAIL)
            break
        study.tell(trial, float(interquartile_mean(np.asarray(returns[0][:, -1]))))
    return arms, failed


def _optuna() -> Any:
    """The library, or an error that says what to install."""
    try:
        import optuna
    except ImportError as error:
        raise WorldlineError("--optuna needs Optuna: pip install optuna") from error
    return optuna


def _states() -> Any:
    return _optuna().trial.TrialState


def _study(plan: Plan) -> Any:
    """The study in the storage, which is made if it is not there."""
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    name = f"worldline {plan.tasks[0]} {plan.config.out}"
    try:
        study = optuna.create_study(
            storage=plan.config.optuna,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
        )
    except Exception as error:  # whatever its storages make of a wrong address
        why = " ".join(str(error).split())
        raise ConfigError(
            f"Optuna cannot use the storage {plan.config.optuna!r}: {why}; give a URL, for "
            "example sqlite:///sweep.db"
        ) from error
    # One that goes on must not propose again what it has proposed before.
    study.sampler = optuna.samplers.TPESampler(seed=plan.seeds[0] + len(study.trials))
    return study


def _again(study: Any) -> list[dict[str, float]]:
    """The values of trials that were cut off, which end as failed."""
    states, values = _states(), []
    for trial in study.get_trials(states=(states.RUNNING,)):
        if trial.params:
            values.append(dict(trial.params))
        study.tell(trial.number, state=states.FAIL)
    return values


def _settings_of(study: Any) -> list[Setting]:
    """The settings of the trials that are done."""
    return [_setting(trial.params) for trial in study.get_trials(states=(_states().COMPLETE,))]


def _setting(values: dict[str, float]) -> Setting:
    return {name: f"{value:.6g}" for name, value in values.items()}
