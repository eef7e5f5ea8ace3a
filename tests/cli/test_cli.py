"""The command line: what a person may type, and what comes of it."""

import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import tyro

import worldline
from worldline import tuning as compilation_cache
from worldline.cli import commands, listing
from worldline.cli import main as cli
from worldline.cli.parsing import parse
from worldline.errors import ConfigError, RendererUnavailableError, install_command
from worldline.tasks.names import TASKS
from worldline.tasks.registry import load_task
from worldline.train import video as video_module

TINY = [
    *("--physics", "fake", "--num-worlds", "2", "--unroll-length", "8", "--minibatches", "1"),
    *("--epochs", "1", "--actor-hidden", "4", "--steps", "16", "--evaluations", "1"),
    *("--eval-episodes", "2", "--task.episode-length", "8", "--quiet"),
]
BIN = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own to be in, and no time spent on videos."""

    def no_video(*_, **__):
        raise RendererUnavailableError("not in a test")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(video_module, "render_episode", no_video)
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run folder, and what training printed."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    command = [BIN / "worldline", "train", *TINY, "robot/reach", "--no-video", "--out", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return folder, done.stdout


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run folder, to be damaged."""
    return shutil.copytree(trained[0], tmp_path / "run")


def test_training_names_the_return_the_curve_and_the_policy(trained):
    folder, said = trained
    lines = said.splitlines()
    assert re.fullmatch(
        r"robot/reach: return -\d.* \(2 episodes, deterministic\) after 16 steps in \d+ s", lines[0]
    )
    assert f"  curve  {folder}/curves.png" in lines
    assert f"  policy {folder}/policy.npz" in lines
    assert "  no video: --no-video" in lines
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    returns = f"{rows[-1]['eval/return']:.3g} +- {rows[-1]['eval/return_std']:.3g}"
    assert f"return {returns} (" in lines[0]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("fast=False", "Reach has no option 'fast'"),
        ("episode_length", "'episode_length' has no value; give an option and a value: fast=False"),
        ("episode_length=-1", "episode_length is -1; give 0 or more"),
    ],
)
def test_an_option_that_a_run_cannot_take_is_an_error_of_one_line(option, message, run, capsys):
    assert cli.main(["eval", "run", "--task", option]) == 2
    assert message in capsys.readouterr().err


def test_a_run_is_evaluated_with_another_option_of_its_task(run, capsys):
    assert cli.main(["eval", "run", "--episodes", "3", "--task", "episode_length=5"]) == 0
    assert capsys.readouterr().out.count("length 5 ") == 2


def test_a_run_is_evaluated(run, capsys):
    assert cli.main(["eval", "run", "--episodes", "3"]) == 0
    said = capsys.readouterr()
    assert re.fullmatch(r"policy run/policy.npz, after 16 steps, evaluated at -\d.*\n", said.err)
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["deterministic", "stochastic"]
    assert all(line.endswith("length 8   3 episodes") for line in lines[:2])
    assert lines[2].startswith("means of the task's metrics")
    means = {name: [float(x) for x in both] for name, *both in map(str.split, lines[3:])}
    assert set(means) == {"distance", "reached"}
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert means["distance"] == pytest.approx([rows[-1]["eval/distance"]] * 2, rel=0.9)
    assert cli.main(["eval", "run", "--episodes", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_a_run_is_resumed(run, capsys):
    assert cli.main(["resume", "run", "--quiet", "--steps", "32"]) == 0
    said = capsys.readouterr().out
    assert re.match(r"robot/reach: return -\d.* after 32 steps in \d+ s\n", said)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [16, 32]
    assert cli.main(["resume", "run", "--steps", "31"]) == 2
    assert "steps is 31, but the run has already taken 32" in capsys.readouterr().err


def test_a_run_is_rendered(run, capsys, monkeypatch):
    episodes = []

    def render(model, qpos, mp4, png, **_):
        episodes.append(qpos)
        mp4.touch()
        png.touch()
        return type("Clip", (), {"note": "drawn by hand"})

    monkeypatch.setattr(video_module, "render_episode", render)
    assert cli.main(["render", "run", "--seconds", "0.2"]) == 0
    said = capsys.readouterr().out.splitlines()
    pages = ["  run/episode.html"] if importlib.util.find_spec("viser") else []
    assert said == ["drawn by hand", "  run/episode.mp4", "  run/episode.png", *pages]
    assert episodes[0].shape == (5, 2)  # 0.2 s in steps of 0.04 s, two joints


def test_a_video_is_what_the_options_say(run, capsys, monkeypatch):
    seen = []

    def render(model, qpos, mp4, png, **options):
        seen.append((mp4, png, options))
        mp4.touch()
        return type("Clip", (), {"note": "drawn by hand"})

    monkeypatch.setattr(video_module, "render_episode", render)
    command = "render run --seconds 0.2 --worlds 4 --size 480x640 --fps 10 --out a.mp4 --quiet"
    assert cli.main(command.split()) == 0
    pages = ["  a.html"] if importlib.util.find_spec("viser") else []
    assert capsys.readouterr().out.splitlines() == ["drawn by hand", "  a.mp4", *pages]
    ((mp4, png, options),) = seen
    assert (mp4, png, options["size"], options["fps"]) == (Path("a.mp4"), None, (480, 640), 10)
    first, second, third = (take.qpos for take in options["beside"])
    assert first.shape == (5, 2) and not (first == second).any() and not (second == third).any()
    assert cli.main(["render", "run", "--size", "720p"]) == 0
    assert seen[-1][2]["size"] == (720, 1280)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--size 720", "size is '720'; give a height, for example 720p, or height x width"),
        ("--out a.avi", "out is 'a.avi'; give a file that ends in .mp4"),
        ("--camera front", "the model has no camera 'front'"),
        ("--worlds 0", "worlds is 0; give 1 or more"),
    ],
)
def test_mistakes_in_the_options_of_a_video(options, says, run, capsys):
    assert cli.main(["render", "run", *options.split()]) == 2
    assert says in capsys.readouterr().err


