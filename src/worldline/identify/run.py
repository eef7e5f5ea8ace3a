"""`worldline identify`: from a model and a log to a folder with the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import mujoco

from worldline.errors import ConfigError, RunError
from worldline.identify.figure import plot_fit
from worldline.identify.fit import Show, fit
from worldline.identify.log import Log, read_log
from worldline.identify.parameters import find_parameters
from worldline.identify.result import domain_around, table, write_result
from worldline.model import Model
from worldline.variation.as_data import save_domain

#: The files of the folder.
DOMAIN_FILE, RESULT_FILE, PICTURE_FILE = "domain.json", "identified.json", "identified.png"


def identify(
    model: Model,
    log_file: Path,
    names: Sequence[str],
    out: Path,
    *,
    segment: float,
    margin: float,
    show: Show,
) -> Iterator[str]:
    """Fits constants to a log and writes the result; gives the lines that say what was found.

    Args:
        model: the model.
        log_file: the recording.
        names: the constants, each as in `find_parameters`.
        out: the folder to write.
        segment: about how long a segment is, s.
        margin: how much wider than the intervals the domain is, a share of each value.
        show: gets what is being done, and the share of it that is done.

    Raises:
        ConfigError: the log does not fit the model, or does not tell the constants.
        RunError: the folder cannot be written.
    """
    parameters = find_parameters(model, names)
    log = read_log(log_file, model)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"out is {str(out)!r}, which is a file; give a folder")
    result = fit(model, log, parameters, segment=segment, show=show)
    columns = _columns(model, log)
    domain = domain_around(model, result, margin)
    domain.check(model)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_result(out / RESULT_FILE, result, columns)
        save_domain(out / DOMAIN_FILE, domain)
        plot_fit(out / PICTURE_FILE, result, columns, log.period)
    except OSError as error:
        raise RunError(f"cannot write the folder {str(out)!r}: {error}") from error
    if log.unused:
        yield f"note: columns that belong to nothing in the model: {', '.join(log.unused)}"
    yield from table(result, columns)
    yield f"  picture  {out / PICTURE_FILE}"
    yield f"  numbers  {out / RESULT_FILE}"
    yield f"  domain   {out / DOMAIN_FILE}, for `worldline train TASK --domain`"


def _columns(model: Model, log: Log) -> list[str]:
    """The names of what is measured, with units."""
    hinges = [kind == int(mujoco.mjtJoint.mjJNT_HINGE) for kind in model.mj.jnt_type.tolist()]
    names = list(zip(model.names("joint"), hinges, strict=True))
    found = [f"{name}, {'rad' if hinge else 'm'}" for name, hinge in names]
    if log.velocity is not None:
        found += [f"{name}, {'rad' if hinge else 'm'}/s" for name, hinge in names]
    return found
