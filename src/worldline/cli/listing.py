"""Lists the tasks, and what can vary in the worlds of one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from worldline.env.parts import STATE
from worldline.env.task import Task, reads_of
from worldline.errors import MissingExtraError, VariationError, WorldlineError
from worldline.model import Model
from worldline.physics import refusal
from worldline.physics.base import NOTHING
from worldline.tasks.registry import load_task, make
from worldline.variation import features_of
from worldline.variation.distributions import text
from worldline.variation.domain import AbstractDomain, Domain
from worldline.variation.targets import FIELD_PREFIXES

#: A model that every engine can run.
_PENDULUM = "<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"


def sizes_of(names: Sequence[str]) -> Iterator[str]:
    """A line for each task: observation, action, control rate, steps an episode, engines.

    Lines on the engines that do not run here follow, with what to install.
    """
    others, missing = _optional_engines()
    row = "{:30} {:>12} {:>8} {:>10} {:>8}   {}"
    yield row.format("task", "observation", "action", "control", "episode", "engines")
    for name in names:
        try:
            env = make(name, physics="fake")  # the quickest to build; no shape depends on it
        except MissingExtraError as error:
            yield f"{name:30} needs {str(error).partition(': ')[2]}"
            continue
        obs, action = env.observation_space, env.action_space
        size = "dict" if obs.shape is None else str(obs.shape)
        rate = f"{1 / env.task.control_timestep:.0f} Hz"
        length = env.task.episode_length or "-"
        reads = reads_of(env.task)
        able = (it for it in others if not refusal(it, env.model, reads))
        engines = ", ".join(("native", *able))
        yield row.format(name, size, str(action.shape), rate, length, engines)
    yield from missing


def _optional_engines() -> tuple[list[str], list[str]]:
    """The engines beside the native one that run here, and an error for each that does not."""
    working, errors = [], []
    for engine in ("mjx", "warp"):
        try:
            error = refusal(engine, Model(_PENDULUM), NOTHING)
        except WorldlineError as raised:
            error = str(raised)
        if error:
            errors.append(error)
        else:
            working.append(engine)
    return working, errors


def fields_of(name: str) -> Iterator[str]:
    """What can vary in a task's worlds: domains, context features, model fields.

    Args:
        name: the task.

    Raises:
        TaskError: there is no such task.
    """
    task = load_task(name)
    model = task.model
    yield f"{name}\n\ndomains, for --domain, and the fields that they vary"
    for label, domain in task.domains.items():
        yield f"  {label:24} {_spans(domain)}"
    yield from _parts(task)
    yield "\ncontext features, for --context: default, bounds, unit"
    for feature in features_of(model).values():
        bounds = f"{feature.low:.3g} to {feature.high:.3g}"
        yield f"  {feature.name:24} {feature.default:>8.4g}  {bounds:14} {feature.unit}".rstrip()
    yield "\nmodel fields, for a Domain in Python: shape, and lowest to highest value in the model"
    for kind, prefixes in FIELD_PREFIXES.items():
        names = [] if kind == "option" else [name for name in model.names(kind) if name]
        lines = list(_constants(model, prefixes))
        if lines:
            yield textwrap.shorten(f"  {kind}: {', '.join(names)}".rstrip(": "), 96)
            yield from lines


def _parts(task: Task) -> Iterator[str]:
    """The parts of the observation and of the action, as far as the task names them."""
    row = "  {:30} {:>3}  {:16} {}"
    for key, parts in task.observation_parts.items():
        use = ", for --noise and --history" if key == STATE else ""
        yield f"\nparts of {key!r}{use}: size, unit, source"
        for part in parts:
            about = f"{part.source} of {', '.join(part.of)}" if part.of else part.source
            if part.scale != 1.0:
                about = f"{part.scale} times {about}"
            yield row.format(part.name, part.size, part.unit, textwrap.shorten(about, 48))
    if task.action_parts:
        yield "\naction: size, unit, kind"
        for each in task.action_parts:
            about = f"{each.kind} about {each.base}" if each.base else each.kind
            yield row.format(each.name, each.size, each.unit, about)


def _spans(domain: AbstractDomain) -> str:
    """The fields that a domain varies, with the range of each: `mass times 0.8 to 1.3`."""
    if not isinstance(domain, Domain):
        return ", ".join(domain.ranges)
    words = {"scale": "times", "add": "plus", "set": "from"}
    return ", ".join(
        "{} {} {} to {}".format(t.name, words[t.operation], *map(text, t.distribution.support()))
        for t in domain.terms
    )


def _constants(model: Model, prefixes: tuple[str, ...]) -> Iterator[str]:
    """A line for each field that can vary and has elements."""
    from mujoco.batch import MODEL_FIELDS

    for field in sorted(name for name in MODEL_FIELDS if name.startswith(prefixes)):
        try:
            value = model.constant(field)
        except VariationError:  # an integer
            continue
        if value.size:
            span = f"{value.min():.4g} to {value.max():.4g}"
            yield f"    {field:28} {value.shape!s:10} {span}"
