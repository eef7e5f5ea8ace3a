"""The documentation is true: its code runs, its links lead somewhere, its tables are complete."""

import dataclasses
import re
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import jax
import pytest

import worldline.bridges.gymnasium  # its ids: here Worldline is imported before Gymnasium
import worldline.report
import worldline.train.run
from pages import (
    NOT_RUN,
    PAGES,
    PATCHES,
    README,
    ROOT,
    SHORT,
    Block,
    all_blocks,
    blocks,
    example_of,
    lines,
    name,
    shortened,
)
from worldline.cli import commands
from worldline.cli import main as cli
from worldline.cli.arguments import parse, take_task, train_settings
from worldline.errors import RendererUnavailableError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.sac import SACConfig, sac
from worldline.learn.shac import SHACConfig, shac
from worldline.report.video import Clip
from worldline.tasks import registry
from worldline.tasks.registry import list_tasks, make

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run_python(code: str, file: Path, line: int, module: types.ModuleType) -> None:
    """Runs code in a module; a traceback shows the page and the line."""
    exec(compile("\n" * line + shortened(code), str(file), "exec"), module.__dict__)


def skip_without_extras(text: str) -> None:
    """Skips what needs an optional library that is not installed."""
    names = r"torch\w*|stable_baselines3|dm_env|optuna|gymnax|minari|rsl_rl|brax|skrl"
    optional = rf"^\s*(?:import|from) (?:worldline\.bridges\.)?({names})\b"
    for library in set(re.findall(optional, text, re.M)):
        pytest.importorskip(library)


def run_shell(block: Block, python: str) -> None:
    """Checks the lines that call `worldline`; trains where Python on the page reads the run."""
    for line in lines(block):
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program != "worldline" or arguments[0] in NOT_RUN or "--help" in arguments:
            continue
        command, *rest = arguments
        out = Path(rest[rest.index("--out") + 1]) if "--out" in rest else None
        if command in ("eval", "export", "render", "resume", "watch"):
            parse(getattr(commands, command.capitalize()), rest, f"worldline {command}")
        elif command == "train" and not (out and {f'"{out}', f'"{out.parent}"'} & mentions(python)):
            name, options = take_task(rest)
            file = Path(str(name).partition(":")[0])  # where there is none, it is the reader's
            train_settings("robot/reach" if file.suffix and not file.is_file() else name, options)
        elif command == "train":
            assert cli.main([*arguments, *SHORT]) == 0, line
        else:
            assert cli.main(arguments) == 0, line