def test_where_nothing_can_draw_a_run_still_ends_well(run, capsys):
    assert cli.main(["render", "run"]) == 0
    # The page is drawn by the browser that opens it; the extra `viewer` makes it.
    page = "  run/episode.html\n" if importlib.util.find_spec("viser") else ""
    assert capsys.readouterr().out == f"no video: not in a test\n{page}"


@pytest.mark.parametrize(
    "command",
    [
        "train TASK --steps 0",
        "train --steps 0 TASK",
        "train --no-video TASK --steps=0",
        "train --steps=0 TASK",
    ],
)
def test_options_stand_before_or_behind_the_task(command, capsys):
    assert cli.main(command.replace("TASK", "robot/reach").split()) == 2
    assert capsys.readouterr().err == "error: steps is 0; give 1 or more\n"


BAD = {
    "nosuch": "there is no command 'nosuch'",
    "trian gym/ant": "there is no command 'trian'; did you mean 'train'?",
    "train": "needs a TASK, for example gym/ant or your_file.py:YourTask; `worldline list` lists",
    "train gym/anr": "there is no task 'gym/anr'; did you mean 'gym/ant'",
    "train --steps 5 gym/anr": "there is no task 'gym/anr'; did you mean 'gym/ant'",
    "train robot/reach --stepz 5": "takes no '--stepz'; did you mean '--steps'",
    "train robot/reach --task.effort-cots 5": "takes no '--task.effort-cots'; did you mean '--task",
    "train robot/reach 5": "takes no '5'; see `worldline train robot/reach --help`",
    "train robot/reach --steps": "'--steps'. Expected 1 values; see `worldline train robot/reach",
    "train robot/reach --steps many": "--steps: invalid literal for int() with base 10: 'many'",
    "train robot/reach --steps 0": "steps is 0; give 1 or more",
    "train robot/reach --num-worlds 0": "num_worlds is 0; give 1 or more",
    "train robot/reach --num-worlds 10000000000": "num_worlds is 10000000000; give 2147483647 at m",
    "train robot/reach --num-worlds 9223372036854775808": "num_worlds is 9223372036854775808; give",
    "train robot/reach --num-worlds 9999999": "num_worlds is 9999999: 639,999,936 samples",
    "train robot/reach --steps 10000000000000000000": "steps is 10000000000000000000; give 1000000",
    "train robot/reach --action-repeat 1000000000000": "action_repeat is 1000000000000; give 1 to",
    "train robot/reach --episode-length 99999999999": "episode_length is 99999999999; give 2147483",
    "train robot/reach --actor-hidden -5": "actor_hidden is (-5,), in which -5 cannot be; give 1 t",
    "train robot/reach --actor-obs": "actor_obs is empty; name the parts of the observation to rea",
    "train robot/reach --learning-rate nan": "learning_rate is nan; give a finite number",
    "train robot/reach --entropy-weight inf": "entropy_weight is inf; give a finite number",
    "train robot/reach --minibatches 7": "8192 do not divide into 7 minibatches; change one",
    "train robot/reach --activation wavy": "'wavy' for argument '--activation'. Expected one of",
    "train robot/reach --seed -1": "seed is -1; give 0 or more",
    "train robot/reach --physics nativ": "there is no physics engine 'nativ'; did you mean 'nati",
    "train robot/reach --task.episode-length 0": "give episode_length",
    "train robot/reach --task.control-timestep 0.015": "0.015 s is no multiple of the model's time",
    "train gym/ant --task.xml-file ./broken.xml": "MuJoCo cannot load the model: XML Error:",
    "train gym/ant --task.xml-file ./none.xml": "no MJCF file at 'none.xml'; give a path",
    "train gym/ant --task.frame-skip 0": "frame_skip is 0; give 1 or more",
    "train gym/ant --task.frame-skip 4294967300": "frame_skip is 4294967300; give 2147483647 at mo",
    "train robot/reach --out full": "the folder 'full' is not empty; give --out a new one",
    "train robot/reach --out a-file": "cannot write 'a-file': File exists; give --out a folder",
    "train robot/reach --out a-file/run": "cannot write 'a-file/run': Not a directory; give --out",
    "train robot/reach --algorithm poo": "there is no algorithm 'poo'; did you mean 'ppo'",
    "train robot/reach --algorithm": "there is no algorithm ''",
    "train robot/reach --algorithm sac --gae-lambda 1": "takes no '--gae-lambda'",
    "train robot/reach --seeds 0": "seeds is 0; give 1 or more",
    "train robot/reach --init-from none": "'none' is not a run folder: no such folder",
    "train robot/reach --init-from full --init-parts acter": "no part 'acter' to begin with; did",
    "resume none": "'none' is not a run folder: no such folder; give a folder that `worldline tr",
    "resume": "Missing from worldline resume: PATH The run folder. (required)",
    "eval": "Missing from worldline eval: PATH The run folder. (required); see `worldline eval --h",
    "eval none": "'none' is not a run folder: no such folder; give a folder that `worldline train`",
    "eval full": "'full' is not a run folder: no config.json; give a folder that `worldline train`",
    "eval a-file": "'a-file' is not a run folder",
    "eval run --episodes 0": "episodes is 0; give 1 or more",
    "eval run --seed -1": "seed is -1; give 0 or more",
    "render full": "'full' is not a run folder: no config.json",
    "render run --seconds 0": "seconds is 0.0; give more than 0",
    "render run --seconds nan": "seconds is nan; give a finite number",
    "list all zzz": "worldline list takes no 'zzz'; see `worldline list --help`",
    "bench": "there is no benchmark ''",
    "bench stp": "there is no benchmark 'stp'; did you mean 'step'",
}  # fmt: skip


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_an_error_of_one_line(command, tmp_path, capsys):
    (tmp_path / "a-file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "treasure").write_text("mine")
    (tmp_path / "broken.xml").write_text(
        "<mujoco><worldbody><geom type='foo'/></worldbody></mujoco>"
    )
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(command.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert BAD[command] in said.err
    assert said.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unwritable_folder_is_an_error_of_one_line(capsys, monkeypatch):
    def read_only(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert cli.main(["train", "robot/reach", *TINY]) == 2
    assert re.fullmatch(
        r"error: cannot write 'runs/.*': Permission denied; give --out a folder .*\n",
        capsys.readouterr().err,
    )


def config_of(run):
    return json.loads((run / "config.json").read_text())


def damage(run, what):
    """Makes a run folder one that cannot be used, in one of many ways."""
    policy, config = run / "policy.npz", run / "config.json"
    content = json.loads(config.read_text())
    if what == "no policy yet":
        policy.unlink()
    elif what == "half a policy":
        policy.write_bytes(policy.read_bytes()[:1000])
    elif what == "half a configuration":
        config.write_text(config.read_text()[:100])
    elif what == "an option that is no more":
        content["config"]["options"]["gravity"] = 3
        config.write_text(json.dumps(content))
    elif what == "a task that is no more":
        content["config"]["code"] = {"task": "robot/reech"}
        config.write_text(json.dumps(content))
    elif what == "an engine that is no more":
        content["config"]["env"]["physics"] = "newton"
        config.write_text(json.dumps(content))
    elif what == "options that are none":
        content["config"]["options"] = 3
        config.write_text(json.dumps(content))
    elif what == "somebody else's configuration":
        content["config"] = {"task": "robot/reach"}
        config.write_text(json.dumps(content))


UNFIT = "the config.json of 'run' (worldline 0.1.0) does not fit: "


@pytest.mark.parametrize("command", ["eval", "render"])
@pytest.mark.parametrize(
    ("what", "message"),
    {
        "no policy yet": "'run' has no policy yet; the first evaluation of a run saves one",
        "half a policy": "the policy at 'run/policy.npz' is damaged (",
        "half a configuration": "'run' is not a run folder: its config.json is damaged; give a",
        "an option that is no more": f"{UNFIT}'gravity' of the task is unknown",
        "a task that is no more": f"{UNFIT}there is no task 'robot/reech'; did you mean ",
        "an engine that is no more": f"{UNFIT}there is no physics engine 'newton'",
        "options that are none": "'run' is not a training run: its config.json has no 'options'",
        "somebody else's configuration": "'run' is not a training run: its config.json has no 'co",
    }.items(),
)
def test_a_run_that_cannot_be_used_is_an_error_of_one_line(command, what, message, run, capsys):
    damage(run, what)
    assert cli.main([command, "run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


def test_a_policy_for_another_observation_is_an_error_of_one_line(run, capsys):
    content = json.loads((run / "config.json").read_text())
    task = load_task("gym/inverted-pendulum", episode_length=3)
    options = {f.name: getattr(task, f.name) for f in dataclasses.fields(task) if f.init}
    content["config"] |= {"code": {"task": "gym/inverted-pendulum"}, "options": options}
    (run / "config.json").write_text(json.dumps(content))
    assert cli.main(["eval", "run"]) == 2
    _, error = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: the observation has shape .*; this policy takes .*", error)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--seconds", "Missing value for argument '--seconds'. Expected 1 values"),
        ("--seconds ten", "Error parsing --seconds: could not convert string to float: 'ten'"),
        ("", "Missing from worldline render: PATH The run folder. (required)"),
    ],
)
def test_errors_of_tyro_are_read_as_this_version_writes_them(options, said):
    """`in_one_line` reads the boxes that tyro draws for errors."""
    with pytest.raises(ConfigError) as error:
        parse(commands.Render, [*["run"] * bool(options), *options.split()], "worldline render")
    hint = f"tyro {tyro.__version__} writes errors otherwise than 1.0.17; adapt `in_one_line`"
    assert str(error.value) == f"{said}; see `worldline render --help`", hint


@pytest.mark.parametrize("terminal", [False, True])
def test_complaints_of_the_parser_are_plain_in_a_terminal_too(terminal):
    command = f"{BIN / 'worldline'} train robot/reach --steps many"
    if terminal:
        if shutil.which("script") is None:
            pytest.skip("there is no `script` to make a terminal")
        command = f"TERM=xterm script -qec '{command}' /dev/null"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 2
    assert said == (
        "error: Error parsing --steps: invalid literal for int() with base 10: 'many'; "
        "see `worldline train robot/reach --help`"
    )


def help_of(capsys, *command):
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, "--help"])
    assert not ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["help"]])
