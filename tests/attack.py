"""An attack on what Worldline reads: damaged files, hostile settings, options and models.

    python tests/attack.py                              # all of it, a quarter of an hour
    python tests/attack.py archives --times 10000       # one kind, as often as you like
    python tests/attack.py models --seed 7

Each attack is either refused in one line, or changes nothing, or changes what it says it changes.
Everything else is printed, and the exit status is 1. Kills, signals, closed streams and full disks
are in `tests/cli/test_cli_signals.py` and `test_cli_streams.py`.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import dataclasses
import io
import json
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

import worldline
from worldline.cli import main as command_line
from worldline.cli.scaffold import write_task
from worldline.errors import WorldlineError
from worldline.export.policy_file import save_policy
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.sac import SACConfig
from worldline.learn.shac import SHACConfig
from worldline.report import RunFolder
from worldline.tasks.registry import list_tasks
from worldline.train.checkpoint import CheckpointWriter, Moment, restore
from worldline.train.config import TrainConfig
from worldline.train.stored import algorithm_of, environment_of, resolved_config, run_config
from worldline.watch.saved import load_state, save_state
from worldline.watch.session import Session
from worldline.watch.source import open_source

sys.path.append(str(Path(__file__).parent / "physics"))
import generated_models

#: Values that are good for many an option.
_GOOD = ["1", "2", "4", "16", "0.5", "1e-3", "8 8"]

#: What an attack came to.
REFUSED, UNHARMED, CHANGED, WRONG = "refused", "unharmed", "changed as it says", "WRONG"

#: Values that a number, a text or a path may be given in place of a good one.
HOSTILE = [
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 10**12, 1e308, -1e308, math.nan, math.inf, "",
    "x", "../..", "/", "\0", "a" * 5000, "🤖", [], [-5], [0.5], ["x"], {}, {"a": 1}, [[1]],
]  # fmt: skip
WORDS = [
    "", "-1", "0", "1e400", "nan", "-inf", "1e12", "9" * 20, "x", "../..", "\0", "a" * 5000, "🤖",
    "1,2", "--", "-x", "[]", "None", "true", "0x10", "1_0", "front=0x0", "front=99999x1", "a=b=c",
    "gravity=0:1", "robot/reach", "1:2", "2:1", "gpu", "light",
]  # fmt: skip


def archives(chance: random.Random, times: int) -> Iterator[tuple[str, str]]:
    """Damages checkpoints, policies and saved states."""
    env = worldline.make("robot/reach")
    config = PPOConfig(num_worlds=4, actor_hidden=(4,), critic_hidden=(4,))
    learner = ppo(worldline.Worlds(env, 4), config)
    state = jax.jit(learner.init)(jax.random.key(1))
    like = jax.eval_shape(learner.init, jax.random.key(0))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with CheckpointWriter(folder, {}, {}) as writer:
            writer.save(state, Moment(3, 0.1, None))
        checkpoint = next((folder / "checkpoints").iterdir())
        policy = save_policy(folder, learner.policy(state), step=3)
        worlds = folder / "state.npz"
        save_state(worlds, "robot/reach", Session(open_source("robot/reach"), 2).state)

        def restored(_: Path) -> Any:
            found = restore(folder, like, {}, {})
            assert found is not None
            return found.state

        readers: list[tuple[Path, Callable[[Path], Any], float]] = [
            (checkpoint, restored, 0.45),
            (policy, worldline.load_policy, 0.45),
            (worlds, lambda file: load_state(file).state, 0.1),  # makes an environment each time
        ]
        whole = [(file, file.read_bytes(), _bits(read(file))) for file, read, _ in readers]
        for _ in range(times):
            (index,) = chance.choices(range(3), [share for *_, share in readers])
            file, content, right = whole[index]
            what, damaged = _damage(content, chance)
            file.write_bytes(damaged)
            reading = _outcome(lambda i=index, f=file: _bits(readers[i][1](f)))
            file.write_bytes(content)
            if isinstance(reading, Failure):
                yield reading.says, f"{file.name}: {what}"
            else:
                yield UNHARMED if reading == right else WRONG, f"{file.name}: {what}: another state"


def _bits(tree: Any) -> list[bytes]:
    keys = (jax.dtypes.prng_key,)
    data = [
        jax.random.key_data(x) if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, *keys)
        else x for x in jax.tree.leaves(tree)
    ]  # fmt: skip
    return [np.asarray(x).tobytes() for x in data]


def _damage(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """A damaged copy, and the name of the damage."""
    place, end = sorted(chance.randrange(len(content)) for _ in range(2))
    head = chance.choice(_headers(content) or [place])
    flip = 1 << chance.randrange(8)
    kinds: dict[str, Callable[[], bytes]] = {
        "a bit": lambda: _with(content, place, bytes([content[place] ^ flip])),
        "a bit of a header": lambda: _with(content, head, bytes([content[head] ^ flip])),
        "a byte": lambda: _with(content, place, chance.randbytes(1)),
        "zeros": lambda: _with(content, place, bytes(min(end - place, 512))),
        "noise": lambda: _with(content, place, chance.randbytes(min(end - place, 512))),
        "cut off": lambda: content[:place],
        "a piece left out": lambda: content[:place] + content[end:],
        "a piece twice": lambda: content[:end] + content[place:],
        "more at the end": lambda: content + chance.randbytes(100),
    }
    name = chance.choice(list(kinds))
    return f"{name} at {head if 'header' in name else place}", kinds[name]()


def _with(content: bytes, place: int, new: bytes) -> bytes:
    return content[:place] + new + content[place + len(new) :]


def _headers(content: bytes) -> list[int]:
    """The bytes in headers of the zip and of its arrays."""
    places = []
    for mark, size in ((b"PK\x03\x04", 60), (b"PK\x01\x02", 60), (b"PK\x05\x06", 22)):
        at = content.find(mark)
        while at >= 0:
            places += range(at, min(at + size, len(content)))
            at = content.find(mark, at + 1)
    at = content.find(b"\x93NUMPY")
    while at >= 0:
        places += range(at, min(at + 128, len(content)))
        at = content.find(b"\x93NUMPY", at + 1)
    return places


def configurations(chance: random.Random, times: int) -> Iterator[tuple[str, str]]:
    """Damages `config.json` of a run folder."""
    algorithms = [PPOConfig(), SACConfig(), SHACConfig()]
    with tempfile.TemporaryDirectory() as made:
        for number, algorithm in enumerate(algorithms):
            folder = Path(made) / str(number)
            env = worldline.make("gym/hopper")
            run = TrainConfig(seed=3, episode_length=200, domain="light")
            RunFolder.create(folder, resolved_config("gym/hopper", env, run, algorithm)).close()
            file = folder / "config.json"
            text, right = file.read_text(), _run(folder)
            config = _settings(folder)
            for _ in range(times // len(algorithms)):
                what, damaged = _damaged_json(text, chance)
                file.write_bytes(damaged)
                reading = _outcome(lambda f=folder: _run(f))
                if isinstance(reading, Failure):
                    yield reading.says, what
                elif reading != right:
                    yield CHANGED, what
                else:
                    same = _settings(folder) == config
                    yield UNHARMED if same else f"{WRONG} taken without a word", what


def _run(path: Path) -> str:
    """All that a run is made of, read from its folder."""
    folder = RunFolder.open(path)
    env = environment_of(folder)
    parts = folder.config["task"], run_config(folder, None, quiet=False), algorithm_of(folder)
    return repr((*parts, env.config, dataclasses.asdict(env.task)))


def _settings(path: Path) -> str:
    """What a run says that it was made of, but for `quiet`, which the command says."""
    return repr({name: x for name, x in RunFolder.open(path).config.items() if name != "quiet"})


def _damaged_json(text: str, chance: random.Random) -> tuple[str, bytes]:
    """The name of a damage, and the damaged file."""
    if chance.random() < 0.2:
        what, damaged = _damage(text.encode(), chance)
        return f"text: {what}", damaged
    content = json.loads(text)
    path = chance.choice(list(_paths(content)))
    place = content
    for part in path[:-1]:
        place = place[part]
    what = chance.choice(["absent", "unknown", "value", "value", "value"])
    if what == "absent":
        place.pop(path[-1])
    else:
        new = what == "unknown" and isinstance(place, dict)
        place["wings" if new else path[-1]] = chance.choice(HOSTILE)
    return f"{what} at {'.'.join(map(str, path))}", json.dumps(content).encode()


def _paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    several = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in several:
        yield (*path, name)
        if isinstance(value, dict | list):
            yield from _paths(value, (*path, name))


class _BeganError(Exception):
    """A training would begin now."""


def lines(chance: random.Random, times: int) -> Iterator[tuple[str, str]]:
    """Gives hostile options to `worldline train`, until it would make a run folder."""
    configs = {"ppo": PPOConfig, "sac": SACConfig, "shac": SHACConfig}
    common = [f.name for f in dataclasses.fields(TrainConfig)]
    own = ["pixels", "frames", "delay", "noise", "push", "history", "physics", "action-repeat"]
    tasks = [name for name in list_tasks() if name.split("/")[0] in ("gym", "robot", "arm")]
    for _ in range(times):
        algorithm = chance.choice(list(configs))
        names = common + own + [f.name for f in dataclasses.fields(configs[algorithm])]
        line = ["train", chance.choice(tasks), "--algorithm", algorithm]
        for name in chance.sample(names, chance.randint(1, 3)):
            value = (
                chance.choice(_GOOD).split() if chance.random() < 0.6 else [chance.choice(WORDS)]
            )
            line += [f"--{name.replace('_', '-')}", *value]
        if chance.random() < 0.1:
            line.insert(chance.randrange(len(line)), chance.choice(WORDS))
        yield _said(line), " ".join(line)[:200]


def _said(line: list[str]) -> str:
    """What the command line makes of arguments: a line on standard error, or a run."""
    err, out = io.StringIO(), io.StringIO()
    began = mock.patch.object(RunFolder, "create", side_effect=_BeganError)
    with began, contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        try:
            status = command_line.main(line)
        except _BeganError:
            return CHANGED
        except SystemExit as exit_:
            status = exit_.code or 0
        except BaseException as error:
            return f"{WRONG} {type(error).__name__}: {error}"
    said = err.getvalue().strip().splitlines()
    errors = [row for row in said if row.startswith("error: ")]
    if status == 2 and len(errors) == 1 and "Traceback" not in err.getvalue():
        return REFUSED
    shows_help = status == 0 and "usage: " in out.getvalue()
    return UNHARMED if shows_help else f"{WRONG} status {status}, {said[-2:]}"


def models(chance: random.Random, times: int) -> Iterator[tuple[str, str]]:
    """Has `worldline init` write tasks for damaged and hostile models."""
    code = {
        ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.ClassDef, ast.If, ast.FunctionDef
    }  # fmt: skip
    for number in range(times):
        mjcf = generated_models.mjcf(chance.randrange(2**31))
        for _ in range(chance.randint(0, 3)):
            mjcf = _damaged_model(mjcf, chance)
        with tempfile.TemporaryDirectory() as made:
            robot, out = Path(made) / "robot.xml", Path(made) / "out.py"
            robot.write_text(mjcf)
            result = _outcome(lambda r=robot, o=out: write_task(r, o, motors=chance.random() < 0.3))
            if isinstance(result, Failure):
                yield result.says, f"model {number}"
                continue
            statements = {type(it) for it in ast.parse(out.read_text()).body}
        yield CHANGED if statements <= code else f"{WRONG} {statements - code}", f"model {number}"


#: Texts that would do harm, or end a text, if they became code.
_NAMES = ["&quot;&quot;&quot;; raise SystemExit", "'''", "\\", "{x}", "🤖", "a" * 300]


def _damaged_model(mjcf: str, chance: random.Random) -> str:
    """An MJCF with a name, a value or a piece of text replaced."""
    quotes = [i for i, letter in enumerate(mjcf) if letter == '"']
    if len(quotes) < 2:
        return mjcf
    which = 2 * chance.randrange(len(quotes) // 2)
    start, end = quotes[which] + 1, quotes[which + 1]
    new = chance.choice([*_NAMES, "nan", "-1", "1e400", "", "0", "1 2 3 4 5 6 7 8 9"])
    if chance.random() < 0.2:
        place = chance.randrange(len(mjcf))
        return mjcf[:place] + mjcf[place + chance.randint(1, 40) :]
    return mjcf[:start] + new + mjcf[end:]


class Failure(NamedTuple):
    """What reading raised: `REFUSED`, or what is wrong with it."""

    says: str


def _outcome(read: Callable[[], Any]) -> Any:
    """What reading gives, or a `Failure`."""
    try:
        return read()
    except WorldlineError as error:
        return Failure(REFUSED if "\n" not in str(error) else f"{WRONG} several lines: {error}")
    except Exception as error:
        return Failure(f"{WRONG} {type(error).__name__}: {error}")


ATTACKS = {
    "archives": (archives, 5000),
    "configurations": (configurations, 2400),
    "lines": (lines, 600),
    "models": (models, 600),
}


def main() -> int:
    """Attacks, and prints what the attacks came to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[[], *ATTACKS][1:], default=list(ATTACKS))
    parser.add_argument("--times", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    wrong = 0
    for kind in arguments.kinds:
        attack, often = ATTACKS[kind]
        counts: collections.Counter[str] = collections.Counter()
        for result, what in attack(random.Random(arguments.seed), arguments.times or often):
            counts[result.split()[0] if result.startswith(WRONG) else result] += 1
            if result.startswith(WRONG):
                wrong += 1
                print(f"  {kind}: {what}: {result.removeprefix(WRONG).strip()}", flush=True)
        total = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        print(f"{kind}: {counts.total()} attacks: {total}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
