"""Trackers: send the metrics of a run to Weights & Biases or MLflow."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import jax

from worldline.errors import ConfigError, MissingExtraError, RunError, did_you_mean
from worldline.files import whole_file
from worldline.report.run_folder import RunFolder

#: The file in a run folder with the id that each of its trackers gave the run.
_IDS_FILE = "trackers.json"


class Tracker(Protocol):
    """A service that shows the metrics of runs.

    `Tracker(folder, run_id)` begins to track a run. With a `run_id` it continues an earlier part of
    the same run.
    """

    library: ClassVar[str]
    """The name of the module that it imports."""
    id: str
    """The service's id of the run."""

    def __init__(self, folder: RunFolder, run_id: str | None) -> None: ...

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Sends the metrics of an environment step."""

    def close(self, failed: bool) -> None:
        """Waits until everything is sent. `failed` says whether an error ended the run."""


class WeightsAndBiases:
    """Weights & Biases, which reads `WANDB_PROJECT` (by default worldline) and `WANDB_ENTITY`.

    With `WANDB_MODE=offline` it writes to the run folder, and `wandb sync` sends that later.
    """

    library: ClassVar[str] = "wandb"

    def __init__(self, folder: RunFolder, run_id: str | None) -> None:
        import wandb

        self.id = run_id or secrets.token_hex(4)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "worldline"),
            name=folder.path.name,
            id=self.id,
            resume="allow",
            reinit="create_new",
            dir=folder.path,
            config=folder.config,
            settings=wandb.Settings(console="off", silent=True),
        )
        # A resumed run repeats steps, which the service's own count does not allow.
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Passes the metrics to wandb's own process, which sends them."""
        self._run.log({"step": step, **metrics})

    def close(self, failed: bool) -> None:
        """Waits until this process has sent everything."""
        self._run.finish(exit_code=int(failed))


class MLflow:
    """MLflow, which reads `MLFLOW_EXPERIMENT_NAME` (by default worldline) and
    `MLFLOW_TRACKING_URI` (by default a database `mlflow.db` in the current folder).
    """

    library: ClassVar[str] = "mlflow"

    def __init__(self, folder: RunFolder, run_id: str | None) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric = Metric
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"))
        if run_id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "worldline")
            found = self._client.get_experiment_by_name(name)
            experiment = found.experiment_id if found else self._client.create_experiment(name)
            run = self._client.create_run(experiment, run_name=folder.path.name)
            run_id = run.info.run_id
            params = [Param(name, str(value)[:500]) for name, value in _flat(folder.config)]
            self._client.log_batch(run_id, params=params)
        self.id: str = run_id
        self._client.update_run(self.id, status="RUNNING")
        self._last: Any = None

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Passes the metrics to a thread, which sends them."""
        now = int(time.time() * 1000)
        rows = [self._metric(name, value, now, step) for name, value in metrics.items()]
        self._last = self._client.log_batch(self.id, rows, synchronous=False)

    def close(self, failed: bool) -> None:
        """Waits until this thread has sent everything."""
        if self._last is not None:
            self._last.wait()
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


TRACKERS: dict[str, type[Tracker]] = {"wandb": WeightsAndBiases, "mlflow": MLflow}


def check_trackers(names: Sequence[str]) -> None:
    """Checks before a run begins that its trackers exist.

    Raises:
        ConfigError: there is no such tracker.
        MissingExtraError: its library is not installed.
    """
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"there is no tracker {name!r}{did_you_mean(name, TRACKERS)}")
        if importlib.util.find_spec(TRACKERS[name].library) is None:
            raise MissingExtraError(f"tracking with {name}", name)


class Trackers(AbstractContextManager["Trackers"]):
    """The trackers of a run. A context manager; its end waits until everything is sent.

    If a tracker fails, the training continues: there is a warning, nothing more is sent to it, and
    the run folder has every number.

    Args:
        folder: the run folder; None in a process that writes nothing.
        names: names from `TRACKERS`.

    Raises:
        RunError: a tracker cannot be reached when the run begins.
    """

    def __init__(self, folder: RunFolder | None, names: Sequence[str]) -> None:
        self._open: dict[str, Tracker] = {}
        if folder is None or not names:
            return
        file = folder.path / _IDS_FILE
        ids: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        for name in names:
            try:
                tracker = TRACKERS[name](folder, ids.get(name))
            except Exception as error:  # any error of a library or its network
                self._close_all(failed=True)
                raise RunError(
                    f"{name} cannot be reached: {_line(error)}; fix it, or train without --track"
                ) from error
            self._open[name] = tracker
            ids[name] = tracker.id
        with whole_file(file) as out:
            out.write(json.dumps(ids).encode())

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Sends the metrics of an environment step to each tracker."""
        for name, tracker in list(self._open.items()):
            try:
                tracker.write(step, metrics)
            except Exception as error:  # the training must go on
                del self._open[name]
                _warn(name, error)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._close_all(failed=error is not None)

    def _close_all(self, failed: bool) -> None:
        for name, tracker in self._open.items():
            try:
                tracker.close(failed)
            except Exception as error:
                _warn(name, error)
        self._open.clear()


def _warn(name: str, error: Exception) -> None:
    warnings.warn(
        f"{name} failed: {_line(error)}; the run continues without it, and its folder has every "
        "number",
        stacklevel=3,
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _flat(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The values of a nested configuration, with names such as `ppo.learning_rate`."""
    leaves = jax.tree.leaves_with_path(config, is_leaf=lambda x: not isinstance(x, Mapping))
    return [(jax.tree_util.keystr(path, simple=True, separator="."), x) for path, x in leaves]