def test_without_a_command_the_usage(argv, capsys):
    assert cli.main(argv) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {command} " in said for command in cli.COMMANDS)


def test_the_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"worldline {worldline.__version__}\n"


@pytest.mark.parametrize("command", ["eval", "render", "list", "train", "resume"])
def test_commands_explain_themselves(command, capsys):
    assert help_of(capsys, command).startswith(f"usage: worldline {command}")


def test_help_for_training_comes_without_a_task(capsys):
    said = help_of(capsys, "train")
    assert "`worldline list`" in said
    assert all(option in said for option in ("--steps", "--num-worlds", "--learning-rate"))


@pytest.mark.parametrize("task", TASKS)
def test_every_option_of_a_task_has_help(task, capsys):
    said = help_of(capsys, "train", task)
    rows = [row.strip("│ ") for row in said.splitlines() if row.strip("│╭╰╮╯─- ")]
    text = re.sub(r",\n--", ", --", "\n".join(rows))  # `--x, --no-x` in two rows
    described = {}
    for row in text.splitlines():
        if row.startswith("--"):
            option, _, rest = row.partition("  ")  # a short one has its help in the same row
            described[option] = rest
        elif described:
            described[option] += f" {row}"
    for option in ("--steps", "--num-worlds", "--seed", "--out", "--physics"):
        assert any(name.startswith(option) for name in described), option
    assert any(name.startswith("--task.episode-length") for name in described)
    for option, text in described.items():
        if not option.startswith("--task.default-camera-config."):  # explained as one
            assert text.partition("(default:")[0].strip(), f"{option} has no help"