def mentions(python: str) -> set[str]:
    """The texts in Python code, each with its first quote, cut at a file's name."""
    texts = re.findall(r'"[^"\n]*"', python)
    return {*texts, *(re.sub(r'(/[^/]*\.\w+)?"$', "", text) for text in texts)}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module to run code in, in a folder of its own, without pictures at the end of training."""

    def no_video(*_, **__):
        raise RendererUnavailableError("not in a test")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    monkeypatch.setattr(worldline.train.video, "render_episode", no_video)
    monkeypatch.setattr(worldline.report.run_folder, "plot_curves", lambda *_: None)
    # Keeps `worldline` from setting up JAX's compilation cache, which would last for all tests.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    module = types.ModuleType("documentation")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    # Shapes and dtypes may be promoted, as readers may promote theirs.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        jax.config.update("jax_disable_most_optimizations", True)  # compiling is most of the time
        yield module
    jax.config.update("jax_disable_most_optimizations", False)


#: What trains for longer than CI has time for.
LONG = {
    *(f"docs/{page}.md" for page in ("sac", "shac", "guides/pixels", "guides/resume")),
    "docs/tutorial.md",
    *(
        f"docs/guides/{guide}.md"
        for guide in (
            "gymnasium",
            "minari",
            "notebooks",
            "offline-data",
            "rewards",
            "rsl_rl",
            "sweeps",
        )
    ),
    *(
        f"examples/{example}.py"
        for example in (
            "actuator_net",
            "curriculum",
            "identify",
            "notebook_loop",
            "own_optimizer",
            "pixels",
        )
    ),
    *(
        f"examples/{example}.py"
        for example in ("memory", "population", "swing_up", "terrain", "two_phases")
    ),
}


def cases(files: list[Path]) -> list[Any]:
    """Test cases; those that compile a learner are slow."""
    learns = re.compile(
        r"worldline train .*--out|\b(ppo|sac|shac|train)\(|\boptax\.apply_updates\("
    )
    return [
        pytest.param(
            file,
            id=name(file),
            marks=[pytest.mark.exhaustive]
            if name(file) in LONG
            else [pytest.mark.slow] * bool(learns.search(file.read_text())),
        )
        for file in files
    ]


@pytest.mark.parametrize(
    "page", cases([page for page in PAGES if blocks(page) and page != PATCHES])
)
def test_the_code_of_a_page_runs(page, module):
    python = "".join(block.code for block in blocks(page) if block.kind == "python")
    skip_without_extras(python)
    for block in blocks(page):
        if page == README:  # each of its blocks stands on its own
            for attribute in [a for a in vars(module) if not a.startswith("__")]:
                delattr(module, attribute)
        if block.kind == "sh":
            run_shell(block, python)
        else:
            run_python(block.code, page, block.line, module)


def test_examples_in_pages_are_the_files():
    shown = [(page, block) for page in PAGES for block in all_blocks(page) if example_of(block)]
    assert shown
    for page, block in shown:
        example = ROOT / example_of(block)
        assert block.code == example.read_text(), f"{name(page)}: {name(example)}"


def test_no_page_has_code_that_is_neither_run_nor_explained():
    for page in PAGES:
        for block in all_blocks(page):
            known = block.kind in ("python", "sh", "text", "diff", "toml", "xml", "yaml")
            assert known, f"{name(page)}:{block.line}: {block.kind}"


@pytest.mark.parametrize("example", cases(EXAMPLES))
def test_an_example_runs(example, module, monkeypatch):
    skip_without_extras(example.read_text())
    monkeypatch.setattr(sys, "argv", [example.name, "--steps", "1"])
    monkeypatch.setattr(worldline.report, "render_episode", lambda *_, **__: Clip(None, None, ""))
    # JAX's check for keys used twice does not follow keys into the `vmap` over several seeds.
    with jax.debug_key_reuse("seeds=2" not in example.read_text()):
        run_python(example.read_text(), example, 0, module)


def test_links_lead_to_files_and_to_tests_of_that_name():
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for text, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", page.read_text()):
            if re.match(r"https?://|#", target):
                continue
            file = page.parent / target.split("#")[0]
            assert file.exists(), f"{name(page)}: {target}"
            if text.startswith("`test_"):
                assert f"def {text.strip('`')}(" in file.read_text(), f"{name(page)}: {text}"


def table(page: str) -> dict[str, list[str]]:
    """The rows of all tables of a page: first cell, without quotes, to the others."""
    rows = re.findall(r"^\|(.+)\|$", (ROOT / "docs" / page).read_text(), re.M)
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows]
    return {first.strip("`"): rest for first, *rest in cells}


def test_every_setting_of_ppo_is_documented():
    rows = table("ppo.md")
    for field in dataclasses.fields(PPOConfig):
        assert field.name in rows, field.name
        assert rows[field.name][0].strip("`") == str(field.default), field.name


@pytest.mark.parametrize(
    ("make_learner", "config"),
    [
        (ppo, PPOConfig(num_worlds=2, unroll_length=2, minibatches=1, epochs=1)),
        (sac, SACConfig(num_worlds=2, unroll_length=2, critic_steps=2)),
        (shac, SHACConfig(num_worlds=2, unroll_length=2)),
    ],
    ids=["ppo", "sac", "shac"],
)
def test_every_metric_is_documented_and_each_exists(make_learner, config, request):
    env = make("robot/reach")
    learner = make_learner(worldline.Worlds(env, config.num_worlds), config)
    with jax.numpy_dtype_promotion("standard"):  # for Optax
        state = jax.eval_shape(learner.init, jax.random.key(0))
        metrics = set(jax.eval_shape(learner.update, state)[1])
    name = request.node.callspec.id
    of_the_run = {
        "eval/return",
        "eval/return_std",
        "eval/length",
        "speed/steps_per_s",
        "train/return_recent",
    }
    of_the_task = {f"train/{metric}" for metric in ("distance", "reached")}
    rows = {metric: of for metric, (of, *_) in table("metrics.md").items() if "/" in metric}
    documented = {m for m, of in rows.items() if of == "all" or name.upper() in of.split(", ")}
    assert documented - of_the_run - {"train/...", "eval/..."} == metrics - of_the_task


def test_every_setting_of_sac_is_documented():
    rows = table("sac.md")
    for field in dataclasses.fields(SACConfig):
        assert field.name in rows, field.name
        assert rows[field.name][0].strip("`") == str(field.default), field.name


@pytest.mark.parametrize("task", list_tasks())
def test_a_task_is_documented(task):
    row = table("tasks.md")[task]
    env = make(task, physics="fake")
    shapes = [str(space.shape or "dict") for space in (env.observation_space, env.action_space)]
    assert [cell.strip("`") for cell in row[:2]] == shapes