def test_the_list_has_every_task_and_what_is_to_be_done(capsys):
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(TASKS)
    assert all(line.split(maxsplit=1)[1].endswith(".") for line in lines)
    assert cli.main(["list", "four legs"]) == 0
    found = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"gym/ant", "robot/quadruped-joystick", "suite/quadruped-run"} <= set(found)
    assert cli.main(["list", "suite*ball"]) == 0
    assert "suite/ball_in_cup-catch" in capsys.readouterr().out
    assert cli.main(["list", "zzz"]) == 2
    assert "no task has 'zzz' in its name or description" in capsys.readouterr().err


def test_the_list_does_without_jax():
    code = (
        "import sys\nfrom worldline.cli.main import main\nmain(['list'])\n"
        "assert not {'jax', 'mujoco'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_sizes_of_tasks_are_true(capsys):
    some = ("gym/ant", "gym/reacher", "robot/reach", "suite/fish-swim")
    lines = list(listing.sizes_of(some))
    shown = {line.split()[0]: re.split(r"  +", line)[1:] for line in lines[1:5]}
    assert tuple(shown) == some
    assert cli.main(["list", "gym/ant", "--sizes"]) == 0
    assert lines[1] in capsys.readouterr().out
    for name in ("gym/ant", "gym/reacher", "robot/reach"):
        env = worldline.make(name)
        spaces = [str(space.shape) for space in (env.observation_space, env.action_space)]
        rate = f"{1 / env.task.control_timestep:.0f} Hz"
        assert shown[name] == [*spaces, rate, str(env.task.episode_length), "native, mjx, warp"]
    # MJX has not all that the fish is made of.
    assert shown["suite/fish-swim"][-1] == "native, warp"


LIST_WITHOUT_ENGINES = """
import sys
sys.modules |= {"mujoco.mjx": None, "mujoco_warp": None}
from worldline.cli import listing
print(*listing.sizes_of(["robot/reach"]), sep="\\n")
"""


def test_the_list_names_what_to_install_for_an_engine_that_is_missing():
    command = [sys.executable, "-c", LIST_WITHOUT_ENGINES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, reach, *engines = done.stdout.splitlines()
    assert reach.endswith("  native")
    assert engines == [
        f"the engine {engine!r} needs an optional library: {install_command(engine)}"
        for engine in ("mjx", "warp")
    ]


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{BIN / 'worldline'} --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/me/.cache"),
        ("darwin", {"XDG_CACHE_HOME": "/caches"}, "/home/me/Library/Caches"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local"),
    ],
)
def test_compiled_programs_are_kept_where_the_platform_has_its_caches(
    platform, variables, folder, monkeypatch
):
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert compilation_cache.cache_folder() == Path(folder)


@pytest.fixture
def configured(monkeypatch):
    """What is set in JAX's configuration."""
    settings = {}
    monkeypatch.setattr(jax.config, "update", settings.__setitem__)
    return settings


def test_the_cache_is_on_by_default(tmp_path, monkeypatch, configured):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setattr(compilation_cache, "cache_folder", lambda: tmp_path)
    compilation_cache.use_compilation_cache()
    assert configured["jax_compilation_cache_dir"] == str(tmp_path / "worldline" / "jax")
    assert (tmp_path / "worldline" / "jax").is_dir()


def test_a_cache_of_the_users_own_is_respected(configured):
    compilation_cache.use_compilation_cache()
    assert "jax_compilation_cache_dir" not in configured


def test_where_no_cache_can_be_there_is_none(tmp_path, monkeypatch, configured):
    (tmp_path / "a-file").touch()
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setattr(compilation_cache, "cache_folder", lambda: tmp_path / "a-file")
    compilation_cache.use_compilation_cache()
    assert configured == {}


def test_what_can_vary_is_listed(capsys):
    assert cli.main(["list", "--fields", "gym/half-cheetah"]) == 0
    said = capsys.readouterr().out
    assert "medium                   mass times 0.769231 to 1.3, friction times 0.5 to 2" in said
    assert re.search(r"mass_torso +6.25 +1e-12 to inf +kg", said)
    assert re.search(r"body: world, torso, bthigh", said)
    assert re.search(r"body_mass +\(8,\) +0 to 6.25", said)
    assert "body_mocapid" not in said


@pytest.mark.parametrize("command", ["train gym/reacher --domain mediun", "list --fields gym/antt"])
def test_what_is_not_there_to_vary_is_refused(capsys, command):
    assert cli.main(command.split()) == 2
    assert "did you mean" in capsys.readouterr().err
